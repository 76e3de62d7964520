"""The workers' sessions: one stream per agent carries all messages in both directions."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import grpc
import structlog

from eva_master.adapters.objects.tables import TaskTables
from eva_master.adapters.rpc.attach.attachments import AttachLimits, Attachments
from eva_master.adapters.rpc.log_pace import LogPace
from eva_master.adapters.rpc.opening_calls import OpeningCalls
from eva_master.adapters.rpc.workers import forks, messages
from eva_master.adapters.rpc.workers.enrolment import (
    AgentCertificates,
    Certified,
    asked_for,
    certified,
    no_such,
)
from eva_master.adapters.rpc.workers.log_relay import LogRelay, RelayedPiece, WaitingBytes
from eva_master.adapters.rpc.workers.message_rate import MessageRate
from eva_master.adapters.rpc.workers.starts import Completion, Starts
from eva_master.model.actions import WorkerAction
from eva_master.model.events import (
    Event,
    InstanceInterrupted,
    ProgressSampled,
    WorkerFetched,
    WorkerLost,
    WorkerRegistered,
    WorkerReported,
)
from eva_master.ports import Clock, Inbox, Secrets
from eva_wire._proto import worker_pb2 as pb
from eva_wire._proto.worker_pb2_grpc import WorkersServicer
from eva_wire.rpc.errors import AlreadyConnected, BadRequest, SessionReplaced, TooSlow
from eva_wire.values.errors import (
    EvaError,
    NotAuthorised,
    Unreachable,
)
from eva_wire.values.ids import InstanceId, Millis, RunId

Context = grpc.aio.ServicerContext[pb.WorkerMessage, pb.MasterMessage]

_LAST_WRITE_S = 1.0
"""Seconds to wait for a peer that does not read, before its session ends without a reason."""
_MOST_WAITING = 10_000
_MOST_WAITING_BYTES = 64 * 1024 * 1024
"""Messages that wait to be written to one agent. An instance has a few hundred tasks at most."""
_MOST_OPENING = 8
"""Calls of one agent that have not registered. A correct one makes the next after the last."""
_REGISTER_S = 60.0
_MISSED_BEATS = 3
_MOST_STAGES = 16
_MOST_MIB = 2**40
_TYPE = re.compile(r"[A-Za-z0-9.+_-]{1,40}")
_PARTS_OF_SESSION = 500
"""Weight of opening a session."""
_MOST_PACES = 2_000
_STAGE = re.compile(r"[a-z_]{1,20}$")
_SILENCE_MS = 5_000
"""Least silence that counts, since a few of quick heartbeats are late on any busy machine."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Welcome:
    """The settings that a worker is sent when it registers.

    Attributes:
        cluster: The cluster's name.
        object_store: URL of where files, logs and checkpoints are kept.
        heartbeat_ms: Interval of progress reports.
        upload_ms: Interval of uploads of logs, outputs and new checkpoints of running tasks.
        input_roots: URLs that inputs may come from.
        shutdown_grace_ms: Time that tasks have to stop where the worker leaves; `None` for their
            own.
    """

    cluster: str
    object_store: str
    heartbeat_ms: int
    upload_ms: int
    input_roots: tuple[str, ...] = ()
    shutdown_grace_ms: int | None = None


