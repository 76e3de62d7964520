"""True interference, which only the simulated workers know."""

from __future__ import annotations

from collections.abc import Callable

from eva_master.model.ids import Workload

Truth = Callable[[Workload, tuple[Workload, ...]], float]
"""True normalised throughput of a workload beside others (sorted), in (0, 1]."""

UNDISTURBED: Truth = lambda _workload, _others: 1.0  # noqa: E731 - a constant that is a function


def remembered(truth: Truth) -> Truth:
    """The same function with a cache of its results per task set."""
    known: dict[tuple[Workload, tuple[Workload, ...]], float] = {}

    def speed(workload: Workload, others: tuple[Workload, ...]) -> float:
        entry = workload, others
        if entry not in known:
            known[entry] = truth(workload, others)
        return known[entry]

    return speed
