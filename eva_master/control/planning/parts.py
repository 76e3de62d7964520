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
    """How many jobs have come into a partition, and how many have gone from it.

    Args:
        arrivals: Into the whole cluster.
        completions: In the whole cluster.
        partition: Which; the default one has what is no other one's.
        partitions: All.
        sums: The sums of each.
    """
    none = PartitionTotals()
    if not partition.default:
        ours = sums.get(partition.name, none)
        return ours.arrivals, ours.completions
    others = [sums.get(it.name, none) for it in partitions.all if not it.default]
    return (
        arrivals - sum(it.arrivals for it in others),
        completions - sum(it.completions for it in others),
    )
