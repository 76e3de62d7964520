"""Brings users and agents together: each attachment has an id that one call of an agent may use."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc

from eva_master.adapters.rpc.attach.relay import End
from eva_master.adapters.rpc.log_pace import LogPace
from eva_master.adapters.rpc.opening_calls import OpeningCalls
from eva_wire._proto import attach_pb2 as pb
from eva_wire._proto import worker_pb2
from eva_wire.rpc.errors import BadRequest
from eva_wire.values.errors import Busy, EvaError, NotAuthorised, Unreachable
from eva_wire.values.ids import InstanceId, RunId

Context = grpc.aio.ServicerContext[Any, Any]

_CLAIM_S = 10.0
"""Longest time from an `OpenAttach` to the call of the agent, and to the first frame of a call."""
_LATE = 8
"""Calls of an agent that may come after the user has gone."""
_ID_BYTES = 32
_AGAIN_S = 5.0


@dataclass(frozen=True, slots=True)
class AttachLimits:
    """Commands and forwarded connections that may be open at the same time.

    Attributes:
        user: Of one user.
        instance: Into one instance.
        forward: Connections of one user to one port of a task.
    """

    user: int = 200
    instance: int = 400
    forward: int = 64


@dataclass(eq=False, slots=True)
class Ticket:
    """One attachment, from its `OpenAttach` to its end.

    Attributes:
        id: Known to the master and to the agent alone.
        instance: The instance whose agent may use the id.
        answer: The agent's end.
        over: Set once the agent's call may end.
        loop: The event loop that it lives in.
    """

    id: str
    instance: InstanceId
    answer: asyncio.Future[End] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    over: asyncio.Event = field(default_factory=asyncio.Event)
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)

    def fail(self, error: EvaError) -> None:
        """End a wait for the agent; a call that the agent has made ends as well."""
        if not self.answer.done():
            self.answer.set_exception(error)
        self.over.set()


class Attachments:
    """All attachments of this master. Only the asyncio thread uses it, but for `cut`.

    Args:
        send: Sends a message to the agent of an instance; raises `Unreachable` without a session.
        limits: How many may be open.
    """

    def __init__(
        self,
        send: Callable[[InstanceId, worker_pb2.MasterMessage], None],
        limits: AttachLimits | None = None,
    ) -> None:
        self._send = send
        self._limits = limits or AttachLimits()
        self._tickets: dict[str, Ticket] = {}
        self._users: Counter[str] = Counter()
        self._instances: Counter[InstanceId] = Counter()
        self._forwards: Counter[tuple[str, RunId, int]] = Counter()
        self._refusals = LogPace()
        self._opening = OpeningCalls("attachments", _CLAIM_S)

    @property
    def open(self) -> int:
        """How many there are, those included whose agent has not called yet."""
        return len(self._tickets)

    @contextmanager
    def counted(
        self, owner: str, instance: InstanceId, run: RunId, kind: pb.Kind
    ) -> Iterator[None]:
        """Count an attachment while it is open.

        Raises:
            Busy: The user, the instance or the forward has as many as it may have.
        """
        counts: list[tuple[Counter[Any], Any, int, str, str]] = [
            (self._users, owner, self._limits.user, owner, "attachments"),
            (
                self._instances,
                instance,
                self._limits.instance,
                f"instance {instance}",
                "attachments_per_instance",
            ),
        ]
        if kind.HasField("forward"):
            port = kind.forward.port
            key = owner, run, port
            name = f"the forward of {owner} to port {port} of {run}"
            most = self._limits.forward
            counts.append((self._forwards, key, most, name, "connections_per_forward"))
        for counter, key, most, name, setting in counts:
            if counter[key] >= most:
                raise Busy.until(
                    f"{name} has {most:,} commands and connections open, which is the limit",
                    _AGAIN_S,
                    hint=f"end some of them, or have an operator raise `limits.{setting}`",
                )
        for counter, key, *_ in counts:
            counter[key] += 1
        try:
            yield
        finally:
            for counter, key, *_ in counts:
                counter[key] -= 1
                if not counter[key]:
                    del counter[key]

    @contextmanager
    def ticket(
        self, instance: InstanceId, run: RunId, attempt: int, kind: pb.Kind
    ) -> Iterator[Ticket]:
        """Ask the agent of an instance for an attachment to an attempt.

        Raises:
            Unreachable: The agent is not connected.
        """
        ticket = Ticket(secrets.token_urlsafe(_ID_BYTES), instance)
        self._tickets[ticket.id] = ticket
        try:
            wanted = worker_pb2.OpenAttach(id=ticket.id, run_id=run, attempt=attempt, kind=kind)
            message = worker_pb2.MasterMessage(command_id=f"attach/{ticket.id}", attach=wanted)
            self._send(instance, message)
            yield ticket
        finally:
            del self._tickets[ticket.id]
            ticket.over.set()
            self._tell_end(ticket)
            if ticket.answer.done() and not ticket.answer.cancelled():
                ticket.answer.exception()
            ticket.answer.cancel()

    def _tell_end(self, ticket: Ticket) -> None:
        """Tell the agent that an attachment is over, whatever its call still has to say."""
        ended = worker_pb2.EndAttach(id=ticket.id)
        message = worker_pb2.MasterMessage(command_id=f"detach/{ticket.id}", detach=ended)
        with contextlib.suppress(Unreachable):  # Without a session the call alone says so.
            self._send(ticket.instance, message)

    async def answered(self, ticket: Ticket) -> End:
        """The agent's end for a ticket.

        Raises:
            Unreachable: The agent has not called in time, or its instance is gone.
        """
        try:
            async with asyncio.timeout(_CLAIM_S):
                return await asyncio.shield(ticket.answer)
        except TimeoutError:
            raise Unreachable(
                f"the worker on {ticket.instance} has not answered within {_CLAIM_S:g} s",
                hint="it may be busy, cut off or of an earlier release: try again, and see"
                " `eva nodes`",
            ) from None

    async def serve(self, instance: InstanceId, context: Context) -> None:
        """Serve the call of an agent until its attachment is over.

        Args:
            instance: The instance of the agent's certificate.
            context: The call.

        Raises:
            BadRequest: The first frame does not come in time, or is no claim.
            Busy: The agent has more calls that name no id than attachments wait for it.
            NotAuthorised: No attachment of this instance waits for that id.
        """
        # One call for each that the master has asked for, and some that come too late.
        with self._opening.counted(instance, self._asked_for(instance) + _LATE):
            first = await self._opening.first(context)
        if not isinstance(first, pb.Output) or first.WhichOneof("body") != "claim":
            raise BadRequest("the first frame of an attachment must name its id")
        ticket = self._tickets.get(first.claim)
        if ticket is None or ticket.instance != instance or ticket.answer.done():
            self._refusals.warning("attachment refused", instance=instance, peer=context.peer())
            raise NotAuthorised(
                f"no attachment to instance {instance!r} waits for this id",
                hint="an id is good once, for 10 seconds, for the agent that it was sent to",
            )
        end = End(context)
        ticket.answer.set_result(end)
        await ticket.over.wait()
        await end.written()

    def _asked_for(self, instance: InstanceId) -> int:
        """How many attachments wait for the agent of an instance."""
        return sum(
            ticket.instance == instance and not ticket.answer.done()
            for ticket in self._tickets.values()
        )

    def cut(self, instance: InstanceId) -> None:
        """End the attachments to an instance that is gone; any thread may call it."""
        error = Unreachable(f"instance {instance} is gone")
        for ticket in list(self._tickets.values()):
            if ticket.instance == instance and not ticket.loop.is_closed():
                ticket.loop.call_soon_threadsafe(ticket.fail, error)
