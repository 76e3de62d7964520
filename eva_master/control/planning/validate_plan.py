"""From a plan to what is to change, checked against what is true now.

A plan was made from a snapshot that may be old by the time it arrives. Whatever of it no longer
holds is dropped, a gang's entries together; the next round sees to the rest.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from eva_master.model.catalog import Offering
from eva_master.model.ids import InstanceId, JobId, OfferingId, RunId
from eva_master.model.job import JobKind
from eva_master.model.planning.plan import Assign, Hold, NewInstance, Plan, Suspend
from eva_master.model.planning.snapshot import RunView, Snapshot
from eva_master.model.resources import NOTHING, Resources

Where = InstanceId | int
"""A live instance, or a new one by its key in the plan."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What is left of a plan.

    Attributes:
        launches: New instances, each with at least one task run in `places`.
        places: Task runs that get a new target.
        holds: Task runs that wait, with the reason.
        suspends: Task runs that are to be stopped and wait.
        dropped: Task runs whose entries no longer hold.
    """

    launches: tuple[NewInstance, ...]
    places: tuple[tuple[RunId, Where], ...]
    holds: tuple[tuple[RunId, str], ...]
    suspends: tuple[tuple[RunId, str], ...]
    dropped: tuple[RunId, ...]


def reconcile(now: Snapshot, plan: Plan) -> Decision:
    """Check a plan against the present.

    Args:
        now: The cluster as it is, not as the policy saw it.
        plan: The policy's answer.

    Returns:
        The part of the plan that can be carried out: nobody over capacity, no offering over its
        limit or out of stock, gangs whole, nothing in transition moved.
    """
    check = _Check(now, plan)
    units = check.units()
    while overfull := check.overfull(units):
        # The youngest unit on the first overfull place gives way, until everything fits: each
        # step removes one, so this ends.
        units = {key: unit for key, unit in units.items() if key != overfull}
    placed = dict(pair for unit in units.values() for pair in unit)
    used = {where for where in placed.values() if isinstance(where, int)}
    known = check.runs
    return Decision(
        launches=tuple(launch for launch in plan.launches if launch.key in used),
        places=tuple((run, where) for run, where in placed.items() if known[run].instance != where),
        holds=tuple(
            (entry.run, entry.reason)
            for entry in plan.entries
            if isinstance(entry, Hold) and entry.run in known
        ),
        suspends=tuple(
            (entry.run, entry.reason)
            for entry in plan.entries
            if isinstance(entry, Suspend) and entry.run in known and not known[entry.run].pinned
        ),
        dropped=tuple(
            entry.run
            for entry in plan.entries
            if isinstance(entry, Assign) and entry.run not in placed
        ),
    )


Unit = tuple[tuple[RunId, Where], ...]


class _Check:
    """The present, indexed for the questions that a plan raises."""

    def __init__(self, now: Snapshot, plan: Plan) -> None:
        self.runs = {view.id: view for view in now.runs}
        self._jobs = {view.id: view for view in now.jobs}
        self._offerings: dict[Where, Offering] = {v.id: v.offering for v in now.instances}
        self._on_sale = {offering.id: offering for offering in now.catalog}
        self._now = now
        self._plan = plan
        for launch in plan.launches:
            sold = self._on_sale.get(launch.offering.id)
            if sold is not None and sold.available(now.now_ms):
                self._offerings[launch.key] = launch.offering

    def units(self) -> dict[RunId, Unit]:
        """Independent placements by their first task run; those of a gang are one."""
        places: dict[RunId, Where] = {}
        for entry in self._plan.entries:
            if isinstance(entry, Assign):
                places[entry.run] = entry.on
        by_job: defaultdict[JobId, list[RunId]] = defaultdict(list)
        for run in places:
            if (view := self.runs.get(run)) is not None:
                by_job[view.job].append(run)
        units: dict[RunId, Unit] = {}
        for job, runs in by_job.items():
            gang = self._jobs[job].kind is JobKind.GANG
            for group in [runs] if gang else [[run] for run in runs]:
                members = self._jobs[job].runs if gang else tuple(group)
                if self._holds(members, places):
                    units[group[0]] = tuple((run, places[run]) for run in group)
        return units

    def _holds(self, members: Iterable[RunId], places: dict[RunId, Where]) -> bool:
        return all(self._member_holds(self.runs[run], places.get(run)) for run in members)

    def _member_holds(self, view: RunView, where: Where | None) -> bool:
        if where is None:
            return view.instance is not None
        if view.pinned:
            return where == view.instance
        offering = self._offerings.get(where)
        return offering is not None and view.task.demand_on(offering.type.family) is not None

    def overfull(self, units: dict[RunId, Unit]) -> RunId | None:
        """A unit that has to give way because a place or an offering is overfull, if any is."""
        placed = {run: where for unit in units.values() for run, where in unit}
        comers: defaultdict[Where, list[RunId]] = defaultdict(list)
        for key, unit in units.items():
            for run, where in unit:
                if where != self.runs[run].instance:
                    comers[where].append(key)
        load = self._load(placed, comers)
        for where, keys in comers.items():
            if not load[where].fits(self._offerings[where].type.capacity):
                return max(keys)
        return self._over_limit(comers)

    def _load(
        self, placed: Mapping[RunId, Where], places: Collection[Where]
    ) -> Mapping[Where, Resources]:
        """What is taken of some places once task runs are where they are placed."""
        load: defaultdict[Where, Resources] = defaultdict(lambda: NOTHING)
        for view in self.runs.values() if places else ():
            where = placed.get(view.id, view.instance)
            if where is not None and where in places:
                demand = view.task.demand_on(self._offerings[where].type.family)
                assert demand is not None
                load[where] = load[where] + demand
        return load

    def _over_limit(self, comers: dict[Where, list[RunId]]) -> RunId | None:
        wanted: Counter[OfferingId] | None = None
        for where, keys in comers.items():
            if not isinstance(where, int):
                continue
            offering = self._offerings[where].id
            limit = self._on_sale[offering].limit
            if limit is None:
                continue
            if wanted is None:
                wanted = Counter(view.offering.id for view in self._now.instances)
            wanted[offering] += 1
            if wanted[offering] > limit:
                return max(keys)
        return None
