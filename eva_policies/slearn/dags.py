"""Stages of DAGs, which count as much as their whole DAG."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from eva_master.model.planning.job_view import JobView
from eva_policies.slearn.config import Config
from eva_policies.slearn.sizes import JobWork, is_thin
from eva_wire.values.ids import JobId, Millis

_Dag = tuple[str, JobId]


def whole(jobs: Iterable[JobView], works: Mapping[JobId, JobWork]) -> dict[JobId, JobWork]:
    """The work of jobs, that of a stage being the work of its DAG.

    The remaining work of a DAG is that of its present stages and, by estimate, of stages that wait
    for others; ended stages have none.

    Args:
        jobs: All jobs.
        works: Work of each job by itself.
    """
    by_job = dict(works)
    dags: dict[_Dag, list[JobView]] = {}
    for job in jobs:
        if job.progress.dag is not None:
            dags.setdefault((job.spec.owner, job.progress.dag.first), []).append(job)
    for stages in dags.values():
        those = [works[job.id] for job in stages]
        all_ms, left_ms = (
            _sum(work.whole_ms for work in those),
            _sum(work.left_ms for work in those),
        )
        had_ms = sum(work.had_ms for work in those)
        for job in stages:
            dag = job.progress.dag
            assert dag is not None
            by_job[job.id] = replace(
                works[job.id],
                whole_ms=None if all_ms is None else all_ms + dag.waiting_ms + dag.ended_ms,
                left_ms=None if left_ms is None else left_ms + dag.waiting_ms,
                had_ms=had_ms + dag.ended_ms,
            )
    return by_job


def _sum(times: Iterable[int | None]) -> int | None:
    """The sum of times; `None` if one of them is unknown."""
    every_time = list(times)
    known_times = [time for time in every_time if time is not None]
    return sum(known_times) if len(known_times) == len(every_time) else None


def own_ms(job: JobView, whole_ms: int) -> int:
    """The work of a job by itself, if that of it, or of its DAG, is so much."""
    if job.progress.dag is None or job.progress.estimate is None:
        return whole_ms
    return job.progress.estimate.mean_ms * job.array.size


def arrived_ms(job: JobView) -> Millis:
    """When a job came, of a stage its DAG."""
    return job.submitted_ms if job.progress.dag is None else job.progress.dag.submitted_ms


def is_small(config: Config, job: JobView) -> bool:
    """Whether a job is in the first queue for its few tasks; a DAG may be large all the same."""
    alone = not config.whole_dags or job.progress.dag is None
    return config.thin_first and alone and is_thin(config, job)


def is_later(job: JobView) -> bool:
    """Whether a job is a stage of a DAG, and not its first one."""
    return job.progress.dag is not None and job.progress.dag.first != job.id
