"""The rounds of the policy CloudCoaster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from eva_master.model.ids import MILLION, InstanceId, Millis
from eva_master.model.planning.plan import Plan, PolicyMemory
from eva_master.model.planning.snapshot import Lendable, Snapshot
from eva_master.model.planning.standing import Line, Pool
from eva_master.packing.toolkit import (
    OpenInstances,
    PlannerCache,
    UnplacedGroup,
    build_plan,
    open_instances,
    place,
    waiting,
    without_interference,
)
from eva_master.policies.cloudcoaster.config import Config
from eva_master.policies.cloudcoaster.filling import Filling, holds_short
from eva_master.policies.cloudcoaster.market import is_spot, slots_of
from eva_master.policies.cloudcoaster.order import first_served, task_ms
from eva_master.policies.cloudcoaster.sizing import needed

NAME = "cloudcoaster"
STEADY, TRANSIENT, SHARED = "steady", "transient", "shared"
_VERSION = 1


class CloudCoaster:
    """Keeps room for short tasks: some of it on demand, the rest on spot instances.

    Tasks that find no room stand in one line for what becomes free. The pools grow with the work
    that waits, as far as the money goes. Members on demand stay up to their share once they are
    there; others leave when there has been no need for a while and nobody is on them.
    """

    name = NAME

    def __init__(self, config: Config) -> None:
        self._config = config
        self._cache = PlannerCache()

    def plan(
        self, snapshot: Snapshot, memory: PolicyMemory | None
    ) -> tuple[Plan, PolicyMemory | None]:
        """Fill the room that there is, add what is needed, and have the rest stand in line."""
        config = self._config
        instances = open_instances(snapshot, self._cache)
        unknown_ms = config.clear_within_s * 1000
        order = first_served(snapshot.runs, snapshot.now_ms, unknown_ms, config.age_cap)
        filling = Filling(config, snapshot, instances, order)
        groups = waiting(snapshot)
        gangs = [group for group in groups if not group.job.stands_in_line]
        unplaced = place(instances, gangs, filling.place_gangs)
        singles = [group for group in groups if group.job.stands_in_line]
        waits = filling.place(singles)
        occupants = without_interference if config.explained else None
        plan = build_plan(snapshot, instances, (*unplaced, *waits), occupants)
        needed_ms = _needed_ms(memory)
        if filling.short_of_room:
            needed_ms = snapshot.now_ms
        backlog = self._backlog(waits)
        pools = self._pools(snapshot, instances, needed_ms, backlog)
        if waits and filling.shared:
            pools = (*pools, _lent(filling.shared))
        hosted = dict.fromkeys(it.group.job.id for it in waits if filling.can_ever_hold(it.run.id))
        names = tuple(pool.name for pool in pools)
        patience_ms = config.long_patience_s * 1000
        lines = (Line(names, tuple(hosted), patience_ms=patience_ms),) if hosted else ()
        after = None if needed_ms is None else PolicyMemory(NAME, _VERSION, {"needed": needed_ms})
        return replace(plan, pools=pools, lines=lines), after

    def _pools(
        self,
        snapshot: Snapshot,
        instances: OpenInstances,
        needed_ms: Millis | None,
        backlog: str,
    ) -> tuple[Pool, ...]:
        """Who stands in the pools, and why."""
        _, _, names = instances.placements()
        members: dict[str, list[InstanceId | int]] = {STEADY: [], TRANSIENT: []}
        price = dict.fromkeys(members, 0)
        steady = 0
        holds = needed_ms is not None and snapshot.now_ms - needed_ms < self._config.hold_s * 1000
        for row, name in enumerate(names):
            offering = instances.offerings[row]
            pool = TRANSIENT if is_spot(offering) else STEADY
            stood = row < instances.live and bool(snapshot.instances[row].pool)
            kept = stood and (holds or (pool == STEADY and steady < self._config.steady_slots))
            if name is not None and (kept or holds_short(instances, row)):
                members[pool].append(name)
                price[pool] += offering.price
                if pool == STEADY:
                    steady += self._slots(instances, row)
        return tuple(
            Pool(name, tuple(there), _reason(name, len(there), price[name]) + backlog)
            for name, there in members.items()
            if there
        )

    def _backlog(self, waits: Sequence[UnplacedGroup]) -> str:
        """What waits for more room than there is, or than may be paid for."""
        within_ms = self._config.clear_within_s * 1000
        tasks, work_ms = len(waits), sum(task_ms(one.group.job, within_ms) for one in waits)
        for job in {one.group.job.id: one.group.job for one in waits}.values():
            tasks += job.unseen
            work_ms += job.unseen * task_ms(job, within_ms)
        if not tasks:
            return ""
        waiting = f"{tasks} tasks wait" if tasks > 1 else "one task waits"
        more = needed(work_ms, 0, within_ms, tasks)
        slots = f"{more} more slots" if more > 1 else "one more slot"
        told = f"{waiting}, {work_ms // 1000} s of work"
        return f"; {told}, which {slots} would clear in {self._config.clear_within_s} s"

    def _slots(self, instances: OpenInstances, row: int) -> int:
        """How many tasks a member holds, of the kind that is on it; one if it is empty."""
        there = next(iter(instances.residents[row]), None)
        if there is None:
            return 1
        return max(1, slots_of(instances.offerings[row], instances.runs[there].task))


def _needed_ms(memory: PolicyMemory | None) -> Millis | None:
    if memory is None or memory.policy != NAME or memory.version != _VERSION:
        return None
    return Millis(int(str(memory.data["needed"])))


def _lent(instances: Sequence[Lendable]) -> Pool:
    names = tuple(it.id for it in instances)
    return Pool(SHARED, names, "room that other jobs leave free on their instances", lent=True)


def _reason(name: str, members: int, price: int) -> str:
    told = f"{members} instance{'s' if members > 1 else ''} for ${price / MILLION:.4f} per hour"
    if name == STEADY:
        return f"room for short tasks that no cloud takes back: {told}"
    return f"room for short tasks at spot prices: {told}"


@dataclass(frozen=True, slots=True)
class _PolicySpec:
    name: str = NAME
    config: type[Any] = Config
    shares: bool = True

    def build(self, config: Any) -> CloudCoaster:
        """Make the policy of a `Config`."""
        assert isinstance(config, Config)
        return CloudCoaster(config)


POLICY = _PolicySpec()
