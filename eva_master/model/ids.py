"""Names of things. Plain strings at run time, distinct types to the checker."""

from __future__ import annotations

from typing import NewType

JobId = NewType("JobId", str)
RunId = NewType("RunId", str)
"""One task run of one task: ``JOB/INDEX``, or ``JOB/INDEX+N`` for its N-th extra task run."""
InstanceId = NewType("InstanceId", str)
OfferingId = NewType("OfferingId", str)
Family = NewType("Family", str)
Workload = NewType("Workload", str)
"""Label shared by tasks that behave alike; the key of everything that is learned."""
Millis = NewType("Millis", int)
"""Milliseconds since the epoch, from the injected clock; the only time there is."""
Price = NewType("Price", int)
"""Micro-dollars per hour. Integers, because in floats 8 x 3.06 < 24.48."""
Exact = NewType("Exact", int)
"""Money without rounding: micro-dollars per hour times milliseconds."""

MILLIS_PER_HOUR = 3_600_000
MILLION = 1_000_000


def run_id(job: JobId, index: int, run: int = 0) -> RunId:
    """Name a task run of a task.

    Args:
        job: The job that the task belongs to.
        index: The task's number in the job, from 0.
        run: 0 for the task itself, N for its N-th extra task run.
    """
    return RunId(f"{job}/{index}+{run}" if run else f"{job}/{index}")


def number_of(name: str) -> int:
    """The number that an id ends with, which tells when its job or instance came; -1 for none."""
    digits = name[len(name.rstrip("0123456789")) :]
    return int(digits) if digits else -1


def job_order(job: JobId) -> tuple[int, str]:
    """Sorts jobs by the time of their submission."""
    return number_of(job), job


def instance_order(instance: InstanceId) -> tuple[int, str]:
    """Sorts instances by the time of their launch."""
    return number_of(instance), instance


def run_order(run: RunId) -> tuple[int, str, int, int]:
    """Sorts task runs by their jobs, and those of a job by their tasks."""
    job, _, place = run.rpartition("/")
    index, _, extra = place.partition("+")
    return number_of(job), job, int(index), int(extra or 0)


def base_of(workload: Workload) -> Workload:
    """What a workload is a variant of: ``resnet18`` for ``resnet18[3]``, itself without bracket."""
    return Workload(workload.partition("[")[0])


def micro_usd(amount: int) -> int:
    """Round an exact amount (see `Exact`) to micro-dollars, half up."""
    return (amount + MILLIS_PER_HOUR // 2) // MILLIS_PER_HOUR