class WorkerSessions(WorkersServicer):
    """The workers' sessions: implements `eva_master.ports.WorkerLink` and the gRPC service.

    A session's number is the loop's time when it began, so numbers grow across restarts of the
    master, too. An idle session costs a suspended coroutine and a timer: gRPC's keep-alive finds
    dead peers, and a writing task exists only while there is something to write.

    Args:
        inbox: Gets the workers' events.
        clock: The loop's time, which numbers the sessions and measures silence.
        certificates: Renews the workers' certificates.
        welcome: The settings for registered workers.
        tables: Rows of the tables of arrays; without them no array has one.
        secrets: Opens the secrets that tasks are started with; `None` for no secrets.
        attach_limits: How many commands and connections into tasks may be open.

    Attributes:
        attachments: Commands and connections into tasks.
        heartbeats: Number of heartbeats received, empty ones included.
        boots: By instance type and stage, how often instances went through a stage of their boot
            and how many milliseconds it took them together.
    """

    def __init__(
        self,
        inbox: Inbox,
        clock: Clock,
        certificates: AgentCertificates,
        welcome: Welcome,
        tables: TaskTables | None = None,
        *,
        secrets: Secrets | None = None,
        attach_limits: AttachLimits | None = None,
    ) -> None:
        self.attachments = Attachments(self._send_now, attach_limits)
        self._opening = OpeningCalls("sessions", _REGISTER_S)
        self._inbox = inbox
        self._starts = Starts(tables, secrets, inbox)
        self._clock = clock
        self._certificates = certificates
        self._welcome = welcome
        self._sessions: dict[InstanceId, _Session] = {}
        self._last_number = 0
        self._syncs = itertools.count(1)
        certificates.on_gone(self._cut)
        self._waiting_logs = WaitingBytes()
        # Of instances rather than sessions, which a worker can open as it likes.
        self._paces: dict[InstanceId, MessageRate] = {}
        self._warnings = LogPace()
        self.heartbeats = 0
        self.boots: dict[tuple[str, str], tuple[int, int]] = {}

    @property
    def connected(self) -> int:
        """The number of open sessions."""
        return len(self._sessions)

    # -- the control loop's side -----------------------------------------------------------------

    def execute(self, action: WorkerAction) -> None:
        """Send a command, or drop it if the worker has no session. Any thread may call this."""
        session = self._sessions.get(action.instance)
        if session is None or session.loop.is_closed():
            return
        message = messages.command(action)
        if not message.command_id:
            message.command_id = f"sync/{next(self._syncs)}"
        completion = self._starts.completion(action, session.number)
        session.loop.call_soon_threadsafe(session.send, message, completion)

    def _send_now(self, instance: InstanceId, message: pb.MasterMessage) -> None:
        """Send a message, in the asyncio thread; raises `Unreachable` without a session."""
        if (session := self._sessions.get(instance)) is None:
            raise _not_connected(instance)
        session.send(message)

    # -- logs ------------------------------------------------------------------------------------

    async def follow_log(
        self, instance: InstanceId, run: RunId, offset: int, *, once: bool
    ) -> AsyncIterator[RelayedPiece]:
        """Relay the log of the attempt that a worker runs of a task run.

        Args:
            instance: The worker's instance.
            run: The task run.
            offset: First byte in the attempt's log.
            once: Whether to end with the present log instead of with the attempt.

        Raises:
            Unreachable: The worker has no session, or its session ended.
        """
        position = offset
        while True:
            session = self._sessions.get(instance)
            if session is None:
                raise _not_connected(instance)
            with session.logs.follow(run, position, once=once) as follow:
                async for piece in follow:
                    position = piece.offset + len(piece.data)
                    yield piece
            if not follow.overflowed:
                return

    # -- the session -----------------------------------------------------------------------------

    # A coroutine that reads and writes itself, though the generated code expects a generator.
    async def Session(  # type: ignore[override]  # noqa: N802
        self,
        request_iterator: Any,  # noqa: ARG002
        context: Context,
    ) -> None:
        """Serve one agent until its stream ends."""
        peer = await self._admitted(context)
        with self._opening.counted(peer.instance, _MOST_OPENING):
            await asyncio.sleep(self._pace(peer.instance).pause_s(_PARTS_OF_SESSION))
            first = await self._opening.first(context)
        session = self._open(first, peer, context)
        try:
            await self._listen(session)
        except asyncio.CancelledError:
            if session.close_reason is None:
                raise
            session.task.uncancel()
            raise session.close_reason from None
        finally:
            self._close(session)
            await session.settle()

    async def Renew(self, request: pb.RenewRequest, context: Context) -> pb.Identity:  # noqa: N802
        """Renew the certificate of an agent that has connected with its present one."""
        peer = await self._admitted(context)
        try:
            identity = self._certificates.renew(peer, asked_for(request.signing_request))
        except NotAuthorised as error:
            self._warnings.warning(
                "renewal refused",
                instance=peer.instance,
                peer=context.peer(),
                reason=error.message,
            )
            raise
        log.info("certificate renewed", instance=peer.instance)
        return identity

    async def Attach(  # type: ignore[override]  # noqa: N802
        self,
        request_iterator: Any,  # noqa: ARG002
        context: Context,
    ) -> None:
        """Serve an agent's end of a command or a connection into a task."""
        peer = await self._admitted(context)
        await self.attachments.serve(peer.instance, context)

    async def _admitted(self, context: Context) -> Certified:
        """The caller, if the instance that its certificate names exists; every call begins here."""
        peer = certified(context.auth_context())
        await self._certificates.require_peer(peer)
        return peer

    def _cut(self, instance: InstanceId) -> None:
        """End the session of an instance that is gone; any thread may call it."""
        session = self._sessions.get(instance)
        if session is not None and not session.loop.is_closed():
            session.loop.call_soon_threadsafe(session.break_off, no_such(instance))
        self.attachments.cut(instance)

    def _open(self, first: object, peer: Certified, context: Context) -> _Session:
        if not isinstance(first, pb.WorkerMessage) or not first.HasField("register"):
            raise BadRequest("the first message of a session must be Register")
        register = first.register
        instance = InstanceId(register.instance_id)
        if instance != peer.instance:
            self._warnings.warning(
                "worker refused",
                instance=messages.words(instance),
                certificate=peer.instance,
                peer=context.peer(),
            )
            raise NotAuthorised(
                f"the certificate is that of instance {peer.instance!r}, not of {instance[:80]!r}",
                hint="a state directory belongs to one instance",
            )
        reports = messages.reports(register.tasks)
        pace = self._pace(instance)
        pace.pause_s(messages.weight(first))  # Counted; the next message waits for it.
        older = self._sessions.get(instance)
        if older is not None and older.process != register.process:
            self._require_silent(older, context)
        process, number = register.process, self._number()
        session = _Session(instance, number, context, self._waiting_logs, pace, process=process)
        if older is not None:
            older.break_off(SessionReplaced(f"{instance} has a newer session"))
        self._sessions[instance] = session
        if not self._certificates.is_live(
            instance
        ):  # The instance went before `_cut` could find it.
            del self._sessions[instance]
            raise no_such(instance)
        session.end_after(self._certificates.left_s(peer))
        session.send(
            pb.MasterMessage(command_id="welcome", welcome=self._welcome_message(instance))
        )
        log.info("worker registered", instance=instance, session=session.number)
        self._note_boot(instance, register)
        capacity = messages.resources(register.capacity)
        self._inbox.post(
            WorkerRegistered(
                instance,
                session.number,
                capacity,
                reports,
                messages.address(register),
                min(register.measured_mib, _MOST_MIB),
                messages.words(register.confinement),
                messages.words(register.unfit),
            )
        )
        return session

    def _require_silent(self, older: _Session, context: Context) -> None:
        """Refuse a second agent of an instance while the first is heard of.

        Raises:
            AlreadyConnected: Another process is connected. An agent whose connection broke is none,
                since its process is known; a restarted agent comes in once the end of its
                predecessor is noticed.
        """
        if older.close_reason is not None or older.silent_ms(self._clock.now()) >= self._silence_ms:
            return
        self._warnings.warning("second agent refused", instance=older.instance, peer=context.peer())
        raise AlreadyConnected(
            f"another agent is connected as {older.instance[:80]!r}",
            hint="a state directory belongs to one machine: stop the worker on the machine that is"
            " to have none, remove the copy of the directory there, and declare a node of its own"
            " for it; an agent that was started anew is let in within seconds",
        )

    @property
    def _silence_ms(self) -> int:
        """From which time on a worker of whom no heartbeat comes counts as silent."""
        return max(_SILENCE_MS, _MISSED_BEATS * self._welcome.heartbeat_ms)

    def _pace(self, instance: InstanceId) -> MessageRate:
        if len(self._paces) > _MOST_PACES:
            live = self._certificates.is_live
            self._paces = {name: pace for name, pace in self._paces.items() if live(name)}
        pace = self._paces.get(instance)
        if pace is None:
            pace = self._paces[instance] = MessageRate()
        return pace

    def _note_boot(self, instance: InstanceId, register: pb.Register) -> None:
        if not register.boot:
            return
        # Limits how many different names an agent can report.
        stages = {
            stage.name: stage.ms
            for stage in register.boot[:_MOST_STAGES]
            if _STAGE.match(stage.name)
        }
        kind = register.instance_type if _TYPE.fullmatch(register.instance_type) else "unknown"
        log.info("instance booted", instance=instance, type=kind, ms=stages)
        for name, ms in stages.items():
            key = kind, name
            count, total = self.boots.get(key, (0, 0))
            self.boots[key] = count + 1, total + ms

    def _number(self) -> int:
        self._last_number = max(self._last_number + 1, self._clock.now())
        return self._last_number

    def _welcome_message(self, instance: InstanceId) -> pb.Welcome:
        return pb.Welcome(
            cluster=self._welcome.cluster,
            heartbeat_ms=self._welcome.heartbeat_ms,
            object_store=self._welcome.object_store,
            upload_ms=self._welcome.upload_ms,
            input_roots=self._welcome.input_roots,
            fence_ms=self._certificates.nodes.fence_ms(instance),
            shutdown_grace_ms=self._welcome.shutdown_grace_ms,
        )

    async def _listen(self, session: _Session) -> None:
        while not session.goodbye:
            message: object = await session.context.read()
            # The end of the stream is a value of its own type.
            if not isinstance(message, pb.WorkerMessage):
                return
            self._hear(session, message)
            # A worker that says too much is read more slowly, and so has to wait itself.
            if pause_s := session.pace.pause_s(messages.weight(message)):
                await asyncio.sleep(pause_s)

    def _hear(self, session: _Session, message: pb.WorkerMessage) -> None:
        instance, number = session.instance, session.number
        match message.WhichOneof("body"):
            case "heartbeat":
                self.heartbeats += 1
                samples = messages.samples(message.heartbeat.samples)
                silent = session.beat(self._clock.now()) >= self._silence_ms
                disturbed = silent or message.heartbeat.disturbed
                if samples or disturbed:
                    self._inbox.post(ProgressSampled(instance, number, samples, disturbed))
            case "reports":
                reports = messages.reports(message.reports.tasks)
                self._inbox.post(WorkerReported(instance, number, reports))
            case "fetched":
                self._hear_fetched(session, message.fetched)
            case "log":
                session.logs.hear(message.log)
            case "interruption":
                notice = message.interruption
                at_ms = messages.interrupted_at(notice, self._clock.now())
                reason = messages.words(notice.reason)
                self._warnings.warning(
                    "interruption", instance=instance, reason=reason, at_ms=at_ms
                )
                self._inbox.post(InstanceInterrupted(instance, number, at_ms, reason))
            case "part" | "merged":
                self._hear_fork(session, message)
            case "lease":
                # Never after the end of the session was posted: from then on the time counts.
                if self._sessions.get(instance) is session:
                    asked_ms = message.lease.asked_ms
                    grant = pb.LeaseGrant(asked_ms=asked_ms)
                    session.send(pb.MasterMessage(command_id=f"lease/{asked_ms}", lease=grant))
            case "goodbye":
                session.goodbye = True
                session.reason = messages.words(message.goodbye.reason)
                log.info("worker leaves", instance=instance, reason=session.reason)
            case "register":
                raise BadRequest("a session registers once")
            case other:
                self._warnings.warning("message of an unknown kind", instance=instance, kind=other)

    def _hear_fetched(self, session: _Session, fetched: pb.Fetched) -> None:
        if fetched.error:
            # The command is repeated while the task run is to go there.
            self._warnings.warning(
                "files not fetched",
                instance=session.instance,
                run=messages.words(fetched.run_id),
                error=messages.words(fetched.error),
            )
            return
        if messages.is_run(fetched.run_id):
            run = RunId(fetched.run_id)
            image_ms = messages.image_ms(fetched)
            self._inbox.post(WorkerFetched(session.instance, session.number, run, image_ms))

    def _hear_fork(self, session: _Session, message: pb.WorkerMessage) -> None:
        given = message.part if message.HasField("part") else message.merged
        if not messages.is_run(given.run_id):
            return
        place, number = session.instance, session.number
        if isinstance(given, pb.PartGiven):
            event: Event | None = forks.given(place, number, given)
        else:
            event = forks.merged(place, number, given)
        if event is not None:
            self._inbox.post(event)

    def _close(self, session: _Session) -> None:
        session.end()
        if self._sessions.get(session.instance) is session:
            del self._sessions[session.instance]
            log.info("worker lost", instance=session.instance, session=session.number)
            lost = WorkerLost(session.instance, session.number, session.goodbye, session.reason)
            self._inbox.post(lost)


