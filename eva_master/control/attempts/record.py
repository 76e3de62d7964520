"""The record of a task run that changes its state or place, with what its attempt did."""

from __future__ import annotations

from eva_master.control.attempts.past import with_past_attempt
from eva_master.control.measure import attained, stored
from eva_master.control.measure.throughput import worked_ms
from eva_master.control.state.store import State
from eva_master.model.planning.estimate import Estimates
from eva_master.model.records import TaskRun
from eva_master.model.values import replace
from eva_wire.values.ids import Millis
from eva_wire.values.states import HOLDING, TERMINAL_RUN, RunState


def with_attempt(state: State, old: TaskRun, run: TaskRun, now: Millis) -> TaskRun:
    """The new record of a task run, with the work, times and end of its attempt.

    Args:
        state: The state, in which `old` is still the record.
        old: The record so far.
        run: The record from now on.
        now: The time.
    """
    before, after = old.state, run.state
    if before is RunState.RUNNING is not after:
        worked = worked_ms(state, old, now)
        had = attained.gpus(state, old) * max(0, now - old.since_ms)
        run = replace(run, work_ms=run.work_ms + worked, gpu_ms=run.gpu_ms + had)
    if after is RunState.WAITING:
        run = stored.rolled_back(state, run)
    run = _timed(state, old, run)
    if before in HOLDING and after not in HOLDING:
        run = with_past_attempt(old, run, now)
    return run


def _timed(state: State, old: TaskRun, run: TaskRun) -> TaskRun:
    """The record of a task run with what it took, if that is known now or known no more."""
    paces, after = state.company, run.state
    over = after is RunState.SUCCEEDED
    if over and old.state is not after:
        took = paces.took(run.id, run.work_ms)
        if state.jobs[run.job].spec.origins_of(run.index):
            took = 0  # An earlier job has done a part of its work.
        return run if state.estimates is Estimates.OFF else replace(run, took_ms=took)
    if 0 == run.work_ms < old.work_ms or after in TERMINAL_RUN:
        paces.forget(run.id)
    return replace(run, took_ms=0) if run.took_ms and not over else run
