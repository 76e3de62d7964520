"""Converts values of the scheduler to and from messages of workers. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable

from eva_master.adapters.rpc._proto import worker_pb2 as pb
from eva_master.adapters.rpc.errors import BadRequest
from eva_master.model.actions import (
    FetchFiles,
    ForgetTask,
    StartTask,
    StopTask,
    SyncWorker,
    TaskOrder,
    WorkerAction,
)
from eva_master.model.events import Phase, RunReport
from eva_master.model.exits import shell_code
from eva_master.model.ids import RunId
from eva_master.model.records import Progress
from eva_master.model.resources import Resources

_MOST_STEPS = 2**53
"""Largest plausible count: larger ones are not exact in a float, so they must be wrong."""

_PHASES = {
    pb.PHASE_STARTING: Phase.STARTING,
    pb.PHASE_RUNNING: Phase.RUNNING,
    pb.PHASE_EXITED: Phase.EXITED,
}


def command(action: WorkerAction) -> pb.MasterMessage:
    """The message of a worker action.

    Its command id is derived from its content, so that a repeated action has the same id. A
    `SyncWorker` has none, since each is a separate request.
    """
    match action:
        case StartTask(order=task):
            return pb.MasterMessage(
                command_id=f"start/{task.run}/{task.attempt}",
                start=pb.StartTask(order=order(task)),
            )
        case StopTask(run=run, attempt=attempt, grace_ms=grace_ms):
            return pb.MasterMessage(
                command_id=f"stop/{run}/{attempt}/{grace_ms}",
                stop=pb.StopTask(run_id=run, attempt=attempt, grace_ms=grace_ms),
            )
        case FetchFiles(order=task):
            return pb.MasterMessage(
                command_id=f"fetch/{task.run}/{task.attempt}",
                fetch=pb.FetchFiles(order=order(task)),
            )
        case ForgetTask(run=run, attempt=attempt):
            return pb.MasterMessage(
                command_id=f"forget/{run}/{attempt}",
                forget=pb.ForgetTask(run_id=run, attempt=attempt),
            )
        case SyncWorker():
            return pb.MasterMessage(sync=pb.Sync())


def order(task: TaskOrder) -> pb.TaskOrder:
    """Convert an order to a message."""
    program, gang = task.program, task.gang
    return pb.TaskOrder(
        run_id=task.run,
        attempt=task.attempt,
        job_id=task.job,
        index=task.index,
        workload=task.workload,
        demand=pb.Resources(
            gpus=task.demand.gpus,
            milli_cpus=task.demand.milli_cpus,
            memory_mib=task.demand.memory_mib,
        ),
        run=program.run,
        env=dict(program.env),
        workdir=program.workdir or "",
        inputs=dict(program.inputs),
        grace_ms=task.grace_period_ms,
        resume=task.resume,
        checkpoint_of=task.checkpoint_of or "",
        image=program.image,
        build=pb.Build(context=program.build.context, dockerfile=program.build.dockerfile)
        if program.build
        else None,
        gang=pb.Gang(rank=gang.rank, size=gang.size, address=gang.address, port=gang.port)
        if gang
        else None,
    )


def resources(message: pb.Resources) -> Resources:
    """Convert the capacity that a worker reports."""
    return Resources(message.gpus, message.milli_cpus, message.memory_mib)


def reports(messages: Iterable[pb.TaskReport]) -> tuple[RunReport, ...]:
    """Convert a worker's reports on attempts.

    Raises:
        BadRequest: A report has no phase.
    """
    return tuple(map(_report, messages))


def _report(message: pb.TaskReport) -> RunReport:
    phase = _PHASES.get(message.phase)
    if phase is None:
        raise BadRequest(f"report of {message.run_id!r} without a phase")
    ran = phase is Phase.EXITED and not message.never_started
    return RunReport(
        run=RunId(message.run_id),
        attempt=message.attempt,
        phase=phase,
        exit_code=shell_code(message.exit_code) if ran else None,
        never_started=message.never_started,
        stopped=message.stopped,
        generation=message.generation,
        progress=progress(message.progress)
        if message.HasField("progress") and _plausible(message.progress)
        else None,
        message=message.message,
    )


def samples(messages: Iterable[pb.Sample]) -> tuple[tuple[RunId, int, Progress], ...]:
    """Task run, attempt and progress of each sample of a heartbeat, without implausible ones."""
    return tuple((RunId(it.run_id), it.attempt, progress(it)) for it in messages if _plausible(it))


def _plausible(sample: pb.Sample) -> bool:
    return max(sample.steps, sample.total_steps) <= _MOST_STEPS


def progress(sample: pb.Sample) -> Progress:
    """Convert the progress of an attempt. The control loop computes its rate."""
    return Progress(
        steps=sample.steps,
        total_steps=sample.total_steps,
        metrics=tuple(sorted(sample.metrics.items())),
    )
