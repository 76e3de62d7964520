"""The pools and lines of all partitions: each states its own."""

from __future__ import annotations

from collections.abc import Iterable

from eva_master.control.standing.standing import Standing
from eva_master.model.records import TaskRun
from eva_wire.values.ids import InstanceId, JobId, Millis


class Standings:
    """The pools and lines stated by the last plan of each partition.

    A plan of one partition changes no statement of another one.

    Args:
        partitions: Names of the partitions; the empty name only if the cluster is not divided.
    """

    def __init__(self, partitions: Iterable[str]) -> None:
        self._by_partition = {name: Standing() for name in partitions}
        self._all = tuple(self._by_partition.values())

    def of(self, partition: str) -> Standing:
        """The pools and lines of a partition."""
        return self._by_partition[partition]

    def items(self) -> Iterable[tuple[str, Standing]]:
        """Each partition's name with its pools and lines."""
        return self._by_partition.items()

    def follow(self, run: TaskRun, now: Millis, *, covered: bool = False) -> None:
        """See `Standing.follow`."""
        for standing in self._all:
            standing.follow(run, now, covered=covered)

    def count(self, run: TaskRun) -> None:
        """See `Standing.count`."""
        for standing in self._all:
            standing.count(run)

    def touch_job(self, job: JobId) -> None:
        """See `Standing.touch_job`."""
        for standing in self._all:
            standing.touch_job(job)

    def touch_instance(self, instance: InstanceId) -> None:
        """See `Standing.touch_instance`."""
        for standing in self._all:
            standing.touch_instance(instance)
