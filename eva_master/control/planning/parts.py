"""The part of the cluster that a partition's policy sees."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from eva_master.model.accounting.totals import PartitionTotals
from eva_master.model.fleet.partitions import Partition, Partitions
from eva_master.model.planning.job_view import JobView
from eva_master.model.planning.snapshot import InstanceView, Snapshot
from eva_master.packing.parts.partition import part

Sums = Mapping[str, PartitionTotals]
"""Of partitions, by the name on record."""


def part_of(whole: Snapshot, partition: Partition, partitions: Partitions, sums: Sums) -> Snapshot:
    """The part of a snapshot that is a partition's; the whole if the cluster is not divided."""
    if not partitions.divided:
        return whole

    def belongs(view: JobView | InstanceView) -> bool:
        return partitions.home(view.partition) is partition

    coming = events(whole.arrivals, whole.completions, partition, partitions, sums)
    seen = part(whole, belongs, partition.sells)
    return replace(seen, arrivals=coming[0], completions=coming[1])


def events(
    arrivals: int, completions: int, partition: Partition, partitions: Partitions, sums: Sums
) -> tuple[int, int]:
    """Number of jobs that have come into a partition, and that have gone from it.

    Args:
        arrivals: Arrivals in the whole cluster.
        completions: Completions in the whole cluster.
        partition: The partition; the default one has all jobs of no other one.
        partitions: All partitions.
        sums: The sums of each partition.
    """
    none = PartitionTotals()
    if not partition.default:
        ours = sums.get(partition.name, none)
        return ours.arrivals, ours.completions
    others = [sums.get(piece.name, none) for piece in partitions.all if not piece.default]
    return (
        arrivals - sum(other.arrivals for other in others),
        completions - sum(other.completions for other in others),
    )
