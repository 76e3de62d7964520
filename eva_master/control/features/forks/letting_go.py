"""The end of runs that their tasks need no more."""

from __future__ import annotations

from eva_master.control.context import Context
from eva_master.model.records import StopReason, TaskRun
from eva_master.model.values import replace
from eva_wire.values.states import HOLDING, RunState


def let_go(context: Context, run: TaskRun, why: str) -> None:
    """Stop a run for good; one that holds no room is over at once."""
    if run.state in HOLDING:
        if run.target is not None:
            context.put_run(replace(run, target=None, fetched=None, why=why))
        context.stop(context.state.runs[run.id], StopReason.REPLICA)
    elif run.state is RunState.WAITING:
        over = run.to(RunState.CANCELLED, context.now)
        context.put_run(replace(over, target=None, fetched=None, waiting_for="", why=why))
