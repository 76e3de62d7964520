"""Notes for users on the storage and the devices that their jobs name."""

from __future__ import annotations

import re

from eva_master.model.job import JobSpec, Program, different

# As a shell and most languages join the two.
_SHARED = re.compile(r"EVA_STORAGE\W{1,12}shared\b")


def notes_on_storage(spec: JobSpec, *, shared: bool) -> tuple[str, ...]:
    """Tell of a directory that a job names and that its tasks may not find.

    Args:
        spec: The job.
        shared: Whether the settings name a directory that all instances share.
    """
    if shared or not any(_names_shared(task.program) for task in different(spec.tasks)):
        return ()
    return (
        "`$EVA_STORAGE/shared` is only there on instances that share a directory (the worker's"
        " --storage-mount), and the settings name none. Files go from one job to the next by"
        " `storage: {inputs: {NAME: job:JOB/outputs}}`",
    )


def notes_on_gpus(spec: JobSpec, *, nominal: bool) -> tuple[str, ...]:
    """Tell of GPUs that tasks will not find.

    Args:
        spec: The job.
        nominal: Whether instances have GPUs by their type alone.
    """
    wanted = any(demand.gpus for task in different(spec.tasks) for _, demand in task.demand)
    if not (nominal and wanted):
        return ()
    return (
        "the GPUs of this cluster are nominal: its instances are emulated on a machine without any,"
        " so the job is planned and priced with GPUs, and its program finds none",
    )


def _names_shared(program: Program) -> bool:
    return any(_SHARED.search(text) for text in (program.run, *(value for _, value in program.env)))
