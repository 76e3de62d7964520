"""A master's server over a control loop that does as it is told."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar, cast

import grpc
import pytest
from sqlalchemy import Engine, create_engine
from sqlalchemy.pool import StaticPool

from eva_lab.simulator.cluster.journal import MemoryJournal
from eva_master.adapters.identities.prover import IdentityProver
from eva_master.adapters.loop.clock import SystemClock
from eva_master.adapters.loop.gateway import Command, LoopGateway
from eva_master.adapters.loop.inbox import LiveInbox
from eva_master.adapters.notices.outbox import NoticeOutbox
from eva_master.adapters.notices.sender import NoticeSender
from eva_master.adapters.objects import open_store
from eva_master.adapters.objects.promises import Promises
from eva_master.adapters.objects.tables import TaskTables
from eva_master.adapters.pki.node_register import NodeRegister
from eva_master.adapters.pki.tokens import JoinTokens
from eva_master.adapters.resolving.inputs import InputRoots
from eva_master.adapters.rpc.attach.page_door import PageDoor
from eva_master.adapters.rpc.identities.service import IdentitiesService
from eva_master.adapters.rpc.nodes.service import NodesService
from eva_master.adapters.rpc.notices.service import NoticesService
from eva_master.adapters.rpc.secrets.service import SecretsService
from eva_master.adapters.rpc.server.access import AccessInterceptor
from eva_master.adapters.rpc.server.admission.connections import Callers
from eva_master.adapters.rpc.server.admission.pacing import Pacing, UserLimits
from eva_master.adapters.rpc.server.admission.strangers import Strangers
from eva_master.adapters.rpc.server.jobs import JobsService
from eva_master.adapters.rpc.server.ports import MasterServer, Ports
from eva_master.adapters.rpc.server.tokens import Login, TokensService
from eva_master.adapters.rpc.workers.enrolment import AgentCertificates, EnrolmentService
from eva_master.adapters.rpc.workers.sessions import Welcome, WorkerSessions
from eva_master.adapters.secrets.key import SecretKey
from eva_master.adapters.secrets.vault import SecretVault
from eva_master.adapters.store import UserTokens
from eva_master.adapters.store.join_tokens import JoinTokenTable
from eva_master.adapters.store.tables import METADATA
from eva_master.control.readside.publisher import Publisher
from eva_master.control.settings import Settings
from eva_master.control.state.store import State
from eva_master.model.accounting.tenants import TenantRules
from eva_master.model.actions import Reply
from eva_master.model.catalog import Catalog, InstanceType, Offering
from eva_master.model.changes import Changes, Round
from eva_master.model.events import (
    CancelRequested,
    DrainRequested,
    Event,
    JobSubmitted,
    MoveRequested,
    NodeRequested,
    RemovalRequested,
    ResumeRequested,
    SecretChanged,
    SuspendRequested,
    Tick,
)
from eva_master.model.fleet.partitions import WHOLE, Partitions
from eva_master.model.job import JobSpec, Program, TaskSpec
from eva_master.model.planning.plan import Assign, NewInstance, Plan, PolicyMemory
from eva_master.model.planning.snapshot import Snapshot
from eva_master.model.records import Instance, Job, TaskRun
from eva_master.model.resources import Resources
from eva_master.ports import Clock, ObjectStore, Policy, RoundHistory
from eva_master.ports.reading import Archive, ReadModel
from eva_wire._proto import worker_pb2 as wpb
from eva_wire._proto.api_pb2_grpc import ClusterStub, JobsStub, TokensStub
from eva_wire._proto.worker_pb2_grpc import WorkersStub
from eva_wire.rpc.errors import error_of
from eva_wire.rpc.names import MASTER_NAME
from eva_wire.values.bounds import JobKind
from eva_wire.values.errors import EvaError
from eva_wire.values.ids import Family, InstanceId, JobId, Millis, Price, Workload, run_id
from eva_wire.values.states import InstanceState, JobState, RunState
from eva_wire.values.users import Role
from eva_worker.link.channel import dial
from tests.fakes.archive import LoadedArchive
from tests.fakes.patience import DEADLINE_S
from tests.fakes.planner import InlinePlanner
from tests.fakes.rpc.authority import authority
from tests.fakes.rpc.services import cluster_service, files_service

T = TypeVar("T")

_CERTIFICATE_MS = 3_600_000
_JOIN_MS = 60_000

SMALL = Offering(InstanceType("c7i.large", Family("c7i"), Resources(0, 2000, 4096)), Price(89_250))
LARGE = Offering(
    InstanceType("c7i.xlarge", Family("c7i"), Resources(0, 4000, 8192)), Price(178_500)
)
CATALOG: Catalog = (SMALL, LARGE)

JOB_YAML = """\
name: {name}
run: python train.py
resources: {{cpus: 1, memory: 1GiB}}
"""


def spec(name: str, *, tasks: int = 1, kind: JobKind = JobKind.GANG, owner: str = "ada") -> JobSpec:
    """A job whose tasks each need one CPU."""
    demand = ((Family("c7i"), Resources(0, 1000, 1024)),)
    task = TaskSpec(
        Workload(name), Program("true"), demand, throughput=((Family("c7i"), 2_000_000),)
    )
    return JobSpec(name, owner, (task,) * tasks, kind=kind)


def add_job(state: State, job: JobSpec, *, at: int = 1000, command: str = "") -> JobId:
    """Put a pending job with waiting task runs into a state."""
    key = JobId(f"{job.name}-{state.count(jobs=1).jobs}")
    history = ((JobState.PENDING.value, at),)
    state.put_job(Job(key, job, Millis(at), history, command=command or f"command-{key}"))
    for index in job.indices:
        waiting = ((RunState.WAITING.value, at),)
        state.put_run(TaskRun(run_id(key, index), key, index, waiting))
    return key


def add_instance(state: State, name: str = "i-1", offering: Offering = SMALL) -> InstanceId:
    """Put a ready instance with a session into a state."""
    key = InstanceId(name)
    history = ((InstanceState.READY.value, 1000),)
    state.put_instance(
        Instance(key, offering, history, Millis(900), up_ms=Millis(950), ready_ms=Millis(1000))
    )
    state.sessions[key] = 1
    return key


class FirstFit:
    """Puts every task run that waits on a new instance of the cheapest offering."""

    name = "first-fit"

    def plan(
        self, snapshot: Snapshot, memory: PolicyMemory | None
    ) -> tuple[Plan, PolicyMemory | None]:
        waiting = [view for view in snapshot.runs if view.instance is None]
        if not waiting:
            return Plan(), memory
        cheapest = min(snapshot.catalog, key=lambda offering: offering.price)
        return (
            Plan(
                launches=tuple(NewInstance(key, cheapest) for key in range(len(waiting))),
                entries=tuple(Assign(view.id, key) for key, view in enumerate(waiting)),
            ),
            memory,
        )


class NoRounds:
    """A history without rounds."""

    def explained(self, upto: int | None = None) -> Round | None:
        return None


@dataclass
class _Call:
    """A call that a test made in the loop's thread."""

    fn: Callable[[State], object]
    done: Future[object] = field(default_factory=Future)

    def tell(self, state: State) -> None:
        """Make it, and have the test know of its result or its error."""
        try:
            self.done.set_result(self.fn(state))
        except Exception as error:
            self.done.set_exception(error)


