"""Debts of jobs, in exact integers (`Exact`: micro-dollars per hour times milliseconds).

Each instance is charged from up to gone, at the price of each moment. Time at which tasks held room
on it is split over them in proportion to their reservation prices, the rest is booked as idle; the
parts add up exactly to the charge. Beside it runs the cost of the same work with one instance per
task: each task run's reservation price for the time that the same work would have taken where that
price comes from, plus one boot of an instance. So time counts by the speed of the family that the
task run is on and, beside neighbours, by its speed against running alone. Time lost to moves, to
sharing and to slow families is on our bill and not on that one.

Prices and speeds are those of the valuation in force when a stretch of time is booked. Volumes and
addresses are in the price of their instance, are billed as long as it is, and are summed up beside.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from eva_master.control.measure.throughput import own_family_speed, paces
from eva_master.control.state.parts.tenant_tally import Stretch
from eva_master.control.state.records import Records
from eva_master.control.state.store import State
from eva_master.model.accounting.cost_sums import CostSums
from eva_master.model.accounting.pool_costs import FREE, PoolCost, Stood, added
from eva_master.model.accounting.totals import NO_COSTS, CostTotals, PartitionTotals, TenantTotals
from eva_master.model.arithmetic.calendar import month_of
from eva_master.model.arithmetic.money import split
from eva_master.model.catalog import Offering, Purchase
from eva_master.model.changes import InstanceAccount, JobAccount
from eva_master.model.fleet.keeping import KeepReason
from eva_master.model.planning.standing import full_name
from eva_master.model.records import Instance, Job, TaskRun
from eva_master.model.values import quick, replace
from eva_wire.values.ids import MILLION, Exact, InstanceId, JobId, Millis, RunId, micro_usd


@dataclass(frozen=True, slots=True)
class Bill:
    """Every account, projected to one moment."""

    jobs: Mapping[JobId, JobAccount]
    instances: Mapping[InstanceId, InstanceAccount]

    @property
    def charged(self) -> int:
        """The amount that the cloud charges for all instances."""
        return sum(account.charged for account in self.instances.values())

    @property
    def idle(self) -> int:
        """The part of it that no task used."""
        return sum(account.idle for account in self.instances.values())

    @property
    def alone(self) -> int:
        """Cost of the same work with one instance per task."""
        return sum(account.alone for account in self.jobs.values())


@dataclass(frozen=True, slots=True)
class Accrued:
    """Sums of what was run up and is not booked yet."""

    charged: Exact
    idle: Exact
    alone: Exact
    pools: Mapping[str, PoolCost]


@quick
@dataclass(frozen=True, slots=True)
class Accrual:
    """Costs of an instance and the jobs on it in one stretch of time, in which nothing changed.

    Attributes:
        account: Account of the instance after it.
        jobs: Increments, one for each job that took room.
        paces: Measured speed of one of each group that ran, beside its neighbours, in millionths.
        elapsed_ms: Its length.
        charged: Charge for the instance.
        idle: The part of it that no task used.
    """

    account: InstanceAccount
    jobs: tuple[JobAccount, ...]
    paces: tuple[tuple[RunId, int], ...] = ()
    elapsed_ms: int = 0
    charged: int = 0
    idle: int = 0

    @property
    def costs(self) -> CostTotals:
        """All costs of the stretch of time."""
        alone = sum([increment.alone for increment in self.jobs])
        return CostTotals(Exact(self.charged), Exact(self.idle), Exact(alone))

    def parts(self, offering: Offering) -> Iterator[tuple[str, CostTotals]]:
        """The parts of these costs for what is attached to the instance, of this offering."""
        return parts(offering, self.elapsed_ms, idle=self.idle > 0)


Running = tuple[InstanceAccount, Accrual]
"""Account of an instance, and costs of it since its last booking."""


def charge(instance: Instance, since: Millis, until: Millis) -> int:
    """The cloud's exact charge for an instance from one moment to another."""
    total, at = 0, since
    for end, price in instance.paid:
        stop = min(end, until)
        if stop > at:
            total += price * (stop - at)
            at = stop
    return total + instance.offering.price * max(0, until - at)


def parts(offering: Offering, elapsed_ms: int, *, idle: bool) -> Iterator[tuple[str, CostTotals]]:
    """Costs of what is attached to an instance, in a stretch of time; what is free is left out.

    Args:
        offering: The instance's offering.
        elapsed_ms: The stretch; below 0 for what was booked and is not owed.
        idle: Whether no task used it.
    """
    attached = offering.attached
    for part, price in (("volumes", attached.volume), ("addresses", attached.address)):
        if amount := Exact(price * elapsed_ms):
            yield part, CostTotals(amount, amount if idle else Exact(0))


