"""Converts between plain values and protobuf messages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TypeVar

from eva_wire._proto import worker_pb2 as pb
from eva_worker.errors import BadOrder
from eva_worker.files.checkpoints import MOST_GENERATION
from eva_worker.link.notices import InterruptionNotice
from eva_worker.orders import (
    Build,
    Fork,
    Gang,
    JobOutputs,
    MergeNews,
    MergeRound,
    Order,
    Part,
    PartGiven,
    Phase,
    Progress,
    Report,
    TaskKey,
    Welcome,
)
from eva_worker.runtime.attaching import AttachedCommand, AttachRequest, Size
from eva_worker.secret_values import SecretValues

_MOST_CODE = 2**31 - 1
_LONGEST_MESSAGE = 2_000
_MESSAGE_BYTES = 1 << 20
"""Bytes of reports in a message: the master takes 16 MiB, and some hundred tasks may report."""
_ATTACHMENT = re.compile(r"[A-Za-z0-9_-]{16,64}")
_M = TypeVar("_M", pb.TaskReport, pb.Sample)
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
        origins=tuple(message.origins),
        secrets=tuple(message.secrets),
        inputs={name: url for name, url in message.inputs.items() if name not in message.outputs},
        outputs={name: _outputs(outputs) for name, outputs in message.outputs.items()},
        grace_ms=message.grace_ms,
        resume=message.resume if message.HasField("resume") else None,
        checkpoint_of=message.checkpoint_of,
        image=message.image,
        build=Build(message.build.context, message.build.dockerfile)
        if message.HasField("build")
        else None,
        gang=_gang(message.gang) if message.HasField("gang") else None,
        index=message.index,
        tasks=message.tasks,
        outputs_stored=message.outputs_stored,
        fork=Fork(
            number=message.fork.number,
            forks=message.fork.forks,
            every_ms=message.fork.every_ms,
            check=message.fork.check,
            larger=message.fork.larger,
            patience_ms=message.fork.patience_ms,
        )
        if message.HasField("fork")
        else None,
    )


def secrets(message: pb.StartTask) -> SecretValues:
    """Take the secrets that come with a start: those that its order names."""
    return SecretValues(message.secrets).only(message.order.secrets)


def merge_round(message: pb.TellMerge) -> MergeRound:
    """Convert what a fork is to do now."""
    return MergeRound(
        epoch=message.epoch,
        base_steps=message.base_steps,
        quota=message.quota,
        forks=message.forks,
        average=message.average,
        give=message.give,
        finished=message.finished,
        parts=tuple(Part(part.fork, part.steps, part.digest) for part in message.parts),
        alone=message.alone,
        best=message.best,
        merge=message.merge,
    )


def merge_news(news: MergeNews) -> pb.WorkerMessage:
    """Put what became of a part or a merge into a message of the session."""
    run, attempt = news.key.run, news.key.attempt
    if isinstance(news, PartGiven):
        part = pb.PartGiven(run_id=run, attempt=attempt, epoch=news.epoch, digest=news.digest)
        part.steps = news.steps
        return pb.WorkerMessage(part=part)
    parts = [
        pb.KeptPart(fork=part.fork, kept=part.kept, reason=_clean(part.reason))
        for part in news.parts
    ]
    merged = pb.PartsMerged(run_id=run, attempt=attempt, epoch=news.epoch, parts=parts)
    merged.digest = news.digest
    if news.check_merged is not None:
        merged.check_merged = news.check_merged
    if news.check_best is not None:
        merged.check_best = news.check_best
    return pb.WorkerMessage(merged=merged)


def _outputs(message: pb.JobOutputs) -> JobOutputs:
    return JobOutputs(message.job_id, message.index, message.tasks, message.path)


def _gang(message: pb.Gang) -> Gang:
    return Gang(message.rank, message.size, message.address, message.port, message.batch_ppm)


def key(
    message: pb.StopTask | pb.ForgetTask | pb.TaskOrder | pb.TellMerge | pb.OpenAttach,
) -> TaskKey:
    """The attempt that a command is about; raises `BadOrder`."""
    return TaskKey(message.run_id, message.attempt)


def wanted(message: pb.OpenAttach) -> AttachRequest:
    """Convert the wish for an attachment to a value.

    Raises:
        BadOrder: The id is none, or the wish is of an unknown kind.
    """
    if not _ATTACHMENT.fullmatch(message.id):
        raise BadOrder(f"not the id of an attachment: {message.id[:80]!r}")
    match message.kind.WhichOneof("kind"):
        case "exec":
            stated = message.kind.exec
            terminal = Size(stated.terminal.rows, stated.terminal.columns)
            size = terminal if stated.HasField("terminal") else None
            return AttachRequest(
                message.id, AttachedCommand(message.id, tuple(stated.command), size, stated.term)
            )
        case "forward":
            forward = message.kind.forward
            return AttachRequest(message.id, port=forward.port, look=forward.look)
        case other:
            raise BadOrder(f"attachment of an unknown kind: {other}")


def welcome(message: pb.Welcome) -> Welcome:
    """Convert the cluster's settings to a value."""
    return Welcome(
        cluster=message.cluster,
        heartbeat_ms=message.heartbeat_ms,
        object_store=message.object_store,
        upload_ms=message.upload_ms,
        input_roots=tuple(message.input_roots),
        fence_ms=message.fence_ms,
        shutdown_grace_ms=(
            message.shutdown_grace_ms if message.HasField("shutdown_grace_ms") else None
        ),
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
        blameless=report.blameless,
        ran_ms=report.ran_ms,
        not_stored=_clean(report.not_stored),
        image_ms=report.image_ms,
    )


