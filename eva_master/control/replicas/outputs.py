"""The outputs of extra runs that have won."""

from __future__ import annotations

from eva_master.control.alarms import Alarm
from eva_master.control.context import Context
from eva_master.model.actions import PlaceOutputs
from eva_master.model.events import OutputsPlaced
from eva_master.model.ids import JobId, Millis, own_run
from eva_master.model.states import HOLDING, TERMINAL_JOB, RunState
from eva_master.model.values import replace


def place(context: Context, job: JobId) -> bool:
    """Have the outputs of extra runs that have won put in place; returns whether some are not."""
    missing = context.state.tasks[job].doubled.unplaced_outputs
    for name in missing:
        others = context.state.runs.others(context.state.runs[name])
        if any(it.state in HOLDING for it in others):
            continue  # It may still write there.
        interval = context.settings.worker_resend_ms
        if context.outbox.due(job, ("outputs", name), interval):
            context.outbox.add(PlaceOutputs(job, name, own_run(name)))
            context.alarms.at(Millis(context.now + interval), Alarm.job(job))
    return bool(missing)


def placed(context: Context, event: OutputsPlaced) -> None:
    """The object store has answered."""
    run = context.state.runs.get(event.run)
    if run is None or not run.extra or run.state is not RunState.SUCCEEDED:
        return
    if context.state.jobs[run.job].state in TERMINAL_JOB:
        return  # It was cancelled meanwhile.
    own = context.state.runs[own_run(run.id)]
    if own.outputs_of:
        return
    if event.error:
        told = f"the outputs of {run.id} cannot be put in its place: {event.error}"
        if own.waiting_for != told:
            context.explain(own, told)
        return
    context.put_run(replace(own, outputs_of=run.replica, waiting_for=""))
    context.touch_job(run.job)
