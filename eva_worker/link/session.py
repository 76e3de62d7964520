"""The stream to the master, opened again whenever it ends, one session at a time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import grpc
import structlog

from eva_wire._proto import worker_pb2 as pb
from eva_wire._proto.worker_pb2_grpc import WorkersStub
from eva_worker.at_once import failure_of
from eva_worker.attach.attachments import Dial
from eva_worker.errors import BadOrder, NotEnrolled
from eva_worker.files.task_log import follow
from eva_worker.link import wire
from eva_worker.link.channel import dial, hint_of, reason_of
from eva_worker.link.enrolment import Enrolment
from eva_worker.link.identity import Credentials
from eva_worker.link.notices import InterruptionNotice
from eva_worker.orders import MergeNews, Order, Progress, Report, TaskKey, Welcome
from eva_worker.process.backoff import Backoff
from eva_worker.process.metrics import Metrics
from eva_worker.secret_values import SecretValues
from eva_worker.tasks.fence import LeaseFence
from eva_worker.tasks.registry import Tasks

if TYPE_CHECKING:
    from eva_wire._proto.worker_pb2_grpc import WorkersAsyncStub

_WELCOME_S = 10.0
_GOODBYE_S = 5.0
_LOG_CHUNKS_AHEAD = 16
_TOUCH_S = 1.0

_log = structlog.get_logger()


class Session:
    """One stream, from Register to its end. Messages that were not sent are dropped with it.

    Args:
        channel: The channel to the master.
        register: Creates the first message.
        tasks: Carries out commands.
        welcomed: Called with the cluster's settings, before any command.
        notice: The cloud's notice that it takes the instance away, if any.
        fence: The lease of an owned node.
        dial: Makes another channel to the master.
    """

    def __init__(
        self,
        channel: grpc.aio.Channel,
        *,
        register: Callable[[], pb.Register],
        tasks: Tasks,
        welcomed: Callable[[Welcome], Coroutine[Any, Any, None]],
        notice: Callable[[], InterruptionNotice | None],
        fence: LeaseFence,
        dial: Dial,
    ) -> None:
        self._dial = dial
        self._notice = notice
        self._fence = fence
        self._stub = cast("WorkersAsyncStub", WorkersStub(channel))
        self._register = register
        self._tasks = tasks
        self._welcomed = welcomed
        self._queue: asyncio.Queue[pb.WorkerMessage | None] = asyncio.Queue()
        self._log_room = asyncio.Semaphore(_LOG_CHUNKS_AHEAD)
        self._told: dict[TaskKey, Progress] = {}
        self._followers: dict[str, asyncio.Task[None]] = {}
        self._background: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None
        self.ended = asyncio.Event()

    async def run(self, up: Callable[[], None]) -> None:
        """Register, then exchange messages until the stream ends.

        Args:
            up: Called once the master has welcomed this worker.

        Raises:
            grpc.aio.AioRpcError: The stream broke, or was refused.
            TimeoutError: The master accepted the call but did not answer.
            Exception: An unforeseen error, of work in the background too. The session would seem
                well without its heartbeat, and a task whose start failed would be waited for.
        """
        self.send(pb.WorkerMessage(register=self._register()))
        self._told = dict(self._tasks.progress())  # The Register message contains it.
        self._call = call = self._stub.Session(self._outgoing())
        try:
            async with asyncio.timeout(_WELCOME_S):
                first = await call.read()
            if not isinstance(first, pb.MasterMessage) or first.WhichOneof("body") != "welcome":
                return
            welcome = wire.welcome(first.welcome)
            await self._welcomed(welcome)
            up()
            self._spawn(self._beat(welcome.heartbeat_ms / 1000), "heartbeat")
            if self._fence.needed:
                self._spawn(self._keep_lease(), "requests for the lease")
            # Changes between Register and now were sent to no session.
            self._send_all(wire.all_reports(self._tasks.reports()))
            if notice := self._notice():
                self.send(wire.interruption(notice))
            while isinstance(message := await call.read(), pb.MasterMessage):
                await self._handle(message)
        finally:
            self.ended.set()
            # When a stream breaks, gRPC abandons its task that waits for the next message.
            self._queue.put_nowait(None)
            call.cancel()
            work = [*self._background, *self._followers.values()]
            for each in work:
                each.cancel()
            await asyncio.gather(*work, return_exceptions=True)
            if self._failure:
                raise self._failure

    def send(self, message: pb.WorkerMessage) -> None:
        """Queue a message; messages are sent in order."""
        self._queue.put_nowait(message)

    def report(self, report: Report) -> None:
        """Queue a report on one attempt."""
        self._send_all(wire.reports([report]))

    def _send_all(self, messages: Iterable[pb.WorkerMessage]) -> None:
        for message in messages:
            self.send(message)

    async def say_goodbye(self, reason: str) -> None:
        """Send what is queued and a goodbye, and wait for the master to close the stream."""
        self.send(pb.WorkerMessage(goodbye=pb.Goodbye(reason=reason)))
        await self.hang_up()

    async def hang_up(self) -> None:
        """Send what is queued, close this side, and wait for the master to close the other."""
        self._queue.put_nowait(None)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GOODBYE_S):
                await self.ended.wait()

    async def _outgoing(self) -> AsyncIterator[pb.WorkerMessage]:
        """Writes the queued messages to the stream; the only writer."""
        while (message := await self._queue.get()) is not None:
            yield message
            if message.WhichOneof("body") == "log":
                self._log_room.release()

    async def _beat(self, every_s: float) -> None:
        while True:
            await asyncio.sleep(every_s)
            now = self._tasks.progress()
            news = [
                wire.sample(key, progress)
                for key, progress in sorted(now.items())
                if self._told.get(key) != progress
            ]
            self._told = dict(now)
            self._send_all(wire.heartbeats(news, disturbed=self._tasks.disturbed()))

    async def _handle(self, message: pb.MasterMessage) -> None:  # noqa: C901, PLR0912 - one case each
        """Carry out a command; long ones continue in the background."""
        try:
            match message.WhichOneof("body"):
                case "start":
                    order = _checked(message.start.order)
                    secrets = wire.secrets(message.start)
                    if self._fence.needed:
                        self._spawn(self._start_leased(order, secrets), f"start of {order.key}")
                    else:
                        await self._tasks.start(order, secrets)
                case "stop":
                    await self._tasks.stop(wire.key(message.stop), message.stop.grace_ms)
                case "fetch":
                    order = _checked(message.fetch.order)
                    self._spawn(self._fetch(order), f"fetch for {order.key}")
                case "forget":
                    await self._tasks.forget(wire.key(message.forget))
                case "sync":
                    self._send_all(wire.all_reports(self._tasks.reports()))
                case "merge":
                    self._tasks.merge(wire.key(message.merge), wire.merge_round(message.merge))
                case "lease":
                    self._fence.granted(message.lease.asked_ms)
                case "attach":
                    wanted = wire.wanted(message.attach)
                    self._tasks.attach(wire.key(message.attach), wanted, self._dial)
                case "detach":
                    self._tasks.detach(message.detach.id)
                case "follow":
                    self._follow(message.follow)
                case "unfollow":
                    if follower := self._followers.pop(message.unfollow.stream_id, None):
                        follower.cancel()
                case other:
                    _log.warning("unknown command", command=message.command_id, body=other)
        except BadOrder as error:
            _log.error("bad command", command=message.command_id, error=str(error))
        except OSError as error:  # The disk; the master repeats commands without effect.
            _log.error("command failed", command=message.command_id, error=str(error))

    async def _keep_lease(self) -> None:
        """Ask for the lease of this node, again and again."""
        while True:
            asked_ms = await self._fence.ask()
            self.send(pb.WorkerMessage(lease=pb.LeaseRequest(asked_ms=asked_ms)))
            await asyncio.sleep(self._fence.interval_s)

    async def _start_leased(self, order: Order, secrets: SecretValues) -> None:
        """Start a task once there is a lease that it can run under."""
        await self._fence.held()
        try:
            await self._tasks.start(order, secrets)
        except OSError as error:  # The disk; the master repeats commands without effect.
            _log.error("start failed", key=str(order.key), error=str(error))

    async def _fetch(self, order: Order) -> None:
        error, image_ms = await self._tasks.fetch(order)
        fetched = pb.Fetched(
            run_id=order.run, attempt=order.attempt, error=error, image_ms=image_ms
        )
        self.send(pb.WorkerMessage(fetched=fetched))

    def _follow(self, wanted: pb.FollowLog) -> None:
        if wanted.stream_id not in self._followers:
            self._followers[wanted.stream_id] = asyncio.create_task(self._send_log(wanted))

    async def _send_log(self, wanted: pb.FollowLog) -> None:
        log = self._tasks.log_of(wanted.run_id)
        offset = wanted.offset
        if log:
            path, over = log
            pieces = follow(path, offset, ended=lambda: wanted.once or over())
            async for start, data in pieces:
                await self._log_room.acquire()
                self._send_chunk(pb.LogChunk(stream_id=wanted.stream_id, data=data, offset=start))
                offset = start + len(data)
        await self._log_room.acquire()
        self._send_chunk(pb.LogChunk(stream_id=wanted.stream_id, offset=offset, end=True))
        self._followers.pop(wanted.stream_id, None)

    def _send_chunk(self, chunk: pb.LogChunk) -> None:
        self.send(pb.WorkerMessage(log=chunk))

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Begin work that goes on beside the exchange; its failure ends the session."""

        def done(task: asyncio.Task[None]) -> None:
            self._background.discard(task)
            if not self.ended.is_set() and (error := failure_of(task)):
                self._failure = self._failure or error
                self._call.cancel()

        task = asyncio.create_task(work, name=name)
        self._background.add(task)
        task.add_done_callback(done)


