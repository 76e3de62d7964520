"""Tasks that never begin to run, since an image never comes, fail some time, and say so."""

from __future__ import annotations

import pytest

from eva_master.control.settings import Settings
from eva_master.model.events import Phase, RunReport
from eva_master.model.records import StopReason
from eva_wire.values.states import JobState, RunState
from tests.unit.control.test_failures import Stage

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
WHY = "task job-1/0 had not begun to run 3600 s after its start on i00001"


def late(**more: object) -> Stage:
    settings = Settings(round_gap_ms=0, start_timeout_ms=HOUR_MS)
    return Stage(settings=settings, **more)  # type: ignore[arg-type]


def stopped(stage: Stage, index: int = 0) -> None:
    """The worker has given the attempt up."""
    run = stage.run(index)
    stage.say(RunReport(run.id, run.attempt, Phase.EXITED, stopped=True, never_started=True))


@pytest.mark.parametrize("gang", [False, True])
def test_what_never_begins_is_stopped_and_tried_again_until_it_has_failed(*, gang: bool) -> None:
    stage = late(gang=gang, retries=1)
    for attempt in (1, 2):
        while stage.run().state is not RunState.STARTING:
            stage.step(MINUTE_MS)
        stage.step(HOUR_MS - 3 * MINUTE_MS)
        assert (stage.run().state, stage.run().attempt) == (RunState.STARTING, attempt)
        stage.step(5 * MINUTE_MS)
        assert (stage.run().state, stage.run().stop) == (RunState.STOPPING, StopReason.LATE)
        assert stage.job.failures == attempt - 1, "it counts once it is certain that it is over"
        stopped(stage)
        assert stage.job.failures == attempt
        assert WHY in stage.job.reason
    assert stage.job.state is JobState.FAILED
    assert "no retries left" in stage.job.reason


def test_a_member_that_never_begins_takes_its_gang_along() -> None:
    stage = late(tasks=2, gang=True, retries=0)
    first = stage.run(0)
    stage.say(RunReport(first.id, first.attempt, Phase.RUNNING))
    stage.step(HOUR_MS + 2 * MINUTE_MS)
    assert stage.run(1).stop is StopReason.LATE
    assert stage.run(0).state is RunState.RUNNING
    stopped(stage, 1)
    assert stage.run(0).stop is StopReason.GANG
    stopped(stage, 0)
    assert stage.job.state is JobState.FAILED
    assert "task job-1/1 had not begun to run" in stage.job.reason


def test_what_begins_in_time_runs_as_long_as_it_likes() -> None:
    stage = late()
    stage.step(HOUR_MS - 3 * MINUTE_MS)
    stage.begin()
    stage.step(5 * HOUR_MS)
    assert stage.run().state is RunState.RUNNING


def test_one_that_begins_while_it_is_stopped_and_has_succeeded_has_succeeded() -> None:
    stage = late(retries=0)
    stage.step(HOUR_MS + 2 * MINUTE_MS)
    assert stage.run().stop is StopReason.LATE
    run = stage.run()
    stage.say(RunReport(run.id, run.attempt, Phase.EXITED, exit_code=0))
    assert stage.job.state is JobState.SUCCEEDED
