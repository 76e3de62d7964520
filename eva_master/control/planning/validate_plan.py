"""From a plan to what is to change, checked against what is true now.

A plan was made from a picture that may be old by the time it arrives. Whatever of it no longer
holds is dropped, a gang's entries together; the next round sees to the rest.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from eva_master.model.catalog import Offering
from eva_master.model.ids import CopyId, InstanceId, JobId, OfferingId
from eva_master.model.job import JobKind
from eva_master.model.planning.plan import Hold, NewInstance, Place, Plan, Suspend
from eva_master.model.planning.snapshot import CopyView, Snapshot
from eva_master.model.resources import NOTHING, Resources

Where = InstanceId | int
"""A live instance, or a new one by its key in the plan."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What is left of a plan.

    Attributes:
        launches: New instances, each with at least one copy in `places`.
        places: Copies that get a new target.
        holds: Copies that wait, with the reason.
        suspends: Copies that are to be stopped and wait.
        dropped: Copies whose entries no longer hold.
    """

    launches: tuple[NewInstance, ...]
    places: tuple[tuple[CopyId, Where], ...]
    holds: tuple[tuple[CopyId, str], ...]
    suspends: tuple[tuple[CopyId, str], ...]
    dropped: tuple[CopyId, ...]


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
    known = check.copies
    return Decision(
        launches=tuple(launch for launch in plan.launches if launch.key in used),
        places=tuple(
            (copy, where) for copy, where in placed.items() if known[copy].instance != where
        ),
        holds=tuple(
            (entry.copy, entry.reason)
            for entry in plan.entries
            if isinstance(entry, Hold) and entry.copy in known
        ),
        suspends=tuple(
            (entry.copy, entry.reason)
            for entry in plan.entries
            if isinstance(entry, Suspend) and entry.copy in known and not known[entry.copy].pinned
        ),
        dropped=tuple(
            entry.copy
            for entry in plan.entries
            if isinstance(entry, Place) and entry.copy not in placed
        ),
    )


Unit = tuple[tuple[CopyId, Where], ...]


class _Check:
    """The present, indexed for the questions that a plan raises."""

    def __init__(self, now: Snapshot, plan: Plan) -> None:
        self.copies = {view.id: view for view in now.copies}
        self._jobs = {view.id: view for view in now.jobs}
        self._offerings: dict[Where, Offering] = {v.id: v.offering for v in now.instances}
        self._on_sale = {offering.id: offering for offering in now.catalog}
        self._now = now
        self._plan = plan
        for launch in plan.launches:
            sold = self._on_sale.get(launch.offering.id)
            if sold is not None and sold.available(now.now_ms):
                self._offerings[launch.key] = launch.offering

    def units(self) -> dict[CopyId, Unit]:
        """The placements that hold by themselves, by their first copy: a gang's stand together."""
        places: dict[CopyId, Where] = {}
        for entry in self._plan.entries:
            if isinstance(entry, Place):
                places[entry.copy] = entry.on
        by_job: defaultdict[JobId, list[CopyId]] = defaultdict(list)
        for copy in places:
            if (view := self.copies.get(copy)) is not None:
                by_job[view.job].append(copy)
        units: dict[CopyId, Unit] = {}
        for job, copies in by_job.items():
            gang = self._jobs[job].kind is JobKind.GANG
            for group in [copies] if gang else [[copy] for copy in copies]:
                members = self._jobs[job].copies if gang else tuple(group)
                if self._holds(members, places):
                    units[group[0]] = tuple((copy, places[copy]) for copy in group)
        return units

    def _holds(self, members: Iterable[CopyId], places: dict[CopyId, Where]) -> bool:
        return all(self._member_holds(self.copies[copy], places.get(copy)) for copy in members)

    def _member_holds(self, view: CopyView, where: Where | None) -> bool:
        if where is None:
            return view.instance is not None
        if view.pinned:
            return where == view.instance
        offering = self._offerings.get(where)
        return offering is not None and view.task.demand_on(offering.type.family) is not None

    def overfull(self, units: dict[CopyId, Unit]) -> CopyId | None:
        """A unit that has to give way because a place or an offering is overfull, if any is."""
        placed = {copy: where for unit in units.values() for copy, where in unit}
        comers: defaultdict[Where, list[CopyId]] = defaultdict(list)
        for key, unit in units.items():
            for copy, where in unit:
                if where != self.copies[copy].instance:
                    comers[where].append(key)
        load = self._load(placed, comers)
        for where, keys in comers.items():
            if not load[where].fits(self._offerings[where].type.capacity):
                return max(keys)
        return self._over_limit(comers)

    def _load(
        self, placed: Mapping[CopyId, Where], places: Collection[Where]
    ) -> Mapping[Where, Resources]:
        """What is taken of some places once copies are where they are placed."""
        load: defaultdict[Where, Resources] = defaultdict(lambda: NOTHING)
        for view in self.copies.values() if places else ():
            where = placed.get(view.id, view.instance)
            if where is not None and where in places:
                demand = view.task.demand_on(self._offerings[where].type.family)
                assert demand is not None
                load[where] = load[where] + demand
        return load

    def _over_limit(self, comers: dict[Where, list[CopyId]]) -> CopyId | None:
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
