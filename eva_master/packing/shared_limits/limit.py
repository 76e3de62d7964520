"""Values: limits that partitions share, and the tasks that wait for them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from eva_master.model.catalog import Offering
from eva_master.model.planning.job_view import JobView
from eva_master.model.planning.snapshot import RunView
from eva_master.model.tenants.tenancy import Quota
from eva_master.packing.quotas import Use
from eva_wire.values.ids import JobId, Millis, OfferingId

GATHERS_MS = 30 * 60_000
"""For so long a gang gathers what becomes free before others may have it for as long; then for
twice as long, and so on: it outlasts every task that ends, and others go on all the same."""


class LimitKind(StrEnum):
    """Kinds of limits that partitions share."""

    OFFERING = "offering"
    CLOUD = "cloud"
    INSTANCES = "instances"
    USER = "user"
    TENANT = "tenant"


@dataclass(frozen=True, slots=True, order=True)
class Limit:
    """A limit that partitions share.

    Attributes:
        kind: Kind of the limit.
        about: The offering, user or tenant; for a limit of the cloud, the first offering that it
            refused.
    """

    kind: LimitKind
    about: str = ""

    def __str__(self) -> str:
        match self.kind:
            case LimitKind.OFFERING:
                return f"the limit of {self.about}"
            case LimitKind.CLOUD:
                return f"the cloud's limit of {self.about}"
            case LimitKind.INSTANCES:
                return "limits.instances"
            case LimitKind.USER:
                return f"limits.instances_per_user of {self.about}"
            case LimitKind.TENANT:
                return f"the quota of tenant {self.about}"


ALL_INSTANCES = Limit(LimitKind.INSTANCES)
NO_OFFERING = OfferingId("")
"""Of tasks that run on owned nodes alone: nothing is launched for them."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The cloud's last refusal to launch some offerings.

    Attributes:
        offerings: Which; they count against one quota, or are out of stock.
        free: How many launches may be tried at the moment.
    """

    offerings: frozenset[OfferingId]
    free: int


@dataclass(frozen=True, slots=True)
class SharedLimits:
    """Resources that partitions share, as far as these are limited.

    Attributes:
        instances: Number of further instances that the cluster may have; `None` for any number.
        all_instances: Number of all instances that it may have.
        per_user: Number of instances on which tasks of one user may be; `None` for any number.
        refusals: Refusals of the cloud.
        quotas: Tenants' quotas in force.
        use: GPUs in use by tenants.
    """

    instances: int | None = None
    all_instances: int | None = None
    per_user: int | None = None
    refusals: tuple[Refusal, ...] = ()
    quotas: Mapping[str, Quota] = field(default_factory=dict)
    use: Use = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Parts:
    """How the cluster is divided.

    Attributes:
        home: The partition of a job or instance, by the name on record.
        sells: Whether a partition may launch an offering.
        allows: Whether a partition's own limits allow so many launches at such a price together, in
            micro-dollars per hour.
        limits_tenants: Whether the control loop holds tenants to their quotas in a partition.
        out: Jobs that could not use what is free.
        passed: Offerings that jobs left unused though some were free for them.
        since: Since when the tasks of some arrays may start: their own limits kept them before.
    """

    home: Callable[[str], str]
    sells: Callable[[str, Offering], bool]
    allows: Callable[[str, int, int], bool]
    limits_tenants: Callable[[str], bool] = lambda _: True
    out: Collection[JobId] = ()
    passed: Collection[tuple[JobId, OfferingId]] = ()
    since: Mapping[JobId, Millis] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LimitUnit:
    """Task runs that wait and are placed together: of a gang all that wait, else one.

    Attributes:
        since_ms: Since when.
    """

    job: JobView
    partition: str
    since_ms: Millis
    runs: tuple[RunView, ...]

    @property
    def together(self) -> bool:
        """Whether these are members of a gang of several."""
        return len(self.runs) > 1

    @property
    def least(self) -> int:
        """How many of them have to be placed at least."""
        elastic = self.job.sharing.elastic
        return len(self.runs) if elastic is None else min(len(self.runs), elastic.least)


def gathers(waited_ms: int) -> bool:
    """Whether a gang that has waited for so long keeps what is free, though it is not enough."""
    return _phase(waited_ms)[0]


def changes_in_ms(waited_ms: int) -> int:
    """In how many milliseconds that changes."""
    return _phase(waited_ms)[1]


def _phase(waited_ms: int) -> tuple[bool, int]:
    rest, length = max(0, waited_ms), GATHERS_MS
    while True:
        if rest < length:
            return True, length - rest
        rest -= length
        if rest < GATHERS_MS:
            return False, GATHERS_MS - rest
        rest -= GATHERS_MS
        length *= 2


Taken = Mapping[Limit, int]
"""How much of each limit."""