class ScriptedLoop:
    """The loop's thread: answers commands with `answer`, collects other events."""

    def __init__(
        self, answer: Callable[[State, Command], Reply], partitions: Partitions = WHOLE
    ) -> None:
        self.inbox = LiveInbox(SystemClock())
        self.gateway = LoopGateway(self.inbox)
        self.state = State(CATALOG)
        self.journal = MemoryJournal()
        self._publisher = Publisher(self.state, Settings(partitions=partitions))
        self.gateway.publish(Changes(), self._published)
        self.commands: list[Command] = []
        self._answer = answer
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._asyncio = asyncio.get_running_loop()
        self._stop = False
        self._thread = threading.Thread(target=self._run, name="loop")
        self._thread.start()

    def _commit(self) -> None:
        changes = self.state.take_changes()
        self.journal.commit(changes)
        self.gateway.publish(changes, self._published)

    def _published(self) -> ReadModel:
        return self._publisher.publish(SystemClock().now())

    def _run(self) -> None:
        while not self._stop:
            for item in self.inbox.wait(None):
                match item:
                    case _Call():
                        item.tell(self.state)
                    case (
                        JobSubmitted()
                        | CancelRequested()
                        | SuspendRequested()
                        | RemovalRequested()
                        | ResumeRequested()
                        | DrainRequested()
                        | NodeRequested()
                        | MoveRequested()
                        | SecretChanged()
                    ):
                        self.commands.append(item)
                        reply = self._answer(self.state, item)
                        self._commit()
                        self.gateway.reply(reply)
                    case Tick():
                        pass
                    case event:
                        self._asyncio.call_soon_threadsafe(self._events.put_nowait, event)

    async def change(self, fn: Callable[[State], T]) -> T:
        """Change the state in the loop's thread, as a turn does, and publish it."""

        def context(state: State) -> T:
            result = fn(state)
            self._commit()
            return result

        call = _Call(context)
        self.inbox.post(call)  # type: ignore[arg-type]
        return cast("T", await asyncio.wrap_future(call.done))

    async def event(self) -> Event:
        """The next event that is neither a read nor a command."""
        async with asyncio.timeout(DEADLINE_S):
            return await self._events.get()

    @property
    def quiet(self) -> bool:
        """Whether every event that arrived was taken."""
        return self._events.empty()

    @property
    def thread_id(self) -> int:
        """The kernel's number of the loop's thread."""
        assert self._thread.native_id is not None
        return self._thread.native_id

    def stop(self) -> None:
        self._stop = True
        self.inbox.post(Tick())
        self._thread.join(DEADLINE_S)


