"""Generates traces of DAGs that recur: jobs of one label, each stage after the one before.

A label has an owner, a spread and 2 to 5 stages, each with a usual run time of its own, like the
groups of `eva_lab.traces.recurrent`, whose flavours are used. A part of what makes a
stage longer or shorter than usual is common to all stages of one DAG, as if there were more data
that day: of the usual spread a given share of the variance, and as large a share of the times that
a stage takes 2 to 12 times as long is that of the whole DAG.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from eva_lab.traces.recurrent import (
    APPLICATIONS,
    CORE_MOST,
    CORE_VARIES,
    POPULARITY,
    TAIL_FACTORS,
    USERS,
    Flavour,
    FloatArray,
    arrivals_of,
    tasks_of,
)
from eva_lab.traces.shapes import Draw, generator
from eva_master.model.trace import SLOT, EarlierJob, TraceJob, TraceTask
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import Workload

_LABELS = 100
_FEWEST_STAGES, _MOST_STAGES = 2, 5
_LETTERS = "abcde"


@dataclass(frozen=True, slots=True)
class _Stage:
    name: str
    workload: Workload
    usual_s: float


@dataclass(frozen=True, slots=True)
class _Label:
    name: str
    owner: str
    core: float
    stages: tuple[_Stage, ...]


def recurring_dags(
    seed: int,
    flavour: Flavour,
    correlation: float,
    *,
    past: int,
    dags: int,
    work_rate: float,
) -> tuple[tuple[EarlierJob, ...], tuple[TraceJob, ...]]:
    """Generate DAGs that have ended, and DAGs to run.

    Args:
        seed: Of the trace.
        flavour: Which cluster's jobs the stages are like.
        correlation: Which share of the spread of a stage is common to all stages of a DAG.
        past: How many have ended.
        dags: How many are to run.
        work_rate: Seconds of work that arrive in a second on average.

    Returns:
        The stages of those that have ended, and the jobs to run.
    """
    labels = _labels(seed, flavour)
    rng = generator(seed, Draw.RUNS)
    shares = np.arange(1, _LABELS + 1) ** -POPULARITY
    picks = [labels[pick] for pick in rng.choice(_LABELS, past + dags, p=shares / shares.sum())]
    means = [_means(rng, flavour, label, correlation) for label in picks]
    earlier = tuple(
        EarlierJob(
            owner=label.owner,
            name=f"{stage.name}-{number}",
            workload=stage.workload,
            demand=SLOT,
            mean_ms=max(1, round(1_000 * mean)),
            dag=label.name,
            dag_number=number,
        )
        for number, (label, took) in enumerate(zip(picks[:past], means[:past], strict=True), 1)
        for stage, mean in zip(label.stages, took, strict=True)
    )
    tasks = iter(
        tasks_of(
            seed, flavour, np.concatenate([np.array(stage_means) for stage_means in means[past:]])
        )
    )
    shapes = [[next(tasks) for _ in label.stages] for label in picks[past:]]
    work = sum(float(times.sum()) for shape in shapes for times in shape)
    arrive = arrivals_of(seed, dags, work / work_rate)
    jobs = []
    for number, (label, at, shape) in enumerate(zip(picks[past:], arrive, shapes, strict=True), 1):
        jobs += _jobs(label, past + number, round(1_000 * at), shape)
    return earlier, tuple(jobs)


def _labels(seed: int, flavour: Flavour) -> list[_Label]:
    rng = generator(seed, Draw.GROUPS)
    labels = []
    for number in range(_LABELS):
        count = int(rng.integers(_FEWEST_STAGES, _MOST_STAGES + 1))
        usual = flavour.usual_s * np.exp(rng.normal(0, flavour.usual_spread, count))
        core = min(CORE_MOST, flavour.core * float(np.exp(rng.normal(0, CORE_VARIES))))
        stages = tuple(
            _Stage(
                f"dag{number}-{_LETTERS[at]}",
                Workload(f"app{int(rng.integers(APPLICATIONS))}"),
                float(usual[at]),
            )
            for at in range(count)
        )
        labels.append(_Label(f"dag{number}", f"user{int(rng.integers(USERS))}", core, stages))
    return labels


def _means(
    rng: np.random.Generator, flavour: Flavour, label: _Label, correlation: float
) -> list[float]:
    """The mean run time of the tasks of each stage of one DAG, in seconds."""
    low, high = np.log(TAIL_FACTORS)

    def longer() -> float:
        factor = float(np.exp(rng.uniform(low, high)))
        return factor if rng.random() < flavour.tail else 1.0

    common, common_longer = float(rng.normal()), longer()
    means = []
    for stage in label.stages:
        own, own_longer = float(rng.normal()), longer()
        off = np.sqrt(correlation) * common + np.sqrt(1 - correlation) * own
        factor = common_longer if rng.random() < correlation else own_longer
        means.append(stage.usual_s * float(np.exp(label.core * off)) * factor)
    return means


def _jobs(label: _Label, number: int, at_ms: int, times_s: list[FloatArray]) -> list[TraceJob]:
    """The jobs of one DAG, each after the one before."""
    jobs: list[TraceJob] = []
    for stage, times in zip(label.stages, times_s, strict=True):
        took = [round(1_000 * float(time)) for time in times]
        mean_ms = max(1, round(sum(took) / len(took)))
        jobs.append(
            TraceJob(
                id=f"{stage.name}-{number}",
                workload=stage.workload,
                arrival_ms=at_ms,
                duration_ms=mean_ms,
                tasks=tuple(TraceTask(SLOT, duration_ms=time_ms) for time_ms in took),
                total_steps=mean_ms // 1_000,
                owner=label.owner,
                kind=JobKind.ARRAY,
                dag=label.name,
                after=(jobs[-1].id,) if jobs else (),
            )
        )
    return jobs
