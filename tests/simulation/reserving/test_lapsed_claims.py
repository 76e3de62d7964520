"""Room that is kept for a job which its policy places nowhere goes to others."""

from __future__ import annotations

from dataclasses import replace

from eva_master.model.ids import JobId
from eva_master.model.states import JobState
from tests.fakes.emptied.worlds import Idle, Scripted
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
