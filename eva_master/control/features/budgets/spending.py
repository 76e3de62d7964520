"""Spending of owners, tenants and partitions in a calendar month (UTC). Pure functions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

from eva_master.control.measure import ledger
from eva_master.control.settings import NO_LIMIT, Settings
from eva_master.control.state.records import Records
from eva_master.control.stopping.grace import stopping_ms
from eva_master.model.accounting.per_hour import billed_per_hour
from eva_master.model.accounting.totals import PartitionTotals
from eva_master.model.arithmetic.calendar import month_of
from eva_master.model.arithmetic.money import dollars
from eva_master.model.records import Instance
from eva_wire.values.ids import MILLIS_PER_HOUR, JobId, Millis, micro_usd

_HOUR_MS = Millis(MILLIS_PER_HOUR)
MOST_PERCENT, ALL_PERCENT = 80, 100
"""Parts of a limit at which users are told."""


class Scope(StrEnum):
    """Kinds of parties with a limit of a month."""

    OWNER = "owner"
    TENANT = "tenant"
    PARTITION = "partition"


@dataclass(frozen=True, slots=True)
class MonthSpending:
    """Charges of a party in this calendar month, against its limit; micro-dollars.

    Attributes:
        scope: Kind of the party. name: Its name.
        most: Limit of the month.
        spent: Charges so far.
        per_hour: Charges of an hour, as things are.
        reserve: Charges while all that runs stops; 0 where the limit stops nothing.
    """

    scope: Scope
    name: str
    most: int
    spent: int
    per_hour: int
    reserve: int = 0

    @property
    def key(self) -> str:
        """The party by kind and name."""
        return f"{self.scope}/{self.name}"

    @property
    def level(self) -> int:
        """The part of the limit that is used up: 0, 80 or 100 per cent."""
        if self.spent + self.reserve >= self.most:
            return ALL_PERCENT
        return MOST_PERCENT if 100 * self.spent >= MOST_PERCENT * self.most else 0

    @property
    def in_ms(self) -> int | None:
        """The time until the next level, as things are; `None` if there is none."""
        if self.level == ALL_PERCENT or self.per_hour <= 0:
            return None
        rest = self.most - self.reserve - self.spent
        if self.level == 0:
            rest = min(rest, -(-MOST_PERCENT * self.most // 100) - self.spent)
        return max(1, -(-rest * MILLIS_PER_HOUR // self.per_hour))

    def words(self, until: str, *, stops: bool) -> str:
        """A sentence for users.

        Args:
            until: First day of the next month.
            stops: Whether the limit is used up.
        """
        if self.scope is Scope.OWNER:
            key, then = "limits.max_cost", f"jobs are suspended until {until}"
        else:
            key = f"{self.scope}s.{self.name}.budget.usd_per_month"
            then = f"nothing is bought for it until {until}, and tasks run on"
        sums = f"{dollars(self.spent)} of {dollars(self.most)}"
        text = f"{self.scope} {self.name} has spent {sums} of this month ({key})"
        return f"{text}: {then}" if stops else text


def limits_of_months(settings: Settings) -> bool:
    """Whether any party has a limit of a month."""
    return (
        settings.limits.max_cost < NO_LIMIT
        or bool(settings.tenancy.budgets)
        or any(part.budget.per_month is not None for part in settings.partitions.all)
    )


def spendings(state: Records, settings: Settings, now: Millis) -> list[MonthSpending]:
    """Spending of all parties with a limit, as of `now`; nothing is booked.

    Args:
        state: The records.
        settings: Limits, and assumed delays of stops.
        now: The time.
    """
    spent_by_party = list(_of_partitions(state, settings, now))
    limited = settings.limits.max_cost < NO_LIMIT
    if not limited and not settings.tenancy.budgets:
        return spent_by_party
    month, _ = month_of(now)
    unbooked = _by_job(state, now, month)
    hourly = _by_job(state, Millis(now + _HOUR_MS), now)
    if limited:
        spent_by_party += _of_owners(state, settings, unbooked, hourly, month)
    for tenant, most in settings.tenancy.budgets.items():
        booked = state.totals.tenants.get(tenant)
        exact = booked.month_charged if booked is not None and booked.month_ms == month else 0
        exact += sum(of for job, of in unbooked.items() if _tenant(state, job) == tenant)
        rate = sum(of for job, of in hourly.items() if _tenant(state, job) == tenant)
        spent_by_party.append(
            MonthSpending(Scope.TENANT, tenant, most, micro_usd(exact), micro_usd(rate))
        )
    return spent_by_party


def _of_partitions(state: Records, settings: Settings, now: Millis) -> Iterator[MonthSpending]:
    for partition in settings.partitions.all:
        name, most = partition.name, partition.budget.per_month
        if most is None:
            continue
        booked = state.totals.partitions.get(name, PartitionTotals())
        live = map(state.instances.__getitem__, state.live)
        spent = ledger.month_of_instances(state, booked, partial(_is_of, name), now)
        yield MonthSpending(
            Scope.PARTITION, name, most, spent, billed_per_hour(filter(partial(_is_of, name), live))
        )


def _is_of(partition: str, instance: Instance) -> bool:
    return instance.partition == partition


def _of_owners(
    state: Records,
    settings: Settings,
    unbooked: Mapping[JobId, int],
    hourly: Mapping[JobId, int],
    month: Millis,
) -> Iterator[MonthSpending]:
    spent: defaultdict[str, int] = defaultdict(int)
    rates: defaultdict[str, int] = defaultdict(int)
    reserves: defaultdict[str, int] = defaultdict(int)
    for owner, booked in state.totals.owner_months.items():
        if booked.month_ms == month:
            spent[owner] += booked.charged
    for job, exact in unbooked.items():
        spent[state.jobs[job].spec.owner] += exact
    for job, exact in hourly.items():
        spec = state.jobs[job].spec
        rates[spec.owner] += exact
        reserves[spec.owner] += exact * stopping_ms(spec, settings) // MILLIS_PER_HOUR
    for owner in {**spent, **rates}:
        yield MonthSpending(
            Scope.OWNER,
            owner,
            settings.limits.max_cost,
            micro_usd(spent[owner]),
            micro_usd(rates[owner]),
            micro_usd(reserves[owner]),
        )


def _by_job(state: Records, until: Millis, since: Millis) -> Mapping[JobId, int]:
    """Exact charges of each job that are not booked yet, from one time on to another."""
    running = ledger.running_of(state, until, lambda job: job.id, since=since)
    return {JobId(name): account.charged for name, account in running.items()}


def _tenant(state: Records, job: JobId) -> str:
    return state.jobs[job].spec.tenant
