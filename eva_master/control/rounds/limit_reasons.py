"""Reasons of tasks that wait: the limit or budget that lets nothing be bought for them.

A policy that buys within what limits leave, or has tasks stand in lines and queues, knows of no
limit by its name. Its reason then says no more than that others come first.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from eva_master.control.limits import Unit, Usage
from eva_master.control.planning.allowance import Allowance
from eva_master.control.settings import Limits
from eva_master.model.catalog import Offering
from eva_master.model.ids import InstanceId, JobId, OfferingId, RunId
from eva_master.model.job import JobKind
from eva_master.model.planning.job_view import JobView
from eva_master.model.planning.plan import Assign, Hold, Plan
from eva_master.model.planning.snapshot import RunView, Snapshot
from eva_master.model.resources import NOTHING, Resources
from eva_master.packing.bins.placement_groups import NO_ROOM
from eva_master.packing.configuration.unplaced_reason import why_unplaced
from eva_master.packing.room import more_of, room_beside
from eva_master.packing.valuation.on_demand import can_host

_MOST_KINDS = 64
"""For tasks of so many jobs and demands the limit is looked for in one round."""
_NEW = -1
"""The key of an instance that is bought in no plan."""


@dataclass(frozen=True, slots=True)
class LimitReasons:
    """The limits of a partition and its cluster, for the users of tasks that wait.

    Attributes:
        limits: Limits of the cluster.
        live: Number of instances of the cluster, terminating ones included.
        owner_of: Returns the owner of a job.
        allowance: Returns the partition's allowance; `None` for a cluster that is not divided.
    """

    limits: Limits
    live: int
    owner_of: Callable[[JobId], str]
    allowance: Callable[[], Allowance] | None = None

    def told(self, plan: Plan, present: Snapshot) -> Plan:
        """A plan in which each task that waits for a limit has the limit in its reason.

        Args:
            plan: The policy's plan, as limits leave it.
            present: The partition as it is.
        """
        runs = {view.id: view for view in present.runs}
        held = {
            entry.run: entry
            for entry in plan.entries
            if isinstance(entry, Hold) and entry.run in runs and runs[entry.run].instance is None
        }
        if not held:
            return plan
        seen = _Seen(self, plan, present)
        said: dict[RunId, str] = {}
        for run, entry in held.items():
            if (why := seen.why(runs[run])) and why not in entry.reason:
                said[run] = why if entry.reason == NO_ROOM else f"{entry.reason}; {why}"
        if not said:
            return plan
        entries = tuple(
            replace(entry, reason=said[entry.run])
            if isinstance(entry, Hold) and entry.run in said
            else entry
            for entry in plan.entries
        )
        return replace(plan, entries=entries)


@dataclass(slots=True)
class _Seen:
    """The partition once a plan has bought what it buys."""

    of: LimitReasons
    plan: Plan
    present: Snapshot
    _known: dict[object, str] = field(default_factory=dict)
    _jobs: Mapping[JobId, JobView] = field(init=False)
    _left: Mapping[OfferingId, int] = field(init=False)
    _free: list[tuple[Offering, Resources]] = field(init=False)
    _allowance: Allowance | None = field(init=False)
    _usage: Usage = field(init=False)

    def __post_init__(self) -> None:
        now, plan = self.present, self.plan
        self._jobs = {job.id: job for job in now.jobs}
        used = Counter(view.offering.id for view in (*now.instances, *now.draining))
        used.update(launch.offering.id for launch in plan.launches)
        self._left = {
            offering.id: more
            for offering in now.catalog
            if (more := more_of(offering, used)) is not None
        }
        self._free = list(_free(now, plan))
        self._usage = Usage(now, self.of.limits, self.of.owner_of)
        self._allowance = None if self.of.allowance is None else self.of.allowance()

    def why(self, run: RunView) -> str:
        """The limit in the way of a task; empty if there is none, or if it has room."""
        key = run.job, run.task.demand
        if key not in self._known:
            if len(self._known) >= _MOST_KINDS:
                return ""
            self._known[key] = self._why(run)
        return self._known[key]

    def _why(self, run: RunView) -> str:
        now, demand = self.present, run.task.demand
        if self._has_room(run):
            return ""
        suits = [offering for offering in now.catalog if can_host(offering, run)]
        sold = [offering for offering in suits if self._left.get(offering.id, 1) > 0]
        buyable = [offering for offering in sold if offering.available(now.now_ms)]
        if not buyable:
            return why_unplaced(demand, tuple(sold) or now.catalog, now.now_ms)
        launches = self.plan.launches
        count, price = len(launches), sum(launch.offering.price for launch in launches)
        if self._allowance is not None:
            least = min(offering.price for offering in buyable)
            if why := self._allowance.refusal(count + 1, price + least):
                return why
        unit = Unit(self._jobs[run.job], (Assign(run.id, _NEW),))
        return self._usage.excess(unit, self.of.live + count)

    def _has_room(self, run: RunView) -> bool:
        """Whether a task, or its whole gang, fits the room that is free already."""
        job, free = self._jobs[run.job], list(self._free)
        gang = job.spec.kind is JobKind.GANG and len(job.runs) > 1
        together = (
            [member for member in self.present.runs if member.job == run.job] if gang else [run]
        )
        for member in together:
            if member.instance is not None:
                continue
            for number, (offering, room) in enumerate(free):
                need = member.task.demand_on(offering.type.family)
                if need is not None and need.fits(room):
                    free[number] = offering, room - need
                    break
            else:
                return False
        return True


def _free(now: Snapshot, plan: Plan) -> list[tuple[Offering, Resources]]:
    """The instances that are open to tasks, with the free room on each after a plan."""
    where: dict[RunId, InstanceId | int | None] = {run.id: run.instance for run in now.runs}
    where.update((entry.run, entry.on) for entry in plan.entries if isinstance(entry, Assign))
    closed = {member for pool in plan.pools for member in pool.closed}
    open_: dict[InstanceId | int, Offering] = {
        view.id: view.offering for view in now.instances if view.id not in closed
    }
    open_.update((launch.key, launch.offering) for launch in plan.launches)
    taken: defaultdict[InstanceId | int, Resources] = defaultdict(lambda: NOTHING)
    for run in now.runs:
        place = where[run.id]
        if place is not None and place in open_:
            need = run.task.demand_on(open_[place].type.family)
            taken[place] += NOTHING if need is None else need
    return [
        (offering, room_beside(offering, taken[name]))
        for name, offering in open_.items()
        if taken[name].fits(offering.type.capacity)
    ]
