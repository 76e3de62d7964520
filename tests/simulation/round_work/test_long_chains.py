"""A chain of jobs costs as much for each of its jobs however long it is."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from benchmarks.calls import Calls
from eva_lab.runs import named_policy
from eva_lab.simulator.simulated_cluster import SimulatedCluster
from eva_master.control.rounds import cycle
from eva_master.control.settings import Settings
from eva_master.model.job import JobSpec, JobStage
from eva_master.model.planning.plan import Plan, PolicyMemory
from eva_master.model.planning.snapshot import Snapshot
from eva_master.testing.snapshots import offer, task
from eva_wire.values.ids import JobId
from eva_wire.values.states import JobState

SETTINGS = Settings(round_gap_ms=1_000)


@dataclass
class Counts:
    """Work of a run.

    Attributes:
        calls: Of functions, by all of the control loop and the policy.
        plans: Rounds that asked the policy.
        snapshots: Snapshots that were made.
        shown: Tasks in the snapshots of all plans.
        views: Views of jobs and tasks that were made for snapshots.
    """

    calls: int = 0
    plans: int = 0
    snapshots: int = 0
    shown: int = 0
    views: int = 0


class Watched:
    """A policy whose snapshots are counted."""

    def __init__(self, counts: Counts) -> None:
        self._inner, _ = named_policy("eva")
        self.name = self._inner.name
        self._counts = counts

    def plan(
        self, snapshot: Snapshot, memory: PolicyMemory | None
    ) -> tuple[Plan, PolicyMemory | None]:
        self._counts.plans += 1
        self._counts.shown += len(snapshot.runs)
        return self._inner.plan(snapshot, memory)


def chain(jobs: int) -> Counts:
    """Run a chain to its end, and a job of another user that comes after it."""
    counts = Counts()
    make = cycle.snapshot

    def snapshot(*arguments, **named):
        counts.snapshots += 1
        return make(*arguments, **named)

    world = SimulatedCluster(
        (offer("four", (0, 4, 16), 0.2, setup_s=10),), Watched(counts), settings=SETTINGS
    )

    def ended() -> bool:
        return world.state.counters.completions == jobs + 1

    calls = Calls()
    with pytest.MonkeyPatch.context() as patch, calls.counting():
        patch.setattr(cycle, "snapshot", snapshot)
        for number in range(jobs):
            before = (JobId(f"c{number - 1:04}-{number}"),) if number else ()
            spec = JobSpec(
                *(f"c{number:04}", "many", (task(any=(0, 1, 1)),)),
                duration_ms=5_000,
                stage=JobStage(depends_on=before),
            )
            world.submit(spec)
        world.submit(JobSpec("small", "one", (task(any=(0, 1, 1)),), duration_ms=5_000))
        done = world.run(ended, limit_ms=jobs * 120_000 + 600_000)
    assert done
    assert all(job.state is JobState.SUCCEEDED for job in world.state.jobs.values())
    counts.calls = calls.made
    counts.views = world.state.view_cache.made
    return counts


def test_the_work_of_a_chain_grows_with_its_length():
    """Twice as many jobs more are at most a little more than twice the work more."""
    short, double, fourfold = (chain(jobs) for jobs in (25, 50, 100))
    for name in ("calls", "plans", "snapshots", "shown", "views"):
        first, second, third = (getattr(counts, name) for counts in (short, double, fourfold))
        assert third - second <= 2.3 * (second - first) + 5, name
    assert fourfold.shown <= 2 * fourfold.plans, "jobs that wait for others are in no snapshot"
