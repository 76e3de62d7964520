"""Types of ids and amounts. They are plain strings and integers at run time, distinct to mypy."""

from __future__ import annotations

from functools import lru_cache
from typing import NewType

JobId = NewType("JobId", str)
RunId = NewType("RunId", str)
"""One task run of one task: ``JOB/INDEX``, or ``JOB/INDEX+N`` for its N-th extra task run."""
InstanceId = NewType("InstanceId", str)
OfferingId = NewType("OfferingId", str)
Family = NewType("Family", str)
Workload = NewType("Workload", str)
"""Label shared by tasks that behave alike; everything learned is stored by it."""
Millis = NewType("Millis", int)
"""Milliseconds since the epoch, from the injected clock; the only time there is."""
Price = NewType("Price", int)
"""Micro-dollars per hour. Integers, because in floats 8 x 3.06 < 24.48."""
Exact = NewType("Exact", int)
"""Money without rounding: micro-dollars per hour times milliseconds."""

MILLIS_PER_HOUR = 3_600_000
MILLION = 1_000_000


def run_id(job: JobId, index: int, run: int = 0) -> RunId:
    """Make the id of a task run.

    Args:
        job: The job that the task belongs to.
        index: The task's number in the job, from 0.
        run: 0 for the task itself, N for its N-th extra task run.
    """
    return RunId(f"{job}/{index}+{run}" if run else f"{job}/{index}")


def own_run(run: RunId) -> RunId:
    """The task's own run, of whose task this is a run: ``JOB/3`` for ``JOB/3+1`` and for itself."""
    return RunId(run.partition("+")[0])


def replica_of(run: RunId) -> int:
    """The number of an extra run of a task; 0 for the task's own."""
    return int(run.partition("+")[2] or 0)


_DIGITS = 18
"""Numbers of ids have at most so many digits: they fit into 64 bits."""
_KEPT_ORDERS = 1 << 15
"""Orders of ids that are kept, for maps that are searched by them again and again."""


def job_of(run: RunId) -> JobId:
    """The job of a task run."""
    return JobId(run.rpartition("/")[0])


def number_of(name: str) -> int:
    """The number that an id ends with, which tells when its job or instance came.

    Returns:
        -1 for none, and for one that is too long to be any id's.
    """
    digits = name[len(name.rstrip("0123456789")) :]
    return int(digits) if 0 < len(digits) <= _DIGITS else -1


@lru_cache(_KEPT_ORDERS)
def job_order(job: JobId) -> tuple[int, str]:
    """Sorts jobs by the time of their submission."""
    return number_of(job), job


@lru_cache(_KEPT_ORDERS)
def instance_order(instance: InstanceId) -> tuple[int, str]:
    """Sorts instances by the time of their launch."""
    return number_of(instance), instance


@lru_cache(_KEPT_ORDERS)
def run_order(run: RunId) -> tuple[int, str, int, int]:
    """Sorts task runs by their jobs, and those of a job by their tasks."""
    job, _, place = run.rpartition("/")
    index, _, extra = place.partition("+")
    return number_of(job), job, int(index), int(extra or 0)


VOICE_MARK = "\x1f"
"""Stands between a workload's name and whose it is, where names of several voices meet; see
`eva_master.learning.voices.names`."""


def base_of(workload: Workload) -> Workload:
    """The base of a workload: ``resnet18`` for ``resnet18[3]``; itself if it has no bracket.

    Where the name says whose workload it is, that of its base says so, too.
    """
    name, mark, voice = workload.partition(VOICE_MARK)
    return Workload(name.partition("[")[0] + mark + voice)


def micro_usd(amount: int) -> int:
    """Round an exact amount (see `Exact`) to micro-dollars, half up."""
    return (amount + MILLIS_PER_HOUR // 2) // MILLIS_PER_HOUR
