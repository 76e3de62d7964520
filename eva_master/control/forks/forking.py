"""Jobs that arrive where the policy has jobs forked."""

from __future__ import annotations

from eva_master.control.context import Context
from eva_master.model.job import JobSpec


def applied(context: Context, spec: JobSpec) -> JobSpec:
    """A job as the policy of its partition has it forked, by the nodes that there may be."""
    partitions, nodes = context.settings.partitions, context.settings.nodes
    home = partitions.home(spec.partition)
    if home.forking is None:
        return spec
    return home.forking.applied(spec, sum(partitions.of_node(it) is home for it in nodes))