def accept(state: State, command: Command) -> Reply:
    """Accept everything; a repeated submission makes no second job."""
    if isinstance(command, DrainRequested | NodeRequested | SecretChanged):
        return Reply(command.command, None, owner=command.owner)
    if not isinstance(command, JobSubmitted):
        return Reply(command.command, command.job, owner=command.owner)
    owner = command.spec.owner
    known = state.commands.get((owner, command.command))
    if known is None:
        known = add_job(state, command.spec, command=command.command)
    return Reply(command.command, known, owner=owner)


@dataclass
class Agent:
    """A worker's side of a session, by hand."""

    call: grpc.aio.StreamStreamCall
    heard: list[wpb.MasterMessage] = field(default_factory=list)

    async def say(self, **body: object) -> None:
        """Write a message; that the stream has ended before is for `hear` and `ended` to tell."""
        with contextlib.suppress(grpc.aio.AioRpcError):
            await self.call.write(wpb.WorkerMessage(**body))

    async def hear(self) -> wpb.MasterMessage:
        """The next message; it must come."""
        async with asyncio.timeout(DEADLINE_S):
            message = await self.call.read()
        assert isinstance(message, wpb.MasterMessage), "the stream ended"
        return message

    async def ended(self) -> grpc.StatusCode:
        """Wait for the end of the stream."""
        async with asyncio.timeout(DEADLINE_S):
            return await self.call.code()


def database() -> Engine:
    """The journal's tables, in memory."""
    engine = create_engine(
        "sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False}
    )
    METADATA.create_all(engine)
    return engine


def user_tokens(clock: Clock) -> UserTokens:
    """Tokens in a database in memory."""
    return UserTokens(database(), clock)


def joining(clock: Clock) -> JoinTokens:
    """Tokens of machines in a database in memory."""
    return JoinTokens(b"secret", JoinTokenTable(database()), clock, _JOIN_MS)


def vault(clock: Clock) -> SecretVault:
    """Secrets in a database in memory."""
    return SecretVault(database(), SecretKey(bytes(range(32))), clock, most=3, most_bytes=100_000)


def user_channel(address: str, authorities: bytes, secret: str) -> grpc.aio.Channel:
    """A user's channel."""
    credentials = grpc.composite_channel_credentials(
        grpc.ssl_channel_credentials(authorities), grpc.access_token_call_credentials(secret)
    )
    options = [("grpc.ssl_target_name_override", MASTER_NAME)]
    return grpc.aio.secure_channel(address, credentials, options)


