"""Wiring of a live master: the control loop on a thread, everything with a socket around it."""

from __future__ import annotations

import asyncio
import json
import signal
import threading
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import structlog

from eva_master.adapters.bootstrap import Bootstrap
from eva_master.adapters.http.metrics import MasterMetrics
from eva_master.adapters.listening import require_free
from eva_master.adapters.loop.clock import (
    DOCUMENT,
    LoopClock,
    MachineClocks,
    SystemClock,
    TimedJournal,
)
from eva_master.adapters.loop.collector import spare_lasting_values
from eva_master.adapters.loop.gateway import LoopGateway
from eva_master.adapters.loop.inbox import LiveInbox
from eva_master.adapters.loop.turns import take_turns
from eva_master.adapters.objects import open_store
from eva_master.adapters.objects.checkpoints import StoredCheckpoints
from eva_master.adapters.objects.promises import Promises
from eva_master.adapters.objects.tables import TaskTables
from eva_master.adapters.pki.authority import Authority
from eva_master.adapters.pki.node_register import Doors, NodeRegister
from eva_master.adapters.pki.node_tokens import NodeTokens
from eva_master.adapters.pki.server import ServerIdentity
from eva_master.adapters.pki.tokens import JoinTokens
from eva_master.adapters.planner.partitioned import PartitionedPlanner
from eva_master.adapters.planner.process import ProcessPlanner
from eva_master.adapters.resolving.inputs import InputRoots
from eva_master.adapters.rpc.attach.attachments import AttachLimits
from eva_master.adapters.rpc.identities.service import identities_service
from eva_master.adapters.rpc.local_calls import LocalCalls
from eva_master.adapters.rpc.nodes.service import NodesService
from eva_master.adapters.rpc.notices.service import NoticesService
from eva_master.adapters.rpc.secrets.service import SecretsService
from eva_master.adapters.rpc.server.access import AccessInterceptor
from eva_master.adapters.rpc.server.admission.pacing import Pacing, UserLimits
from eva_master.adapters.rpc.server.cluster import About, ClusterService
from eva_master.adapters.rpc.server.files.service import FilesService
from eva_master.adapters.rpc.server.jobs import JobsService
from eva_master.adapters.rpc.server.overview.samples import Sampler, Samples
from eva_master.adapters.rpc.server.ports import MasterServer, Ports, allow_most_files
from eva_master.adapters.rpc.server.tokens import TokensService
from eva_master.adapters.rpc.workers.enrolment import AgentCertificates, EnrolmentService
from eva_master.adapters.rpc.workers.sessions import Welcome, WorkerSessions
from eva_master.adapters.secrets.key import SecretKey
from eva_master.adapters.secrets.vault import SecretVault
from eva_master.adapters.store import SqlArchive, SqlJournal, UserTokens
from eva_master.adapters.store.join_tokens import JoinTokenTable
from eva_master.adapters.store.patience import PatientJournal
from eva_master.app import addresses
from eva_master.app.cloud_provider import CloudSite, ManagedCloud
from eva_master.app.clouds import cloud_of
from eva_master.app.config import LimitsSection, MasterConfig
from eva_master.app.nodes.settings import owned_nodes
from eva_master.app.notices import notice_sender
from eva_master.app.operator import write_client_file
from eva_master.app.pages import PageSite
from eva_master.app.policy_registry import policies
from eva_master.app.sections.building import may_be_greedy
from eva_master.app.sections.policies import (
    doubts,
    estimate_doubts,
    estimates_in,
    leaves_order,
    led_by,
    round_grid_ms,
    shown,
    shown_settings,
    source,
    spot_choice_in,
)
from eva_master.app.sections.tenants import tenancy
from eva_master.app.shutdown import Shutdown, Tell
from eva_master.app.state_dir import keep_files_private, make_state, require_state, restored_mark
from eva_master.control.loop import Loop
from eva_master.control.machine import Machine
from eva_master.control.settings import Limits, Settings
from eva_master.control.state.store import State
from eva_master.model.events import SecretsListed, Tick
from eva_master.model.fleet.nodes import offerings
from eva_master.model.fleet.partitions import UNDIVIDED_CLUSTER, Partitions, with_nodes
from eva_master.packing.compiled.library import library as compiled_search
from eva_master.ports import Clock, Inbox
from eva_wire import VERSION
from eva_wire.service import logs
from eva_wire.service.dumps import leave_no_dumps
from eva_wire.values.errors import EvaError, StorageError, StorageFull
from eva_wire.values.ids import MILLION, Millis

