"""A task does not run while its machine sleeps, and only its agent can tell."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from eva_master.control.machine import Machine
from eva_master.control.measure.throughput import worked_ms
from eva_master.control.settings import Settings
from eva_master.control.state.store import State
from eva_master.model.actions import Action, SyncWorker
from eva_master.model.arithmetic.loop_time import AS_LOOP
from eva_master.model.events import (
    ClocksMoved,
    InstanceUp,
    Phase,
    RunReport,
    Tick,
    WorkerRegistered,
    WorkerReported,
)
from eva_master.model.records import Outcome
from eva_master.testing.job_views import with_values
from eva_wire.values.ids import JobId, Millis
from eva_wire.values.states import InstanceState, RunState
from tests.unit.control.test_control_cloud import (
    CATALOG,
    FIRST,
    RUN,
    SIZE,
    ZONES,
    launched,
    submitted,
)
from tests.unit.control.test_failures import Stage

SECOND = 1_000
HOUR = 3_600 * SECOND
JOB = JobId("job-1")
LIMIT = HOUR
BEGAN = 20 * SECOND
"""When the task begins to run."""


def started(ran_ms: int | None = 0) -> Machine:
    """A job that may run for an hour, and whose task has just begun to run."""
    it = Machine(State(CATALOG), Settings(round_gap_ms=0))
    event = submitted()
    event = replace(event, spec=with_values(event.spec, {"max_duration_ms": LIMIT}))
    launched(it, it.handle([event], Millis(0)), ZONES[0], 1)
    it.handle([InstanceUp(FIRST, Millis(10 * SECOND))], Millis(10 * SECOND))
    it.handle([WorkerRegistered(FIRST, 1, SIZE, ())], Millis(BEGAN))
    it.handle([said(ran_ms)], Millis(BEGAN))
    assert it.state.runs[RUN].state is RunState.RUNNING
    return it


def said(ran_ms: int | None, phase: Phase = Phase.RUNNING) -> WorkerReported:
    return WorkerReported(FIRST, 1, (RunReport(RUN, 1, phase, exit_code=0, ran_ms=ran_ms),))


def asks(actions: list[Action]) -> bool:
    return SyncWorker(FIRST) in actions


def failed(it: Machine) -> bool:
    return it.state.jobs[JOB].outcome is Outcome.FAILED


def test_a_job_that_slept_is_not_failed_when_the_machine_wakes() -> None:
    it = started()
    it.handle([said(600 * SECOND)], Millis(BEGAN + 600 * SECOND))
    woken = BEGAN + 8 * HOUR
    assert asks(it.handle([Tick()], Millis(woken)))
    assert not failed(it)
    it.handle([said(601 * SECOND)], Millis(woken + SECOND))
    it.handle([Tick()], Millis(woken + 60 * SECOND))
    assert not failed(it)
    # It has run for 601 s by then, and so may for 2,999 more.
    it.handle([said(3_599 * SECOND)], Millis(woken + 2_999 * SECOND))
    it.handle([Tick()], Millis(woken + 2_999 * SECOND + 999))
    assert not failed(it)
    alarm = it.next_alarm()
    assert alarm is not None
    assert alarm <= woken + 3_000 * SECOND
    it.handle([Tick()], Millis(woken + 3_000 * SECOND))
    it.handle([said(3_600 * SECOND)], Millis(woken + 3_000 * SECOND + 10))
    assert failed(it)


def test_a_job_that_has_run_for_its_limit_is_failed_at_the_agents_word() -> None:
    it = started()
    it.handle([said(600 * SECOND)], Millis(BEGAN + 600 * SECOND))
    assert asks(it.handle([Tick()], Millis(BEGAN + LIMIT)))
    it.handle([said(LIMIT)], Millis(BEGAN + LIMIT + 20))
    assert failed(it)


def test_an_agent_that_does_not_answer_is_not_waited_for() -> None:
    it = started()
    it.handle([said(600 * SECOND)], Millis(BEGAN + 600 * SECOND))
    it.handle([Tick()], Millis(BEGAN + LIMIT))
    it.handle([Tick()], Millis(BEGAN + LIMIT + 9_999))
    assert not failed(it)
    it.handle([Tick()], Millis(BEGAN + LIMIT + 10_000))
    assert failed(it)


def test_agents_that_do_not_tell_are_not_asked() -> None:
    it = started(None)
    assert not asks(it.handle([Tick()], Millis(BEGAN + LIMIT)))
    assert failed(it)


@pytest.mark.parametrize("restarts", [False, True])
def test_what_was_slept_is_no_part_of_the_running_time(restarts: bool) -> None:
    it = started()
    it.handle([said(600 * SECOND)], Millis(BEGAN + 600 * SECOND))
    it.handle([said(700 * SECOND)], Millis(BEGAN + 8 * HOUR))
    if restarts:
        it = Machine(State.restored(CATALOG, it.take_changes()), it.settings)
        it.recover(Millis(BEGAN + 8 * HOUR))
    now = Millis(BEGAN + 8 * HOUR + 50 * SECOND)
    assert worked_ms(it.state, it.state.runs[RUN], now) == 750 * SECOND
    assert it.state.jobs[JOB].ran_ms(now) == 750 * SECOND
    assert it.state.runs[RUN].started_ms == BEGAN


def test_what_was_slept_last_is_found_at_the_end() -> None:
    it = started()
    it.handle([said(900 * SECOND, Phase.EXITED)], Millis(BEGAN + 8 * HOUR))
    assert it.state.runs[RUN].work_ms == 900 * SECOND


@pytest.mark.parametrize(
    "ran_ms", [0, 1, 599 * SECOND, 600 * SECOND, 10**15], ids=["0", "1", "599", "600", "more"]
)
def test_whatever_an_agent_says_its_task_ran_between_its_start_and_now(ran_ms: int) -> None:
    it = started()
    now = Millis(BEGAN + 600 * SECOND)
    it.handle([said(ran_ms)], now)
    assert 0 <= worked_ms(it.state, it.state.runs[RUN], now) <= 600 * SECOND
    assert 0 <= it.state.jobs[JOB].ran_ms(now) <= 600 * SECOND


def test_a_report_that_was_held_up_is_made_good_by_the_next() -> None:
    it = started()
    it.handle([said(100 * SECOND)], Millis(BEGAN + 300 * SECOND))
    now = Millis(BEGAN + 301 * SECOND)
    it.handle([said(301 * SECOND)], now)
    assert worked_ms(it.state, it.state.runs[RUN], now) == 301 * SECOND
    assert it.state.jobs[JOB].ran_ms(now) == 301 * SECOND


def test_after_a_sleep_a_worker_that_boots_is_given_time_to_come() -> None:
    it = Machine(State(CATALOG), Settings(round_gap_ms=0, register_timeout_ms=600 * SECOND))
    launched(it, it.handle([submitted()], Millis(0)), ZONES[0], 1)
    it.handle([InstanceUp(FIRST, Millis(10 * SECOND))], Millis(10 * SECOND))
    woken = 8 * HOUR
    it.handle([ClocksMoved(AS_LOOP, slept_ms=8 * HOUR - 20 * SECOND)], Millis(woken))
    it.handle([Tick()], Millis(woken + 59 * SECOND))
    assert it.state.instances[FIRST].state is InstanceState.UP
    alarm = it.next_alarm()
    assert alarm is not None
    assert alarm <= woken + 60 * SECOND
    it.handle([Tick()], Millis(woken + 60 * SECOND))
    assert it.state.instances[FIRST].state is not InstanceState.UP


def test_after_a_sleep_a_task_that_starts_is_given_time_to_run() -> None:
    it = Machine(State(CATALOG), Settings(round_gap_ms=0, start_timeout_ms=600 * SECOND))
    launched(it, it.handle([submitted()], Millis(0)), ZONES[0], 1)
    it.handle([InstanceUp(FIRST, Millis(10 * SECOND))], Millis(10 * SECOND))
    it.handle([WorkerRegistered(FIRST, 1, SIZE, ())], Millis(BEGAN))
    assert it.state.runs[RUN].state is RunState.STARTING
    woken = 8 * HOUR
    it.handle([ClocksMoved(AS_LOOP, slept_ms=8 * HOUR - 30 * SECOND)], Millis(woken))
    assert it.state.runs[RUN].state is RunState.STARTING
    it.handle([said(5 * SECOND)], Millis(woken + 5 * SECOND))
    assert it.state.runs[RUN].state is RunState.RUNNING


class Tasks(Stage):
    """Some tasks of one job that may run for an hour, all on one instance."""

    def __init__(self, **more: Any) -> None:
        super().__init__(tasks=2, **more)
        job = self.job
        self.machine.state.put_job(
            replace(job, spec=with_values(job.spec, {"max_duration_ms": LIMIT}))
        )
        for index in (0, 1):
            self.begin(index)

    def ran(self, index: int, ran_ms: int) -> None:
        run = self.run(index)
        self.say(RunReport(run.id, run.attempt, Phase.RUNNING, ran_ms=ran_ms))


@pytest.mark.parametrize("gang", [False, True])
def test_tasks_that_slept_together_are_counted_once(gang: bool) -> None:
    it = Tasks(gang=gang)
    began = it.now
    it.now += 600 * SECOND
    it.ran(0, 600 * SECOND)
    it.ran(1, 600 * SECOND)
    it.now += 8 * HOUR
    it.ran(0, 600 * SECOND)
    it.ran(1, 600 * SECOND)
    assert it.job.ran_ms(Millis(it.now)) == 600 * SECOND
    # And once more, when the next sleep comes.
    it.now += 9 * HOUR
    it.ran(1, 700 * SECOND)
    it.ran(0, 700 * SECOND)
    assert it.job.ran_ms(Millis(it.now)) == 700 * SECOND
    assert it.now - began == 17 * HOUR + 600 * SECOND