@dataclass
class RpcMaster:
    """A running server and clients of it.

    Attributes:
        authorities: PEM certificate of the cluster's authority.
        ports: Where it listens.
        channel: To the users' port, without a token.
        access: Decides who may call what.
    """

    loop: ScriptedLoop
    sessions: WorkerSessions
    store: ObjectStore
    tokens: UserTokens
    join_tokens: JoinTokens
    authorities: bytes
    ports: Ports
    channel: grpc.aio.Channel
    access: AccessInterceptor
    channels: list[grpc.aio.Channel] = field(default_factory=list)
    server: MasterServer | None = None

    def __post_init__(self) -> None:
        self.user = self.channel_of("ada", Role.OPERATOR)

    @property
    def strangers(self) -> Strangers:
        """Serves those who come without a token."""
        return self.access.strangers

    @property
    def callers(self) -> Callers:
        """Everybody else, by connection."""
        return self.access.callers

    @property
    def jobs(self) -> JobsStub:
        """As ada, who is an operator."""
        return JobsStub(self.user)

    @property
    def cluster(self) -> ClusterStub:
        """As ada, who is an operator."""
        return ClusterStub(self.user)

    @property
    def users(self) -> TokensStub:
        """As ada, who is an operator."""
        return TokensStub(self.user)

    def channel_of(self, owner: str, role: Role) -> grpc.aio.Channel:
        """A channel with a new token."""
        return self.channel_with(self.tokens.create(owner, role)[1])

    def channel_with(self, secret: str) -> grpc.aio.Channel:
        """A channel with some token."""
        channel = user_channel(f"127.0.0.1:{self.ports.users}", self.authorities, secret)
        self.channels.append(channel)
        return channel

    def worker_channel(
        self, instance: str = "i-1", port: int | None = None, life_ms: int = _CERTIFICATE_MS
    ) -> grpc.aio.Channel:
        """A channel to the workers' port with a certificate of an instance."""
        key, certificate = authority().agent(instance, life_ms)
        channel = dial(
            f"127.0.0.1:{port or self.ports.workers}",
            authorities=self.authorities,
            key=key,
            certificate=certificate,
        )
        self.channels.append(channel)
        return channel

    async def launched(self, instance: str = "i-1") -> None:
        """Have an instance exist."""
        name = InstanceId(instance)
        await self.loop.change(
            lambda state: None if name in state.live else add_instance(state, name)
        )

    async def agent(
        self,
        instance: str = "i-1",
        *,
        channel: grpc.aio.Channel | None = None,
        tasks: tuple[wpb.TaskReport, ...] = (),
        process: str = "",
    ) -> Agent:
        """Open a session and register, of an instance that exists; the answer is not read."""
        if self.loop is not None:
            await self.launched(instance)
        agent = Agent(WorkersStub(channel or self.worker_channel(instance)).Session())
        await agent.say(
            register=wpb.Register(
                instance_id=instance,
                capacity=wpb.Resources(milli_cpus=2000, memory_mib=4096),
                tasks=tasks,
                process=process,
            )
        )
        return agent

    async def welcomed(self, instance: str = "i-1", **options: object) -> Agent:
        """A registered agent whose registration has reached the loop."""
        agent = await self.agent(instance, **options)
        assert (await agent.hear()).HasField("welcome")
        await self.loop.event()
        return agent


def agent_certificates(gateway: LoopGateway) -> AgentCertificates:
    """The certificates of the tests' authority."""
    return AgentCertificates(authority().authority, gateway, _CERTIFICATE_MS)


def no_notices(gateway: LoopGateway, archive: Archive) -> NoticeSender:
    """A sender of notices that has no receivers."""
    outbox = NoticeOutbox(database(), ())
    clock = SystemClock()
    return NoticeSender((), outbox, gateway=gateway, archive=archive, clock=clock, cluster="test")