def kept(state: Records, instance: InstanceId, since: Millis, until: Millis) -> int:
    """Cost of an instance from one moment to another while it was empty.

    The cost is a part of its idle cost, except before the bill or after it.
    """
    record, account = state.instances[instance], state.instance_accounts.get(instance)
    if record.owned or record.up_ms is None or account is None:
        return 0
    last = until if record.gone_ms is None else min(until, record.gone_ms)
    return charge(record, max(since, record.up_ms), Millis(last))


def _accrue(state: Records, instance: Instance, account: InstanceAccount, until: Millis) -> Accrual:
    elapsed = until - account.until_ms
    if elapsed <= 0 or account.closed:
        return Accrual(account, ())
    amount = charge(instance, account.until_ms, until)
    residents = state.company.jobs_on(instance.id)
    idle = 0 if residents else amount
    jobs: tuple[JobAccount, ...] = ()
    ppms: tuple[tuple[RunId, int], ...] = ()
    if residents:
        jobs, ppms = _increments(state, instance, residents, amount, elapsed)
    booked = InstanceAccount(
        account.instance,
        until_ms=until,
        charged=Exact(account.charged + amount),
        idle=Exact(account.idle + idle),
        closed=account.closed,
        standing=_stood(account.standing, instance, amount, idle, elapsed),
    )
    return Accrual(booked, jobs, ppms, elapsed, amount, idle)


def _increments(
    state: Records, instance: Instance, residents: Collection[JobId], amount: int, elapsed: int
) -> tuple[tuple[JobAccount, ...], tuple[tuple[RunId, int], ...]]:
    """Increments of the jobs on an instance for a stretch of time, and the paces of its tasks."""
    alone = dict.fromkeys(residents, 0)
    busy = dict(alone)
    ppms: list[tuple[RunId, int]] = []
    for run, count, pace in paces(state, instance.id):
        ppms.append((run.id, pace.measured_ppm))
        if not run.extra:  # Alone, a task would have had one run.
            alone[run.job] += _worked(state, run, elapsed, pace.expected_ppm) * count
        busy[run.job] += elapsed * count
    charged, extra = _charged(state, instance.id, residents, amount)
    jobs = [
        JobAccount(job, Exact(charged[job]), Exact(cost), busy[job], Exact(extra.get(job, 0)))
        for job, cost in alone.items()
    ]
    if instance.offering.purchase is Purchase.SPOT:
        jobs = [_on_spot(account, instance, amount, elapsed) for account in jobs]
    return tuple(jobs), tuple(ppms)


def _on_spot(account: JobAccount, instance: Instance, amount: int, elapsed: int) -> JobAccount:
    """A job's increment with its part for spot instances, of which this is one."""
    listed: int = account.charged
    if instance.on_demand is not None and amount:
        listed = account.charged * instance.on_demand * elapsed // amount
    return replace(account, spot=account.charged, spot_ms=account.busy_ms, listed=Exact(listed))


def _charged(
    state: Records, instance: InstanceId, jobs: Collection[JobId], amount: int
) -> tuple[Mapping[JobId, int], Mapping[JobId, int]]:
    """Each job's part of an amount that is split over task runs by their reservation prices.

    Returns:
        The parts, and the amounts in them for extra runs of tasks.
    """
    extra: dict[JobId, int] = {}
    if len(jobs) < 2 and not state.company.has_extras(instance):
        return dict.fromkeys(jobs, amount), extra
    occupants = state.occupants(instance)
    prices = _prices(state, occupants)
    sums = dict.fromkeys(jobs, 0)
    for run, share in zip(occupants, split(amount, prices), strict=True):
        sums[run.job] += share
        if run.extra:
            extra[run.job] = extra.get(run.job, 0) + share
    return sums, extra


def _prices(state: Records, runs: Sequence[TaskRun]) -> list[int]:
    """The reservation price of each task run, computed once for equal tasks of an array."""
    price_of: dict[tuple[JobId, int], int] = {}
    prices = []
    for run in runs:
        job = state.jobs[run.job]
        key = run.job, run.index if job.is_gang else id(job.spec.tasks[run.index])
        price = price_of.get(key)
        if price is None:
            price = price_of[key] = state.reservation(run).price
        prices.append(price)
    return prices


