"""When a job is to be done, and for how long it may run: `deadline`, `max_duration`."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from eva_wire.jobfile import elastic
from eva_wire.jobfile.schema import ElasticSection, JobFile
from eva_wire.text.quantities import write_duration
from eva_wire.text.yamlfile import Document
from eva_wire.values.errors import Problem


def problems(document: Document, job: JobFile) -> Iterator[Problem]:
    """Contradictions between keys that are valid one by one."""
    if job.spot_wait and job.spot not in ("allowed", "only"):
        hint = "write `spot: allowed`, or remove it"
        yield document.problem(("spot_wait",), "the job may run on no spot instance", hint)
    if job.deadline is None and job.deadline_miss == "fail":
        hint = "write a `deadline`, or remove it"
        yield document.problem(("deadline_miss",), "the job has no deadline to miss", hint)
    yield from _limit_problems(document, job)
    said = job.deadline
    if said is None:
        return
    if said.at is None and said.within is None:
        hint = "write `deadline: 2030-01-31T18:00:00+01:00`, or `deadline: {within: 36h}`"
        yield document.problem(("deadline",), "a deadline is a time", hint)
    elif said.at is not None and said.within is not None:
        message = "a job is to be done at a time or within one, not both"
        yield document.problem(("deadline", "within"), message, "remove it, or `at`")


def _limit_problems(document: Document, job: JobFile) -> Iterator[Problem]:
    """Refuse a `max_duration` that the stated `duration` exceeds wherever the job runs."""
    if job.duration is None or job.max_duration is None:
        return
    least_ms, why = _least_ms(job, job.duration)
    if least_ms <= job.max_duration:
        return
    shown, limit = write_duration(least_ms), write_duration(job.max_duration)
    yield document.problem(
        ("max_duration",),
        f"the job would be failed after {limit}, and it takes {shown} at least{why}",
        f"write {shown} or more; or correct `duration`, or leave it out",
    )


def _least_ms(job: JobFile, duration_ms: int) -> tuple[int, str]:
    """How long a job runs at least if its stated duration is right, and why, for its user.

    The duration is that of one task alone on the family that sets its reservation price. Where
    rates are stated by family, that may be the slowest one, and the job may run on the fastest.
    """
    faster, rounds, why = Fraction(1), 1, ""
    if isinstance(job.throughput, dict) and job.throughput:
        rates = [Fraction(rate) for rate in job.throughput.values()]
        faster *= max(rates) / min(rates)
    if isinstance(job.tasks, ElasticSection):
        faster *= _speed_up(job.tasks)
    elif job.kind == "array":
        tasks = len(job.tasks) if isinstance(job.tasks, list) else elastic.most_of(job)
        rounds = -(-tasks // min(tasks, job.concurrency or tasks))
        if rounds > 1:
            why = (
                f": `max_duration` counts the whole array, {tasks:,} tasks with a `concurrency` of"
                f" {job.concurrency:,}"
            )
    faster *= job.forks
    return int(duration_ms * rounds / faster), why


def _speed_up(sizes: ElasticSection) -> Fraction:
    """How much faster than one task by itself an elastic gang may be at most."""
    at_most = Fraction(sizes.most)
    for stated in (sizes.throughput, sizes.throughput_apart):
        if stated:
            members = min(stated)
            gain = Fraction(max(stated.values())) / Fraction(stated[members])
            at_most = max(at_most, members * gain)
    return at_most
