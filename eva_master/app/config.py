"""The settings of the master: file < environment < flag."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit, urlunsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainSerializer,
)
from pydantic_settings import SettingsConfigDict

from eva_master.adapters.resolving.inputs import DEFAULT_ROOTS, InputPlace
from eva_master.app.nodes.settings import NodeSections
from eva_master.app.sections.base import Most, PolicySection, Section
from eva_master.app.sections.notify import ReceiverSections
from eva_master.app.sections.partitions import MOST_PARTITIONS, PartitionName, PartitionSection
from eva_master.app.sections.tenants import TenantSections
from eva_master.control.settings import PATIENCE_MS
from eva_master.model.accounting.tenants import TenantRules
from eva_master.model.planning.estimate import Estimates
from eva_master.model.planning.spot_choice import SpotChoice
from eva_master.model.planning.suspension import Preemption
from eva_wire.settings.common import DEFAULT_ADDRESS, LAST_PORT, Address, BaseConfig
from eva_wire.settings.refusals import between, refusal
from eva_wire.text.quantities import Dollars, Duration, Share, parse_duration, write_duration
from eva_wire.values.ids import MILLION

MASTER_FILE = Path("/etc/eva/master.yaml")

_HOST = re.compile(r"\[[0-9a-fA-F:.]+\]|[^\s:/\[\]]+")
_CLUSTER = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
# A tick of no length would spin, and one of months is a slip of the pen.
_DAY_MS = 86_400_000
_MINUTE_MS = 60_000
_PORTS = re.compile(r"([0-9]{1,5})-([0-9]{1,5})")
_FIRST_PORT = 1_024
_OFF = "off"


def _check_host(text: str) -> str:
    if not _HOST.fullmatch(text):
        raise refusal(f"{text!r} is not a host", "write a name or an address, without a port")
    return text


def _check_cluster(text: str) -> str:
    if not _CLUSTER.fullmatch(text):
        raise refusal(f"{text!r} cannot name a cluster", "use a-z, 0-9 and '-'")
    return text


def _check_url(text: str) -> str:
    if not urlsplit(text).scheme:
        raise refusal(f"{text!r} is not a URL", "write file:///path, sqlite:////path, ...")
    return text


def _parse_ports(text: object) -> tuple[int, int]:
    match = _PORTS.fullmatch(str(text))
    if match is None or not _FIRST_PORT <= int(match[1]) <= int(match[2]) <= LAST_PORT:
        raise refusal(f"{text!r} is not a range of ports", "write FIRST-LAST, from 1024 to 65535")
    return int(match[1]), int(match[2])


def _check_root(url: str) -> str:
    try:
        place = InputPlace.of(url)
    except ValueError as error:
        raise refusal(
            f"{url!r} is no place for inputs: {error}", "write s3://BUCKET/PREFIX or file:///DIR"
        ) from None
    if place.scheme == "file" and not place.names:
        raise refusal("inputs from all of a machine's files", "name directories: file:///data")
    return url


def _parse_patience(value: object) -> int | None:
    """Milliseconds; `None` for `off`, which YAML may read as false."""
    return None if value in (_OFF, None) or value is False else parse_duration(value)


def _write_patience(patience_ms: int | None) -> str:
    return _OFF if patience_ms is None else write_duration(patience_ms)


Url = Annotated[str, AfterValidator(_check_url)]
Patience = Annotated[
    int | None,
    BeforeValidator(_parse_patience),
    PlainSerializer(_write_patience, return_type=str, when_used="json"),
]
PriceLimit = Annotated[float, Field(ge=1, le=1_000_000, allow_inf_nan=False)]
InputRoot = Annotated[str, AfterValidator(_check_root)]
Grace = Annotated[Duration, Field(ge=0, le=_DAY_MS)]
MaxCost = Annotated[
    Dollars,
    Field(gt=0, le=10**15),
    PlainSerializer(lambda amount: f"${amount / MILLION:.6f}", when_used="json"),
]
Period = Annotated[Duration, between(10, _DAY_MS, "10ms and 1d", "10s or 5m")]
Ports = Annotated[
    tuple[int, int],
    BeforeValidator(_parse_ports),
    PlainSerializer(lambda ports: f"{ports[0]}-{ports[1]}"),
]


class LimitsSection(Section):
    """How much one job, one user and all together may have.

    Attributes:
        calls_per_second: Calls of one user in the long run; more wait in line, many more are
            refused.
        streams: Watches and followed logs of one user at the same time.
        watches_of_all: Watches of all jobs, or of more than 20, of one user at the same time.
        attachments: Commands and forwarded connections of one user in tasks at the same time.
        attachments_per_instance: Attachments of all users in the tasks of one instance.
        connections_per_forward: Connections of one user to one port of a task at the same time.
        tasks_per_job: Tasks of one job.
        tasks_per_user: Tasks of all unfinished jobs of one user.
        jobs_per_user: Unfinished jobs of one user.
        waits_per_user: Jobs in the `after` of all unfinished jobs of one user, together.
        text_per_user: Characters of commands, variables and inputs of all unfinished jobs of one
            user; equal tasks of a job count once.
        secrets_per_user: Secrets of one user, and of one tenant.
        secret_bytes_per_user: Bytes of the values of these, together.
        tasks: Tasks of all unfinished jobs.
        jobs: All unfinished jobs.
        waits: Jobs in the `after` of all unfinished jobs, together.
        text: Characters of all unfinished jobs, likewise.
        instances_per_job: Instances on which tasks of one job are at the same time.
        instances_per_user: Maximum of instances for all tasks of one user.
        instances: Instances of the cluster at the same time.
        priority: The highest priority that a user may state who is no operator; `None` for any.
        grace_period: The longest that a job file may state.
        max_cost: Most that one owner's jobs may be charged in a calendar month, UTC; then all of
            them are suspended until the next one.
        recall_grace: Time that tasks have to stop where tenants take lent room back, and where an
            operator cancels another user's job. Jobs with longer grace periods are lent nothing.
        shutdown_grace: Time that tasks have to stop where the cluster ends, or a worker.
    """

    calls_per_second: Most = 100
    streams: Most = 1_000
    watches_of_all: Most = 20
    attachments: Most = 200
    attachments_per_instance: Most = 400
    connections_per_forward: Most = 64
    tasks_per_job: Most = 100_000
    tasks_per_user: Most = 100_000
    jobs_per_user: Most = 10_000
    waits_per_user: Most = 100_000
    text_per_user: Most = 30_000_000
    secrets_per_user: Most = 100
    secret_bytes_per_user: Most = 1_048_576
    tasks: Most = 500_000
    jobs: Most = 100_000
    waits: Most = 500_000
    text: Most = 300_000_000
    instances_per_job: Most = 1_000
    instances_per_user: Most = 1_000
    instances: Most = 1_000
    priority: Annotated[int, Field(ge=0, le=10**9, strict=True)] | None = None
    grace_period: Grace = 10 * _MINUTE_MS
    max_cost: MaxCost | None = None
    recall_grace: Grace = _MINUTE_MS
    shutdown_grace: Grace = 2 * _MINUTE_MS


class CatalogSection(Section):
    """Offerings on sale.

    Attributes:
        file: Types and prices that are added to those that come with the project.
        only: Names or families to restrict the catalog to.
    """

    file: Path | None = None
    only: list[str] | None = None


class IsolationSection(Section):
    """Isolation of tasks; the worker's options of equal names say more.

    Attributes:
        user: ``unprivileged`` for a user without rights where workers are root, ``worker`` for the
            worker's own, which images may need that want root.
        network: ``own`` for containers with a network of their own, unless they belong to gangs;
            ``host`` for that of their instance.
        processes: Most processes and threads of a task.
        open_files: Most open files of each of its processes.
    """

    user: Literal["unprivileged", "worker"] = "unprivileged"
    network: Literal["own", "host"] = "own"
    processes: Annotated[int, Field(ge=16)] = 4_096
    open_files: Annotated[int, Field(ge=64)] = 65_536

    def variables(self) -> dict[str, str]:
        """The section for the environment of ``eva worker``."""
        return {
            f"EVA_WORKER_TASK_{name.upper()}": str(value)
            for name, value in self.model_dump().items()
        }


class UiSection(Section):
    """Pages under a name of their own; `eva ui` needs neither.

    Attributes:
        listen: Where browsers dial, over TLS; `None` for nowhere.
        certificate: PEM file with a key and its certificates, which is read anew when it changes;
            `None` for the master's own certificate, which browsers do not know.
    """

    listen: Address | None = None
    certificate: Path | None = None


class MasterConfig(BaseConfig):
    """The master's settings but for those of clouds; durations are in milliseconds.

    Attributes:
        cluster: Names the cluster in tags, metrics and logs.
        state_dir: Everything that must survive a restart.
        state_id: Required content of the file ``state-id`` in `state_dir`; empty for anything. A
            master whose volume is not mounted, or is another one, then refuses to start.
        listen: Where users dial, and instances without a certificate.
        worker_listen: Where workers dial; see `worker_address`.
        metrics_port: Prometheus and health on the same host, `None` for none.
        journal: URL of the journal; see `journal_url`.
        objects: URL of the object store; see `objects_url`.
        input_roots: Where jobs' inputs may come from: `s3://` for all that the workers may read in
            S3, `s3://BUCKET/PREFIX`, and `file:///DIR` for directories of instances. No other file
            of an instance is ever an input.
        round_period: From one planning round to the next when nothing happens.
        round_min_interval: From one round to the next however much happens.
        round_work: Work budget of a round, as time on the machine on which `packing.round_work` was
            measured. Work is counted, not timed, so that a plan is the same everywhere.
        register_timeout: An instance whose worker has not registered by then is replaced.
        start_timeout: A task whose image, inputs and program are not ready by then has failed.
        lost_worker_timeout: An instance whose worker was away so long is replaced.
        resend_interval: From one repetition of an unconfirmed command to the next.
        heartbeat: From one sign of life of a worker to the next.
        join_token_lifetime: From the launch of an instance, how long it may take to join.
        agent_certificate_lifetime: How long a worker's certificate is valid; it is renewed after
            half of that.
        throughput_window: Over how long a task's throughput is measured.
        profile: Whether one task of a workload whose standalone throughput is neither stated nor
            known runs alone until it is. If not, all may be packed at once, as if company cost them
            little.
        estimates: Source of run times where no job states them: `history`, `3sigma` and `point` for
            the owner's earlier jobs, `pilots` for finished tasks of the same job, `posterior` for
            both, `off` for nothing; `None` for what the policy asks for.
        upload_interval: From one upload of logs, outputs and checkpoints to the next.
        gang_ports: Ports on which the members of gangs meet, such as 20000-29999. Workers must
            reach each other on them.
        history_kept: Jobs that have ended and instances that are gone leave the master's memory
            after so long; the journal keeps them, and every command still shows them.
        results_kept: Files that a job has stored are removed so long after its end; `None` for
            never.
        cloud: Where instances come from; each cloud has a section of its own, see `section`.
        isolation: Isolation of tasks.
        ui: Pages for browsers.
        tenants: Tenants that jobs are accounted to, by name; owners whom none names belong to
            ``default``.
        preemption: Whether a job that waits may have running ones of lower priority suspended,
            where what can be bought is limited; ``suspend`` needs `limits.priority`.
        preemption_across: Whether it may have those of other partitions suspended, too, where these
            hold what it waits for of a limit that partitions share.
        patience: For how long a job waits for limited room, and at least for ten times what an
            instance takes to be ordered and to boot, until room is kept for it against jobs of the
            same priority; `None` for ever. Policies that order jobs themselves have none.
        spot_choice: How jobs with deadlines choose between spot instances, others and waiting;
            by default as the policy asks, or else `learned`.
        pool_share: The part of the work with little time to lose that may be in one spot pool.
        price_limit: How many times the sum of its tasks' reservation prices on demand a new
            instance may cost; `None` for any price.
        nodes: Machines of the operator's own, by name; see `NodeSection`.
        partitions: The parts that the cluster is divided into, by name; none if it is not divided.
        notify: Receivers of notices.
        advertise: The host under which instances and users reach this machine, `None` for the ones
            that it listens on.
    """

    model_config = SettingsConfigDict(env_prefix="EVA_MASTER_")

    cluster: Annotated[str, AfterValidator(_check_cluster)] = "eva"
    state_dir: Path = Path("/var/lib/eva")
    state_id: str = ""
    listen: Address = DEFAULT_ADDRESS
    worker_listen: Address | None = None
    metrics_port: Annotated[int, Field(ge=0, le=65_535)] | None = None
    journal: Url | None = None
    objects: Url | None = None
    input_roots: tuple[InputRoot, ...] = DEFAULT_ROOTS
    policy: PolicySection = PolicySection()
    round_period: Period = 300_000
    round_min_interval: Period = 5_000
    round_work: Period = 10_000
    register_timeout: Period = 600_000
    start_timeout: Period = 7_200_000
    lost_worker_timeout: Period = 180_000
    resend_interval: Period = 10_000
    heartbeat: Period = 5_000
    join_token_lifetime: Period = 900_000
    agent_certificate_lifetime: Period = _DAY_MS
    throughput_window: Period = 60_000
    profile: bool = True
    estimates: Estimates | None = None
    upload_interval: Period = 30_000
    gang_ports: Ports = (20_000, 29_999)
    history_kept: Duration = 7 * _DAY_MS
    results_kept: Duration | None = 30 * _DAY_MS
    cloud: str = "local"
    advertise: Annotated[str, AfterValidator(_check_host)] | None = None
    catalog: CatalogSection = CatalogSection()
    isolation: IsolationSection = IsolationSection()
    limits: LimitsSection = LimitsSection()
    ui: UiSection = UiSection()
    tenants: TenantSections = Field(default_factory=dict)
    preemption: Preemption = Preemption.NEVER
    preemption_across: bool = False
    patience: Patience = PATIENCE_MS
    spot_choice: SpotChoice | None = None
    pool_share: Share = MILLION
    price_limit: PriceLimit | None = 4.0
    notify: ReceiverSections = ()
    nodes: NodeSections = Field(default_factory=dict)
    partitions: Annotated[
        dict[PartitionName, PartitionSection], Field(max_length=MOST_PARTITIONS)
    ] = Field(default_factory=dict)

    def section(self, cloud: str) -> Any:
        """The section of a cloud; of the type that the cloud declares, `None` if it may be."""
        return getattr(self, cloud)

    @property
    def worker_address(self) -> str:
        """Where workers dial: unless a setting says otherwise, beside the users' port."""
        if self.worker_listen is not None:
            return self.worker_listen
        host, _, port = self.listen.rpartition(":")
        if int(port) == 0:  # Any that is free, twice.
            return self.listen
        return f"{host}:{int(port) + (1 if int(port) < LAST_PORT else -1)}"

    @property
    def journal_url(self) -> str:
        """Where the journal is: in the state directory unless a setting says otherwise."""
        return self.journal or f"sqlite:///{self.state_dir.absolute() / 'journal.db'}"

    @property
    def objects_url(self) -> str:
        """Where files are: in the state directory unless a setting says otherwise."""
        return self.objects or (self.state_dir.absolute() / "objects").as_uri()

    @property
    def tenant_rules(self) -> TenantRules:
        """Rules that assign owners to tenants."""
        return TenantRules({name: section.owners for name, section in self.tenants.items()})

    @property
    def policy_sections(self) -> dict[str, PolicySection]:
        """Which scheduler decides in each partition; of an undivided cluster that of the whole."""
        sections = {
            name: section.policy or self.policy for name, section in self.partitions.items()
        }
        return sections or {"": self.policy}

    def shown(self) -> dict[str, Any]:
        """The settings in force, for people: durations with units, no passwords."""
        return {
            **self.model_dump(mode="json"),
            "worker_listen": self.worker_address,
            "journal": _without_password(self.journal_url),
            "objects": _without_password(self.objects_url),
        }


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    if parts.password is None:
        return url
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{parts.username or ''}:***@{host}"))