def _stood(standing: Stood, instance: Instance, amount: int, idle: int, elapsed_ms: int) -> Stood:
    """Costs of an instance since it stood in pools, after a stretch of time is booked."""
    if not amount or not instance.pool:
        return standing
    spot = instance.offering.purchase is Purchase.SPOT
    priced = instance.on_demand is not None
    more = PoolCost(
        charged=Exact(amount),
        idle=Exact(idle),
        spot=Exact(amount if spot and priced else 0),
        on_demand=Exact((instance.on_demand or 0) * elapsed_ms if spot else 0),
        unpriced=Exact(0 if priced or not spot else amount),
    )
    pool = _pool(instance)
    if len(standing) == 1 and standing[0][0] == pool:
        return ((pool, standing[0][1] + more),)
    return tuple(added(dict(standing), {pool: more}).items())


def _pool(instance: Instance) -> str:
    """The pool in whose account an instance is: it stands there, or did before it was drained."""
    return full_name(instance.partition, instance.pool)


def _worked(state: Records, run: TaskRun, elapsed: int, ppm: int) -> int:
    """Cost of one task run's work alone, for work done in so many milliseconds.

    Args:
        state: The records.
        run: The task run; all in its group did as much work.
        elapsed: The milliseconds.
        ppm: Its pace beside its neighbours, in millionths.
    """
    price = state.reservation(run).price
    speed = own_family_speed(state, run)
    return price * elapsed * ppm * speed.numerator // (speed.denominator * MILLION)


def _add(state: State, increment: JobAccount, stretch: Stretch | None = None) -> None:
    account = state.job_accounts.get(increment.job)
    state.put_job_account(increment if account is None else account + increment, stretch)


def _spend_by_day(state: State, costs: CostTotals, since: Millis, until: Millis) -> None:
    if costs != NO_COSTS:
        for date, part in costs.by_day(since, until):
            state.tally.days.add(date, part)


def by_workload(
    state: Records, instance: InstanceId, increment: JobAccount
) -> Iterator[tuple[str, CostTotals]]:
    """Divide a job's costs for a stretch of time on an instance over the workloads of its tasks.

    Tasks of several workloads on one instance share both sums by their reservation prices.
    """
    sums = CostTotals(increment.charged, alone=increment.alone)
    kinds = state.tasks.kinds(increment.job)
    if all(kind.workload == kinds[0].workload for kind in kinds):
        yield kinds[0].workload, sums
        return
    runs = [run for run in state.occupants(instance) if run.job == increment.job]
    weights: dict[str, int] = {}
    for run, weight in zip(runs, _prices(state, runs), strict=True):
        workload = state.task(run).workload
        weights[workload] = weights.get(workload, 0) + weight
    shares = [split(amount, list(weights.values())) for amount in (sums.charged, sums.alone)]
    for workload, charged, alone in zip(weights, *shares, strict=True):
        yield workload, CostTotals(Exact(charged), alone=Exact(alone))


def open_account(state: State, instance: Instance) -> None:
    """Begin to charge an instance that is up."""
    if instance.up_ms is None:
        return
    account = state.instance_accounts.get(instance.id)
    if account is not None and account.closed and instance.gone_ms is None and instance.owned:
        state.put_instance_account(replace(account, until_ms=instance.up_ms, closed=False))
    elif account is None:
        state.put_instance_account(InstanceAccount(instance.id, until_ms=instance.up_ms))


def book(state: State, instance: InstanceId, until: Millis) -> None:
    """Charge an instance up to a moment; call it before anything changes about who is on it."""
    account = state.instance_accounts.get(instance)
    if account is None or account.closed or until <= account.until_ms:
        return
    record, stretch = state.instances[instance], (account.until_ms, until)
    accrual = _accrue(state, record, account, until)
    state.put_instance_account(accrual.account)
    for increment in accrual.jobs:
        _add(state, increment, stretch)
        for workload, costs in by_workload(state, instance, increment):
            if costs != NO_COSTS:
                state.tally.workloads.add(workload, costs)
    _spend_by_day(state, accrual.costs, *stretch)
    state.tally.book_parts(accrual.parts(record.offering))
    for run, ppm in accrual.paces:
        state.company.add(run, accrual.elapsed_ms, ppm)
    for tenant, gpu_ms in gpu_time(state, record, accrual.elapsed_ms):
        state.tally.tenants.held_gpus(tenant, gpu_ms)


def gpu_time(state: Records, instance: Instance, elapsed_ms: int) -> Iterator[tuple[str, int]]:
    """GPU time in which tasks hold room on an instance, each with its tenant."""
    family = instance.offering.type.family
    for run in state.occupants(instance.id) if instance.offering.type.capacity.gpus else ():
        spec = state.jobs[run.job].spec
        demand = spec.tasks[run.index].demand_on(family)
        if demand is not None and demand.gpus:
            yield spec.tenant, demand.gpus * elapsed_ms


