"""Members that a plan states no more while a task is there, and what becomes of them afterwards."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eva_lab.simulator.simulated_cluster import SimulatedCluster
from eva_master.control.settings import Settings
from eva_master.model.events import CancelRequested, DrainRequested
from eva_master.model.planning.plan import Assign, Hold, NewInstance, Plan, PolicyMemory
from eva_master.model.planning.snapshot import Snapshot
from eva_master.model.planning.standing import Line, Pool
from eva_wire.values.ids import InstanceId, JobId
from eva_wire.values.states import JobState
from tests.fakes.jobs import MEDIUM, job

MINUTE_MS = 60_000


class Fickle:
    """Has a pool of one instance for short jobs until it is told not to; others get instances."""

    name = "fickle"

    def __init__(self) -> None:
        self.keeps = True

    def plan(
        self, snapshot: Snapshot, memory: PolicyMemory | None
    ) -> tuple[Plan, PolicyMemory | None]:
        """See `eva_master.ports.Policy.plan`."""
        short = tuple(it.id for it in snapshot.jobs if it.id.startswith("short"))
        members: tuple[InstanceId | int, ...] = tuple(it.id for it in snapshot.instances if it.pool)
        used = len(snapshot.instances)
        launches: list[NewInstance] = []

        def launch() -> int | None:
            (offering,) = snapshot.catalog
            if used + len(launches) >= (offering.limit or 0):
                return None
            launches.append(NewInstance(len(launches), offering))
            return launches[-1].key

        if self.keeps and not members and short and (key := launch()) is not None:
            members = (key,)
        entries: list[Assign | Hold] = []
        empty = [it.id for it in snapshot.instances if not it.pool and not it.residents]
        for run in snapshot.runs:
            if run.instance is None and run.job not in short:
                where: InstanceId | int | None = empty.pop() if empty else launch()
                entries.append(Hold(run.id, "no room") if where is None else Assign(run.id, where))
        pools = (Pool("p", members, "kept"),) if self.keeps and members else ()
        lines = (Line(("p",), short),) if pools and short else ()
        return Plan(tuple(launches), tuple(entries), pools=pools, lines=lines), memory


class World:
    """A short task runs on the only instance there may be, which has left its pool meanwhile."""

    def __init__(self) -> None:
        policy = Fickle()
        settings = Settings(round_gap_ms=1_000)
        self.cluster = SimulatedCluster((replace(MEDIUM, limit=1),), policy, settings=settings)
        self.cluster.submit(job("short", 4, minutes=5))
        self.until("short-1", JobState.RUNNING)
        policy.keeps = False
        self.cluster.submit(job("note", 4, minutes=0.1))
        assert self.cluster.run(
            lambda: any(it.drain for it in self.cluster.state.instances.values()),
            limit_ms=10 * MINUTE_MS,
        )

    def until(self, name: str, state: JobState) -> None:
        """Go on until a job is in a state."""
        jobs = self.cluster.state.jobs
        assert self.cluster.run(
            lambda: JobId(name) in jobs and jobs[JobId(name)].state is state,
            limit_ms=30 * MINUTE_MS,
        )


def test_a_task_that_waits_takes_the_instance_over() -> None:
    world = World()
    world.until("note-2", JobState.SUCCEEDED)
    (instance,) = world.cluster.state.instances.values()
    assert (instance.pool, instance.drain) == ("", None)
    assert world.cluster.run(world.cluster.quiet, limit_ms=30 * MINUTE_MS)


def test_an_instance_that_an_operator_drains_goes() -> None:
    world = World()
    (name,) = world.cluster.state.instances
    world.cluster.inbox.post(DrainRequested("drain", name, owner="root"))
    world.until("note-2", JobState.SUCCEEDED)
    assert len(world.cluster.state.instances) == 2


@pytest.mark.parametrize("restarts", [False, True])
def test_without_a_task_that_waits_it_goes(restarts: bool) -> None:
    world = World()
    world.cluster.inbox.post(CancelRequested("cancel", JobId("note-2"), "me"))
    if restarts:
        assert world.cluster.run(
            lambda: world.cluster.state.jobs[JobId("note-2")].state is JobState.CANCELLED
        )
        world.cluster.restart()
    world.until("short-1", JobState.SUCCEEDED)
    assert world.cluster.run(world.cluster.quiet, limit_ms=MINUTE_MS)
    (instance,) = world.cluster.state.instances.values()
    assert instance.reason == "left the pool p"