@asynccontextmanager
async def served(
    loop: ScriptedLoop | None,
    *,
    gateway: LoopGateway,
    sessions: WorkerSessions,
    store: ObjectStore,
    planner: InlinePlanner,
    archive: Archive,
    history: RoundHistory | None = None,
    share: UserLimits | None = None,
    tenants: TenantRules | None = None,
    secrets: SecretVault | None = None,
    pages: PageDoor | None = None,
    login: Login | None = None,
    notices: NoticeSender | None = None,
    costs_clock: Clock | None = None,
    prover: IdentityProver | None = None,
) -> AsyncIterator[RpcMaster]:
    """Run the server over a control loop, on free ports of this machine."""
    clock, pacing, tenants = SystemClock(), Pacing(share), tenants or TenantRules()
    promises, tokens, join_tokens = Promises(store, clock), user_tokens(clock), joining(clock)
    server = MasterServer(
        jobs=JobsService(
            gateway=gateway,
            sessions=sessions,
            store=store,
            clock=clock,
            promises=promises,
            planner=planner,
            archive=archive,
            tenants=tenants,
            inputs=InputRoots(("s3://", "file:///data")),
            pacing=pacing,
            pages=pages,
        ),
        files=files_service(gateway, archive, store, promises),
        cluster=cluster_service(
            gateway, archive, history or NoRounds(), tenants, costs_clock or clock
        ),
        secrets=SecretsService(gateway, secrets or vault(clock), tenants),
        tokens=TokensService(tokens, login),
        identities=IdentitiesService(tokens, prover, refused_s=0),
        nodes=NodesService(gateway, NodeRegister({}, None)),
        notices=NoticesService(notices or no_notices(gateway, archive), clock),
        enrolment=EnrolmentService(agent_certificates(gateway), join_tokens),
        workers=sessions,
        access=(access := AccessInterceptor(tokens, pacing)),
        identity=authority().server(),
    )
    ports, trusted = await server.start("127.0.0.1:0", "127.0.0.1:0"), authority().certificates
    channel = dial(f"127.0.0.1:{ports.users}", authorities=trusted)
    own = tokens, join_tokens, trusted, ports, channel, access
    master = RpcMaster(loop, sessions, store, *own, server=server)
    try:
        yield master
    finally:
        await asyncio.gather(*(opened.close() for opened in (channel, *master.channels)))
        await server.stop(0)


@asynccontextmanager
async def rpc_master(
    directory: Path,
    answer: Callable[[State, Command], Reply] = accept,
    *,
    history: RoundHistory | None = None,
    policy: Policy | None = None,
    share: UserLimits | None = None,
    tenants: TenantRules | None = None,
    partitions: Partitions = WHOLE,
    pages: PageDoor | None = None,
    login: Login | None = None,
    notices: NoticeSender | None = None,
    costs_clock: Clock | None = None,
    prover: IdentityProver | None = None,
) -> AsyncIterator[RpcMaster]:
    """Run the server over a control loop that does as it is told.

    Args:
        costs_clock: The time up to which costs are counted, if not the present.
    """
    loop, secrets = ScriptedLoop(answer, partitions), vault(SystemClock())
    welcome = Welcome("test", f"file://{directory}/objects", heartbeat_ms=1000, upload_ms=5000)
    sessions = WorkerSessions(
        loop.inbox,
        SystemClock(),
        agent_certificates(loop.gateway),
        welcome,
        TaskTables(open_store(f"file://{directory}/objects")),
        secrets=secrets,
    )
    try:
        async with served(
            loop,
            gateway=loop.gateway,
            sessions=sessions,
            store=open_store(f"file://{directory}/objects"),
            planner=InlinePlanner(loop.inbox, policy or FirstFit()),
            archive=LoadedArchive(loop.journal.load, loop.journal.feed),
            history=history,
            share=share,
            tenants=tenants,
            secrets=secrets,
            pages=pages,
            login=login,
            notices=notices,
            costs_clock=costs_clock,
            prover=prover,
        ) as master:
            yield master
    finally:
        loop.stop()


async def refusal(call: object) -> tuple[grpc.StatusCode, EvaError]:
    """The status of a call that must fail, and the error that came with it."""
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await call
    status, metadata = failed.value.code(), failed.value.trailing_metadata()
    return status, error_of(status, failed.value.details(), metadata)
