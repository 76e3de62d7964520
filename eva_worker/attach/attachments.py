"""The attachments of a worker: commands beside tasks, and connections to ports of tasks."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import grpc
import structlog

from eva_wire._proto import attach_pb2 as pb
from eva_wire._proto.worker_pb2_grpc import WorkersStub
from eva_worker.errors import AttachRefused
from eva_worker.orders import TaskKey
from eva_worker.runtime import Runtime
from eva_worker.runtime.attaching import (
    ERROR,
    FRAME_BYTES,
    HANG_UP_S,
    AttachedCommand,
    AttachRequest,
    Execution,
    Size,
)

if TYPE_CHECKING:
    from eva_wire._proto.worker_pb2_grpc import WorkersAsyncStub

Dial = Callable[[], grpc.aio.Channel]
"""Makes a channel to the master, with the agent's present certificate."""
Call = Any
"""The call of `Workers.Attach`."""

_CONNECT_S = 10.0
_MOST = 1_000
"""Attachments of a worker, whatever the master's limits are."""

_log = structlog.get_logger()


@dataclass(eq=False, slots=True)
class _Open:
    """An attachment that is open.

    Attributes:
        key: The attempt.
        work: The coroutine that serves it.
        execution: The command, once it runs.
        inputs: Reads the call, to its end: a call whose reader is cancelled ends at once.
        begun: Set once the command runs, or cannot; at once for a connection.
        closing: Set once it is to end.
        user_gone: Set once its user has gone.
        why: Why it was ended, for the user; empty while it was not.
    """

    key: TaskKey
    work: asyncio.Task[None]
    execution: Execution | None = None
    inputs: asyncio.Task[None] | None = None
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    user_gone: asyncio.Event = field(default_factory=asyncio.Event)
    why: str = ""

    async def end(self, within_s: float, why: str) -> None:
        """End it; returns when no process of its command is left.

        A command that has not begun by then is not waited for, since the master may not even be
        reached: it ends as it begins.
        """
        self.why = self.why or why
        self.closing.set()
        expiry = time.monotonic() + within_s
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self.begun.wait()
        if self.execution is not None:
            await self.execution.end(max(0.0, expiry - time.monotonic()))


