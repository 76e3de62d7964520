"""One round of a batch: each tenant's own quota first, then what all leave (algorithm 2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from eva_policies.astraea_published.calendar import Calendar, Ints
from eva_policies.astraea_published.incomes import Income, divided
from eva_policies.astraea_published.requests import Bandwidth, Request, Schedule
from eva_policies.astraea_published.schedules import TypeLimit, best
from eva_wire.values.ids import Family


@dataclass(frozen=True, slots=True)
class TypeQuota:
    """A tenant's quota of one type.

    Attributes:
        gpus: GPUs.
        ps: Parameter servers.
    """

    gpus: int
    ps: int


@dataclass(frozen=True, slots=True)
class Admitted:
    """A job that is scheduled in the round.

    Attributes:
        schedule: Its time and place.
        income: Payments for it; `None` within its tenant's quota.
    """

    schedule: Schedule
    income: Income | None = None


@dataclass(slots=True)
class Ledger:
    """Use of the fleet in a round.

    Attributes:
        calendars: The calendar of each type.
        quotas: By tenant and type.
        gpus: Own GPUs in use, by tenant, type and slot.
        ps: Own parameter servers in use, by tenant, type and slot.
    """

    calendars: Mapping[Family, Calendar]
    quotas: Mapping[str, Mapping[Family, TypeQuota]]
    gpus: dict[tuple[str, Family], Ints] = field(default_factory=dict)
    ps: dict[tuple[str, Family], Ints] = field(default_factory=dict)

    def own(self, tenant: str, family: Family) -> tuple[Ints, Ints]:
        """GPUs and parameter servers of its own that a tenant uses of a type, by slot."""
        nothing = np.zeros(self.calendars[family].slots, dtype=np.int64)
        key = tenant, family
        return self.gpus.get(key, nothing), self.ps.get(key, nothing)

    def use(self, tenant: str, family: Family, slots: slice, gpus: int, ps: int = 0) -> None:
        """Count use of a tenant's own quota."""
        for table, count in ((self.gpus, gpus), (self.ps, ps)):
            used = table.setdefault(
                (tenant, family), np.zeros(self.calendars[family].slots, dtype=np.int64)
            )
            used[slots] += count

    def idle(self, tenant: str, family: Family) -> TypeLimit:
        """Idle part of a tenant's quota of a type, by slot."""
        quota = self.quotas.get(tenant, {}).get(family, TypeQuota(0, 0))
        gpus, ps = self.own(tenant, family)
        return TypeLimit(np.maximum(quota.gpus - gpus, 0), np.maximum(quota.ps - ps, 0))

    def limits(self, tenant: str) -> dict[Family, TypeLimit]:
        """Idle parts of a tenant's quotas of all types."""
        return {family: self.idle(tenant, family) for family in self.calendars}

    def lent(self) -> dict[Family, TypeLimit]:
        """Idle parts of all tenants' quotas together."""
        limits_of = {}
        for family, calendar in self.calendars.items():
            gpus = np.zeros(calendar.slots, dtype=np.int64)
            ps = np.zeros(calendar.slots, dtype=np.int64)
            for tenant in self.quotas:
                rest = self.idle(tenant, family)
                gpus, ps = gpus + rest.gpus, ps + rest.ps
            limits_of[family] = TypeLimit(gpus, ps)
        return limits_of


def scheduled(
    ledger: Ledger,
    requests: Sequence[Request],
    bandwidth: Bandwidth,
    first: int = 0,
    *,
    share: bool = True,
) -> dict[str, Admitted]:
    """Schedule the jobs of a batch in one round.

    A job is admitted if its worth exceeds its cost at posted prices. A job whose worth is zero at
    its end, even in an empty fleet, would never be admitted. So it gets what its tenant's quota
    leaves at the end, or else room of others at the price posted then: stating no worth for a job
    gains nothing.

    Args:
        ledger: Use of the fleet, to which admitted jobs are added.
        requests: The remaining jobs of the batch.
        bandwidth: Bandwidth between servers.
        first: The first slot of the round that is not over.
        share: Whether idle room of tenants is open to others.
    """
    admitted: dict[str, Admitted] = {}
    order = sorted(requests, key=lambda it: it.came)
    for request in order:
        own = best(request, ledger.calendars, ledger.limits(request.tenant), bandwidth, first)
        if own is not None and own.payoff > 0:
            _take(ledger, request, own, own=True)
            admitted[request.id] = Admitted(own)
    lent = ledger.lent() if share else {}
    weights = {
        family: {tenant: ledger.idle(tenant, family) for tenant in sorted(ledger.quotas)}
        for family in lent
    }
    for request in order if share else ():
        if request.id not in admitted:
            schedule = best(request, ledger.calendars, lent, bandwidth, first)
            if schedule is not None and schedule.payoff > 0:
                admitted[request.id] = _borrowed(ledger, request, schedule, weights)
    for request in order:
        if request.id in admitted or not request.worthless:
            continue
        limits = ledger.limits(request.tenant)
        last = best(request, ledger.calendars, limits, bandwidth, first, priced=False)
        if last is not None:
            _take(ledger, request, last, own=True)
            admitted[request.id] = Admitted(last)
            continue
        last = best(request, ledger.calendars, lent, bandwidth, first, priced=False)
        if last is not None:
            admitted[request.id] = _borrowed(ledger, request, last, weights)
    return admitted


def _borrowed(
    ledger: Ledger,
    request: Request,
    schedule: Schedule,
    weights: Mapping[Family, Mapping[str, TypeLimit]],
) -> Admitted:
    """Have a job use what tenants leave; `weights` is what each of them does."""
    calendar, family = ledger.calendars[schedule.family], schedule.family
    gpus = schedule.size * request.need[family].gpus
    income = divided(schedule, gpus, calendar.gpu_prices(), calendar.ps_prices(), weights[family])
    _take(ledger, request, schedule, own=False)
    return Admitted(schedule, income)


def _take(ledger: Ledger, request: Request, schedule: Schedule, *, own: bool) -> None:
    calendar, need = ledger.calendars[schedule.family], request.need[schedule.family]
    for server, members in schedule.members:
        calendar.take(server, schedule.start, schedule.end, need, members)
    if schedule.ps is not None:
        calendar.take_ps(schedule.ps[0], schedule.start, schedule.end, schedule.ps[1])
    if own:
        slots = slice(schedule.start, schedule.end)
        ps = 0 if schedule.ps is None else schedule.ps[1]
        ledger.use(request.tenant, schedule.family, slots, schedule.size * need.gpus, ps)