def _not_connected(instance: InstanceId) -> Unreachable:
    return Unreachable(
        f"the worker on {instance} is not connected", hint="try again in a moment; see `eva nodes`"
    )


class _Session:
    """One stream. Only the asyncio thread uses it, except for `loop`."""

    def __init__(
        self,
        instance: InstanceId,
        number: int,
        context: Context,
        waiting_logs: WaitingBytes | None = None,
        pace: MessageRate | None = None,
        *,
        process: str = "",
    ) -> None:
        self.instance = instance
        self.number = number
        self.context = context
        self.pace = pace or MessageRate()
        self.process = process
        self._beat_ms: Millis | None = None
        self.loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        assert task is not None
        self.task = task
        self.goodbye, self.reason = False, ""
        self.close_reason: EvaError | None = None
        self.logs = LogRelay(self.send, waiting_logs)
        # By command id, so that a command that is still queued is not queued again; what it says
        # may be newer, as that of a merge.
        self._outgoing: dict[str, tuple[pb.MasterMessage, Completion | None]] = {}
        self._outgoing_bytes = 0
        self._writer: asyncio.Task[None] | None = None
        self._expiry: asyncio.TimerHandle | None = None
        self._ended = False

    def send(self, message: pb.MasterMessage, completion: Completion | None = None) -> None:
        """Queue a message to be written in order, in the place of one that waits with its id.

        An agent that does not read loses its session.

        Args:
            message: The message.
            completion: Adds what is read just before it is written.
        """
        if self._ended or self.close_reason:
            return
        if (waiting := self._outgoing.get(message.command_id)) is not None:
            self._outgoing_bytes -= waiting[0].ByteSize()
        self._outgoing[message.command_id] = message, completion
        self._outgoing_bytes += message.ByteSize()
        if len(self._outgoing) > _MOST_WAITING or self._outgoing_bytes > _MOST_WAITING_BYTES:
            self.break_off(
                TooSlow(
                    f"{len(self._outgoing):,} messages of {self._outgoing_bytes:,} bytes wait for"
                    f" the agent on {self.instance!r}, which does not read them",
                    hint="it is told again what still applies when it has connected again",
                )
            )
            return
        if self._writer is None:
            self._writer = self.loop.create_task(self._write())

    def beat(self, now: Millis) -> int:
        """Note a heartbeat; returns how long ago the one before it was, in milliseconds."""
        before = now if self._beat_ms is None else self._beat_ms
        self._beat_ms = now
        return now - before

    def silent_ms(self, now: Millis) -> int:
        """How long no heartbeat has come, in milliseconds; the session's begin counts as one."""
        return now - (self.number if self._beat_ms is None else self._beat_ms)

    async def _write(self) -> None:
        try:
            while self._outgoing:
                message, completion = self._outgoing.pop(next(iter(self._outgoing)))
                self._outgoing_bytes -= message.ByteSize()
                if completion is None or await completion(message):
                    await self.context.write(message)
        except Exception as error:
            # The reader sees the end of the stream too, and closes the session.
            log.debug("write failed", instance=self.instance, error=str(error))
        finally:
            self._writer = None

    def end_after(self, seconds: float) -> None:
        """End the session when the certificate that it was opened with expires."""
        error = NotAuthorised(
            f"the certificate of instance {self.instance!r} has expired",
            hint="agents renew their certificates in time; the log of this one says why it did not",
        )
        self._expiry = self.loop.call_later(seconds, self.break_off, error)

    def break_off(self, error: EvaError) -> None:
        """End this session, and tell the agent why."""
        if self.close_reason is None and not self._ended:
            self.close_reason = error
            self._outgoing.clear()
            self.task.cancel()

    def end(self) -> None:
        """End the session: nothing more is written or relayed after the present message."""
        self._ended = True
        self._outgoing.clear()
        if self._expiry is not None:
            self._expiry.cancel()
        self.logs.end()

    async def settle(self) -> None:
        """Wait for the present write, since gRPC cannot report the end of a stream during one."""
        if (writer := self._writer) is not None:
            await asyncio.wait([writer], timeout=_LAST_WRITE_S)
            writer.cancel()