class Attachments:
    """All attachments of a worker.

    Args:
        runtime: Runs the commands.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._open: dict[str, _Open] = {}
        self._stopping: set[asyncio.Task[None]] = set()
        self._disturbed = False

    def begin(self, key: TaskKey, wanted: AttachRequest, dial: Dial, refusal: str) -> None:
        """Answer the master's wish for an attachment; returns at once.

        Args:
            key: The attempt.
            wanted: The wish.
            dial: Makes the channel for the answer.
            refusal: Why the attempt cannot be attached to; empty if it can.
        """
        if wanted.id in self._open:
            return
        if len(self._open) >= _MOST:
            refusal = refusal or "its worker has too many commands and connections open"
        work = asyncio.create_task(self._serve(key, wanted, dial, refusal), name="attachment")
        opened = self._open[wanted.id] = _Open(key, work)
        if wanted.command is None:
            opened.begun.set()
        self._disturbed = True
        work.add_done_callback(lambda _: self._open.pop(wanted.id, None))

    def disturbed(self) -> bool:
        """Whether one was open since the last call."""
        disturbed, self._disturbed = self._disturbed, bool(self._open)
        return disturbed

    def has(self, key: TaskKey) -> bool:
        """Whether an attachment to an attempt is open."""
        return any(opened.key == key for opened in self._open.values())

    def leave(self, name: str) -> None:
        """End an attachment whose user has gone, by its id; does nothing if it is over."""
        if opened := self._open.get(name):
            opened.user_gone.set()
            opened.closing.set()

    async def stop(
        self, key: TaskKey, grace_s: float, stop: Callable[[float], Awaitable[None]]
    ) -> None:
        """Stop an attempt once the commands beside it are over; their end is part of its grace.

        Returns at once if there are some, since the session goes on meanwhile.

        Args:
            key: The attempt.
            grace_s: Time from now to SIGKILL.
            stop: Stops the attempt, within what is left of that time.
        """
        if not self.has(key):
            await stop(grace_s)
            return
        stopping = asyncio.create_task(self._stop(key, grace_s, stop), name=f"stop {key}")
        self._stopping.add(stopping)
        stopping.add_done_callback(self._stopping.discard)

    async def _stop(
        self, key: TaskKey, grace_s: float, stop: Callable[[float], Awaitable[None]]
    ) -> None:
        began = time.monotonic()
        await self.end(key, min(HANG_UP_S, grace_s / 2), "the task is being stopped")
        await stop(max(0.0, grace_s - (time.monotonic() - began)))

    async def end(self, key: TaskKey, within_s: float, why: str) -> None:
        """End all attachments to an attempt; returns when no process of their commands is left.

        Args:
            key: The attempt.
            within_s: Time from SIGHUP to SIGKILL.
            why: Why, for the user.
        """
        ending = [opened for opened in self._open.values() if opened.key == key]
        await asyncio.gather(*(opened.end(within_s, why) for opened in ending))

    async def _serve(self, key: TaskKey, wanted: AttachRequest, dial: Dial, refusal: str) -> None:
        log = _log.bind(run=key.run, attempt=key.attempt, port=wanted.port)
        try:
            async with dial() as channel:
                stub = cast("WorkersAsyncStub", WorkersStub(channel))
                call = stub.Attach()
                await call.write(pb.Output(claim=wanted.id))
                try:
                    if refusal:
                        raise AttachRefused(refusal)
                    await self._attached(key, wanted, call)
                except AttachRefused as error:
                    refused = pb.Refusal(reason=str(error), hint=error.hint)
                    await call.write(pb.Output(refusal=refused))
                await call.done_writing()
                # The last frame may wait for a user who does not read.
                await _first_of(_over(call), self._open[wanted.id].user_gone.wait())
        except (grpc.RpcError, grpc.aio.BaseError, asyncio.InvalidStateError) as error:
            log.debug("attachment broke", error=str(error))
        except Exception:
            # Whatever goes wrong in one must not end the agent.
            log.exception("attachment failed")
        finally:
            opened = self._open[wanted.id]
            opened.begun.set()
            if opened.inputs is not None:
                opened.inputs.cancel()
                await asyncio.gather(opened.inputs, return_exceptions=True)

    async def _attached(self, key: TaskKey, wanted: AttachRequest, call: Call) -> None:
        if wanted.command is not None:
            await self._execute(key, wanted.command, call)
        else:
            await self._forward(key, wanted, call)

    async def _forward(self, key: TaskKey, wanted: AttachRequest, call: Call) -> None:
        opened = self._open[wanted.id]
        host, port = await self._runtime.address(key, wanted.port)
        if not wanted.look:
            reader, writer = await _connected(host, port)
            await call.write(pb.Output(opened=True))
            opened.inputs = asyncio.create_task(_copy_in(call, writer))
            outputs = asyncio.create_task(_copy_out(call, reader))
            try:
                both = asyncio.wait({opened.inputs, outputs})
                await _first_of(both, _over(call), opened.closing.wait())
            finally:
                outputs.cancel()
                await asyncio.gather(outputs, return_exceptions=True)
                writer.transport.abort()
        await call.write(pb.Output(exit=pb.Exit(reason=opened.why)))

    async def _execute(self, key: TaskKey, command: AttachedCommand, call: Call) -> None:
        opened = self._open[command.id]
        if opened.closing.is_set():
            raise AttachRefused(opened.why or "its user has gone")
        try:
            execution = opened.execution = await self._runtime.execute(key, command)
        finally:
            opened.begun.set()
        if opened.why:
            await execution.end(0)
        await call.write(pb.Output(opened=True))
        opened.inputs = asyncio.create_task(_pass_inputs(call, execution))
        outputs = asyncio.create_task(_pass_outputs(call, execution))
        over = asyncio.create_task(_first_of(_over(call), opened.user_gone.wait()))
        try:
            await asyncio.wait({outputs, over}, return_when=asyncio.FIRST_COMPLETED)
            if outputs.done():
                code = outputs.result()
                if reason := execution.refusal:
                    raise AttachRefused(reason)
                await call.write(pb.Output(exit=pb.Exit(code=code, reason=opened.why)))
        finally:
            for task in (outputs, over):
                task.cancel()
            await asyncio.gather(outputs, over, return_exceptions=True)
            await asyncio.shield(execution.end(0 if opened.why else HANG_UP_S))


async def _connected(host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to a task; raises `AttachRefused`."""
    try:
        async with asyncio.timeout(_CONNECT_S):
            return await asyncio.open_connection(host, port, limit=FRAME_BYTES)
    except (OSError, TimeoutError) as error:
        raise AttachRefused(f"the task does not take the connection: {error}") from error


async def _copy_in(call: Call, writer: asyncio.StreamWriter) -> None:
    """Pass on what the user sends, until the user has sent all."""
    while isinstance(frame := await call.read(), pb.Input):
        if frame.WhichOneof("body") == "end":
            writer.write_eof()
            return
        writer.write(frame.data)
        await writer.drain()


async def _copy_out(call: Call, reader: asyncio.StreamReader) -> None:
    """Pass on what the task sends, until it has sent all."""
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(FRAME_BYTES):
            await call.write(pb.Output(data=data))
    await call.write(pb.Output(end=True))


async def _first_of(*works: Awaitable[Any]) -> None:
    """Wait for the first of several to end; the others are given up."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _over(call: Call) -> None:
    """Wait until the master has ended a call, or is gone."""
    await call.code()


async def _pass_inputs(call: Call, execution: Execution) -> None:
    while isinstance(frame := await call.read(), pb.Input):
        match frame.WhichOneof("body"):
            case "data":
                await execution.write(frame.data)
            case "end":
                await execution.end_input()
            case "resize":
                await execution.resize(Size(frame.resize.rows, frame.resize.columns))


async def _pass_outputs(call: Call, execution: Execution) -> int:
    """Pass on what a command writes; returns its exit code."""
    async with contextlib.aclosing(execution.output()) as pieces:
        async for stream, data in pieces:
            frame = pb.Output(error=data) if stream == ERROR else pb.Output(data=data)
            await call.write(frame)
    return await execution.wait()
