"""A master for agents to talk to: it says what the test tells it to, and notes what it hears."""

from __future__ import annotations

import asyncio
import os
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc

from eva_master.adapters.pki.authority import requested_key
from eva_wire._proto import worker_pb2 as pb
from eva_wire._proto.worker_pb2_grpc import (
    EnrolmentServicer,
    WorkersServicer,
    add_EnrolmentServicer_to_server,
    add_WorkersServicer_to_server,
)
from eva_wire.values.ids import InstanceId
from eva_worker.link.channel import dial
from tests.fakes.patience import DEADLINE_S
from tests.fakes.rpc.authority import authority

_OPTIONS = (
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 100),
    ("grpc.keepalive_permit_without_calls", 1),
)


class FakeSession:
    """One stream of an agent."""

    def __init__(self, register: pb.Register) -> None:
        self.register = register
        self.heard: list[pb.WorkerMessage] = []
        self.ended = False
        self.outgoing: asyncio.Queue[pb.MasterMessage | None] = asyncio.Queue()


class FakeMaster(WorkersServicer):
    """The service ``Workers``, scripted, and ``Enrolment``, which takes any token.

    Attributes:
        input_roots: Input roots for agents.
        certificate_ms: How long the next certificates are valid.
        joins: Joined nodes and their tokens.
        refusal: Why nobody may join, empty while everybody may.
        renewals: How many certificates were renewed.
        shutdown_grace_ms: Shutdown grace for agents; `None` as from masters of earlier versions.

    Args:
        store: Directory of the object store that agents are told of.
        heartbeat_ms: Heartbeat interval for agents.
        upload_ms: Upload interval for agents.
    """

    def __init__(self, store: Path, heartbeat_ms: int = 50, upload_ms: int = 200) -> None:
        self.store = store
        self.heartbeat_ms = heartbeat_ms
        self.upload_ms = upload_ms
        self.shutdown_grace_ms: int | None = None
        self.input_roots = ["s3://"]
        self.sessions: list[FakeSession] = []
        self.reports: dict[tuple[str, int], pb.TaskReport] = {}
        self.samples: dict[tuple[str, int], pb.Sample] = {}
        self.logs: dict[str, bytearray] = defaultdict(bytearray)
        self.log_ends: set[str] = set()
        self.fetched: list[pb.Fetched] = []
        self.goodbyes: list[str] = []
        self.certificate_ms = 3_600_000
        self.joins: list[tuple[str, str]] = []
        self.refusal = ""
        self.renewals = 0
        self.port = 0
        self.join_port = 0
        self._servers: list[grpc.aio.Server] = []
        self._news = asyncio.Condition()
        self._commands = 0

    async def start(self) -> None:
        """Listen, on the ports of the last time if there were any."""
        workers, users = (grpc.aio.server(options=_OPTIONS) for _ in range(2))
        add_WorkersServicer_to_server(self, workers)
        add_EnrolmentServicer_to_server(_Enrolment(self), users)
        shown = authority().server_credentials(agents_only=True)
        self.port = workers.add_secure_port(f"127.0.0.1:{self.port}", shown)
        shown = authority().server_credentials()
        self.join_port = users.add_secure_port(f"127.0.0.1:{self.join_port}", shown)
        self._servers = [workers, users]
        for server in self._servers:
            await server.start()

    async def vanish(self) -> None:
        """Break all streams and listen no more."""
        while self._servers:
            await self._servers.pop().stop(None)

    def options(self) -> tuple[str, ...]:
        """For the command line of a worker."""
        return (
            *("--master", f"127.0.0.1:{self.port}", "--enrol", f"127.0.0.1:{self.join_port}"),
            *("--ca-file", str(authority().ca_file)),
        )

    def environment(self) -> dict[str, str]:
        """For the environment of a worker."""
        return {**os.environ, "EVA_WORKER_TOKEN": "secret"}

    def channel(self, port: int | None = None, *, keepalive_ms: int = 5_000) -> grpc.aio.Channel:
        """An agent's channel, to this master or to what stands before it."""
        key, certificate = authority().agent("i-1")
        return dial(
            f"127.0.0.1:{port or self.port}",
            authorities=authority().certificates,
            key=key,
            certificate=certificate,
            keepalive_ms=keepalive_ms,
        )

    def identity(self, instance: str, signing_request: bytes) -> pb.Identity:
        """A certificate for whoever asks."""
        certificate = authority().authority.issue_agent(
            requested_key(signing_request), InstanceId(instance), self.certificate_ms
        )
        return pb.Identity(certificate=certificate, authorities=authority().certificates)

    async def Renew(self, request: pb.RenewRequest, context: Any) -> pb.Identity:
        """See worker.proto."""
        (name,) = context.auth_context()["x509_common_name"]
        async with self._news:
            self.renewals += 1
            self._news.notify_all()
        return self.identity(name.decode(), request.signing_request)

    @property
    def session(self) -> FakeSession:
        """The newest session."""
        return self.sessions[-1]

    def send(self, **body: Any) -> None:
        """Send a command, such as ``send(stop=StopTask(...))``, on the newest session."""
        self._commands += 1
        message = pb.MasterMessage(command_id=f"c{self._commands}", **body)
        self.session.outgoing.put_nowait(message)

    def hang_up(self) -> None:
        """End the newest session in good order."""
        self.session.outgoing.put_nowait(None)

    async def until(self, condition: Callable[[], Any]) -> Any:
        """Wait until something that is heard makes a condition true; returns its value."""
        async with asyncio.timeout(DEADLINE_S), self._news:
            while not (value := condition()):
                await self._news.wait()
            return value

    async def phase(self, run: str, attempt: int, phase: int) -> pb.TaskReport:
        """Wait until an attempt is reported to be in a phase."""

        def there() -> pb.TaskReport | None:
            report = self.reports.get((run, attempt))
            return report if report and report.phase == phase else None

        return await self.until(there)

    async def Session(
        self, request_iterator: AsyncIterator[pb.WorkerMessage], context: Any
    ) -> AsyncIterator[pb.MasterMessage]:
        """See worker.proto."""
        first = await anext(request_iterator)
        session = FakeSession(first.register)
        reader = asyncio.create_task(self._read(session, request_iterator))
        yield pb.MasterMessage(
            command_id="welcome",
            welcome=pb.Welcome(
                cluster="test",
                heartbeat_ms=self.heartbeat_ms,
                object_store=self.store.as_uri(),
                upload_ms=self.upload_ms,
                input_roots=self.input_roots,
                shutdown_grace_ms=self.shutdown_grace_ms,
            ),
        )
        async with self._news:
            self.sessions.append(session)
            for report in first.register.tasks:
                self.reports[report.run_id, report.attempt] = report
            self._news.notify_all()
        try:
            while (message := await session.outgoing.get()) is not None:
                yield message
        finally:
            reader.cancel()
            session.ended = True

    async def _read(self, session: FakeSession, messages: AsyncIterator[pb.WorkerMessage]) -> None:
        async for message in messages:
            async with self._news:
                session.heard.append(message)
                self._note(message)
                self._news.notify_all()
        session.outgoing.put_nowait(None)

    def _note(self, message: pb.WorkerMessage) -> None:
        match message.WhichOneof("body"):
            case "reports":
                for report in message.reports.tasks:
                    self.reports[report.run_id, report.attempt] = report
            case "heartbeat":
                for sample in message.heartbeat.samples:
                    self.samples[sample.run_id, sample.attempt] = sample
            case "log":
                chunk = message.log
                assert chunk.offset == len(self.logs[chunk.stream_id])
                self.logs[chunk.stream_id] += chunk.data
                if chunk.end:
                    self.log_ends.add(chunk.stream_id)
            case "fetched":
                self.fetched.append(message.fetched)
            case "goodbye":
                self.goodbyes.append(message.goodbye.reason)


class _Enrolment(EnrolmentServicer):
    def __init__(self, master: FakeMaster) -> None:
        self._master = master

    async def Join(self, request: pb.JoinRequest, context: Any) -> pb.Identity:
        """See worker.proto."""
        if self._master.refusal:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, self._master.refusal)
        self._master.joins.append((request.instance_id, request.token))
        return self._master.identity(request.instance_id, request.signing_request)
