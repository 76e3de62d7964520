"""Which tasks run alone: for a while, so that they are measured, or since they would be late."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from eva_master.model.planning.snapshot import RunView, Snapshot
from eva_master.packing.valuation.reservation_price import Rates
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import JobId, RunId, Workload

_ALONE_OF_A_JOB = 2
"""So many tasks of an array run alone at a time."""


def unprofiled(snapshot: Snapshot, measured: Mapping[Workload, Rates]) -> frozenset[RunId]:
    """Task runs to keep alone until the throughput of their workload is known (section 3).

    Without it the loss to neighbours cannot be measured. One task of each workload is enough, or
    one gang; the others are packed meanwhile, at the throughput assumed for unknown workloads. Of
    an array at most two are alone at a time, however many workloads it has.

    Args:
        snapshot: The cluster.
        measured: Measured rates of each workload alone.
    """
    if not snapshot.profile:
        return frozenset()
    unknown: dict[RunId, RunView] = {
        run.id: run
        for run in snapshot.runs
        if not run.task.throughput and run.task.reports_steps and run.task.workload not in measured
    }
    if not unknown:
        return frozenset()
    together = {
        run for view in snapshot.instances if len(view.residents) > 1 for run in view.residents
    }
    covered: set[Workload] = set()
    of_job: Counter[JobId] = Counter()
    chosen: set[RunId] = set()
    for unit in _in_order(snapshot, unknown):
        workloads = {run.task.workload for run in unit}
        alone = not any(run.held or run.id in together for run in unit)
        if alone and not workloads <= covered and of_job[unit[0].job] < _ALONE_OF_A_JOB:
            covered |= workloads
            of_job[unit[0].job] += 1
            chosen.update(run.id for run in unit)
    return frozenset(chosen)


def late_in_company(snapshot: Snapshot) -> dict[RunId, int | None]:
    """Task runs that neighbours would make late for their deadlines.

    Members of a gang may be beside each other: they are late or in time together.

    Returns:
        The number of the gang of each; `None` for a task run that must be alone in any case.
    """
    gang_numbers: dict[RunId, int | None] = {}
    gangs: dict[JobId, int] = {}
    if not any(run.alone for run in snapshot.runs):
        return gang_numbers
    several = {
        job.id for job in snapshot.jobs if job.spec.kind is JobKind.GANG and len(job.runs) > 1
    }
    for run in snapshot.runs:
        if run.alone and run.job in several:
            gang_numbers[run.id] = gangs.setdefault(run.job, len(gangs))
        elif run.alone:
            gang_numbers[run.id] = None
    return gang_numbers


def _in_order(snapshot: Snapshot, unknown: Mapping[RunId, RunView]) -> Iterator[list[RunView]]:
    """Tasks and gangs of unknown throughput: those first that will be measured first."""
    units = []
    for job in snapshot.jobs:
        runs = [unknown[name] for name in job.runs if name in unknown]
        for unit in [runs] if job.spec.kind is JobKind.GANG else [[run] for run in runs]:
            if unit:
                placed = all(run.instance is not None for run in unit)
                running = all(run.running for run in unit)
                units.append(((not running, not placed, job.submitted_ms, unit[0].id), unit))
    return (unit for _, unit in sorted(units, key=lambda item: item[0]))
