"""Passes frames on between a user's call and an agent's, one at a time in each direction.

Each write is awaited before the next read, so that the windows of both HTTP/2 connections are the
flow control: an end that does not read stops the other, and nothing piles up here.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import grpc

from eva_wire._proto import attach_pb2 as pb
from eva_wire.rpc.errors import BadRequest
from eva_wire.values.errors import AttachRefused, EvaError, Unreachable

Context = grpc.aio.ServicerContext[Any, Any]

MOST_BYTES = 64 * 1024
"""Largest content of a frame."""
MOST_SIZE = 9_999
"""Rows and columns of a terminal."""
_CHECK_S = 0.5
_LONGEST_TEXT = 300
_LAST_CODE = 255


@dataclass(slots=True)
class Traffic:
    """The traffic of an attachment so far.

    Attributes:
        sent: Bytes from the user.
        received: Bytes from the task.
        code: Exit code of the command; `None` before the end, and of a connection.
    """

    sent: int = 0
    received: int = 0
    code: int | None = None
    opened: asyncio.Event = field(default_factory=asyncio.Event)


class End:
    """One end of an attachment: a call after its first frame.

    Args:
        call: The call.
    """

    def __init__(self, call: Context) -> None:
        self._call = call
        self._writing: asyncio.Future[None] | None = None

    async def read(self) -> object:
        """The next frame, or the end of the frames."""
        frame: object = await self._call.read()
        return frame

    async def write(self, frame: pb.Input | pb.Output) -> None:
        """Write a frame; a write that has begun goes on though its caller is cancelled."""
        self._writing = asyncio.ensure_future(self._call.write(frame))
        self._writing.add_done_callback(_heed)
        await asyncio.shield(self._writing)

    async def written(self) -> None:
        """Wait for the write that goes on: gRPC cannot end a call during one."""
        if self._writing is not None and not self._writing.done():
            await asyncio.wait([self._writing])


def _heed(writing: asyncio.Future[None]) -> None:
    """Take note of a failure, which the reader of the other direction meets as well."""
    if not writing.cancelled():
        writing.exception()


class FarEnd(Protocol):
    """The end of an attachment that the user wants to reach."""

    async def read(self) -> object:
        """The next frame, or the end of the frames."""
        ...

    async def write(self, frame: pb.Input) -> None:
        """Take a frame of the user's."""
        ...


async def relay(
    user: End, agent: FarEnd, traffic: Traffic, check: Callable[[], None], gone: str
) -> None:
    """Pass frames on until the task's end is over.

    Args:
        user: The user's end.
        agent: The agent's end, or that of pages.
        traffic: Counts what passes.
        check: Raises once the user may no longer be served; called twice a second.
        gone: Message for an agent that went away.

    Raises:
        AttachRefused: The agent refuses.
        BadRequest: One end broke a rule.
        Unreachable: The agent went away.
        EvaError: That of `check`.
    """
    inward = asyncio.create_task(_inward(user, agent, traffic), name="attach in")
    outward = asyncio.create_task(_outward(agent, user, traffic, gone), name="attach out")
    try:
        while not outward.done():
            running = [task for task in (inward, outward) if not task.done()]
            await asyncio.wait(running, timeout=_CHECK_S, return_when=asyncio.FIRST_COMPLETED)
            check()
            if inward.done() and (error := inward.exception()) is not None:
                if isinstance(error, EvaError):
                    raise error
                # The agent's call broke: its own direction says so as well.
                await asyncio.wait([outward], timeout=_CHECK_S)
        await outward
    finally:
        await _settled(inward, outward)


async def _settled(*tasks: asyncio.Task[None]) -> None:
    """End both directions."""
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    for task in tasks:
        if task.done() and not task.cancelled():
            task.exception()


async def _inward(user: End, agent: FarEnd, traffic: Traffic) -> None:
    """Pass on what the user sends; the end of the user's stream is the end of the input."""
    ended = False
    while True:
        frame = await user.read()
        if not isinstance(frame, pb.Input):
            if not ended:
                await agent.write(pb.Input(end=True))
            return
        match frame.WhichOneof("body"):
            case "data":
                traffic.sent += _size(frame.data)
            case "end":
                ended = True
            case "resize":
                check_size(frame.resize)
            case other:
                raise BadRequest(f"a frame of kind {other} has no place here")
        await agent.write(frame)


async def _outward(agent: FarEnd, user: End, traffic: Traffic, gone: str) -> None:
    """Pass on what the task sends, up to the last frame."""
    while True:
        try:
            frame = await agent.read()
        except grpc.aio.BaseError as error:
            raise Unreachable(gone) from error
        if not isinstance(frame, pb.Output):
            raise Unreachable(gone)
        match frame.WhichOneof("body"):
            case "data":
                traffic.received += _size(frame.data)
            case "error":
                traffic.received += _size(frame.error)
            case "opened" | "end":
                pass
            case "exit":
                traffic.code = _exit_code(frame.exit.code)
                last = pb.Exit(code=frame.exit.code, reason=_words(frame.exit.reason))
                await user.write(pb.Output(exit=last))
                return
            case "refusal":
                raise AttachRefused(_words(frame.refusal.reason), hint=_words(frame.refusal.hint))
            case other:
                raise BadRequest(f"a frame of kind {other} has no place here")
        await user.write(frame)


def check_size(size: pb.Size) -> None:
    """Check the size of a terminal; raises `BadRequest`."""
    if not (0 < size.rows <= MOST_SIZE and 0 < size.columns <= MOST_SIZE):
        raise BadRequest(
            f"a terminal has 1 to {MOST_SIZE:,} rows and columns, not {size.rows} and"
            f" {size.columns}"
        )


def _exit_code(code: int) -> int:
    """An exit code as a shell knows it: others would be cut, and a failure taken for a success."""
    if not 0 <= code <= _LAST_CODE:
        raise BadRequest(f"{code} is no exit code: those of commands are 0 to {_LAST_CODE}")
    return code


def _size(data: bytes) -> int:
    if len(data) > MOST_BYTES:
        raise BadRequest(f"a frame has {len(data):,} bytes, at most {MOST_BYTES:,} are allowed")
    return len(data)


def _words(text: str) -> str:
    """An agent's text, fit for the user: short, and one line."""
    cut = text[:_LONGEST_TEXT]
    with contextlib.suppress(UnicodeError):
        return "".join(letter if letter.isprintable() else "?" for letter in cut)
    return ""