_STOP_GRACE_S = 1.0
_BOOT_BACKOFF_MS = 300_000
"""After a boot that failed; shorter where workers are expected to register sooner."""

log = structlog.get_logger(__name__)


def partitions_of(config: MasterConfig) -> Partitions:
    """How the settings divide the cluster."""
    chosen = config.policy_sections
    parts = (
        led_by(
            section.partition(name, shown(chosen[name]), round_grid_ms(chosen[name])), chosen[name]
        )
        for name, section in config.partitions.items()
    )
    nodes = owned_nodes(config.nodes).items()
    stand_for = {name: node.offering.id for name, node in nodes}
    return with_nodes(parts, stand_for, led_by(UNDIVIDED_CLUSTER, config.policy))


def control_settings(config: MasterConfig) -> Settings:
    """The control loop's share of the configuration."""
    settings = Settings(
        round_period_ms=config.round_period,
        round_gap_ms=config.round_min_interval,
        round_grid_ms=round_grid_ms(config.policy),
        round_work=config.round_work * 1_000,
        register_timeout_ms=config.register_timeout,
        start_timeout_ms=config.start_timeout,
        boot_backoff_ms=min(_BOOT_BACKOFF_MS, config.register_timeout),
        lost_worker_ms=config.lost_worker_timeout,
        worker_resend_ms=config.resend_interval,
        restored_mark=restored_mark(config),
        window_ms=config.throughput_window,
        profile=config.profile,
        estimates=estimates_in(config),
        partitions=partitions_of(config),
        gang_ports=config.gang_ports,
        history_kept_ms=config.history_kept,
        results_kept_ms=config.results_kept,
        feed=True,
        limits=_limits(config.limits),
        preemption=config.preemption,
        preemption_across=config.preemption_across,
        patience=_patience(config),
        spot_choice=spot_choice_in(config),
        pool_share_ppm=config.pool_share,
        price_limit_ppm=None if config.price_limit is None else round(config.price_limit * MILLION),
        nodes=owned_nodes(config.nodes),
        tenancy=tenancy(config.tenants),
    )
    return cloud_of(config).loop_settings(config, settings)


def _open_journal(config: MasterConfig, pki: Path) -> SqlJournal:
    """The journal, which must be there if the cluster's authority is."""
    kept_ms = config.history_kept
    return SqlJournal.open(config.journal_url, expected=Authority.made(pki), feed_kept_ms=kept_ms)


def _patience(config: MasterConfig) -> dict[str, int]:
    """Milliseconds by partition, without those whose policies order jobs themselves."""
    patience_ms = config.patience
    if patience_ms is None:
        return {}
    sections = config.policy_sections.items()
    return {name: patience_ms for name, section in sections if leaves_order(section)}


def _limits(section: LimitsSection) -> Limits:
    stated = {
        field.name: getattr(section, field.name.removesuffix("_ms")) for field in fields(Limits)
    }
    return Limits(**{name: limit for name, limit in stated.items() if limit is not None})


def _attach_limits(section: LimitsSection) -> AttachLimits:
    return AttachLimits(
        section.attachments, section.attachments_per_instance, section.connections_per_forward
    )


OpenCloud = Callable[[MasterConfig, Inbox, Clock, Bootstrap], ManagedCloud]
"""Makes the cloud of a master, whose instances are to be told the bootstrap."""


