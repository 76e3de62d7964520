"""Converts between plain values and protobuf messages."""

from __future__ import annotations

from collections.abc import Iterable

from eva_worker._proto import worker_pb2 as pb
from eva_worker.files.checkpoints import MOST_GENERATION
from eva_worker.link.notices import Notice
from eva_worker.orders import Build, Gang, Order, Phase, Progress, Report, TaskKey, Welcome

_MOST_CODE = 2**31 - 1
_LONGEST_MESSAGE = 2_000
_PHASES = {
    Phase.STARTING: pb.PHASE_STARTING,
    Phase.RUNNING: pb.PHASE_RUNNING,
    Phase.EXITED: pb.PHASE_EXITED,
}


def order(message: pb.TaskOrder) -> Order:
    """Convert a protobuf order to a value."""
    return Order(
        run=message.run_id,
        attempt=message.attempt,
        job=message.job_id,
        command=message.run,
        workload=message.workload,
        gpus=message.demand.gpus,
        milli_cpus=message.demand.milli_cpus,
        memory_mib=message.demand.memory_mib,
        env=dict(message.env),
        workdir=message.workdir,
        inputs=dict(message.inputs),
        grace_ms=message.grace_ms,
        resume=message.resume if message.HasField("resume") else None,
        checkpoint_of=message.checkpoint_of,
        image=message.image,
        build=Build(message.build.context, message.build.dockerfile)
        if message.HasField("build")
        else None,
        gang=Gang(message.gang.rank, message.gang.size, message.gang.address, message.gang.port)
        if message.HasField("gang")
        else None,
    )


def key(message: pb.StopTask | pb.ForgetTask | pb.TaskOrder) -> TaskKey:
    """The attempt that a command is about; raises `BadOrder`."""
    return TaskKey(message.run_id, message.attempt)


def welcome(message: pb.Welcome) -> Welcome:
    """Convert the cluster's settings to a value."""
    return Welcome(
        cluster=message.cluster,
        heartbeat_ms=message.heartbeat_ms,
        object_store=message.object_store,
        upload_ms=message.upload_ms,
        input_roots=tuple(message.input_roots),
    )


def sample(task: TaskKey, progress: Progress) -> pb.Sample:
    """Convert the progress of an attempt to a message."""
    return pb.Sample(
        run_id=task.run,
        attempt=task.attempt,
        steps=progress.steps,
        total_steps=progress.total_steps,
        metrics=progress.metrics,
    )


def task_report(report: Report) -> pb.TaskReport:
    """Convert a report on one attempt to a message."""
    return pb.TaskReport(
        run_id=report.key.run,
        attempt=report.key.attempt,
        phase=_PHASES[report.phase],
        exit_code=max(-_MOST_CODE, min(_MOST_CODE, report.exit_code)),
        never_started=report.never_started,
        # A record of an agent of an earlier version may have any number.
        generation=report.generation if report.generation <= MOST_GENERATION else 0,
        progress=sample(report.key, report.progress),
        message=_clean(report.message),
        stopped=report.stopped,
    )


def _clean(text: str) -> str:
    """Cut a message, and replace what is not UTF-8, such as parts of file names."""
    return text[:_LONGEST_MESSAGE].encode(errors="replace").decode()


def reports(of: Iterable[Report], *, complete: bool = False) -> pb.WorkerMessage:
    """Put reports into a message of the session."""
    return pb.WorkerMessage(
        reports=pb.Reports(tasks=[task_report(report) for report in of], complete=complete)
    )


def interruption(notice: Notice) -> pb.WorkerMessage:
    """Put the cloud's notice into a message of the session."""
    return pb.WorkerMessage(interruption=pb.Interruption(at_ms=notice.at_ms, reason=notice.reason))


def boot(stages: Iterable[tuple[str, int]]) -> list[pb.BootStage]:
    """Convert the durations of the boot stages to messages."""
    return [pb.BootStage(name=name, ms=ms) for name, ms in stages]
