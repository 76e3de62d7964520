"""Nothing is bought that costs many times what its tasks are worth: `price_limit`.

Where the cloud refuses the types that suit a task, the cheapest that is left may cost a hundred
times as much. Such a task waits. A deadline that leaves no time to wait may exceed the limit, by
the cheapest instance that is on sale.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from eva_master.control.limits import Unit, held_back, units
from eva_master.model.arithmetic.durations import clock
from eva_master.model.arithmetic.loop_time import AS_LOOP, WallClock
from eva_master.model.catalog import Offering, Purchase, tally
from eva_master.model.ids import MILLION, JobId, Millis, OfferingId, RunId
from eva_master.model.job import JobKind
from eva_master.model.planning.job_view import JobView
from eva_master.model.planning.plan import Assign, Duplicate, Hold, Plan, left, pooled
from eva_master.model.planning.snapshot import RunView, Snapshot
from eva_master.model.planning.standing import Pool
from eva_master.packing.valuation.job_valuation import Reservation
from eva_master.packing.valuation.on_demand import OnDemandPrices, by_job, can_host, value_on

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
    """How much may be paid for tasks at one moment.

    Attributes:
        times_ppm: How many times the sum of its tasks' reservation prices an instance may cost, in
            millionths; `None` for any price.
        prices: What tasks are worth.
        urgent: Jobs whose deadlines leave no time to wait.
        dear: Offerings that the last plan chose and were too dear: hidden from the next one, so
            that the policy finds another.
        judged: The task runs that plan was about.
        wall: The wall clock, which users read.
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
            A function that answers in millionths of micro-dollars per hour.
        """
        return None if self.times_ppm is None else _Worths(self, now).allowed

    # -- before a policy plans -------------------------------------------------------------------

    def shown(self, seen: Snapshot, *, pools: bool) -> Masked:
        """Hide offerings that nothing can be bought of.

        Args:
            seen: The partition as it is.
            pools: Whether instances are bought for pools, too: for more tasks than there are.
        """
        candidates = [it for it in seen.catalog if _buyable(it, seen.now_ms)]
        scarce = any(it.limit or not it.available(seen.now_ms) for it in _rentable(seen.catalog))
        if self.times_ppm is None or not candidates or not (scarce or self.dear):
            return Masked(seen)
        dear = {it.id: it for it in candidates if it.id in self.dear}
        if dear and self._are_needed(seen, dear):
            dear = {}
        if scarce and not pools:
            dear.update((it.id, it) for it in self._out_of_reach(seen, candidates))
        if not dear:
            return Masked(seen)
        times = self.times_ppm / MILLION
        why = f"it costs more than {times:g} times what the tasks are worth: price_limit"
        catalog = tuple(
            replace(it, unavailable_until=_NEVER_MS, why_unavailable=why) if it.id in dear else it
            for it in seen.catalog
        )
        return Masked(replace(seen, catalog=catalog), dear)

    def _are_needed(self, seen: Snapshot, dear: Mapping[OfferingId, Offering]) -> bool:
        """Whether a task run has come since that nothing else can host, and that is worth one."""
        worths = _Worths(self, seen)
        fresh = [run for run in seen.runs if run.instance is None and run.id not in self.judged]
        others = [it for it in seen.catalog if it.id not in dear and worths.on_sale(it)]
        return any(
            can_host(it, run) and not worths.is_too_dear(worths.mates(run), it)
            for run in fresh
            if not any(can_host(other, run) for other in others)
            for it in dear.values()
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

    def explained(self, plan: Plan, seen: Snapshot, masked: Masked) -> Plan:
        """A policy's plan that says of which tasks the price is what they wait for.

        Args:
            plan: The policy's.
            seen: The partition, with all that is on sale.
            masked: What was hidden from the policy.
        """
        if not masked.offerings:
            return plan
        worths = _Worths(self, seen)
        open_ = [it for it in seen.catalog if it.id not in masked.offerings and worths.on_sale(it)]
        waits = dict[RunId, str]()
        for run in seen.runs:
            if run.instance is None and not any(can_host(it, run) for it in open_):
                mates = worths.mates(run)
                dear = [
                    it
                    for it in masked.offerings.values()
                    if can_host(it, run) and worths.is_too_dear(mates, it)
                ]
                if dear:
                    cheapest = min(dear, key=lambda it: (it.price, it.id))
                    waits[run.id] = worths.why(mates, cheapest)
        entries = tuple(
            Hold(entry.run, waits[entry.run])
            if isinstance(entry, Hold) and entry.run in waits
            else entry
            for entry in plan.entries
        )
        lined = {job for line in plan.lines for job in line.jobs}
        silent = waits.keys() - {entry.run for entry in plan.entries}
        more = (Hold(run, waits[run]) for run in waits if run in silent)
        fresh = tuple(it for it in more if worths.runs[it.run].job not in lined)
        return replace(plan, entries=(*entries, *fresh))

    # -- after ------------------------------------------------------------------------------------

    def within(self, plan: Plan, now: Snapshot) -> tuple[Plan, frozenset[OfferingId]]:
        """The part of a plan that buys nothing too dear.

        Args:
            plan: The policy's.
            now: The partition as it is, with the sizes of the plan.

        Returns:
            That part, in which those who were to have what is too dear wait, with the reason; and
            what was too dear.
        """
        if self.times_ppm is None or not plan.launches:
            return plan, frozenset()
        check = _Check(_Worths(self, now), plan, now)
        return check.outcome()


class _Worths:
    """Worth of the task runs of a snapshot, and what may be paid for them."""

    def __init__(self, limit: PriceLimit, now: Snapshot) -> None:
        self._wall = limit.wall
        assert limit.times_ppm is not None
        self.times_ppm = limit.times_ppm
        self.runs = {run.id: run for run in now.runs}
        self.urgent = limit.urgent
        self._prices = limit.prices
        self._now = now
        self.jobs: Mapping[JobId, JobView] = {job.id: job for job in now.jobs}
        self.of_job = by_job(now.runs)
        self._known: dict[RunId, Reservation] = {}
        self._there = tally(view.offering for view in (*now.instances, *now.draining))

    def mates(self, run: RunView) -> Sequence[RunView]:
        """The task runs that have to be placed together with one."""
        return self.of_job[run.job] if self.jobs[run.job].spec.kind is JobKind.GANG else [run]

    def reservation(self, run: RunView) -> Reservation:
        """Worth of a task run on demand."""
        if run.id not in self._known:
            self._known |= self._prices.of_job(self.jobs[run.job], self.of_job[run.job])
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
        prices = (it.price for it in self._now.catalog if self.on_sale(it) and can_host(it, run))
        return min(prices, default=0)

    def on_sale(self, offering: Offering) -> bool:
        """Whether one more instance of an offering may be bought now."""
        return _buyable(offering, self._now.now_ms) and not self._is_used_up(offering)

    def _is_used_up(self, offering: Offering) -> bool:
        return offering.limit is not None and self._there[offering.id] >= offering.limit

    def groups(self) -> list[tuple[RunView, int]]:
        """One of each kind of task runs that may be placed, and how many, those worth most first.

        Of large arrays those count that the snapshot does not show.
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
        found = [(first[key], count) for key, count in counts.items()]
        return sorted(found, key=lambda it: -self.reservation(it[0]).price * it[1])

    def why(self, runs: Sequence[RunView], offering: Offering) -> str:
        """Why task runs that belong together wait, for their users."""
        worth = sum(self.value(run, offering) for run in runs)
        whose = "its reservation price" if len(runs) == 1 else "their reservation prices"
        times = offering.price / worth if worth else 0
        told = f"{times:,.0f}" if times >= 10 else f"{times:.1f}"
        return (
            f"{self._awaited(runs)}{offering.type.name} for {_usd(offering.price)} would cost"
            f" {told} times {whose}, {_usd(worth)}, and {self.times_ppm / MILLION:g} times are"
            " allowed (price_limit)"
        )

    def _awaited(self, runs: Sequence[RunView]) -> str:
        """The types that tasks wait for, and what is known of when they can be had."""
        suitable = [
            it
            for it in self._now.catalog
            if it.purchase is not Purchase.OWNED
            and it.limit != 0
            and not self.on_sale(it)
            and any(
                can_host(it, run) and self.times_ppm * self.value(run, it) >= it.price * MILLION
                for run in runs
            )
        ]
        refused = [it for it in suitable if not it.available(self._now.now_ms)]
        used_up = [it for it in suitable if it.available(self._now.now_ms)]
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

    def __init__(self, worths: _Worths, plan: Plan, now: Snapshot) -> None:
        self._worths = worths
        self._plan = plan
        self._now = now
        self._offerings = {it.key: it.offering for it in plan.launches}
        self._pools = {
            key: pool for pool in plan.pools for key in pool.members if isinstance(key, int)
        }
        self._held: dict[RunId, str] = {}
        self._dear: set[OfferingId] = set()

    def outcome(self) -> tuple[Plan, frozenset[OfferingId]]:
        """Rest of the plan, and the offerings that were too dear."""
        kept = units(self._plan, self._now)
        while True:
            dear = self._too_dear(kept)
            cut = [it for it in kept if not dear.isdisjoint(_bought(it))]
            for unit in cut:
                self._hold(unit, dear)
            kept = [it for it in kept if dear.isdisjoint(_bought(it))]
            if not cut:
                break
        gone = self._too_dear(kept)  # members of pools, on which nobody is placed
        for key in sorted(gone):
            self._hold_claimants(key)
        if not self._held and not gone:
            return self._hastened(self._plan, kept), frozenset()
        placed = {entry.run for unit in kept for entry in unit.entries}
        views = self._worths.runs
        plan = left(self._plan, gone)
        entries = tuple(held_back(plan.entries, self._held, views))
        stated = {entry.run for entry in entries}
        entries += tuple(
            Hold(run, why)
            for run, why in self._held.items()
            if run not in stated and run not in placed and views[run].instance is None
        )
        used = {entry.on for entry in entries if isinstance(entry, Assign | Duplicate)}
        used.update(pooled(plan))
        launches = tuple(launch for launch in plan.launches if launch.key in used)
        plan = replace(plan, entries=entries, launches=launches)
        return self._hastened(plan, kept), frozenset(self._dear)

    def _too_dear(self, kept: Sequence[Unit]) -> set[int]:
        """Keys of new instances that cost more than may be paid for those who are to be there."""
        tasks = self._tasks(kept)
        found = set()
        for key, offering in self._offerings.items():
            pool = self._pools.get(key)
            if key not in tasks and pool is None:
                continue
            allowed = sum(self._worths.allowed(run, offering) for run in tasks[key])
            if pool is not None:
                more = self._for_pool(pool, offering)
                if more is None:
                    continue
                allowed += more
            if offering.price * MILLION > allowed:
                found.add(key)
                self._dear.add(offering.id)
        return found

    def _tasks(self, kept: Sequence[Unit]) -> defaultdict[int, list[RunView]]:
        """Task runs that are to be on each new instance."""
        found: defaultdict[int, list[RunView]] = defaultdict(list)
        for unit in kept:
            for entry in unit.entries:
                if isinstance(entry.on, int) and entry.on in self._offerings:
                    found[entry.on].append(self._worths.runs[entry.run])
        return found

    def _claimants(self, pool: Pool) -> list[tuple[RunView, int]]:
        """Task runs that wait in line for room in a pool, each with how many more are like it."""
        jobs = dict.fromkeys(
            job for line in self._plan.lines if pool.name in line.pools for job in line.jobs
        )
        found: list[tuple[RunView, int]] = []
        for job in jobs:
            if (view := self._worths.jobs.get(job)) is None:
                continue
            runs = self._worths.of_job.get(job, ())
            waiting = [(run, 1) for run in runs if run.instance is None]
            found += waiting
            if waiting and view.array.unseen:
                found.append((waiting[0][0], view.array.unseen))
        return found

    def _for_pool(self, pool: Pool, offering: Offering) -> int | None:
        """Price that may be paid for a member of a pool beside the task runs placed on it.

        It is bought for those who wait in its lines, or for as many tasks like these as the
        operator has it hold. `None` for any price: nobody waits for it, so the operator has it.
        """
        there = [it for it in self._claimants(pool) if can_host(offering, it[0])]
        if not there:
            return None
        each = [(self._worths.allowed(run, offering), count) for run, count in there]
        asked = pool.room_for * max(it for it, _ in each)
        return max(asked, sum(it * count for it, count in each))

    def _hold(self, unit: Unit, dear: Collection[int]) -> None:
        runs = [self._worths.runs[entry.run] for entry in unit.entries]
        offering = max(
            (self._offerings[key] for key in _bought(unit) if key in dear),
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

    def _hastened(self, plan: Plan, kept: Sequence[Unit]) -> Plan:
        """A plan that says of which new instances a deadline is why they may cost so much."""
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
            return plan
        return replace(
            plan,
            launches=tuple(
                replace(it, reason=reasons[it.key]) if it.key in reasons else it
                for it in plan.launches
            ),
        )


def _bought(unit: Unit) -> set[int]:
    return {entry.on for entry in unit.entries if isinstance(entry.on, int)}


def _rentable(catalog: Iterable[Offering]) -> Iterator[Offering]:
    return (it for it in catalog if it.purchase is not Purchase.OWNED and it.limit != 0)


def _buyable(offering: Offering, now: Millis) -> bool:
    """Whether an instance may be bought now, as far as its limit allows."""
    return (
        offering.purchase is not Purchase.OWNED and offering.limit != 0 and offering.available(now)
    )


def _until(offering: Offering) -> Millis:
    return offering.unavailable_until or Millis(0)


def _names(offerings: Iterable[Offering]) -> str:
    names = dict.fromkeys(
        f"{it.type.name} (spot)" if it.purchase is Purchase.SPOT else it.type.name
        for it in sorted(offerings, key=lambda it: (it.price, it.id))
    )
    shown = ", ".join(list(names)[:_NAMED])
    return shown if len(names) <= _NAMED else f"{shown} and {len(names) - _NAMED} more"


def _usd(amount: int) -> str:
    return f"${amount / MILLION:,.4f}/h"