class MasterLink:
    """Keeps a session with the master open.

    Args:
        target: ``HOST:PORT`` of the master.
        enrolment: Provides the credentials.
        metrics: Counts sessions.
        open_session: Creates a session on a channel; gets what makes further channels, too.
        enrolled: Called whenever there are credentials to connect with.
        contact: File that is touched while there is a session.
    """

    def __init__(
        self,
        target: str,
        enrolment: Enrolment,
        metrics: Metrics,
        open_session: Callable[[grpc.aio.Channel, Dial], Session],
        enrolled: Callable[[], None],
        *,
        contact: Path,
    ) -> None:
        self._contact = contact
        self._target = target
        self._enrolment = enrolment
        self._metrics = metrics
        self._open_session = open_session
        self._enrolled = enrolled
        self._session: Session | None = None
        self._up = asyncio.Event()

    async def run(self) -> None:
        """Connect again whenever the session ends; does not return."""
        backoff = Backoff()
        while True:
            try:
                credentials = await self._enrolment.credentials()
                self._enrolled()
                reason = await self._serve(credentials, backoff.reset)
            except NotEnrolled as error:
                reason = str(error)
            if not reason:
                continue
            if self._enrolment.doubt:
                reason = f"{reason}; {self._enrolment.doubt}"
            self._metrics.reconnects.inc()
            pause = backoff.next_s()
            _log.warning("session lost", reason=reason, again_in_s=round(pause, 2))
            await asyncio.sleep(pause)

    async def _serve(self, credentials: Credentials, welcomed: Callable[[], None]) -> str:
        """Run one session; returns why it ended, empty if this side ended it."""
        dialled = partial(
            dial,
            self._target,
            authorities=credentials.authorities,
            key=credentials.key,
            certificate=credentials.certificate,
        )
        async with dialled() as channel:
            session = self._open_session(channel, dialled)
            touching: asyncio.Task[None] | None = None
            renewed = asyncio.Event()
            renewal = asyncio.create_task(self._renew(channel, credentials, session, renewed))

            def up() -> None:
                nonlocal touching
                touching = asyncio.create_task(self._keep_in_touch())
                welcomed()
                self._session = session
                self._up.set()
                self._metrics.session_up.set(1)
                _log.info("session up", master=self._target)

            reason = "the master ended it"
            try:
                await session.run(up)
            except grpc.aio.AioRpcError as error:
                reason = reason_of(error) + hint_of(error)
            except TimeoutError:
                reason = "no answer"
            finally:
                self._session = None
                self._up.clear()
                self._metrics.session_up.set(0)
                renewal.cancel()
                if touching:
                    touching.cancel()
                await asyncio.wait([renewal, *([touching] if touching else [])])
            if not renewal.cancelled():
                renewal.result()  # Raises unforeseen errors.
            return "" if renewed.is_set() else reason

    async def _keep_in_touch(self) -> None:
        """Touch the contact file, which tells the supervisor that there is a master."""
        while True:
            with contextlib.suppress(OSError):
                await asyncio.to_thread(self._contact.touch)
            await asyncio.sleep(_TOUCH_S)

    async def _renew(
        self,
        channel: grpc.aio.Channel,
        present: Credentials,
        session: Session,
        renewed: asyncio.Event,
    ) -> None:
        """End the session once there is a new certificate, so that the next one uses it."""
        await self._enrolment.renew(channel, present)
        await self._up.wait()
        # Reports from now on go to the next session.
        self._session = None
        self._up.clear()
        renewed.set()
        await session.hang_up()

    def report(self, report: Report) -> None:
        """Report a change to the master; without a session, the next one reports it."""
        if self._session:
            self._session.report(report)

    def tell_merge(self, news: MergeNews) -> None:
        """Tell the master of a part or a merge; without a session it asks in the next one."""
        if self._session:
            self._session.send(wire.merge_news(news))

    def warn(self, notice: InterruptionNotice) -> None:
        """Report the cloud's notice to the master; without a session, the next one reports it."""
        if self._session:
            self._session.send(wire.interruption(notice))

    async def say_goodbye(self, reason: str, within_s: float) -> None:
        """Say goodbye to the master if there is a session or one begins in time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._up.wait()
        if self._session:
            await self._session.say_goodbye(reason)


def _checked(message: pb.TaskOrder) -> Order:
    """Convert an order and check its names; raises `BadOrder`."""
    wire.key(message)
    return wire.order(message)
