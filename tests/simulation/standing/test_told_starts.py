"""Nobody in a line by arrival starts later than `eva explain` has ever said."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from eva_lab.simulator.simulated_cluster import SimulatedCluster
from eva_master.control.features.pools.admission import Bar
from eva_master.control.settings import Settings
from eva_master.model.catalog import InstanceType, Offering
from eva_master.model.job import JobSpec, Program, TaskSpec
from eva_master.model.planning.plan import Plan, PolicyMemory
from eva_master.model.planning.snapshot import Snapshot
from eva_master.model.resources import Resources
from eva_master.model.tenants.quotas import Tenancy, quota_of
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import Family, JobId, Millis, Price, RunId, Workload
from eva_wire.values.states import RunState
from tests.fakes.models import model_of
from tests.fakes.pools.policy import Config, PoolPolicy
from tests.unit.standing.test_pools import BOX, QUICK, _array

Told = tuple[JobId, Millis, tuple[RunId, ...], Millis]
"""A job, when it was told what, its tasks that waited, and when one of them was to start."""


class ByArrival(PoolPolicy):
    """Says of its line what it is."""

    def plan(
        self, snapshot: Snapshot, memory: PolicyMemory | None
    ) -> tuple[Plan, PolicyMemory | None]:
        plan, after = super().plan(snapshot, memory)
        return replace(plan, lines=tuple(replace(it, by_arrival=True) for it in plan.lines)), after


def told_by(world: SimulatedCluster) -> list[Told]:
    """What each job in the line is told now."""
    model, now, found = model_of(world.state), world.timeline.now(), []
    for job, places in model.queued.items():
        waiting = [it for it in model.members(job) if it.state is RunState.WAITING]
        waiting = [it for it in waiting if it.target is None]
        (outlook,) = model.ahead(job, places, now)
        if waiting and outlook.latest_ms is not None:
            assert not outlook.others_first
            found.append((job, now, tuple(it.id for it in waiting), outlook.latest_ms))
    return found


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(it, marks=pytest.mark.long) for it in range(2, 6))]
)
def test_no_task_starts_later_than_told(seed: int) -> None:
    random = Random(seed)
    world = SimulatedCluster((BOX,), ByArrival(Config(size=3, keeps=True)), settings=QUICK)
    world.run(lambda: False, limit_ms=60_000)
    told: list[Told] = []
    for number in range(12):
        seconds = random.choice((20, 60, 150))
        world.submit(_array(f"j{number}", random.randint(5, 20), seconds))
        for _ in range(random.randint(1, 5)):
            world.run(lambda: False, limit_ms=random.randint(1, 20_000))
            told += told_by(world)
    while any(job.finished_ms is None for job in world.state.jobs.values()):
        world.run(lambda: False, limit_ms=15_000)
        told += told_by(world)
    assert len(told) > 100
    late = [
        (job, now, latest, first)
        for job, now, waiting, latest in told
        if (first := min(_start(world, it, now) for it in waiting)) > latest
    ]
    assert not late
    waits = [min(_start(world, it, now) for it in runs) - now for _, now, runs, _ in told]
    bounds = [latest - now for _, now, _, latest in told]
    assert max(waits) > 60_000, "somebody waits"
    assert sum(bounds) < 4 * sum(waits), "what is said tells something"


def _start(world: SimulatedCluster, run: RunId, since: Millis) -> int:
    """When a task began for the first time after a moment."""
    history = world.state.runs[run].history
    return min(at for state, at in history if state == "starting" and at >= since)


def test_a_job_over_its_quota_is_told_no_start() -> None:
    """The line has room for its second task, and gives it none: so the outlook must not promise."""
    settings = Settings(
        tenancy=Tenancy({"ann": quota_of({"v100": 1})}), round_gap_ms=1_000, round_period_ms=60_000
    )
    family = Family("v100")
    kind = InstanceType("v100.x", family, Resources(4, 4_000, 8_192), setup_ms=1_000)
    box = Offering(kind, Price(1_000_000))
    policy = ByArrival(Config(size=1, keeps=True))
    world = SimulatedCluster((box,), policy, settings=settings)
    task = TaskSpec(Workload("w"), Program("true"), ((family, Resources(1, 1_000, 1_024)),))
    world.submit(
        JobSpec("j", "ann", (task,) * 2, tenant="ann", kind=JobKind.ARRAY, duration_ms=100_000)
    )
    assert world.run(lambda: any(it.state is RunState.RUNNING for it in world.state.runs.values()))
    model = model_of(world.state, settings)
    (job,) = model.jobs
    told = model.ahead(job, model.queued[job], world.timeline.now())
    assert [(it.latest_ms, it.no_bound) for it in told] == [(None, Bar.QUOTA.value)]
    assert world.run(lambda: world.state.jobs[job].finished_ms is not None, limit_ms=600_000)
    begun = sorted(_start(world, it.id, Millis(0)) for it in world.state.members(job))
    assert begun[1] - begun[0] >= 100_000, "one after the other"
