"""True interference and true speeds of gangs, which only the simulated workers know."""

from __future__ import annotations

from collections.abc import Callable

from eva_master.learning.speeds.scaling import scaling
from eva_master.model.job import JobSpec
from eva_wire.values.ids import MILLION, JobId, Workload

Truth = Callable[[Workload, tuple[Workload, ...]], float]
"""True normalised throughput of a workload beside others (sorted), in (0, 1]."""

UNDISTURBED: Truth = lambda _workload, _others: 1.0  # noqa: E731 - a constant that is a function


def remembered(truth: Truth) -> Truth:
    """Cache a truth's results per task set."""
    speeds: dict[tuple[Workload, tuple[Workload, ...]], float] = {}

    def speed(workload: Workload, others: tuple[Workload, ...]) -> float:
        entry = workload, others
        if entry not in speeds:
            speeds[entry] = truth(workload, others)
        return speeds[entry]

    return speed


SizeSpeed = Callable[[JobId, int, bool], float]
"""How fast so many members of a gang are against one; the last says whether on several
instances."""


def stated_size_speed(spec: JobSpec, members: int, *, apart: bool) -> float:
    """The speed of a gang of which all that is known is what its user stated.

    The stated speed of the size counts, else the usual one.

    Args:
        spec: The gang.
        members: How many run.
        apart: Whether on several instances.
    """
    if spec.elastic.least is None:
        return 1.0
    gang = spec.elastic
    stated = gang.scaling_apart if apart and gang.scaling_apart else gang.scaling
    return scaling(stated, (), apart=False).speed_ppm(members) / MILLION
