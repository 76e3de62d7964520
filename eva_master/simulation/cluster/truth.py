"""Interference as it really is: known to the simulated workers, to nothing else."""

from __future__ import annotations

from collections.abc import Callable

from eva_master.model.ids import Workload

Truth = Callable[[Workload, tuple[Workload, ...]], float]
"""Normalised throughput of a workload among others (sorted), as it really is; in (0, 1]."""

UNDISTURBED: Truth = lambda _workload, _others: 1.0  # noqa: E731 - a constant that is a function


def remembered(truth: Truth) -> Truth:
    """The same truth, asked for each company once."""
    known: dict[tuple[Workload, tuple[Workload, ...]], float] = {}

    def speed(workload: Workload, others: tuple[Workload, ...]) -> float:
        entry = workload, others
        if entry not in known:
            known[entry] = truth(workload, others)
        return known[entry]

    return speed
