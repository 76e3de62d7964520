"""Memory of the instances that have emptied."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass

from eva_master.control.turn.turn import Feature, Turn
from eva_master.model.fleet.keeping import KeepReason
from eva_master.model.records import Instance, TaskRun
from eva_master.packing.quotas import QuotaUse
from eva_wire.values.ids import InstanceId, JobId, Millis, RunId
from eva_wire.values.states import InstanceState


@dataclass(slots=True)
class Emptied:
    """An instance without a task.

    Attributes:
        partition: Name of the partition whose plans may use it.
        since_ms: Since when it has been empty.
        asked: Number of the first plan whose snapshot showed it empty.
        adopted_ms: When such a plan was adopted, and did not use it.
        yields: Whether it holds what a plan needs for others.
        kept: Why it stays.
    """

    partition: str
    since_ms: Millis
    asked: int | None = None
    adopted_ms: Millis | None = None
    yields: bool = False
    kept: KeepReason | None = None


@dataclass(frozen=True, slots=True)
class Comers:
    """Task runs that are to move to an instance as soon as it is empty.

    Attributes:
        runs: Which, each with the instance that it runs on until then.
        beside: All that is on these instances.
    """

    runs: tuple[tuple[RunId, InstanceId | None], ...]
    beside: frozenset[RunId]


class EmptiedMemory(Feature):
    """The instances that have emptied and stay for now.

    Args:
        live: The instances that are there when the master starts.

    Attributes:
        planning: Partitions whose plan is under way.
        booting: Instances whose workers have not registered yet.
        awaited: Instances that a plan expects to empty, and what is to move there.
        deserted: Instances that boot and that a task has left which was to come there.
        shares: Shares of tenants in their quotas that were looked up in this turn.
    """

    def __init__(self, live: Iterable[Instance] = ()) -> None:
        self.planning: set[str] = set()
        self.booting: dict[InstanceId, None] = {}
        self.awaited: dict[InstanceId, Comers] = {}
        for instance in live:
            self._follow(instance)
        self._known: dict[InstanceId, Emptied] = {}
        self.deserted: dict[InstanceId, None] = {}
        self.shares: dict[str, QuotaUse] = {}

    def begin(self) -> None:
        """Forget what held for the last turn alone."""
        self.shares.clear()

    def __contains__(self, instance: object) -> bool:
        return instance in self._known

    def run_changed(self, turn: Turn, old: TaskRun | None, run: TaskRun) -> None:
        """Look at instances that the task run has left empty, or has come to."""
        if old is None:
            return
        # A task run may be no longer to come to an instance that boots.
        place = old.target
        if place is not None and run.target is None and place in self.booting:
            self.deserted[place] = None
        occupants = turn.state.places.occupant_ids
        for name in {run.instance: None, run.target: None, old.instance: None, old.target: None}:
            if name is not None and (name in self._known or not occupants(name)):
                turn.touch_instance(name)

    def instance_changed(self, turn: Turn, old: Instance | None, instance: Instance) -> None:
        """Follow whether an instance boots."""
        self._follow(instance)

    def _follow(self, instance: Instance) -> None:
        if instance.state in (InstanceState.LAUNCHING, InstanceState.UP):
            self.booting[instance.id] = None
        else:
            self.booting.pop(instance.id, None)

    def await_too(self, awaited: Mapping[InstanceId, Comers], live: Container[InstanceId]) -> None:
        """Note that a plan awaits the end of task runs on some instances."""
        live_awaited = {name: comers for name, comers in self.awaited.items() if name in live}
        self.awaited = {**live_awaited, **awaited}

    def note(self, instance: InstanceId, partition: str, now: Millis) -> Emptied:
        """The memory of an empty instance, begun now if the instance was not empty before."""
        memory = self._known.get(instance)
        if memory is None or memory.partition != partition:
            memory = self._known[instance] = Emptied(partition, now)
        return memory

    def forget(self, instance: InstanceId) -> Emptied | None:
        """Forget an instance that holds tasks again, or goes."""
        return self._known.pop(instance, None)

    def of(self, partition: str) -> Iterator[tuple[InstanceId, Emptied]]:
        """Instances that plans of a partition may use, in the order in which they emptied."""
        return (
            (name, memory) for name, memory in self._known.items() if memory.partition == partition
        )

    def asked(self, partition: str, number: int) -> None:
        """Note the request of a plan whose snapshot shows the instances that are empty now."""
        self.planning.add(partition)
        for _, memory in self.of(partition):
            memory.asked = number if memory.asked is None else memory.asked

    def stale(self, waiting: Mapping[JobId, None]) -> list[InstanceId]:
        """Instances that are kept for a job that no longer waits."""
        return [
            name
            for name, memory in self._known.items()
            if (kept := memory.kept) is not None
            and not (kept.job is None or kept.headed or kept.job in waiting)
        ]

    def kept(self) -> dict[InstanceId, KeepReason]:
        """The reasons for which instances are kept."""
        return {
            name: memory.kept for name, memory in self._known.items() if memory.kept is not None
        }
