"""Jobs that arrive where the policy has jobs forked."""

from __future__ import annotations

from eva_master.control.context import Context
from eva_master.model.job import JobSpec


def applied(context: Context, spec: JobSpec) -> JobSpec:
    """A job with the forks that its partition's policy gives it, by the number of nodes."""
    home = context.settings.partitions.home(spec.partition)
    if home.forking is None:
        return spec
    return home.forking.applied(spec, context.settings.nodes_of(home).count)
