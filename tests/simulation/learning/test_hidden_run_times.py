"""Policies learn how long tasks run from those that have ended, and from nothing else."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from eva_lab.simulator.results.metrics import SimulationOutcome
from eva_lab.simulator.run import Setup, Simulation
from eva_lab.simulator.scenario.fixed_cluster import FixedCluster
from eva_master.model.planning.estimate import Estimates
from eva_master.model.planning.plan import Plan, PolicyMemory
from eva_master.model.planning.snapshot import Snapshot
from eva_master.model.trace import SLOT, EarlierJob, Trace, TraceJob, TraceTask
from eva_master.policies.eva import POLICY as EVA
from eva_policies.slearn import POLICY
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import Millis, Workload

SECOND, LATER = 1_000, 3_600_000
NAMES = ("etl", "report", "scan")
PAST = tuple(
    EarlierJob("ana", f"{name}-{number}", Workload(name), SLOT, (100 + 150 * kind) * SECOND)
    for number in range(4)
    for kind, name in enumerate(NAMES)
)
STAGES = tuple(
    replace(one, dag="daily", dag_number=number // len(NAMES)) for number, one in enumerate(PAST)
)
PRESETS = ("", "published", "3sigma", "3sigma-tl", "point", "las", "fifo")
OF_DAGS = ("", "slearn-dag", "3sigma-dag", "point-dag", "las-dag")


class Watched:
    """Has a policy decide, and keeps what it decided."""

    name = "slearn"

    def __init__(self, preset: str) -> None:
        preset, _, back = preset.partition("+")
        config = POLICY.config(**POLICY.presets[preset]) if preset else POLICY.config()
        eva = EVA.build(EVA.config(explained=False))
        self._inner = POLICY.backed(config, eva) if back else POLICY.build(config)
        self.mode = POLICY.estimates(config)
        self.decided: list[tuple[Millis, Plan, PolicyMemory | None]] = []

    def plan(
        self, snapshot: Snapshot, memory: PolicyMemory | None
    ) -> tuple[Plan, PolicyMemory | None]:
        plan, memory = self._inner.plan(snapshot, memory)
        self.decided.append((snapshot.now_ms, plan, memory))
        return plan, memory


def jobs(seed: int) -> tuple[TraceJob, ...]:
    """Arrays of three workloads, whose tasks take whatever they take."""
    rng = random.Random(seed)
    found = []
    for number in range(12):
        name = rng.choice(NAMES)
        took = [rng.randint(20, 900) * SECOND for _ in range(rng.randint(1, 40))]
        tasks = tuple(TraceTask(SLOT, duration_ms=it) for it in took)
        found.append(
            TraceJob(
                f"{name}-{number}",
                Workload(name),
                arrival_ms=rng.randint(0, 1_500) * SECOND,
                duration_ms=sum(took) // len(took),
                tasks=tasks,
                owner="ana",
                kind=JobKind.ARRAY,
            )
        )
    return tuple(sorted(found, key=lambda it: it.arrival_ms))


def staged(given: tuple[TraceJob, ...]) -> tuple[TraceJob, ...]:
    """The same as DAGs of three stages, each after the one before and there as soon."""
    found: list[TraceJob] = []
    for number, job in enumerate(given):
        before = found[-1] if number % 3 else None
        after = () if before is None else (before.id,)
        at = job.arrival_ms if before is None else before.arrival_ms
        found.append(replace(job, dag="daily", after=after, arrival_ms=at))
    return tuple(found)


def run(
    given: tuple[TraceJob, ...], preset: str, **options: object
) -> tuple[SimulationOutcome, Watched]:
    policy = Watched(preset)
    off = policy.mode is Estimates.OFF
    setup = Setup(
        Trace("t", given, past=STAGES if given[0].dag else PAST),
        (),
        policy,
        nodes=FixedCluster(servers=12, short=0).nodes,
        durations=False,
        estimates=Estimates.POSTERIOR if off else policy.mode,
        keep_record=True,
    )
    return Simulation(replace(setup, **options)).run(), policy  # type: ignore[arg-type]


def exchanged(
    given: tuple[TraceJob, ...], outcome: SimulationOutcome, at: int
) -> tuple[tuple[TraceJob, ...], int]:
    """The same jobs with other run times of all tasks that had not ended by some time.

    Returns:
        The jobs, and how many of their tasks take another time.
    """
    ended = {it.run for it in outcome.record.occupancies if it.to_ms <= at}
    changed, found = 0, []
    for number, job in enumerate(given, start=1):
        tasks = []
        for index, task in enumerate(job.tasks):
            over = f"{job.id}-{number}/{index}" in ended
            assert task.duration_ms is not None
            other = task.duration_ms if over else LATER + 7 * index * SECOND
            changed += not over
            tasks.append(replace(task, duration_ms=other))
        total = sum(task.duration_ms or 0 for task in tasks)
        found.append(replace(job, tasks=tuple(tasks), duration_ms=total // len(tasks)))
    return tuple(found), changed


def before(policy: Watched, at: int) -> list[tuple[Millis, Plan, PolicyMemory | None]]:
    return [it for it in policy.decided if it[0] <= at]


@pytest.mark.parametrize(
    "preset", [*PRESETS, pytest.param("published+eva", marks=pytest.mark.explore)]
)
def test_what_tasks_take_that_have_not_ended_decides_nothing(preset: str) -> None:
    given = jobs(1)
    outcome, policy = run(given, preset)
    for at in (600 * SECOND, 1_400 * SECOND):
        other, changed = exchanged(given, outcome, at)
        assert changed > 20
        _, again = run(other, preset)
        assert len(before(policy, at)) > 5
        assert before(again, at) == before(policy, at)
        assert again.decided != policy.decided, "later it makes a difference"


@pytest.mark.parametrize("preset", OF_DAGS)
def test_nor_does_it_where_jobs_are_stages_of_dags(preset: str) -> None:
    given, at = staged(jobs(1)), 1_400 * SECOND
    outcome, policy = run(given, preset)
    other, changed = exchanged(given, outcome, at)
    assert changed > 20
    assert len({it for plan in policy.decided for line in plan[1].lines for it in line.jobs}) == 12
    _, again = run(other, preset)
    assert before(again, at) == before(policy, at)
    assert again.decided != policy.decided, "later it makes a difference"


def test_the_net_catches_who_knows_beforehand() -> None:
    given = jobs(1)
    outcome, policy = run(given, "oracle", durations=True)
    other, _ = exchanged(given, outcome, 1_400 * SECOND)
    _, again = run(other, "oracle", durations=True)
    assert before(again, 1_400 * SECOND) != before(policy, 1_400 * SECOND)
