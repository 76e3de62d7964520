"""The terms in force between tenants, and what they come to; one document of the journal."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, replace

from eva_master.control.state.parts.tenant_tally import TenantTally
from eva_master.model.accounting.ended_jobs import EndedJob
from eva_master.model.accounting.totals import TenantTotals
from eva_master.model.changes import Documents
from eva_master.model.planning.plan import Json
from eva_master.model.tenants.tenancy import LoanTerms, Transfer
from eva_wire.values.ids import Exact, JobId, Millis

_DOCUMENT = "terms"
_ENDED = "ended_jobs"
_MOST_ENDED = 10_000
"""So many jobs that ended are remembered at most, the newest."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """The terms in force for a job that borrows.

    Attributes:
        terms: The terms that a plan stated.
        tenant: The tenant that pays.
        until_ms: The time up to which they are booked.
    """

    terms: LoanTerms
    tenant: str
    until_ms: Millis


class Lending:
    """The terms in force between tenants; the amounts are booked to the sums of tenants.

    A payment and the matching earnings are booked in one step, as the same integers.

    Args:
        documents: Where documents are put that have changed.
        tenants: The sums of tenants.

    Attributes:
        ended: Jobs that are over, of which no plan in force was told, oldest first.
    """

    def __init__(self, documents: Documents, tenants: TenantTally) -> None:
        self._documents, self.tenants = documents, tenants
        self._agreed: dict[JobId, Agreement] = {}
        self._seen: Mapping[JobId, Agreement] | None = None
        self.ended: tuple[EndedJob, ...] = ()

    def note_end(self, job: EndedJob) -> None:
        """Remember a job that is over until a plan that was told of it is carried out."""
        self.ended = (*self.ended, job)[-_MOST_ENDED:]
        self._documents[_ENDED] = self._written_ended

    def forget(self, jobs: Collection[EndedJob]) -> None:
        """Forget jobs that are over, since a plan that was told of them is in force."""
        if jobs and self.ended:
            self.ended = tuple(ended for ended in self.ended if ended not in jobs)
            self._documents[_ENDED] = self._written_ended

    def in_force(self) -> Mapping[JobId, Agreement]:
        """The terms in force, by job."""
        if self._seen is None:
            self._seen = dict(self._agreed)
        return self._seen

    def of(self, job: JobId) -> Agreement | None:
        """The terms of a job, `None` if it borrows nothing."""
        return self._agreed.get(job)

    def book(self, job: JobId, until: Millis, *, holds: bool) -> None:
        """Book what a job owes up to a moment.

        Args:
            job: The job; nothing happens if it has no terms.
            until: The moment.
            holds: Whether its tasks have held room since the last booking.
        """
        agreed = self._agreed.get(job)
        if agreed is None or until <= agreed.until_ms:
            return
        if holds:
            for tenant, more in run_up(agreed, until):
                self.tenants.add(tenant, more)
        self._put(job, replace(agreed, until_ms=until))

    def agree(self, terms: LoanTerms, tenant: str, now: Millis) -> None:
        """Have terms in force from now on; what was in force before is booked."""
        self._put(terms.job, Agreement(terms, tenant, now))

    def end(self, job: JobId) -> None:
        """End the terms of a job, which are booked."""
        if self._agreed.pop(job, None) is not None:
            self._terms_changed()

    def transfer(self, payments: Iterable[Transfer]) -> None:
        """Book payments by which tenants are made whole."""
        for transfer in payments:
            self.tenants.add(transfer.payer, TenantTotals(given=transfer.amount))
            self.tenants.add(transfer.payee, TenantTotals(received=transfer.amount))

    def _put(self, job: JobId, agreed: Agreement) -> None:
        self._agreed[job] = agreed
        self._terms_changed()

    def _terms_changed(self) -> None:
        self._seen = None
        self._documents[_DOCUMENT] = self._written_terms

    def _written_terms(self) -> Json:
        return [_written(agreement) for agreement in self._agreed.values()]

    def _written_ended(self) -> Json:
        return [asdict(ended_job) for ended_job in self.ended]

    def restore(self, documents: Mapping[str, Json]) -> None:
        """Restore the terms from the journal; an older journal has no document of them."""
        document = documents.get(_DOCUMENT, [])
        assert isinstance(document, list)
        agreements = [_read(item) for item in document if isinstance(item, dict)]
        self._agreed = {agreement.terms.job: agreement for agreement in agreements}
        self._seen = None
        # Older journals have no such document: their jobs that ended meanwhile are settled as
        # cancelled.
        ended = documents.get(_ENDED, [])
        assert isinstance(ended, list)
        self.ended = tuple(_ended(item) for item in ended if isinstance(item, dict))


def _ended(document: Mapping[str, Json]) -> EndedJob:
    return EndedJob(
        JobId(str(document["job"])),
        str(document["tenant"]),
        str(document["partition"]),
        int(str(document["at_ms"])),
        succeeded=bool(document["succeeded"]),
        gpu_ms=int(str(document["gpu_ms"])),
        start_ms=int(str(document["start_ms"])),
    )


def run_up(agreed: Agreement, until: Millis) -> list[tuple[str, TenantTotals]]:
    """The amounts due under terms since their last booking, for every tenant that takes part.

    Args:
        agreed: The terms; the tasks of the job hold room all the time.
        until: The moment.
    """
    elapsed, terms = max(0, until - agreed.until_ms), agreed.terms
    lent = terms.lent or (0,) * len(terms.lenders)
    earnings = [
        (lender, TenantTotals(earned=Exact(amount * elapsed), lent_thousandths=gpus * elapsed))
        for (lender, amount), gpus in zip(terms.lenders, lent, strict=True)
    ]
    paid = Exact(sum(of.earned for _, of in earnings))
    return [(agreed.tenant, TenantTotals(paid=paid, borrowed_ms=terms.gpus * elapsed)), *earnings]


def _written(agreed: Agreement) -> Json:
    terms = agreed.terms
    return {
        "job": terms.job,
        "tenant": agreed.tenant,
        "until_ms": int(agreed.until_ms),
        "gpus": terms.gpus,
        "lenders": [[lender, amount] for lender, amount in terms.lenders],
        "lent": list(terms.lent),
    }


def _read(document: Mapping[str, Json]) -> Agreement:
    lenders, lent = document["lenders"], document["lent"]
    assert isinstance(lenders, list)
    assert isinstance(lent, list)
    pairs = [pair for pair in lenders if isinstance(pair, list)]
    terms = LoanTerms(
        JobId(str(document["job"])),
        int(str(document["gpus"])),
        tuple((str(lender), int(str(amount))) for lender, amount in pairs),
        tuple(int(str(gpus)) for gpus in lent),
    )
    return Agreement(terms, str(document["tenant"]), Millis(int(str(document["until_ms"]))))