def count_interruption(state: State, instance: InstanceId) -> None:
    """The cloud takes an instance back: every job that is on it was interrupted once more."""
    for job in state.company.jobs_on(instance):
        _add(state, JobAccount(job, interruptions=1))


def book_boot(state: State, run: TaskRun, instance: Instance, now: Millis) -> None:
    """Book the boot that a task run would have waited for alone, when it runs for the first time.

    The boot of the instance it runs on stands for it.

    Args:
        state: The records.
        run: The task run.
        instance: The instance that it runs on.
        now: The time, on whose day it is booked.
    """
    if instance.ready_ms is None or instance.up_ms is None or run.extra:
        return
    boot = max(0, instance.ready_ms - instance.up_ms)
    alone = Exact(state.reservation(run).price * boot)
    _add(state, JobAccount(run.job, alone=alone))
    state.tally.workloads.account(state.task(run).workload, 0, alone=alone)
    _spend_by_day(state, CostTotals(alone=alone), now, now)


def close_account(state: State, instance: Instance) -> None:
    """Charge an instance for the last time, so that its total is that of its billed time.

    The billing minimum, and amounts booked past the cloud's own end, are settled as idle time.
    """
    open_account(state, instance)
    account = state.instance_accounts.get(instance.id)
    if account is None or account.closed or instance.gone_ms is None:
        return
    assert instance.up_ms is not None
    book(state, instance.id, instance.gone_ms)
    account = state.instance_accounts[instance.id]
    if instance.owned:  # The account holds the sum of all of its stays.
        state.put_instance_account(replace(account, closed=True))
        return
    end = instance.up_ms + max(instance.gone_ms - instance.up_ms, instance.offering.minimum_ms)
    rest = charge(instance, instance.up_ms, Millis(end)) - account.charged
    stretch = (account.until_ms, Millis(end)) if rest > 0 else (Millis(end), account.until_ms)
    _spend_by_day(state, CostTotals(Exact(rest), Exact(rest)), *stretch)
    state.tally.book_parts(parts(instance.offering, end - account.until_ms, idle=True))
    standing = _lowered(account.standing, instance, max(0, -rest))
    state.put_instance_account(
        replace(
            account,
            until_ms=instance.gone_ms,
            charged=Exact(account.charged + rest),
            idle=Exact(account.idle + rest),
            closed=True,
            standing=_stood(standing, instance, max(0, rest), max(0, rest), end - account.until_ms),
        )
    )


def _lowered(standing: Stood, instance: Instance, less: int) -> Stood:
    """The rest of amounts that were booked past the end, lowering the last pool first."""
    kept = dict(standing)
    for pool in sorted(kept, key=lambda it: it != _pool(instance)):
        taken = min(less, kept[pool].charged)
        less -= taken
        kept[pool] = kept[pool].lowered(taken)
    return tuple(kept.items())


def bill(state: Records, now: Millis) -> Bill:
    """All accounts as of `now`, in the order in which jobs and instances came; books nothing."""
    jobs = dict(state.job_accounts)
    instances = dict(state.instance_accounts)
    for instance in state.live:
        if (account := instances.get(instance)) is None:
            continue
        accrual = _accrue(state, state.instances[instance], account, now)
        instances[instance] = accrual.account
        for increment in accrual.jobs:
            account_of = jobs.get(increment.job, JobAccount(increment.job))
            jobs[increment.job] = account_of + increment
    return Bill(
        {job: jobs[job] for job in state.jobs if job in jobs},
        {instance: instances[instance] for instance in state.instances if instance in instances},
    )


def job_account(state: Records, job: JobId, now: Millis) -> JobAccount:
    """Account of a job as of `now`; nothing is booked."""
    account = state.job_accounts.get(job, JobAccount(job))
    places = {run.instance for run in state.in_hand(job) if run.instance is not None}
    for place in sorted(places):
        if (charged := state.instance_accounts.get(place)) is None:
            continue
        for increment in _accrue(state, state.instances[place], charged, now).jobs:
            if increment.job == job:
                account += increment
    return account


def instance_account(state: Records, instance: InstanceId, now: Millis) -> InstanceAccount | None:
    """Account of an instance as of `now`, `None` if it was never billed; nothing is booked."""
    account = state.instance_accounts.get(instance)
    if account is None:
        return None
    return _accrue(state, state.instances[instance], account, now).account


