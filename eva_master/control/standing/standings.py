"""The pools and lines of all partitions: each states its own."""

from __future__ import annotations

from collections.abc import Iterable

from eva_master.control.standing.standing import Standing
from eva_master.model.ids import InstanceId, JobId, Millis
from eva_master.model.records import TaskRun


class Standings:
    """What the last plan of each partition states.

    A plan of one partition changes nothing of what others state.

    Args:
        partitions: Their names; the empty one alone if the cluster is not divided.
    """

    def __init__(self, partitions: Iterable[str]) -> None:
        self._by_partition = {name: Standing() for name in partitions}
        self._all = tuple(self._by_partition.values())

    def of(self, partition: str) -> Standing:
        """What the last plan of a partition states."""
        return self._by_partition[partition]

    def items(self) -> Iterable[tuple[str, Standing]]:
        """What each partition states, by its name."""
        return self._by_partition.items()

    def follow(self, run: TaskRun, now: Millis, *, covered: bool = False) -> None:
        """See `Standing.follow`."""
        for one in self._all:
            one.follow(run, now, covered=covered)

    def count(self, run: TaskRun) -> None:
        """See `Standing.count`."""
        for one in self._all:
            one.count(run)

    def touch_job(self, job: JobId) -> None:
        """See `Standing.touch_job`."""
        for one in self._all:
            one.touch_job(job)

    def touch_instance(self, instance: InstanceId) -> None:
        """See `Standing.touch_instance`."""
        for one in self._all:
            one.touch_instance(instance)
