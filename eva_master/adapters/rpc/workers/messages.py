"""Converts values of the scheduler to and from messages of workers. Pure functions."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from itertools import islice

from eva_master.adapters.rpc.workers import forks
from eva_master.model.actions import (
    FetchFiles,
    ForgetTask,
    Gang,
    StartTask,
    StopTask,
    SyncWorker,
    TaskOrder,
    TellMerge,
    WorkerAction,
)
from eva_master.model.events import Phase, RunReport
from eva_master.model.job import JobOutputs
from eva_master.model.progress import Progress
from eva_master.model.resources import Resources
from eva_wire._proto import worker_pb2 as pb
from eva_wire.rpc.errors import BadRequest
from eva_wire.values.ids import Millis, RunId
from eva_wire.values.states import shell_code

# Bounds of an agent's reports on a task. Agents check them too
# (eva_worker/tasks/progress_server.py). A worker with a stolen certificate, or of an earlier
# version, may not.
MOST_COUNT = 2**53
"""Largest plausible count, offset or time: larger ones are not exact in a float."""
_MOST_METRICS = 256
_LONGEST_NAME = 200
"""Bytes of the name of a metric."""
_LONGEST_TEXT = 2_000
"""Characters of a message for the user."""
_LONGEST_WORDS = 200
"""Characters of what goes into the log."""
_BYTES_OF_PART = 500
_LONGEST_NOTICE_MS = 3_600_000
"""Clouds give minutes."""
_RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}/[0-9]{1,9}(?:\+[0-9]{1,9})?")
_ADDRESS = re.compile(r"[A-Za-z0-9.:_\[\]%-]{0,253}")

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
        case TellMerge():
            return pb.MasterMessage(
                command_id=f"merge/{action.run}/{action.attempt}/{action.round.epoch}",
                merge=forks.tell_merge(action),
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
            disk_mib=task.demand.disk_mib,
        ),
        run=program.run,
        env=dict(program.env),
        workdir=program.workdir or "",
        # An agent of an earlier version knows no outputs, and refuses what is no URL.
        inputs=dict(program.inputs) | {output.name: output.url for output in program.outputs},
        outputs={output.name: _outputs(output) for output in program.outputs},
        grace_ms=task.grace_period_ms,
        resume=task.resume,
        checkpoint_of=task.checkpoint_of or "",
        image=program.image,
        build=pb.Build(context=program.build.context, dockerfile=program.build.dockerfile)
        if program.build
        else None,
        gang=_gang(gang) if gang else None,
        tasks=task.tasks,
        outputs_stored=task.outputs_stored,
        fork=forks.order_of(task.fork) if task.fork else None,
        origins=task.origins,
        secrets=() if task.secrets is None else task.secrets.names,
    )


def _outputs(outputs: JobOutputs) -> pb.JobOutputs:
    return pb.JobOutputs(
        job_id=outputs.job, index=outputs.index, tasks=outputs.tasks, path=outputs.path
    )


def _gang(gang: Gang) -> pb.Gang:
    return pb.Gang(
        rank=gang.rank,
        size=gang.size,
        address=gang.address,
        port=gang.port,
        batch_ppm=gang.batch_ppm,
    )


def resources(message: pb.Resources) -> Resources:
    """Convert the capacity that a worker reports."""
    return Resources(message.gpus, message.milli_cpus, message.memory_mib, message.disk_mib)


def address(register: pb.Register) -> str:
    """Where other instances reach this one; empty if what the worker says can be no address."""
    return register.address if _ADDRESS.fullmatch(register.address) else ""


def words(text: str) -> str:
    """An agent's text, fit for the log and for a reason: short, and one line."""
    cut = text[:_LONGEST_WORDS]
    return "".join(letter if letter.isprintable() else "?" for letter in cut)


def _text(text: str) -> str:
    """A message for the user, in lines without control characters, which a database may refuse."""
    cut = text[:_LONGEST_TEXT]
    return "".join(
        character if character.isprintable() or character in "\n\t" else "?" for character in cut
    )


def is_run(text: str) -> bool:
    """Whether a text can be the id of a task run."""
    return _RUN.fullmatch(text) is not None


def reports(messages: Iterable[pb.TaskReport]) -> tuple[RunReport, ...]:
    """Convert a worker's reports on attempts; those of impossible task runs are left out.

    Raises:
        BadRequest: A report has no phase.
    """
    return tuple(_report(message) for message in messages if _RUN.fullmatch(message.run_id))


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
        generation=message.generation if message.generation < MOST_COUNT else 0,
        progress=progress(message.progress)
        if message.HasField("progress") and _plausible(message.progress)
        else None,
        message=_text(message.message),
        blameless=message.blameless,
        not_stored=_text(message.not_stored),
        ran_ms=message.ran_ms
        if message.HasField("ran_ms") and message.ran_ms < MOST_COUNT
        else None,
        image_ms=image_ms(message),
    )


def image_ms(message: pb.TaskReport | pb.Fetched) -> int | None:
    """For how long an image was fetched or built; `None` without a plausible figure."""
    plausible = message.HasField("image_ms") and message.image_ms < MOST_COUNT
    return message.image_ms if plausible else None


def samples(messages: Iterable[pb.Sample]) -> tuple[tuple[RunId, int, Progress], ...]:
    """Task run, attempt and progress of each sample of a heartbeat, without implausible ones."""
    return tuple(
        (RunId(message.run_id), message.attempt, progress(message))
        for message in messages
        if _plausible(message) and _RUN.fullmatch(message.run_id)
    )


def _plausible(sample: pb.Sample) -> bool:
    return max(sample.steps, sample.total_steps) <= MOST_COUNT


def progress(sample: pb.Sample) -> Progress:
    """Convert the progress of an attempt. The control loop computes its rate.

    Of more metrics than a task may have, some are kept.
    """
    metrics = (
        (name, value)
        for name, value in sample.metrics.items()
        if 0 < len(name.encode()) <= _LONGEST_NAME and name.isprintable() and math.isfinite(value)
    )
    return Progress(
        steps=sample.steps,
        total_steps=sample.total_steps,
        metrics=tuple(islice(sorted(metrics), _MOST_METRICS)),
    )


def interrupted_at(message: pb.Interruption, now: Millis) -> Millis | None:
    """When the cloud takes an instance away, `None` if it only recommends to leave.

    Args:
        message: The agent's; one of an earlier release says no duration, but the cloud's time.
        now: The loop's time.
    """
    if not 0 < message.at_ms < MOST_COUNT:
        return None
    if message.HasField("left_ms"):
        return Millis(now + min(message.left_ms, _LONGEST_NOTICE_MS))
    return Millis(message.at_ms)


def weight(message: pb.WorkerMessage) -> int:
    """The cost of an agent's message to the master, in parts such as reports."""
    match message.WhichOneof("body"):
        case "register":
            parts = len(message.register.tasks)
        case "reports":
            parts = len(message.reports.tasks)
        case "heartbeat":
            parts = len(message.heartbeat.samples)
        case "merged":
            parts = len(message.merged.parts)
        case _:
            return 1
    # A report may have hundreds of metrics.
    return 1 + max(parts, message.ByteSize() // _BYTES_OF_PART)
