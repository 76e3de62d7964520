"""Turns a recorded job into the submission that its user would have made."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from statistics import fmean

from eva_master.model.job import (
    ArrayRules,
    Deadline,
    ElasticGang,
    JobSpec,
    JobStage,
    Program,
    Restarts,
    TaskSpec,
    Training,
)
from eva_master.model.resources import Resources
from eva_master.model.trace import SpotUse, TraceJob, TraceTask
from eva_master.packing.valuation.job_valuation import Reservation
from eva_wire.values.ids import MILLION, Family, JobId

OWNER = "trace"
"""Of jobs whose trace names none."""
STEPS_PER_S = 1_000
"""Iterations per second of a simulated task: it reports milliseconds of work, so that measurements
do not depend on how many real iterations fit into a window."""
_PROGRAM = Program("true")


def spec_of(
    job: TraceJob, families: Iterable[Family], depends_on: tuple[JobId, ...] = ()
) -> JobSpec:
    """The job as the scheduler sees it: its demands, delays and standalone throughput.

    How long it takes alone also depends on prices; see `stated`.

    Args:
        job: A job of a trace.
        families: The families on sale.
        depends_on: The jobs that it waits for.
    """
    families = sorted(set(families))
    starts = max(task.fetch_ms for task in job.tasks) + job.init_ms
    stops = max(stop_ms(task) for task in job.tasks)
    least = None if job.least == len(job.tasks) else job.least
    return JobSpec(
        name=job.id,
        owner=job.owner or OWNER,
        tenant=job.tenant,
        tasks=_tasks(job, families),
        kind=job.kind,
        restarts=Restarts(
            grace_period_ms=max(60_000, stops),
            checkpoint_ms=stops,
            launch_ms=starts,
            checkpoint_interval_ms=job.checkpoint_interval_ms,
        ),
        priority=job.priority,
        array=ArrayRules(concurrency=job.concurrency),
        stage=JobStage(depends_on, dag=job.dag),
        training=Training(split_batch=job.split_batch and len(job.tasks) > 1, ps=job.ps),
        worth=job.worth,
        deadline=None if job.within_ms is None else Deadline(within_ms=job.within_ms),
        total_steps=None if job.within_ms is None else total_steps(job),
        elastic=ElasticGang(
            least=least,
            scaling=() if least is None else _scaling(job, apart=False),
            scaling_apart=() if least is None else _scaling(job, apart=True),
        ),
    )


def _scaling(job: TraceJob, *, apart: bool) -> tuple[tuple[int, int], ...]:
    """The iterations per second that its user states, by the number of members."""
    rate = round(steps_per_s(job))
    members = range(1, len(job.tasks) + 1)
    return tuple(
        (member, rate * job.size_ppm(member, apart=apart and member > 1)) for member in members
    )


def alone_speeds(job: TraceJob, reservations: Sequence[Reservation]) -> tuple[float, ...]:
    """How fast each task runs where its reservation price comes from, against its trace's speed.

    All members of a gang run at the pace of the slowest, or at their mean if they divide batches.

    Args:
        job: Job of a trace.
        reservations: The reservation price of each of its tasks.
    """
    pairs = zip(job.tasks, reservations, strict=True)
    homes = ((task, reservation.offering) for task, reservation in pairs)
    speeds = tuple(
        1.0 if home is None else task.speed_on(home.type.family) / MILLION for task, home in homes
    )
    if job.is_array:
        return speeds
    pace = fmean(speeds) if job.split_batch else min(speeds)
    return (pace,) * len(speeds)


def stop_ms(task: TraceTask) -> int:
    """Time to stop a task and to store its checkpoint."""
    return task.kill_ms + task.upload_ms


def steps_per_s(job: TraceJob) -> float:
    """How many steps each task reports per second at its trace's speed.

    Where iterations are counted these are thousandths of one, so that measurements are as exact.
    """
    if job.counts_iterations:
        return STEPS_PER_S * job.steps_per_s / MILLION
    return STEPS_PER_S


def work_ms(job: TraceJob, index: int = 0) -> float:
    """How long a task takes alone at its trace's speed, by its iterations where they are known.

    Args:
        job: Job of a trace.
        index: One of its tasks; those of a gang take equally long.
    """
    own = job.tasks[index].duration_ms if job.is_array else None
    if own is not None:
        return float(own)
    if job.total_steps and job.steps_per_s:
        return job.total_steps * 1e9 / job.steps_per_s
    return float(job.duration_ms)


def total_steps(job: TraceJob) -> int:
    """How many iterations each task of a gang has in all, as it reports them."""
    return max(1, round(work_ms(job) * steps_per_s(job) / 1000))


def as_stated(spec: JobSpec, factor_ppm: int) -> JobSpec:
    """The job as a user states it who says that it takes so many millionths of its length."""
    if factor_ppm == MILLION:
        return spec
    length, steps = spec.duration_ms, spec.total_steps
    return replace(
        spec,
        duration_ms=None if length is None else max(1, length * factor_ppm // MILLION),
        total_steps=None if steps is None else max(1, steps * factor_ppm // MILLION),
    )


def _tasks(job: TraceJob, families: list[Family]) -> tuple[TaskSpec, ...]:
    """The tasks of a job; those that are alike are one value."""
    made: dict[tuple[object, ...], TaskSpec] = {}
    tasks = []
    for task in job.tasks:
        needs = task.demand, task.demand_by_family, task.speed_by_family
        spec = made.get(needs)
        if spec is None:
            demand, paces = _resolved(*needs, tuple(families), job.spot)
            if job.counts_iterations:
                scale = job.steps_per_s / MILLION
                paces = tuple((name, max(1, round(pace * scale))) for name, pace in paces)
            spec = made[needs] = TaskSpec(
                job.workload,
                _PROGRAM,
                demand,
                throughput=paces if job.states_rates else (),
                reports_steps=not job.is_array,
            )
        tasks.append(spec)
    return tuple(tasks)


@lru_cache(maxsize=4096)
def _resolved(
    demand: Resources | None,
    by_family: tuple[tuple[Family, Resources | None], ...],
    speeds: tuple[tuple[Family, int], ...],
    families: tuple[Family, ...],
    spot: SpotUse | None,
) -> tuple[tuple[tuple[Family, Resources], ...], tuple[tuple[Family, int], ...]]:
    """Demand and speed per family, cached since many tasks of a trace have the same."""
    task = TraceTask(demand, by_family, speed_by_family=speeds)
    needs = task.resolved(families, spot)
    return needs, tuple((family, STEPS_PER_S * task.speed_on(family)) for family, _ in needs)
