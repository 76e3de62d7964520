"""Room that is kept for a job which its policy places nowhere goes to others, until it has use."""

from __future__ import annotations

from dataclasses import replace

from eva_master.app.sections.building import build_policy
from eva_master.model.catalog import Purchase
from eva_master.model.fleet.nodes import OwnedNode
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import InstanceId, JobId, RunId
from eva_wire.values.states import JobState, RunState
from tests.fakes.emptied.worlds import Idle, Scripted
from tests.fakes.fleets.limited_room import GAP_MS, MINUTE_MS, World, sold
from tests.fakes.jobs import SMALL, job


def test_room_that_a_policy_gives_to_no_claimant_goes_to_others() -> None:
    world = Scripted(Idle("urgent-"), replace(SMALL, limit=2))
    world.come(job("first", 2, minutes=2))
    world.come(job("urgent", 2, minutes=1, priority=5), at_min=0.2)
    world.come(job("low", 2, minutes=1), at_min=0.3)
    world.play(5)
    urgent, low = (world.state.jobs[JobId(name)] for name in ("urgent-2", "low-3"))
    assert low.state is JobState.SUCCEEDED
    # Once nothing else is there, a job is placed whatever its policy says.
    assert low.started_ms is not None
    assert urgent.started_ms is None or urgent.started_ms > low.started_ms


def test_the_next_task_of_an_urgent_array_begins_before_what_is_less_urgent() -> None:
    # Each of its tasks is to be measured alone first, and there is never a node of its own for it.
    node = replace(sold(4, None), purchase=Purchase.OWNED, limit=None)
    nodes = {InstanceId("n0"): OwnedNode(InstanceId("n0"), node, MINUTE_MS)}
    world = World(build_policy("eva", {}), profile=True, nodes=nodes)
    for name in ("long", "other"):
        world.job(name, 2, 60 if name == "other" else 900)
    world.job("urgent", 1, 60, at_s=20, tasks=4, priority=9, kind=JobKind.ARRAY, concurrency=1)
    world.job("large", 4, 600, at_s=25, priority=1)
    world.job("low", 1, 60, at_s=25)
    assert world.run(world.ended)
    ends = [_at(world, f"urgent-3/{index}", RunState.SUCCEEDED) for index in range(4)]
    begins = [_at(world, f"urgent-3/{index}", RunState.RUNNING) for index in range(4)]
    for end, begin in zip(ends, begins[1:], strict=False):
        assert begin - end <= 2 * GAP_MS + 2_000
    assert world.began_ms("large") > 900_000, "it waits for the long one"


def _at(world: World, run: str, state: RunState) -> int:
    """When a task run first entered a state."""
    return next(at for known, at in world.state.runs[RunId(run)].history if known == state)
