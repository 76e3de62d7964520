"""The running sums behind `TenantTotals`, one document of the journal for each tenant."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from eva_master.control.state.parts.partition_tally import part_since
from eva_master.model.accounting.totals import NO_TOTALS, TenantTotals, Totals
from eva_master.model.arithmetic.calendar import month_of
from eva_master.model.planning.plan import Json
from eva_master.model.records import Job
from eva_master.model.values import replace
from eva_wire.values.bounds import DEFAULT_TENANT
from eva_wire.values.ids import Exact, Millis
from eva_wire.values.states import JobState

_PREFIX = "tenants/"
"""Of the names of documents."""
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
    """

    def __init__(self) -> None:
        self._sums: dict[str, TenantTotals] = {}
        self._unwritten: dict[str, None] = {}
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

    def account(self, tenant: str, charged: int, alone: int) -> None:
        """A tenant's jobs owe so much more, and would so much more alone."""
        sums = self._sums.get(tenant, NO_TOTALS)
        sums = replace(sums, charged=Exact(sums.charged + charged), alone=Exact(sums.alone + alone))
        self._put(tenant, sums)

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

    def spend(self, tenant: str, charged: int, since: Millis, until: Millis) -> None:
        """Count what a tenant's jobs were charged for a stretch of time, by calendar month."""
        if not self._month[0] <= until < self._month[1]:
            self._month = month_of(until)
        month, sums = self._month[0], self._sums.get(tenant, NO_TOTALS)
        if month < sums.month_ms:
            return
        before = sums.month_charged if month == sums.month_ms else 0
        recent = Exact(before + part_since(month, charged, since, until))
        self._put(tenant, replace(sums, month_ms=month, month_charged=recent))

    def _put(self, tenant: str, sums: TenantTotals) -> None:
        self._sums[tenant] = sums
        self._unwritten[tenant] = None
        self._seen = None

    def totals(self) -> Mapping[str, TenantTotals]:
        """The sums as they are now, by tenant."""
        if self._seen is None:
            self._seen = dict(self._sums)
        return self._seen

    def restore(self, documents: Mapping[str, Json], whole: Totals) -> None:
        """Restore the sums from the journal.

        Args:
            documents: The documents of the journal, those of `take_documents` among them. A journal
                older than tenants has none; all its sums belong to the default tenant.
            whole: The sums over all tenants.
        """
        documents_by_tenant = {
            name.removeprefix(_PREFIX): document
            for name, document in documents.items()
            if name.startswith(_PREFIX) and isinstance(document, dict)
        }
        self._sums = {tenant: _read(document) for tenant, document in documents_by_tenant.items()}
        self._unwritten = {}
        if not documents_by_tenant and whole.jobs:
            charged = Exact(whole.charged - whole.idle)
            self._put(DEFAULT_TENANT, TenantTotals(charged, whole.alone, whole.jobs))
        self._seen = None

    def take_documents(self) -> dict[str, Callable[[], Json]]:
        """The documents of the tenants whose sums changed since the last call, by name."""
        if not self._unwritten:
            return {}
        changed, self._unwritten = self._unwritten, {}
        return {_PREFIX + tenant: partial(_document, self._sums[tenant]) for tenant in changed}


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
