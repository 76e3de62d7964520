"""Deadlines at a time of day follow the wall clock; those within a duration do not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eva_master.adapters.http.metrics import _figures
from eva_master.adapters.rpc.server.shown.deadlines import buying_of, explain, metrics
from eva_master.control.machine import Machine
from eva_master.control.state.store import State
from eva_master.model.actions import Reply
from eva_master.model.arithmetic.loop_time import AS_LOOP, WallClock
from eva_master.model.events import ClocksMoved, Tick
from eva_master.model.job import Deadline
from eva_master.model.records import Outcome
from eva_master.ports.reading import Outlook
from eva_wire.values.ids import JobId, Millis
from tests.unit.control.test_control_cloud import CATALOG
from tests.unit.deadlines.test_market_choice import due, machine

HOUR = 3_600_000
JOB = JobId("job-1")


def submitted(deadline: Deadline) -> Machine:
    """A job of half an hour that is failed when it is late."""
    it = machine()
    it.handle([due(replace(deadline, fails=True), hours=0.5)], Millis(0))
    assert JOB in it.state.active
    return it


def outcome(it: Machine) -> Outcome | None:
    return it.state.jobs[JOB].outcome


def test_a_time_of_day_comes_sooner_when_the_clock_is_set_forward() -> None:
    it = submitted(Deadline(at_ms=4 * HOUR))
    it.handle([ClocksMoved(WallClock(2 * HOUR, Millis(5), 2 * HOUR))], Millis(5))
    it.handle([Tick()], Millis(2 * HOUR - 1))
    assert outcome(it) is None
    alarm = it.next_alarm()
    assert alarm is not None
    assert alarm <= 2 * HOUR
    it.handle([Tick()], Millis(2 * HOUR))
    assert outcome(it) is Outcome.FAILED


def test_a_time_of_day_comes_later_when_the_clock_is_set_back() -> None:
    it = submitted(Deadline(at_ms=4 * HOUR))
    it.handle([ClocksMoved(WallClock(-3 * HOUR, Millis(5), -3 * HOUR))], Millis(5))
    it.handle([Tick()], Millis(7 * HOUR - 1))
    assert outcome(it) is None
    it.handle([Tick()], Millis(7 * HOUR))
    assert outcome(it) is Outcome.FAILED


def test_a_time_of_day_that_the_clock_jumps_over_has_come() -> None:
    it = submitted(Deadline(at_ms=4 * HOUR))
    it.handle([ClocksMoved(WallClock(5 * HOUR, Millis(5), 5 * HOUR))], Millis(5))
    assert outcome(it) is Outcome.FAILED


@pytest.mark.parametrize("ahead_ms", [-3 * HOUR, 5 * HOUR])
def test_a_duration_is_what_passes(ahead_ms: int) -> None:
    it = submitted(Deadline(within_ms=4 * HOUR))
    it.handle([ClocksMoved(WallClock(ahead_ms, Millis(5), ahead_ms))], Millis(5))
    it.handle([Tick()], Millis(4 * HOUR - 1))
    assert outcome(it) is None
    it.handle([Tick()], Millis(4 * HOUR))
    assert outcome(it) is Outcome.FAILED


def test_a_restart_knows_how_the_clock_stands_before_it_looks_at_deadlines() -> None:
    it = submitted(Deadline(at_ms=4 * HOUR))
    state = State.restored(CATALOG, it.take_changes())
    state.wall = WallClock(-3 * HOUR)
    again = Machine(state, it.settings)
    again.recover(Millis(5 * HOUR))
    assert outcome(again) is None


def test_a_deadline_is_refused_by_the_wall_clock() -> None:
    it = machine()
    it.handle([ClocksMoved(WallClock(2 * HOUR))], Millis(0))
    event = due(Deadline(at_ms=HOUR), hours=0.5)
    (reply,) = (one for one in it.handle([event], Millis(1)) if isinstance(one, Reply))
    assert reply.error is not None
    assert "has passed" in reply.error.message
    event = replace(due(Deadline(at_ms=3 * HOUR), hours=0.5), command="later")
    (reply,) = (one for one in it.handle([event], Millis(2)) if isinstance(one, Reply))
    assert reply.error is None


def test_users_are_told_times_of_day_and_that_the_clock_was_set() -> None:
    it = submitted(Deadline(at_ms=4 * HOUR))
    job = it.state.jobs[JOB]
    wall = WallClock(2 * HOUR, Millis(HOUR // 2), 2 * HOUR)
    lines = list(explain(job, None, Millis(HOUR), wall=wall))
    assert lines[0].startswith("due at 1970-01-01 04:00:00 UTC")
    assert "was set 2h 0m forward at 1970-01-01 02:30:00 UTC" in lines[1]
    assert not any("was set" in line for line in explain(job, None, Millis(HOUR), wall=AS_LOOP))
    restarted = list(explain(job, None, Millis(HOUR), wall=WallClock(-2 * HOUR)))
    assert "is 2h 0m behind the master's time" in restarted[1]
    shown = buying_of(job, Outlook(), Millis(HOUR), wall)
    assert shown is not None
    assert shown.due_ms == 2 * HOUR, "by the loop's time, as all times that clients get"


def test_what_others_compare_with_their_clocks_is_by_the_wall_clock() -> None:
    it = submitted(Deadline(at_ms=4 * HOUR))
    it.handle([ClocksMoved(WallClock(2 * HOUR, Millis(5), 2 * HOUR))], Millis(HOUR))
    figures = _figures(it.published(), Millis(HOUR), plans_long=False)
    assert figures.turned_ms == 3 * HOUR
    for family in metrics(it.published(), Millis(HOUR)):
        assert [sample.value for sample in family.samples] == [0], family.name
    it.handle([ClocksMoved(WallClock(4 * HOUR, Millis(HOUR), 2 * HOUR))], Millis(HOUR))
    assert outcome(it) is Outcome.FAILED
