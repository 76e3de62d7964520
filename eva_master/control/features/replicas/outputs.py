"""The outputs of extra runs that have won."""

from __future__ import annotations

from eva_master.control.alarms import Alarm
from eva_master.control.context import Context
from eva_master.model.actions import PlaceOutputs
from eva_master.model.events import OutputsPlaced
from eva_master.model.values import replace
from eva_wire.values.ids import JobId, Millis, own_run
from eva_wire.values.states import HOLDING, TERMINAL_JOB, RunState


def place(context: Context, job: JobId) -> bool:
    """Order moves of outputs of winning extra runs; returns whether some are not in place yet."""
    missing = context.state.tasks[job].doubled.unplaced_outputs
    for name in missing:
        others = context.state.runs.others(context.state.runs[name])
        if any(run.state in HOLDING for run in others):
            continue  # the run may still write there
        interval = context.settings.worker_resend_ms
        if context.outbox.due(job, ("outputs", name), interval):
            context.outbox.add(PlaceOutputs(job, name, own_run(name)))
            context.alarms.at(Millis(context.now + interval), Alarm.job(job))
    return bool(missing)


def placed(context: Context, event: OutputsPlaced) -> None:
    """Record the answer of the object store."""
    run = context.state.runs.get(event.run)
    if run is None or not run.extra or run.state is not RunState.SUCCEEDED:
        return
    if context.state.jobs[run.job].state in TERMINAL_JOB:
        return  # the job was cancelled meanwhile
    own = context.state.runs[own_run(run.id)]
    if own.outputs_of:
        return
    if event.error:
        reason = f"the outputs of {run.id} cannot be put in its place: {event.error}"
        if own.waiting_for != reason:
            context.explain(own, reason)
        return
    context.put_run(replace(own, outputs_of=run.replica, waiting_for=""))
    context.touch_job(run.job)