def _clean(text: str) -> str:
    """Cut a message, and replace what is not UTF-8, such as parts of file names."""
    return text[:_LONGEST_MESSAGE].encode(errors="replace").decode()


def registered(of: Iterable[Report]) -> list[pb.TaskReport]:
    """Convert the reports on all attempts for `Register`, which is one message however many.

    If they are too much for one, they are without progress, which other messages have.
    """
    reports = [task_report(report) for report in of]
    if sum(report.ByteSize() for report in reports) > _MESSAGE_BYTES:
        for report in reports:
            report.ClearField("progress")
    return reports


def reports(of: Iterable[Report]) -> list[pb.WorkerMessage]:
    """Put reports into messages of the session, as many as are needed."""
    return [
        pb.WorkerMessage(reports=pb.Reports(tasks=some))
        for some in _batches(task_report(report) for report in of)
    ]


def all_reports(of: Iterable[Report]) -> list[pb.WorkerMessage]:
    """Put the reports on all attempts into messages of the session."""
    sent = reports(of) or [pb.WorkerMessage(reports=pb.Reports())]
    sent[-1].reports.complete = len(sent) == 1
    return sent


def heartbeats(samples: Iterable[pb.Sample], *, disturbed: bool = False) -> list[pb.WorkerMessage]:
    """Put samples into heartbeats, of which there is at least one.

    Args:
        samples: The samples.
        disturbed: Whether a user was in a task of this instance meanwhile; the first one says so.
    """
    beats = [pb.Heartbeat(samples=some) for some in list(_batches(samples)) or [[]]]
    beats[0].disturbed = disturbed
    return [pb.WorkerMessage(heartbeat=beat) for beat in beats]


def _batches(messages: Iterable[_M]) -> Iterator[list[_M]]:
    """Divide messages so that no batch is more than a session takes at a time."""
    batch: list[_M] = []
    size = 0
    for message in messages:
        size += message.ByteSize()
        if batch and size > _MESSAGE_BYTES:
            yield batch
            batch, size = [], message.ByteSize()
        batch.append(message)
    if batch:
        yield batch


def interruption(notice: InterruptionNotice) -> pb.WorkerMessage:
    """Put the cloud's notice into a message of the session."""
    left_ms = notice.left_ms() if notice.at_ms else None
    said = pb.Interruption(at_ms=notice.at_ms, reason=notice.reason, left_ms=left_ms)
    return pb.WorkerMessage(interruption=said)


def boot(stages: Iterable[tuple[str, int]]) -> list[pb.BootStage]:
    """Convert the durations of the boot stages to messages."""
    return [pb.BootStage(name=name, ms=ms) for name, ms in stages]
