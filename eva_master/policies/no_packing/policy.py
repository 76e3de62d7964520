"""Each task alone on the cheapest instance that holds it, from its start to its end."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass

from eva_master.model.catalog import Offering
from eva_master.model.fleet.job_keys import reads_none
from eva_master.model.job import TaskSpec
from eva_master.model.planning.plan import Assign, Hold, NewInstance, Plan, PlanEntry, PolicyMemory
from eva_master.model.planning.reasons import Hosting, Occupant, Reasons, Where
from eva_master.model.planning.snapshot import RunView, Snapshot
from eva_master.model.values import by_id
from eva_master.packing.between_places import between_places
from eva_master.packing.configuration.unplaced_reason import why_unplaced
from eva_master.packing.planner_cache import PlannerCache
from eva_master.packing.precedence import precedence
from eva_master.packing.room import may_buy_one
from eva_master.packing.valuation.gang_pace import GangPart
from eva_master.packing.valuation.job_valuation import gang_parts
from eva_master.packing.valuation.reservation_price import (
    Demand,
    Rates,
    cheapest_first,
    price_on,
    purchasable,
    rates,
    reservation,
    reservation_price,
)
from eva_master.ports import Planned, PolicyKind
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import MILLION, Family, InstanceId, OfferingId, RunId


@dataclass(frozen=True, slots=True)
class Config:
    """Settings.

    Attributes:
        explained: Give reasons with every plan; they decide nothing.
    """

    explained: bool = True


class NoPacking:
    """Places waiting tasks only, and never moves one.

    A task goes to its reservation-price offering; where that has reached its limit, to the
    cheapest one that has not.
    """

    name = "no_packing"

    def __init__(self, config: Config) -> None:
        self._config = config
        self._cache = PlannerCache()
        self._reserved: _Reserved = {}
        self._offerings: tuple[Offering, ...] = ()
        """The offerings on sale behind `_reserved`, which is valid while these do not change."""

    def plan(self, snapshot: Snapshot, memory: PolicyMemory | None) -> Planned:
        """Give every waiting task an instance of its own; gangs only as a whole."""
        live = {instance.id for instance in snapshot.instances}
        waiting_jobs = {run.job for run in _waiting(snapshot.runs, live)}
        if not waiting_jobs and not self._config.explained:
            return Plan(), memory
        market = _Market(snapshot, self._cache)
        if market.offerings != self._offerings:
            self._offerings, self._reserved = market.offerings, {}
        market.reserved = self._reserved
        entries: list[PlanEntry] = []
        runs = by_id(snapshot.runs)
        waiting_jobs -= between_places(snapshot, live)
        jobs = [job for job in snapshot.jobs if job.id in waiting_jobs]
        for job in sorted(jobs, key=precedence):
            waiting = _waiting(map(runs.__getitem__, job.runs), live)
            groups = [waiting] if job.spec.kind is JobKind.GANG else [[run] for run in waiting]
            for group in groups:
                entries.extend(market.buy(group))
        entries.sort(key=lambda entry: entry.run)
        launches = tuple(market.launches)
        hostings: tuple[Hosting, ...] = ()
        if self._config.explained:
            hostings = _hostings(snapshot, launches, entries, market.value)
        return Plan(launches, tuple(entries), reasons=Reasons(hostings)), memory


_RESERVATIONS_KEPT = 65_536
"""Different tasks whose reservation offerings are remembered at most."""
_Reserved = dict[tuple[Demand, GangPart], Offering | None]
"""The reservation offering by demand and by what the task's gang needs of it."""


