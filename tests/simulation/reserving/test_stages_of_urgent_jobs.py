"""Stages that an urgent job waits for run as if they were as urgent themselves."""

from __future__ import annotations

import pytest

from eva_lab.simulator.cluster.work import Work
from eva_lab.simulator.simulated_cluster import SimulatedCluster
from eva_master.app.policy_registry import policies
from eva_master.control.settings import Preemption, Settings
from eva_master.model.catalog import InstanceType, Offering
from eva_master.model.events import CancelRequested
from eva_master.model.planning.suspension import Suspender
from eva_master.model.resources import Resources
from eva_wire.values.ids import Family, JobId, Price
from eva_wire.values.states import JobState, RunState
from tests.fakes.jobs import job

MINUTE_MS = 60_000
TYPE = InstanceType(
    "c.1", Family("c"), Resources(0, 1_000, 2_048), acquisition_ms=10_000, setup_ms=20_000
)
MINUTES = 10


class World(SimulatedCluster):
    """One instance, which each job needs by itself for ten minutes."""

    def __init__(self, policy: str, preemption: Preemption = Preemption.NEVER) -> None:
        kind = policies()[policy]
        super().__init__(
            (Offering(TYPE, Price(100_000), limit=1),),
            kind.build(kind.config()),
            settings=Settings(preemption=preemption),
            work_of=lambda _: Work(MINUTES * MINUTE_MS),
        )

    def add(self, name: str, priority: int = 0, after: str = "") -> None:
        before = (JobId(after),) if after else ()
        self.submit(job(name, 1, minutes=MINUTES, priority=priority, depends_on=before))

    def until(self, minutes: float) -> None:
        at_ms = round(minutes * MINUTE_MS)
        self.timeline.after(at_ms - self.timeline.now(), lambda: None)
        self.run(lambda: self.timeline.now() >= at_ms)

    def order(self) -> list[str]:
        """The jobs as they first ran."""
        began = {}
        for run in (it for name in self.state.jobs for it in self.state.members(name)):
            at = next((at for state, at in run.history if state == RunState.RUNNING.value), None)
            if at is not None:
                began[run.job] = at
        return [str(name) for name in sorted(began, key=began.__getitem__)]


def queue_of_five(world: World) -> None:
    """One that runs, three that wait, and then a stage that an urgent one waits for."""
    for name in ("a", "b", "c", "d"):
        world.add(name)
    world.until(2)
    world.add("prepare")
    world.until(3)
    world.add("urgent", priority=5, after="prepare-5")


@pytest.mark.parametrize("policy", ["eva", "no_packing", "fifo", "eva_published", "stratus"])
def test_the_stage_comes_before_those_that_wait_for_longer(policy: str) -> None:
    world = World(policy)
    queue_of_five(world)
    assert world.run(world.quiet, limit_ms=200 * MINUTE_MS)
    assert [it.state for it in world.state.jobs.values()] == [JobState.SUCCEEDED] * 6
    assert world.order()[1:3] == ["prepare-5", "urgent-6"]


def test_it_waits_for_its_turn_once_the_urgent_one_is_cancelled() -> None:
    world = World("eva")
    queue_of_five(world)
    world.until(5)
    world.inbox.post(CancelRequested("c", JobId("urgent-6")))
    assert world.run(world.quiet, limit_ms=200 * MINUTE_MS)
    assert world.order()[-1] == "prepare-5"


def test_the_stage_suspends_those_of_lower_priority_and_is_not_suspended_itself() -> None:
    world = World("eva", Preemption.SUSPEND)
    world.add("a", priority=1)
    world.until(2)
    world.add("prepare")
    world.add("urgent", priority=5, after="prepare-2")
    world.until(4)
    (victim,) = world.state.members(JobId("a-1"))
    assert victim.suspension is not None
    assert (victim.suspension.by, victim.suspension.job) == (Suspender.PRIORITY, "prepare-2")
    (stage,) = world.state.members(JobId("prepare-2"))
    assert stage.state is RunState.RUNNING
    world.add("rival", priority=3)
    world.until(6)
    (stage,) = world.state.members(JobId("prepare-2"))
    assert stage.state is RunState.RUNNING
    assert stage.suspension is None
    assert world.run(world.quiet, limit_ms=200 * MINUTE_MS)
    assert world.order() == ["a-1", "prepare-2", "urgent-3", "rival-4"]