def cost(
    state: Records,
    empty: Mapping[InstanceId, KeepReason],
    now: Millis,
    unbooked: Sequence[Running] | None = None,
) -> CostSums:
    """Cost of the whole cluster as of `now`.

    Args:
        state: The records.
        empty: The instances that are empty and kept.
        now: The time.
        unbooked: Costs up to then of `running`, where they are there already.
    """
    sums, totals = running_up(state, now, unbooked), state.totals
    waited = sum(kept(state, name, memory.since_ms, now) for name, memory in empty.items())
    return CostSums(
        charged=Exact(totals.charged + sums.charged),
        idle=Exact(totals.idle + sums.idle),
        alone=Exact(totals.alone + sums.alone),
        pools=added(totals.pools, sums.pools),
        kept=Exact(totals.kept + waited),
    )


def running(state: Records, now: Millis, *, since: Millis = Millis(0)) -> Iterator[Running]:
    """Costs of each live instance and the jobs on it since its last booking, up to `now`.

    Args:
        state: The records.
        now: The time.
        since: Time before which costs are left out.

    Yields:
        The account of each instance that is billed, and its costs.
    """
    for name in state.live:
        if (account := state.instance_accounts.get(name)) is not None:
            if account.until_ms < since:
                account = replace(account, until_ms=since)
            yield account, _accrue(state, state.instances[name], account, now)


def running_up(state: Records, now: Millis, unbooked: Sequence[Running] | None = None) -> Accrued:
    """Costs of live instances and the jobs on them since the last bookings, up to `now`."""
    charged = idle = alone = 0
    pools: dict[str, PoolCost] = {}
    for account, accrual in running(state, now) if unbooked is None else unbooked:
        charged += accrual.account.charged - account.charged
        idle += accrual.account.idle - account.idle
        if accrual.account.standing is not account.standing:
            pool = _pool(state.instances[account.instance])
            before, after = dict(account.standing).get(pool, FREE), dict(accrual.account.standing)
            pools[pool] = pools.get(pool, FREE) + (after[pool] - before)
        alone += sum(increment.alone for increment in accrual.jobs)
    return Accrued(Exact(charged), Exact(idle), Exact(alone), pools)


def running_of(
    state: Records, now: Millis, party: Callable[[Job], str], *, since: Millis = Millis(0)
) -> Mapping[str, JobAccount]:
    """Costs of the jobs of each party since the last bookings, up to `now`.

    Args:
        state: The records.
        now: The time.
        party: Function of a job, such as its tenant or owner.
        since: Time before which costs are left out.

    Returns:
        For each party whose jobs had any cost, the sum of their increments.
    """
    sums: dict[str, JobAccount] = {}
    for _, accrual in running(state, now, since=since):
        for increment in accrual.jobs:
            whose = party(state.jobs[increment.job])
            previous = sums.get(whose)
            sums[whose] = increment if previous is None else previous + increment
    return sums


def running_charge(state: Records, now: Millis) -> Exact:
    """The charge of `running_up` alone, which is quicker to compute."""
    accounts = ((state.instances[name], state.instance_accounts.get(name)) for name in state.live)
    return Exact(
        sum(
            charge(instance, account.until_ms, now)
            for instance, account in accounts
            if account is not None and not account.closed and account.until_ms < now
        )
    )


def month_of_instances(
    state: Records, booked: PartitionTotals, belongs: Callable[[Instance], bool], now: Millis
) -> int:
    """Charges of some instances in this calendar month, UTC, in micro-dollars.

    Costs that are not booked yet count too.

    Args:
        state: The records.
        booked: Booked charges of the instances.
        belongs: Whether an instance is among them.
        now: The time.
    """
    month, exact = _booked_this_month(booked, now)
    for instance in map(state.instances.__getitem__, state.live):
        account = state.instance_accounts.get(instance.id)
        if account is not None and not account.closed and belongs(instance):
            since = max(account.until_ms, month)
            exact += charge(instance, since, max(since, now))
    return micro_usd(exact)


def month_of_tenant(state: Records, tenant: str, now: Millis) -> int:
    """Charges of a tenant's jobs in this calendar month, UTC, in micro-dollars.

    Costs that are not booked yet count too.
    """
    booked = state.totals.tenants.get(tenant, TenantTotals())
    month, exact = _booked_this_month(booked, now)
    unbooked = running_of(state, now, lambda job: job.spec.tenant, since=month)
    if (more := unbooked.get(tenant)) is not None:
        exact += more.charged
    return micro_usd(exact)


def _booked_this_month(booked: PartitionTotals | TenantTotals, now: Millis) -> tuple[Millis, int]:
    """The beginning of this month, and what is booked of it."""
    month, _ = month_of(now)
    return month, booked.month_charged if booked.month_ms == month else 0