class _Market:
    """Offerings on sale, less the purchases of this plan.

    Attributes:
        offerings: Offerings that can be bought, cheapest first.
        reserved: Reservation offerings found so far.
        launches: Purchases of this plan.
    """

    def __init__(self, snapshot: Snapshot, cache: PlannerCache) -> None:
        self._snapshot = snapshot
        self._runs = by_id(snapshot.runs)
        self._jobs = by_id(snapshot.jobs)
        catalog = cheapest_first(snapshot.catalog)
        now_ms = snapshot.now_ms
        self.offerings = tuple(each for each in catalog if purchasable(each, now_ms))
        self._used = Counter(instance.offering.id for instance in snapshot.instances)
        occupied = {run.instance for run in snapshot.runs}
        self._empty: dict[OfferingId, list[InstanceId]] = {}
        for instance in snapshot.instances:
            if instance.id not in occupied:
                self._empty.setdefault(instance.offering.id, []).append(instance.id)
        self._usable = self.offerings
        if self._empty:
            self._usable = tuple(
                each for each in catalog if purchasable(each, now_ms) or each.id in self._empty
            )
        """Offerings that can be bought, or of which an instance is empty though no more can be
        bought.
        """
        self.reserved: _Reserved = {}
        self._measured = cache.measured_rates(snapshot.standalone)
        self._expected = cache.type_speeds(snapshot)
        self._parts: dict[RunId, GangPart] = {}
        self.launches: list[NewInstance] = []

    def buy(self, group: list[RunView]) -> list[PlanEntry]:
        """Place all task runs of a group, or hold all of them."""
        used, keys = Counter(self._used), len(self.launches)
        taken: list[tuple[OfferingId, InstanceId]] = []
        entries: list[PlanEntry] = []
        for run in group:
            part = self._part(run)
            offering = reservation(run.task.demand, self._open(), part.speeds, part.others)
            if offering is None:
                self._used, self.launches = used, self.launches[:keys]
                for id_, instance in reversed(taken):
                    self._empty[id_].insert(0, instance)
                return self._hold(group, run)
            if self._empty.get(offering.id):
                taken.append((offering.id, self._empty[offering.id].pop(0)))
                entries.append(Assign(run.id, taken[-1][1]))
            else:
                self.launches.append(NewInstance(len(self.launches), offering))
                self._used[offering.id] += 1
                entries.append(Assign(run.id, self.launches[-1].key))
        return entries

    def value(self, run: RunView, family: Family) -> int:
        """The task run's reservation price times its speed on a family, limits aside."""
        part = self._part(run)
        key = run.task.demand, part
        if key not in self.reserved:
            if len(self.reserved) >= _RESERVATIONS_KEPT:
                self.reserved.clear()
            reserved = reservation(run.task.demand, self.offerings, part.speeds, part.others)
            self.reserved[key] = reserved
        offering = self.reserved[key]
        charge = reservation_price(offering) + part.others if part.split else None
        return price_on(family, offering, part.speeds, charge, split=part.split)

    def _part(self, run: RunView) -> GangPart:
        """Part of a task run in its gang, or by itself."""
        if run.id not in self._parts:
            job = self._jobs[run.job]
            group = job.runs if job.spec.kind is JobKind.GANG else (run.id,)
            together = [name for name in group if name in self._runs]
            tasks = [self._runs[name].task for name in together]
            rated = [(task.demand, self._rates(task)) for task in tasks]
            gang_parts_found = gang_parts(
                rated, self.offerings, split=job.spec.training.split_batch
            )
            self._parts.update(zip(together, gang_parts_found, strict=True))
        return self._parts[run.id]

    def _rates(self, task: TaskSpec) -> Rates:
        workload = task.workload
        return rates(task, self._measured.get(workload, ()), self._expected.of(workload))

    def _open(self) -> list[Offering]:
        return [
            offering
            for offering in self._usable
            if self._empty.get(offering.id) or self._buyable(offering)
        ]

    def _buyable(self, offering: Offering) -> bool:
        """Whether one more of an offering can be bought."""
        within = may_buy_one(offering, self._used)
        return within and purchasable(offering, self._snapshot.now_ms)

    def _hold(self, group: list[RunView], stuck: RunView) -> list[PlanEntry]:
        why = why_unplaced(stuck.task.demand, self._snapshot.catalog, self._snapshot.now_ms)

        def reason(run: RunId) -> str:
            return why if run == stuck.id else f"its gang waits for {stuck.id}: {why}"

        return [Hold(run.id, reason(run.id)) for run in group]


def _waiting(runs: Iterable[RunView], live: Set[InstanceId]) -> list[RunView]:
    """Task runs that need a place and may be given one."""
    return [run for run in runs if not run.pinned and run.instance not in live]


def _hostings(
    snapshot: Snapshot,
    launches: Sequence[NewInstance],
    entries: Sequence[PlanEntry],
    value: Callable[[RunView, Family], int],
) -> tuple[Hosting, ...]:
    """Price of each instance, and worth of its tasks."""
    new = {entry.run: entry.on for entry in entries if isinstance(entry, Assign)}
    offerings: dict[Where, Offering] = {view.id: view.offering for view in snapshot.instances}
    offerings.update((launch.key, launch.offering) for launch in launches)
    occupants: defaultdict[Where, list[Occupant]] = defaultdict(list)
    for run in snapshot.runs:
        place = new.get(run.id, run.instance)
        if place is not None and place in offerings:
            worth = value(run, offerings[place].type.family)
            occupants[place].append(Occupant(run.id, worth, MILLION, worth))
    return tuple(
        Hosting(
            place,
            offering.type.name,
            offering.price,
            sum(occupant.value_micro_usd_per_hour for occupant in occupants[place]),
            tuple(occupants[place]),
        )
        for place, offering in offerings.items()
        if place in occupants
    )


POLICY = PolicyKind(
    name=NoPacking.name,
    config=Config,
    build=NoPacking,
    packs=False,
    reads=reads_none,
)
