"""Reasons of tasks that wait: the limit or budget that lets nothing be bought for them.

A policy that buys within what limits leave, or has tasks stand in lines and queues, knows of no
limit by its name. Its reason then says no more than that others come first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from eva_master.control.planning.allowance import Allowance
from eva_master.control.rounds.rules.cluster_limits import Usage
from eva_master.control.settings import Limits
from eva_master.model.catalog import Offering, at_price_with_disk
from eva_master.model.planning.plan import Assign
from eva_master.model.planning.snapshot import RunView
from eva_master.model.resources import NOTHING, Resources
from eva_master.model.values import replace
from eva_master.packing.bins.placement_groups import NO_ROOM
from eva_master.packing.configuration.unplaced_reason import why_unplaced
from eva_master.packing.plan_effect import PlanEffect, Unit
from eva_master.packing.room import Place, by_offering, more_of, need_on, room_left
from eva_master.packing.valuation.on_demand import can_host
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import InstanceId, JobId, RunId

_MOST_KINDS = 64
"""For tasks of so many jobs and demands the limit is looked for in one round."""
_GIB_MIB = 1_024
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

    def told(self, effect: PlanEffect) -> PlanEffect:
        """A plan in which each task that waits for a limit has the limit in its reason.

        Args:
            effect: The policy's plan, as limits leave it.
        """
        runs = effect.runs
        held = {
            run: reason
            for run, reason in effect.held.items()
            if run in runs and runs[run].instance is None
        }
        if not held:
            return effect
        seen, said = _Seen(self, effect), dict[RunId, str]()
        for run, reason in held.items():
            causes = [why for why in seen.why(runs[run]) if why not in reason]
            if causes:
                said[run] = "; ".join(causes if reason == NO_ROOM else [reason, *causes])
        return effect.explain(said)


class _Seen:
    """The partition once a plan has bought what it buys."""

    def __init__(self, limits: LimitReasons, effect: PlanEffect) -> None:
        now, launches = effect.now, effect.plan.launches
        self._effect = effect
        self._known: dict[object, tuple[str, ...]] = {}
        used = Counter(by_offering(now.instances))
        used.update([view.offering.id for view in now.draining])
        used.update([launch.offering.id for launch in launches])
        self._left = {
            offering.id: more
            for offering in now.catalog
            if (more := more_of(offering, used)) is not None
        }
        self._usage = Usage(now, limits.limits, limits.owner_of, limits.live + len(launches))
        self._allowance = None if limits.allowance is None else limits.allowance()

    @cached_property
    def _free(self) -> Sequence[tuple[Place, Offering, Resources]]:
        """Room on each instance; looked at only where something is in the way of a task."""
        effect = self._effect
        closed = {member for pool in effect.plan.pools for member in pool.closed}
        rooms = room_left(effect.offerings, effect.now.runs, effect.places)
        return [
            (place, offering, rooms[place])
            for place, offering in effect.offerings.items()
            if place not in closed and NOTHING.fits(rooms[place])
        ]

    def why(self, run: RunView) -> tuple[str, ...]:
        """The limit in the way of a task, and the disk that it lacks; empty if it has room."""
        key = run.job, run.task.demand
        if key not in self._known:
            if len(self._known) >= _MOST_KINDS:
                return ()
            limit = self._limit(run)
            stands = bool(limit) and not self._has_room(run)
            causes = (limit, self._lacking_disk(run)) if stands else ()
            self._known[key] = tuple(filter(None, causes))
        return self._known[key]

    def _limit(self, run: RunView) -> str:
        """The limit that lets nothing be bought for a task; empty if something may be."""
        now, demand = self._effect.now, run.task.demand
        suits = [offering for offering in now.catalog if can_host(offering, run)]
        sold = [offering for offering in suits if self._left.get(offering.id, 1) > 0]
        buyable = [offering for offering in sold if offering.available(now.now_ms)]
        if not buyable:
            return why_unplaced(demand, tuple(sold) or now.catalog, now.now_ms)
        launches = self._effect.launched.values()
        count, price = len(launches), sum(offering.price for offering in launches)
        if self._allowance is not None:
            least = min(
                at_price_with_disk(offering, need_on(run.task, offering).disk_mib).price
                for offering in buyable
            )
            if why := self._allowance.refusal(count + 1, price + least):
                return why
        unit = Unit(self._effect.jobs[run.job], (Assign(run.id, _NEW),))
        return self._usage.refusal(unit)

    def _lacking_disk(self, run: RunView) -> str:
        """The instance on which a task lacks nothing but disk; empty if there is none."""
        most: tuple[int, InstanceId] | None = None
        if not any(need.disk_mib for _, need in run.task.demand):
            return ""
        for place, offering, room in self._free:
            need = run.task.demand_on(offering.type.family)
            if need is None or isinstance(place, int) or need.disk_mib <= room.disk_mib:
                continue
            if replace(need, disk_mib=0).fits(room):
                most = max(most or (-1, place), (room.disk_mib, place))
        if most is None:
            return ""
        free_gib = most[0] / _GIB_MIB
        return f"on {most[1]} it would fit but for the disk, of which {free_gib:g} GiB are left"

    def _has_room(self, run: RunView) -> bool:
        """Whether a task, or its whole gang, fits the room that is free already."""
        job, free = self._effect.jobs[run.job], list(self._free)
        gang = job.spec.kind is JobKind.GANG and len(job.runs) > 1
        together = (
            [member for member in self._effect.now.runs if member.job == run.job] if gang else [run]
        )
        for member in together:
            if member.instance is not None:
                continue
            for number, (place, offering, room) in enumerate(free):
                need = member.task.demand_on(offering.type.family)
                if need is not None and need.fits(room):
                    free[number] = place, offering, room - need
                    break
            else:
                return False
        return True
