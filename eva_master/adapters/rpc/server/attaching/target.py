"""Finds the attempt that a user wants to get into, and checks what for. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Iterable

from eva_master.adapters.rpc.attach.relay import check_size
from eva_master.model.records import Job, TaskRun
from eva_wire._proto import attach_pb2 as pb
from eva_wire.rpc.errors import BadRequest
from eva_wire.values.errors import InvalidRequest, NotFound, NotRunning
from eva_wire.values.states import TERMINAL_JOB, TERMINAL_RUN, RunState

_MOST_ARGUMENTS = 1_000
_MOST_BYTES = 100_000
"""Of all arguments together. Kernels take 131,071 bytes of one."""
_TERM = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")
_LAST_PORT = 65_535
_INDICES = 5


def check_kind(kind: pb.Kind) -> str:
    """Check what a user wants of a task.

    Returns:
        The words for it in the log.

    Raises:
        BadRequest: The message breaks a bound.
    """
    match kind.WhichOneof("kind"):
        case "exec":
            return _checked_command(kind.exec)
        case "forward":
            port = kind.forward.port
            if not 0 < port <= _LAST_PORT:
                raise BadRequest(f"{port} is no port: ports are 1 to {_LAST_PORT:,}")
            return f"port {port}"
        case other:
            raise BadRequest(f"an attachment of kind {other} is not known")


def _checked_command(command: pb.Exec) -> str:
    arguments = command.command
    if (
        len(arguments) > _MOST_ARGUMENTS
        or sum(len(argument.encode()) for argument in arguments) > _MOST_BYTES
    ):
        raise BadRequest(
            f"a command has at most {_MOST_ARGUMENTS:,} arguments and {_MOST_BYTES:,} bytes"
        )
    if any("\0" in argument for argument in arguments) or (arguments and not arguments[0]):
        raise BadRequest("a command names a program, and holds no NUL character")
    if command.HasField("terminal"):
        check_size(command.terminal)
    if command.term and not _TERM.fullmatch(command.term):
        raise BadRequest("the kind of a terminal is a word such as xterm-256color")
    # Arguments may hold passwords.
    return arguments[0][:100] if arguments else "a shell"


def chosen_run(job: Job, runs: Iterable[TaskRun], index: int, replica: int | None) -> TaskRun:
    """The run of a task that a user wants to get into, which runs.

    Args:
        job: The job.
        runs: The runs of the task.
        index: The task.
        replica: Number of the run; `None` for the first one that runs.

    Raises:
        NotFound: The task has no such run.
        NotRunning: The run has not begun, or is over.
    """
    numbered = {run.replica: run for run in runs if run.index == index}
    if replica is not None and replica not in numbered:
        raise NotFound(
            f"task {index} of job {job.id} has no run {replica}",
            hint=f"`eva status {job.id}` shows its runs",
        )
    if replica is None:
        running = [number for number, run in numbered.items() if run.state is RunState.RUNNING]
        replica = min(running, default=min(numbered, default=0))
    run = numbered.get(replica)
    if run is None or run.state is not RunState.RUNNING or run.instance is None:
        raise _not_running(job, run, f"{job.id}/{index}")
    return run


def only_task(job: Job) -> int:
    """The index of the only task of a job.

    Raises:
        InvalidRequest: The job has several.
    """
    indices = job.spec.indices
    if len(indices) == 1:
        return indices[0]
    some = ", ".join(f"{job.id}/{index}" for index in indices[:_INDICES])
    more = ", ..." if len(indices) > _INDICES else ""
    raise InvalidRequest(
        f"job {job.id} has {len(indices):,} tasks: name one of them", hint=f"{some}{more}"
    )


def ended(job: Job) -> NotRunning:
    """The refusal of a job that has ended."""
    return NotRunning(
        f"job {job.id} has ended ({job.state.value}): nothing of it runs any more",
        hint=f"`eva logs {job.id}` prints its output; `eva retry {job.id}` does it again",
    )


def _not_running(job: Job, run: TaskRun | None, name: str) -> NotRunning:
    if job.state in TERMINAL_JOB:
        return ended(job)
    explain = f"`eva explain {job.id}` says why; `eva status {job.id}` shows its tasks"
    if run is None:
        return NotRunning(f"task {name} does not run", hint=explain)
    if run.state in TERMINAL_RUN:
        return NotRunning(
            f"task {name} has ended ({run.state.value})",
            hint=f"`eva logs {name}` prints its output",
        )
    match run.state:
        case RunState.STOPPING:
            return NotRunning(f"task {name} is being stopped", hint="try again once it runs again")
        case RunState.STARTING:
            return NotRunning(
                f"task {name} is starting: its files are being fetched",
                hint="try again in a moment",
            )
        case _:
            suspension = job.suspension or run.suspension
            reason = suspension.words if suspension is not None else run.waiting_for
            why = f": {reason}" if reason else ""
            return NotRunning(f"task {name} waits and does not run yet{why}", hint=explain)