class Master:
    """A master from start to stop; to be made and used in the asyncio thread.

    Args:
        config: The settings.
        on_failure: Called, in the loop's thread, when the control loop breaks down. The journal has
            its state; the process should end and be started again.
        open_cloud: Makes the cloud, `None` for the one that the settings choose.
    """

    def __init__(
        self,
        config: MasterConfig,
        on_failure: Callable[[BaseException], None],
        open_cloud: OpenCloud | None = None,
    ) -> None:
        self._config = config
        self._on_failure = on_failure
        self._provider = cloud_of(config)
        self._open_cloud = open_cloud or self._chosen_cloud
        self._other_cloud = open_cloud is not None
        self._stopping = threading.Event()
        nodes = offerings(owned_nodes(config.nodes).values())
        self._catalog = (*self._provider.catalog(config), *nodes)
        require_state(config)
        make_state(config)
        pki = config.state_dir / "pki"
        # The journal is made first, so where there are keys there was a journal.
        self._journal = _open_journal(config, pki)
        # The wall clock is for certificates alone; all else is dated by the loop's time.
        self._clock = LoopClock(
            MachineClocks(), self._journal.document(DOCUMENT), self._journal.latest_ms()
        )
        wall = SystemClock()
        self._inbox = LiveInbox(self._clock, self._clock.look)
        self._gateway = LoopGateway(self._inbox)
        self._authority = Authority.of(pki, config.cluster, wall)
        self._identity = ServerIdentity(self._authority, pki, addresses.hosts(config), wall)
        self._join_tokens = JoinTokens.of(
            pki, JoinTokenTable(self._journal.engine), self._clock, config.join_token_lifetime
        )
        self._nodes = NodeRegister(
            owned_nodes(config.nodes), NodeTokens(self._journal.engine, self._clock)
        )
        self._certificates = AgentCertificates(
            self._authority, self._gateway, config.agent_certificate_lifetime, self._nodes
        )
        self._user_tokens = UserTokens(self._journal.engine, self._clock)
        prover = self._provider.identities(config, self._authority.digest)
        self._identities = identities_service(self._user_tokens, prover)
        self._vault = self._open_vault(SecretKey.of(pki))
        self._planner = self._make_planner()
        self._gateway.planning = self._planner.slow
        self._sessions = self._make_sessions(config)
        self._notices = notice_sender(config, self._journal.engine, self._gateway, self._clock)
        self._metrics = MasterMetrics(
            gateway=self._gateway,
            inbox=self._inbox,
            sessions=self._sessions,
            clock=self._clock,
            receivers=lambda: self._notices.statuses,
        )
        self._samples = Samples(self._journal)
        self._sampler = Sampler(self._samples, self._gateway, self._clock)
        self._pages = PageSite(config, self._identity, self._user_tokens, self._clock)
        self._server = self._make_server()
        self._thread = threading.Thread(target=self._run_loop, name="control-loop", daemon=True)

    def _make_sessions(self, config: MasterConfig) -> WorkerSessions:
        welcome = Welcome(
            config.cluster,
            config.objects_url,
            config.heartbeat,
            config.upload_interval,
            config.input_roots,
            config.limits.shutdown_grace,
        )
        return WorkerSessions(
            self._inbox,
            self._clock,
            self._certificates,
            welcome,
            TaskTables(open_store(config.objects_url)),
            secrets=self._vault,
            attach_limits=_attach_limits(config.limits),
        )

    def _open_vault(self, key: SecretKey) -> SecretVault:
        limits = self._config.limits
        most, most_bytes = limits.secrets_per_user, limits.secret_bytes_per_user
        return SecretVault(self._journal.engine, key, self._clock, most=most, most_bytes=most_bytes)

    def _make_planner(self) -> PartitionedPlanner:
        planners = {
            name: ProcessPlanner(
                self._inbox, shown(section), *source(section), greedy=may_be_greedy(section)
            )
            for name, section in self._config.policy_sections.items()
        }
        return PartitionedPlanner(planners)

    def _make_server(self) -> MasterServer:
        config = self._config
        settings = json.dumps(shown_settings(config))
        about = About(config.cluster, shown(config.policy), VERSION, settings)
        archive, limits = SqlArchive(self._journal.engine), config.limits
        store = open_store(config.objects_url)
        promises = Promises(store, self._clock)
        pacing = Pacing(UserLimits(limits.calls_per_second, limits.streams, limits.watches_of_all))
        self._access = AccessInterceptor(self._user_tokens, pacing)
        return MasterServer(
            jobs=JobsService(
                gateway=self._gateway,
                sessions=self._sessions,
                store=store,
                clock=self._clock,
                promises=promises,
                planner=self._planner,
                archive=archive,
                tenants=config.tenant_rules,
                containers=self._other_cloud or self._provider.runs_containers(config),
                inputs=InputRoots(config.input_roots, config.objects_url),
                tasks_per_job=limits.tasks_per_job,
                grace_period_ms=limits.grace_period,
                shared=self._provider.shares_storage(config),
                nominal_gpus=self._provider.has_nominal_gpus(config) and not self._other_cloud,
                pacing=pacing,
                secrets=self._vault,
                samples=self._samples,
                pages=self._pages.door,
            ),
            files=FilesService(
                gateway=self._gateway,
                archive=archive,
                store=store,
                clock=self._clock,
                promises=promises,
                shared=self._provider.shares_storage(config),
            ),
            cluster=ClusterService(
                gateway=self._gateway,
                clock=self._clock,
                about=about,
                history=self._journal,
                archive=archive,
                tenants=config.tenant_rules,
                samples=self._samples,
                receivers=lambda: self._notices.statuses,
            ),
            secrets=SecretsService(self._gateway, self._vault, config.tenant_rules),
            tokens=TokensService(self._user_tokens, self._pages.login),
            identities=self._identities,
            nodes=NodesService(self._gateway, self._nodes),
            notices=NoticesService(self._notices, self._clock),
            enrolment=EnrolmentService(
                self._certificates, self._join_tokens, config.isolation.variables()
            ),
            workers=self._sessions,
            identity=self._identity,
            access=self._access,
        )

    def _chosen_cloud(
        self, config: MasterConfig, inbox: Inbox, clock: Clock, bootstrap: Bootstrap
    ) -> ManagedCloud:
        site = CloudSite(inbox, clock, bootstrap, self._catalog, self._journal.engine)
        return self._provider.open(config, site)

    async def start(self) -> Ports:
        """Open for business; returns the ports.

        Raises:
            EvaError: The master cannot start, and has closed what it had opened.
        """
        config = self._config
        try:
            await asyncio.to_thread(require_free, addresses.listened(config))
            ports = await self._server.start(config.listen, config.worker_address)
            client_file = self._open(ports)
        except BaseException:
            # A server that is left open takes the process down before the error is told.
            await self._server.stop(0)
            self._pages.close()
            self._planner.close()
            self._journal.close()
            raise
        log.info(
            "the master is open",
            **ports._asdict(),
            policy=shown(config.policy),
            operator=str(client_file),
        )
        if compiled_search() is None:
            log.warning(
                "plans take some ten times as long: the search was not compiled for this system",
                hint="in a checkout, `make setup` compiles it",
            )
        for name, fault in policies().faults().items():
            log.warning("a policy cannot be used", policy=name, reason=fault.message)
        for name, section in config.policy_sections.items():
            used = estimates_in(config)
            for doubt in (*doubts(section, self._catalog), *estimate_doubts(section, used)):
                log.warning("is that meant?", partition=name, policy=shown(section), doubt=doubt)
        return ports

    def _open(self, ports: Ports) -> Path:
        """Open what stands behind the ports; returns the operator's settings file."""
        config = self._config
        if config.metrics_port is not None:
            self._metrics.serve(addresses.host(config.listen), config.metrics_port, self._identity)
        bootstrap = Bootstrap(
            workers=f"{addresses.dialled(config, config.worker_address)}:{ports.workers}",
            join=f"{addresses.dialled(config, config.listen)}:{ports.users}",
            authorities=self._authority.certificates.decode(),
            token=self._join_tokens.token,
            isolation=config.isolation.variables(),
        )
        self._nodes.doors = Doors(bootstrap.join, bootstrap.workers, bootstrap.authorities)
        client_file = write_client_file(
            config.state_dir,
            bootstrap.join,
            config.state_dir / "pki" / "ca.pem",
            self._user_tokens,
            renewed=self._identities.open,
        )
        self._cloud = self._open_cloud(config, self._inbox, self._clock, bootstrap)
        since = Millis(self._clock.now() - config.history_kept)
        state = self._restored(since)
        state.wall, state.journal_ms = self._clock.wall, self._clock.journal_ms
        machine = Machine(state, control_settings(config))
        self._inbox.post(SecretsListed(self._vault.names()))
        self._loop = Loop(
            machine,
            clock=self._clock,
            inbox=self._inbox,
            journal=PatientJournal(
                TimedJournal(self._journal, self._clock),
                self._gateway.paused,
                self._stopping,
                self._clock,
            ),
            cloud=self._cloud,
            workers=self._sessions,
            planner=self._planner,
            checkpoints=StoredCheckpoints(
                open_store(config.objects_url),
                self._inbox,
                self._clock,
                SqlArchive(self._journal.engine).ended,
            ),
            replies=self._gateway,
        )
        self._thread.start()
        self._sampler.start()
        self._notices.start()
        calls = LocalCalls(self._access, self._user_tokens, self._server.services)
        self._pages.open(calls, self._gateway.latest)
        return client_file

    def _restored(self, since: Millis) -> State:
        """The state that the journal holds.

        Raises:
            StorageError: Its records contradict each other.
        """
        changes = self._journal.load(since)
        try:
            return State.restored(self._catalog, changes)
        except (LookupError, ValueError, TypeError, AttributeError, AssertionError) as error:
            raise StorageError(
                "the journal's records contradict each other, so it is damaged:"
                f" {type(error).__name__}: {error}",
                hint="restore the journal from a backup: see docs/reference/journal.md",
            ) from error

    def _run_loop(self) -> None:
        spare_lasting_values()
        try:
            self._loop.start()
            take_turns(self._loop.step, self._inbox, self._stopping)
        except StorageFull as error:
            # Only a master that stops does not wait for room.
            log.error("the last changes are not on record", reason=error.message)
        except StorageError as error:
            log.critical("the control loop cannot go on", reason=error.message, hint=error.hint)
            self._on_failure(error)
        except BaseException as error:
            log.exception("the control loop broke down")
            self._on_failure(error)

    async def shut_down(self, hurry: asyncio.Event, tell: Tell) -> None:
        """Terminate every instance of the local cloud, once its tasks are stored; then `stop`.

        Workers still reach the master: their last reports go into the books.

        Args:
            hurry: Once it is set, nothing is waited for any more.
            tell: Told what happens.
        """
        grace_ms = self._config.limits.shutdown_grace
        ending = Shutdown(self._gateway, self._inbox, self._cloud, tell, grace_ms=grace_ms)
        await ending.run(hurry)

    async def stop(self) -> None:
        """Close; what is wanted stays in the journal.

        Instances run on, unless they were shut down before, and the next master finds them.
        """
        await asyncio.to_thread(self._pages.close)
        await self._server.stop(_STOP_GRACE_S)
        self._stopping.set()
        self._inbox.post(Tick())
        await asyncio.to_thread(self._thread.join)
        await asyncio.to_thread(self._sampler.stop)
        await asyncio.to_thread(self._notices.stop)
        self._cloud.close()
        self._planner.close()
        self._journal.close()


