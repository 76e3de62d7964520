"""The `price_limit` of new instances, as a multiple of what their tasks are worth.

Where the cloud refuses the types that suit a task, the cheapest other type may cost a hundred times
as much. A task for which only such types are on sale waits. A deadline that leaves no time to wait
may exceed the limit, by the cheapest instance that is on sale.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from eva_master.model.arithmetic.loop_time import AS_LOOP, WallClock
from eva_master.model.catalog import Offering, Purchase, tally
from eva_master.model.planning.job_view import JobView
from eva_master.model.planning.plan import Hold
from eva_master.model.planning.snapshot import RunView, Snapshot
from eva_master.model.planning.standing import Pool
from eva_master.model.values import by_id, sameness
from eva_master.packing.plan_effect import PlanEffect, Unit
from eva_master.packing.room import may_buy_one
from eva_master.packing.valuation.job_valuation import Reservation
from eva_master.packing.valuation.on_demand import OnDemandPrices, can_host, value_on
from eva_wire.values.bounds import JobKind
from eva_wire.values.durations import clock
from eva_wire.values.ids import MILLION, JobId, Millis, OfferingId, RunId

_NEVER_MS = Millis(10**15)
_NAMED = 3
"""So many types that a task waits for are named."""


@dataclass(frozen=True, slots=True)
class Masked:
    """Part of a snapshot that a policy gets to see.

    Attributes:
        snapshot: To be planned with.
        offerings: On sale, and too dear even if all that may run there did.
    """

    snapshot: Snapshot
    offerings: Mapping[OfferingId, Offering] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PriceLimit:
    """The prices that may be paid for tasks at one moment.

    Attributes:
        times_ppm: Highest price of an instance as a multiple of the sum of its tasks' reservation
            prices, in millionths; `None` for any price.
        prices: On-demand reservation prices of tasks.
        urgent: Jobs whose deadlines leave no time to wait.
        dear: Offerings that the last plan chose and that were too dear: hidden from the next plan,
            so that the policy chooses others.
        judged: The task runs of that plan.
        wall: The wall clock, for times in texts for users.
    """

    times_ppm: int | None
    prices: OnDemandPrices
    urgent: Collection[JobId] = frozenset()
    dear: Collection[OfferingId] = frozenset()
    judged: Collection[RunId] = frozenset()
    wall: WallClock = AS_LOOP

    def allowed(self, now: Snapshot) -> Callable[[RunView, Offering], int] | None:
        """The price that may be paid for a task run on an offering; `None` for any price.

        Args:
            now: The partition as it is.

        Returns:
            A function that returns millionths of micro-dollars per hour.
        """
        return None if self.times_ppm is None else _Worths(self, now).allowed

    # -- before a policy plans -------------------------------------------------------------------

    def shown(self, seen: Snapshot, *, pools: bool) -> Masked:
        """Hide offerings of which nothing can be bought.

        Args:
            seen: The partition as it is.
            pools: Whether instances are bought for pools, too: for more tasks than are waiting now.
        """
        candidates = [offering for offering in seen.catalog if _buyable(offering, seen.now_ms)]
        scarce = any(
            offering.limit is not None or not offering.available(seen.now_ms)
            for offering in seen.catalog
            if offering.purchase is not Purchase.OWNED
        )
        if self.times_ppm is None or not candidates or not (scarce or self.dear):
            return Masked(seen)
        dear = {offering.id: offering for offering in candidates if offering.id in self.dear}
        if dear and self._are_needed(seen, dear):
            dear = {}
        if scarce and not pools:
            dear.update(
                (offering.id, offering) for offering in self._out_of_reach(seen, candidates)
            )
        if not dear:
            return Masked(seen)
        times = self.times_ppm / MILLION
        why = f"it costs more than {times:g} times what the tasks are worth: price_limit"
        catalog = tuple(
            replace(offering, unavailable_until=_NEVER_MS, why_unavailable=why)
            if offering.id in dear
            else offering
            for offering in seen.catalog
        )
        return Masked(replace(seen, catalog=catalog), dear)

    def _are_needed(self, seen: Snapshot, dear: Mapping[OfferingId, Offering]) -> bool:
        """Whether a new task run fits hidden offerings only, and is worth one of them."""
        worths = _Worths(self, seen)
        fresh = [run for run in seen.runs if run.instance is None and run.id not in self.judged]
        others = [
            offering
            for offering in seen.catalog
            if offering.id not in dear and worths.on_sale(offering)
        ]
        return any(
            can_host(offering, run) and not worths.is_too_dear(worths.mates(run), offering)
            for run in fresh
            if not any(can_host(other, run) for other in others)
            for offering in dear.values()
        )

    def _out_of_reach(self, seen: Snapshot, candidates: Iterable[Offering]) -> Iterator[Offering]:
        """The offerings that all tasks together are not worth that might run there."""
        worths = _Worths(self, seen)
        groups = worths.groups()
        for offering in candidates:
            total, wanted = 0, False
            for run, count in groups:
                if can_host(offering, run):
                    wanted = True
                    total += worths.allowed(run, offering) * count
                    if total >= offering.price * MILLION:
                        break
            else:
                if wanted:
                    yield offering

    def explained(self, effect: PlanEffect, hidden: Mapping[OfferingId, Offering]) -> PlanEffect:
        """A policy's plan with the price as the reason of tasks that wait for it.

        Args:
            effect: The policy's plan, on the partition with all that is on sale.
            hidden: The offerings hidden from the policy.
        """
        if not hidden:
            return effect
        seen, plan = effect.now, effect.plan
        worths = _Worths(self, seen)
        open_ = [
            offering
            for offering in seen.catalog
            if offering.id not in hidden and worths.on_sale(offering)
        ]
        waits = dict[RunId, str]()
        for run in seen.runs:
            if run.instance is None and not any(can_host(offering, run) for offering in open_):
                mates = worths.mates(run)
                dear = [
                    offering
                    for offering in hidden.values()
                    if can_host(offering, run) and worths.is_too_dear(mates, offering)
                ]
                if dear:
                    cheapest = min(dear, key=lambda it: (it.price, it.id))
                    waits[run.id] = worths.why(mates, cheapest)
        lined = {job for line in plan.lines for job in line.jobs}
        silent = waits.keys() - {entry.run for entry in plan.entries}
        more = (Hold(run, waits[run]) for run in waits if run in silent)
        fresh = tuple(hold for hold in more if worths.runs[hold.run].job not in lined)
        explained = effect.explain(waits).plan
        return effect.with_plan(replace(explained, entries=(*explained.entries, *fresh)))

    # -- after ------------------------------------------------------------------------------------

    def within(self, effect: PlanEffect) -> tuple[PlanEffect, frozenset[OfferingId]]:
        """The part of a plan that buys nothing too dear.

        Args:
            effect: The policy's plan, on the partition with its sizes.

        Returns:
            That part, in which those who were to have what is too dear wait, with the reason; and
            what was too dear.
        """
        if self.times_ppm is None or not effect.plan.launches:
            return effect, frozenset()
        return _Check(_Worths(self, effect.now), effect).outcome()


class _Worths:
    """Worth of the task runs of a snapshot, and what may be paid for them."""

    def __init__(self, limit: PriceLimit, now: Snapshot) -> None:
        self._wall = limit.wall
        assert limit.times_ppm is not None
        self.times_ppm = limit.times_ppm
        self.runs = by_id(now.runs)
        self.urgent = limit.urgent
        self._prices = limit.prices
        self._now = now
        self.jobs = by_id(now.jobs)
        self._known: dict[RunId, Reservation] = {}
        self._there = tally(view.offering for view in (*now.instances, *now.draining))

    def mates(self, run: RunView) -> Sequence[RunView]:
        """The task runs that have to be placed together with one."""
        job = self.jobs[run.job]
        return self.of_job(job) if job.spec.kind is JobKind.GANG else [run]

    def of_job(self, job: JobView) -> Sequence[RunView]:
        """The task runs of a job."""
        return [self.runs[name] for name in job.runs]

    def reservation(self, run: RunView) -> Reservation:
        """Worth of a task run on demand."""
        if run.id not in self._known:
            job = self.jobs[run.job]
            self._known |= self._prices.of_job(job, self.of_job(job))
        return self._known[run.id]

    def value(self, run: RunView, offering: Offering) -> int:
        """Worth of a task run on an offering, in micro-dollars per hour."""
        return value_on(self.reservation(run), offering)

    def allowed(self, run: RunView, offering: Offering, *, hasty: bool = True) -> int:
        """Price that may be paid for a task run there, in millionths of micro-dollars per hour.

        Args:
            run: The task run.
            offering: Where it would run.
            hasty: Whether its deadline counts.
        """
        most = self.times_ppm * self.value(run, offering)
        if hasty and run.job in self.urgent:
            return max(most, MILLION * self._needed(run))
        return most

    def is_too_dear(self, runs: Sequence[RunView], offering: Offering) -> bool:
        """Whether an offering costs more than may be paid for some task runs together."""
        return offering.price * MILLION > sum(self.allowed(run, offering) for run in runs)

    def _needed(self, run: RunView) -> int:
        """The price of the cheapest instance on sale that hosts a task run."""
        prices = (
            offering.price
            for offering in self._now.catalog
            if self.on_sale(offering) and can_host(offering, run)
        )
        return min(prices, default=0)

    def on_sale(self, offering: Offering) -> bool:
        """Whether one more instance of an offering may be bought now."""
        return _buyable(offering, self._now.now_ms) and not self._is_used_up(offering)

    def _is_used_up(self, offering: Offering) -> bool:
        return not may_buy_one(offering, self._there)

    def groups(self) -> list[tuple[RunView, int]]:
        """One task run of each kind that may be placed, with their number, the most valuable first.

        Task runs of large arrays that the snapshot does not show are counted.
        """
        counts: Counter[tuple[int, int, bool]] = Counter()
        first: dict[tuple[int, int, bool], RunView] = {}
        for run in self._now.runs:
            if run.pinned:
                continue
            reservation = self.reservation(run)
            key = id(reservation), id(run.task), run.job in self.urgent
            first.setdefault(key, run)
            counts[key] += 1
        for job in self._now.jobs:
            if job.array.unseen and job.runs:
                run = self.runs[job.runs[0]]
                key = id(self.reservation(run)), id(run.task), run.job in self.urgent
                if key in first:
                    counts[key] += job.array.unseen
        counted = [(first[key], count) for key, count in counts.items()]
        return sorted(counted, key=lambda it: -self.reservation(it[0]).price * it[1])

    def why(self, runs: Sequence[RunView], offering: Offering) -> str:
        """The reason for which task runs that belong together wait, for their users."""
        worth = sum(self.value(run, offering) for run in runs)
        whose = "its reservation price" if len(runs) == 1 else "their reservation prices"
        times = offering.price / worth if worth else 0
        ratio = f"{times:,.0f}" if times >= 10 else f"{times:.1f}"
        return (
            f"{self._awaited(runs)}{offering.type.name} for {_usd(offering.price)} would cost"
            f" {ratio} times {whose}, {_usd(worth)}, and {self.times_ppm / MILLION:g} times are"
            " allowed (price_limit)"
        )

    def _awaited(self, runs: Sequence[RunView]) -> str:
        """The types that tasks wait for, and the times at which they may be available."""
        suitable = [
            offering
            for offering in self._now.catalog
            if offering.purchase is not Purchase.OWNED
            and offering.limit != 0
            and not self.on_sale(offering)
            and any(
                can_host(offering, run)
                and self.times_ppm * self.value(run, offering) >= offering.price * MILLION
                for run in runs
            )
        ]
        refused = [offering for offering in suitable if not offering.available(self._now.now_ms)]
        used_up = [offering for offering in suitable if offering.available(self._now.now_ms)]
        parts = []
        if refused:
            first = min(refused, key=lambda it: (it.unavailable_until or 0, it.id))
            why = f": {first.why_unavailable}" if first.why_unavailable else ""
            until = clock(self._wall.of(_until(first)))
            parts.append(f"{_names(refused)} (refused until {until}{why})")
        if used_up:
            parts.append(f"{_names(used_up)} (all that the limit allows are there)")
        return f"waits for {' or '.join(parts)}; " if parts else ""


class _Check:
    """One plan against the limit."""

    def __init__(self, worths: _Worths, effect: PlanEffect) -> None:
        self._worths = worths
        self._effect = effect
        self._offerings = effect.launched
        self._pools = {
            key: pool for pool in effect.plan.pools for key in pool.members if isinstance(key, int)
        }
        self._held: dict[RunId, str] = {}
        self._dear: set[OfferingId] = set()
        self._allowed: dict[tuple[int, ...], int | None] = {}
        """Results of `_for_pool`."""

    def outcome(self) -> tuple[PlanEffect, frozenset[OfferingId]]:
        """The rest of the plan, and the offerings that were too dear."""
        kept: Sequence[Unit] = self._effect.units
        while True:
            dear = self._too_dear(kept)
            cut = [unit for unit in kept if not dear.isdisjoint(unit.bought)]
            for unit in cut:
                self._hold(unit, dear)
            kept = [unit for unit in kept if dear.isdisjoint(unit.bought)]
            if not cut:
                break
        gone = self._too_dear(kept)  # members of pools without placed tasks
        for key in sorted(gone):
            self._hold_claimants(key)
        dear_ids = frozenset(self._dear) if self._held or gone else frozenset[OfferingId]()
        return self._hastened(self._effect.drop(self._held, gone), kept), dear_ids

    def _too_dear(self, kept: Sequence[Unit]) -> set[int]:
        """Keys of new instances that cost more than may be paid for the task runs on them."""
        tasks = self._tasks(kept)
        keys = set()
        for key, offering in self._offerings.items():
            pool = self._pools.get(key)
            if key not in tasks and pool is None:
                continue
            allowed = sum(self._worths.allowed(run, offering) for run in tasks[key])
            if pool is not None:
                kind = sameness(pool, offering)  # many members are alike
                if kind not in self._allowed:
                    self._allowed[kind] = self._for_pool(pool, offering)
                more = self._allowed[kind]
                if more is None:
                    continue
                allowed += more
            if offering.price * MILLION > allowed:
                keys.add(key)
                self._dear.add(offering.id)
        return keys

    def _tasks(self, kept: Sequence[Unit]) -> defaultdict[int, list[RunView]]:
        """The task runs that are to be on each new instance."""
        runs_on: defaultdict[int, list[RunView]] = defaultdict(list)
        for unit in kept:
            for entry in unit.entries:
                if isinstance(entry.on, int) and entry.on in self._offerings:
                    runs_on[entry.on].append(self._worths.runs[entry.run])
        return runs_on

    def _claimants(self, pool: Pool) -> list[tuple[RunView, int]]:
        """Task runs in line for room in a pool, each with the number of such task runs."""
        jobs = dict.fromkeys(
            job for line in self._effect.plan.lines if pool.name in line.pools for job in line.jobs
        )
        claimants: list[tuple[RunView, int]] = []
        for job in jobs:
            if (view := self._worths.jobs.get(job)) is None:
                continue
            runs = self._worths.of_job(view)
            waiting = [(run, 1) for run in runs if run.instance is None]
            claimants += waiting
            if waiting and view.array.unseen:
                claimants.append((waiting[0][0], view.array.unseen))
        return claimants

    def _for_pool(self, pool: Pool, offering: Offering) -> int | None:
        """The price that may be paid for a member of a pool beside the task runs placed on it.

        A member is bought for the task runs in its lines, or for as many such tasks as the operator
        has configured. `None` means any price: no task waits for the member, so the operator wants
        it.
        """
        hosted = [claimant for claimant in self._claimants(pool) if can_host(offering, claimant[0])]
        if not hosted:
            return None
        each = [(self._worths.allowed(run, offering), count) for run, count in hosted]
        asked = pool.room_for * max(price for price, _ in each)
        return max(asked, sum(price * count for price, count in each))

    def _hold(self, unit: Unit, dear: Collection[int]) -> None:
        runs = [self._worths.runs[entry.run] for entry in unit.entries]
        offering = max(
            (self._offerings[key] for key in unit.bought if key in dear),
            key=lambda it: (it.price, it.id),
        )
        why = self._worths.why(runs, offering)
        self._held.update((run.id, why) for run in runs)

    def _hold_claimants(self, key: int) -> None:
        pool = self._pools.get(key)
        for run, _ in [] if pool is None else self._claimants(pool):
            if can_host(self._offerings[key], run):
                why = self._worths.why(self._worths.mates(run), self._offerings[key])
                self._held.setdefault(run.id, why)

    def _hastened(self, effect: PlanEffect, kept: Sequence[Unit]) -> PlanEffect:
        """A plan whose launches name the deadline that allows their price."""
        tasks, reasons = self._tasks(kept), dict[int, str]()
        for key, runs in tasks.items():
            offering = self._offerings[key]
            usual = sum(self._worths.allowed(run, offering, hasty=False) for run in runs)
            if offering.price * MILLION <= usual or key in self._pools:
                continue
            worth = sum(self._worths.value(run, offering) for run in runs)
            jobs = sorted({run.job for run in runs if run.job in self._worths.urgent})
            reasons[key] = (
                f"it costs {_usd(offering.price)}, {offering.price / max(1, worth):,.1f} times the"
                f" reservation prices of its tasks, more than price_limit"
                f" ({self._worths.times_ppm / MILLION:g}) allows: the deadline of"
                f" {', '.join(jobs)} leaves no time to wait"
            )
        if not reasons:
            return effect
        launches = tuple(
            replace(launch, reason=reasons[launch.key]) if launch.key in reasons else launch
            for launch in effect.plan.launches
        )
        return effect.with_plan(replace(effect.plan, launches=launches))


def _buyable(offering: Offering, now: Millis) -> bool:
    """Whether an instance may be bought now, as far as its limit allows."""
    return (
        offering.purchase is not Purchase.OWNED and offering.limit != 0 and offering.available(now)
    )


def _until(offering: Offering) -> Millis:
    return offering.unavailable_until or Millis(0)


def _names(offerings: Iterable[Offering]) -> str:
    names = dict.fromkeys(
        f"{offering.type.name} (spot)" if offering.purchase is Purchase.SPOT else offering.type.name
        for offering in sorted(offerings, key=lambda it: (it.price, it.id))
    )
    shown = ", ".join(list(names)[:_NAMED])
    return shown if len(names) <= _NAMED else f"{shown} and {len(names) - _NAMED} more"


def _usd(amount: int) -> str:
    return f"${amount / MILLION:,.4f}/h"
