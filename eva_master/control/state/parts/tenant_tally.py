"""The running sums behind `TenantTotals`, one document of the journal for each tenant."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from eva_master.control.state.parts.partition_tally import part_since
from eva_master.model.accounting.totals import NO_TOTALS, TenantTotals, Totals
from eva_master.model.arithmetic.calendar import month_of
from eva_master.model.changes import Documents
from eva_master.model.planning.plan import Json
from eva_master.model.records import Job
from eva_master.model.values import replace
from eva_wire.values.bounds import DEFAULT_TENANT
from eva_wire.values.ids import Exact, Millis
from eva_wire.values.states import JobState

_PREFIX = "tenants/"
"""Of the names of documents."""
Stretch = tuple[Millis, Millis]
"""Beginning and end of a stretch of time."""
_LATER = (
    "value",
    "paid",
    "earned",
    "received",
    "given",
    "gpu_ms",
    "borrowed_ms",
    "lent_thousandths",
)
"""Sums that older journals do not have; they are left out where they are 0."""


class TenantTally:
    """Sums that follow jobs and their accounts; what is forgotten stays in them.

    An event costs as much as it touches tenants, however many there are.

    Args:
        documents: Where documents are put whose sums have changed.
    """

    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self._sums: dict[str, TenantTotals] = {}
        self._seen: Mapping[str, TenantTotals] | None = None
        self._month = Millis(0), Millis(0)
        """The calendar month of the last booking, and the next one."""

    def job(self, tenant: str, old: Job | None, new: Job) -> None:
        """A job of a tenant was added, or is in another state."""
        sums = self._sums.get(tenant, NO_TOTALS)
        jobs = dict(sums.jobs)
        if old is not None:
            jobs[old.state] = jobs.get(old.state, 0) - 1
        jobs[new.state] = jobs.get(new.state, 0) + 1
        self._put(
            tenant, replace(sums, jobs={state: count for state, count in jobs.items() if count})
        )

    def account(
        self, tenant: str, charged: int, alone: int, stretch: Stretch | None = None
    ) -> None:
        """Book to a tenant what its jobs owe, and would owe alone, more than before.

        Args:
            tenant: The tenant.
            charged: The charge.
            alone: The cost alone.
            stretch: The stretch of time for which they owe it, which counts in its month; `None`
                if it counts in no month.
        """
        sums = self._sums.get(tenant, NO_TOTALS)
        month, recent = sums.month_ms, sums.month_charged
        if charged and stretch is not None:
            month, recent = self._with_month(sums, charged, *stretch)
        charged, alone = Exact(sums.charged + charged), Exact(sums.alone + alone)
        self._put(
            tenant,
            replace(sums, charged=charged, alone=alone, month_ms=month, month_charged=recent),
        )

    def add(self, tenant: str, more: TenantTotals) -> None:
        """A tenant has so much more."""
        self._put(tenant, self._sums.get(tenant, NO_TOTALS) + more)

    def held_gpus(self, tenant: str, gpu_ms: int) -> None:
        """A tenant's tasks held GPUs for so much longer; this is counted with each booking."""
        sums = self._sums.get(tenant, NO_TOTALS)
        self._put(tenant, replace(sums, gpu_ms=sums.gpu_ms + gpu_ms))

    def succeeded(self, tenant: str, value: int) -> None:
        """A job of a tenant succeeded that was worth so much then, in micro-dollars."""
        self.add(tenant, TenantTotals(value=value))

    def _with_month(
        self, sums: TenantTotals, charged: int, since: Millis, until: Millis
    ) -> tuple[Millis, Exact]:
        """The calendar month of a tenant's last booking, with the charges of that month."""
        if not self._month[0] <= until < self._month[1]:
            self._month = month_of(until)
        month = self._month[0]
        if month < sums.month_ms:
            return sums.month_ms, sums.month_charged
        before = sums.month_charged if month == sums.month_ms else 0
        return month, Exact(before + part_since(month, charged, since, until))

    def _put(self, tenant: str, sums: TenantTotals) -> None:
        self._sums[tenant] = sums
        self._documents[_PREFIX + tenant] = partial(_document, sums)
        self._seen = None

    def totals(self) -> Mapping[str, TenantTotals]:
        """The sums as they are now, by tenant."""
        if self._seen is None:
            self._seen = dict(self._sums)
        return self._seen

    def restore(self, documents: Mapping[str, Json], whole: Totals) -> None:
        """Restore the sums from the journal.

        Args:
            documents: The documents of the journal. A journal older than tenants has none of them;
                all its sums belong to the default tenant.
            whole: The sums over all tenants.
        """
        documents_by_tenant = {
            name.removeprefix(_PREFIX): document
            for name, document in documents.items()
            if name.startswith(_PREFIX) and isinstance(document, dict)
        }
        for tenant in self._sums:
            self._documents.pop(_PREFIX + tenant, None)
        self._sums = {tenant: _read(document) for tenant, document in documents_by_tenant.items()}
        if not documents_by_tenant and whole.jobs:
            charged = Exact(whole.charged - whole.idle)
            self._put(DEFAULT_TENANT, TenantTotals(charged, whole.alone, whole.jobs))
        self._seen = None


def _document(sums: TenantTotals) -> Json:
    """A tenant's sums; exact amounts are decimal strings, as in the tables."""
    return {
        "charged": str(sums.charged),
        "alone": str(sums.alone),
        "jobs": {state.value: count for state, count in sums.jobs.items()},
        **{name: str(amount) for name in _LATER if (amount := getattr(sums, name))},
        "month_ms": int(sums.month_ms),
        "month_charged": str(sums.month_charged),
    }


def _read(document: Mapping[str, Json]) -> TenantTotals:
    jobs = document["jobs"]
    assert isinstance(jobs, dict)
    return TenantTotals(
        Exact(int(str(document["charged"]))),
        Exact(int(str(document["alone"]))),
        {JobState(state): int(str(count)) for state, count in jobs.items()},
        **{name: Exact(int(str(document.get(name, 0)))) for name in _LATER},
        month_ms=Millis(int(str(document.get("month_ms", 0)))),
        month_charged=Exact(int(str(document.get("month_charged", 0)))),
    )