async def serve(
    config: MasterConfig,
    *,
    power_off: bool,
    on_open: Callable[[Ports], None],
    open_cloud: OpenCloud | None = None,
    tell: Tell = log.info,
) -> BaseException | None:
    """Run a master until SIGINT, SIGTERM or SIGHUP; a second one waits for no task to be stored.

    Args:
        config: The settings.
        power_off: Terminate the instances at the end.
        on_open: Called with the ports once the master is open.
        open_cloud: See `Master`.
        tell: Told how the end goes.

    Returns:
        Why the control loop broke down, `None` when it was asked to stop.
    """
    allow_most_files()
    leave_no_dumps()
    keep_files_private(config)
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[BaseException | None] = loop.create_future()
    hurry = asyncio.Event()

    def end(reason: BaseException | None) -> None:
        if not ended.done():
            ended.set_result(reason)
        elif reason is None:
            hurry.set()

    def fail(error: BaseException) -> None:
        loop.call_soon_threadsafe(end, error)

    master = Master(config, fail, open_cloud)
    ending = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:  # nohup has it ignored.
        ending.append(signal.SIGHUP)
    for sign in ending:
        loop.add_signal_handler(sign, end, None)
    on_open(await master.start())
    reason = await ended
    if power_off and reason is None:
        await master.shut_down(hurry, tell)
    await master.stop()
    return reason


def run_master(config: MasterConfig) -> None:
    """Run a master whose instances outlive it; returns when it was asked to stop.

    Raises:
        EvaError: The cloud cannot be prepared, see `CloudProvider.prepare`; or the control loop
            cannot go on.
        SystemExit: The control loop broke down; whoever supervises should start it again.
    """
    logs.configure(cluster=config.cluster)
    prepared = cloud_of(config).prepare(config, log.info)
    if prepared.told:
        log.info(prepared.told)
    ended(asyncio.run(serve(prepared.config, power_off=False, on_open=lambda _ports: None)))


def ended(why: BaseException | None) -> None:
    """End the command of a master whose control loop ended, for the reason that `serve` gives.

    Raises:
        EvaError: The loop could not go on.
        SystemExit: The master broke down, and the log has the details.
    """
    if isinstance(why, EvaError):
        raise why
    if why is not None:
        raise SystemExit(1)
