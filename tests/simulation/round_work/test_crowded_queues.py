"""A queue far beyond what a round plans for: each user is looked at, and no round grows with it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from eva_lab.runs import named_policy
from eva_lab.simulator.simulated_cluster import SimulatedCluster
from eva_master.control.settings import Settings
from eva_master.model.job import JobSpec
from eva_master.model.planning.plan import Plan, PolicyMemory
from eva_master.model.planning.snapshot import Snapshot
from eva_master.packing.round_work import tasks_shown
from eva_master.packing.waiting_turns import Turns
from eva_master.ports import Policy
from eva_master.testing.job_views import with_values
from eva_master.testing.snapshots import offer, task
from eva_wire.values.bounds import JobKind

TASK, OTHER = task(any=(0, 1, 1)), task(other=(0, 1, 1))
MOST = 40
SETTINGS = Settings(round_work=2_000 * MOST)


class Watched:
    """A policy, and how many tasks that wait it was shown in each round."""

    def __init__(self, inner: Policy) -> None:
        self.inner = inner
        self.name = inner.name
        self.waiting: list[int] = []

    def plan(
        self, snapshot: Snapshot, memory: PolicyMemory | None
    ) -> tuple[Plan, PolicyMemory | None]:
        self.waiting.append(sum(run.instance is None for run in snapshot.runs))
        return self.inner.plan(snapshot, memory)


def crowded(policy: str = "eva", *, limit: int | None = 2) -> tuple[SimulatedCluster, Watched]:
    """Two instances of four tasks may be had, and any number where there is no limit."""
    watched = Watched(named_policy(policy)[0])
    catalog = (
        offer("four", (0, 4, 16), 0.2, limit=limit, setup_s=10),
        offer("other", (0, 4, 16), 0.2, family="other", setup_s=10),
    )
    return SimulatedCluster(catalog, watched, settings=SETTINGS), watched


def submit(
    world: SimulatedCluster, owner: str, jobs: int, tasks: int = 1, *, of=TASK, **more
) -> None:
    for number in range(jobs):
        spec = with_values(
            JobSpec(f"{owner}-{number}", owner, (of,) * tasks, duration_ms=60_000), more
        )
        world.submit(spec)


def begun(world: SimulatedCluster, owner: str) -> Callable[[], bool]:
    return lambda: any(
        job.spec.owner == owner and job.started_ms is not None for job in world.state.jobs.values()
    )


def test_the_tasks_of_the_tests_are_what_the_budget_allows() -> None:
    assert tasks_shown(SETTINGS.round_work) == MOST


def test_all_of_a_crowd_get_places_where_there_is_room_for_them() -> None:
    world, watched = crowded(limit=None)
    submit(world, "many", 300)
    assert world.run(lambda: world.state.counters.completions == 300, limit_ms=300_000)
    assert max(watched.waiting) == MOST


@pytest.mark.parametrize(
    "shape",
    [
        {"jobs": 400},
        {"jobs": 200, "tasks": 2},
        {"jobs": 1, "tasks": 400, "kind": JobKind.ARRAY},
        {"jobs": 1, "tasks": 400},
        {"jobs": 3, "tasks": 200, "least": 1},
    ],
)
def test_a_job_of_another_user_is_looked_at_at_once(shape) -> None:
    world, watched = crowded()
    submit(world, "many", **shape)
    world.run(lambda: world.timeline.now() >= 30_000, limit_ms=40_000)
    assert watched.waiting
    submit(world, "one", 1, of=OTHER)
    boots_and_starts_ms = 10_000 + SETTINGS.launch_ms
    assert world.run(begun(world, "one"), limit_ms=boots_and_starts_ms + 5_000)
    assert max(watched.waiting) <= MOST + shape.get("tasks", 1)


@pytest.mark.parametrize(
    "policy", ["no_packing", "stratus", "owl", "synergy", "tiresias", "fifo", "gavel", "hadar"]
)
def test_no_policy_is_shown_more_than_the_budget_allows(policy: str) -> None:
    world, watched = crowded(policy)
    submit(world, "many", 200)
    submit(world, "one", 1)
    world.run(lambda: world.state.counters.completions >= 16, limit_ms=600_000)
    assert world.state.counters.completions >= 16
    assert max(watched.waiting) <= MOST


def test_turns_go_on_after_a_restart() -> None:
    world, watched = crowded()
    submit(world, "many", 400)
    world.run(lambda: len(watched.waiting) >= 3, limit_ms=60_000)
    before = Turns.load(world.state.memories["turns/"]).small.jobs["many"]
    world.restart()
    rounds = len(watched.waiting)
    world.run(lambda: len(watched.waiting) > rounds, limit_ms=60_000)
    # All were submitted at once: the order is that of their ids, and has not begun again.
    assert Turns.load(world.state.memories["turns/"]).small.jobs["many"] > before


def test_once_all_find_time_again_there_is_nothing_to_remember() -> None:
    world, _ = crowded(limit=None)
    submit(world, "many", 300)
    world.run(lambda: world.state.counters.completions == 300, limit_ms=600_000)
    submit(world, "one", 1)
    world.run(lambda: world.state.counters.completions == 301, limit_ms=600_000)
    assert world.state.memories.get("turns/") is None


def test_rounds_end_once_all_were_shown_and_nothing_happens() -> None:
    world, watched = crowded(limit=0)
    submit(world, "many", 400)
    world.run(lambda: world.timeline.now() >= 120_000, limit_ms=130_000)
    rounds = len(watched.waiting)
    assert rounds <= 400 // (MOST // 2) + 3
    world.run(lambda: world.timeline.now() >= 280_000, limit_ms=170_000)
    assert len(watched.waiting) == rounds
