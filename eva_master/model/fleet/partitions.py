"""Partitions: parts of the cluster with a policy, offerings, limits and a budget of their own."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from eva_master.model.accounting.tenants import OwnerPatterns
from eva_master.model.catalog import Catalog, Offering, Purchase, base_family, is_spot
from eva_master.model.fleet.forking import Forking
from eva_master.model.fleet.job_keys import KeysRead
from eva_master.model.job import JobSpec, Latency, different
from eva_master.model.resources import Resources
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import InstanceId, OfferingId

UNDIVIDED = "default"
"""Name shown to users for the one partition of a cluster that is not divided."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


def is_partition(text: str) -> bool:
    """Whether a text can name a partition."""
    return _NAME.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class Offers:
    """Which offerings are launched for a partition; `None` for no restriction.

    Attributes:
        families: Families, as in the names of types.
        zones: Availability zones.
        purchase: Purchase options.
    """

    families: frozenset[str] | None = None
    zones: frozenset[str] | None = None
    purchase: frozenset[Purchase] | None = None

    def sells(self, offering: Offering) -> bool:
        """Whether an offering is launched for the partition."""
        return (
            (self.families is None or base_family(offering.type.family) in self.families)
            and (self.zones is None or offering.zone in self.zones)
            and (self.purchase is None or offering.purchase in self.purchase)
        )


@dataclass(frozen=True, slots=True)
class PartitionLimits:
    """How much a partition may have at a time; `None` for no limit of its own.

    Jobs and tasks count until they have ended.

    Attributes:
        jobs: Jobs.
        tasks: Tasks of these jobs.
        instances: Instances, those included that are being launched or given back.
    """

    jobs: int | None = None
    tasks: int | None = None
    instances: int | None = None


@dataclass(frozen=True, slots=True)
class Budget:
    """Spending limits in micro-dollars; `None` for no limit.

    A used-up budget stops launches. Nothing that runs is stopped for it.

    Attributes:
        per_hour: Limit of the sum of the prices of all instances at any time.
        per_month: Limit of spending in a calendar month, UTC.
    """

    per_hour: int | None = None
    per_month: int | None = None


@dataclass(frozen=True, slots=True)
class Rule:
    """Conditions on jobs that name no partition; a job that meets all of them runs here.

    Attributes:
        owners: Owners of the jobs; `None` for any.
        tenants: Tenants that the jobs are accounted to; `None` for any.
        workloads: Names, or beginnings of names that end in ``*``; of every task. `None` for any.
        labels: Keys and values of labels that the jobs have, all of them.
        most: Upper limit of each task's demand, on every family where it may run; `None` for none.
        spot: Whether the jobs may run on spot instances; `None` for either.
        below_ms: The run time of a task is known and less than this; `None` for any.
        above_ms: The run time of a task is known and at least this; `None` for any.
    """

    owners: OwnerPatterns | None = None
    tenants: frozenset[str] | None = None
    workloads: tuple[str, ...] | None = None
    labels: frozenset[tuple[str, str]] = frozenset()
    most: Resources | None = None
    spot: bool | None = None
    below_ms: int | None = None
    above_ms: int | None = None

    def matches(self, spec: JobSpec, expected_ms: int | None) -> bool:
        """Whether a job meets the conditions.

        Args:
            spec: The job.
            expected_ms: Run time of its longest task, `None` if unknown.
        """
        return (
            (self.owners is None or self.owners.match(spec.owner))
            and (self.tenants is None or spec.tenant in self.tenants)
            and all(self._workload(task.workload) for task in different(spec.tasks))
            and self.labels.issubset(spec.labels)
            and self._is_small(spec)
            and (self.spot is None or self.spot == _may_use_spot(spec))
            and self._lasts(expected_ms)
        )

    def _workload(self, name: str) -> bool:
        return self.workloads is None or any(
            name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern
            for pattern in self.workloads
        )

    def _is_small(self, spec: JobSpec) -> bool:
        most = self.most
        return most is None or all(
            need.fits(most) for task in different(spec.tasks) for _, need in task.demand
        )

    def _lasts(self, expected_ms: int | None) -> bool:
        if self.below_ms is None and self.above_ms is None:
            return True
        if expected_ms is None:
            return False
        return (self.below_ms is None or expected_ms < self.below_ms) and (
            self.above_ms is None or expected_ms >= self.above_ms
        )


def _may_use_spot(spec: JobSpec) -> bool:
    return any(is_spot(family) for task in different(spec.tasks) for family, _ in task.demand)


_OUTLASTED = 2
"""A short task that has run for so many times what is less than long is long."""


@dataclass(frozen=True, slots=True)
class ShortJobs:
    """Definition of a short job, where short jobs have a policy of their own.

    Attributes:
        below_ms: A job is short if its tasks take less, unless its user says otherwise.
        spot: Whether short jobs that do not mention spot instances may run on them.
    """

    below_ms: int
    spot: bool = True

    def has(self, latency: Latency, task_ms: int | None) -> bool:
        """Whether a job is short.

        Args:
            latency: The user's statement.
            task_ms: Median of its tasks' run times, as expected or stated. A job with `None` is not
                short.
        """
        if latency is not Latency.AUTO:
            return latency is Latency.SHORT
        return task_ms is not None and task_ms < self.below_ms

    def outlasted(self, ran_ms: int) -> bool:
        """Whether a task of a short job that has run so long that it now counts as long."""
        return ran_ms >= _OUTLASTED * self.below_ms

    def doubts(self, spec: JobSpec) -> tuple[str, ...]:
        """Remarks for a user whose job file may not say what was meant."""
        if spec.latency is not Latency.SHORT or (spec.duration_ms or 0) < self.below_ms:
            return ()
        return (self.explain(spec.latency, spec.duration_ms),)

    def explain(self, latency: Latency, task_ms: int | None) -> str:
        """Whether a job is short, and why, in words."""
        what = "short" if self.has(latency, task_ms) else "long"
        reason = "it is not known how long its tasks take"
        if task_ms is not None:
            reason = f"its tasks are expected to take {_seconds(task_ms)}"
        why = f"{reason}, and short ones take less than {_seconds(self.below_ms)} here"
        if latency is not Latency.AUTO:
            return f"it counts as {what}, since its job file says so; {why}"
        return f"it counts as {what}: {why}"


def _seconds(ms: int) -> str:
    return f"{ms / 1000:,g} s"


@dataclass(frozen=True, slots=True)
class Partition:
    """A part of the cluster.

    Attributes:
        name: Empty for the whole of a cluster that is not divided.
        policy: Name of its policy, for users.
        offers: Offerings that may be launched for it.
        nodes: Names of its owned nodes; all other nodes are the default partition's.
        owned: The offerings of all of its nodes, see `with_nodes`; `None` if no partition names
            nodes, and all are the default partition's.
        limits: Limits of its size.
        budget: Limits of its spending.
        submitters: Users who may run jobs in it; `None` for everybody.
        rule: Condition for jobs that name no partition to run here; `None` for no job.
        default: Whether jobs that match no rule run here.
        round_grid_ms: Plans are requested at multiples of this only; 0 for at any time.
        short: Definition of short jobs; `None` if they are treated like others.
        forking: How its policy forks jobs; `None` if users decide that.
        keys: Optional job-file keys that its policies read; `None` if a policy does not say.
        packs: Whether its policy may put several tasks on one instance.
        own_order: Whether its policy orders jobs by itself, so that no deadline puts a job before
            others of equal priority.
        lends: Whether its policy holds tenants to their quotas itself, and may lend what they
            leave.
    """

    name: str = ""
    policy: str = ""
    offers: Offers = Offers()
    nodes: frozenset[InstanceId] = frozenset()
    owned: frozenset[OfferingId] | None = None
    limits: PartitionLimits = PartitionLimits()
    budget: Budget = Budget()
    submitters: OwnerPatterns | None = None
    rule: Rule | None = None
    default: bool = False
    round_grid_ms: int = 0
    short: ShortJobs | None = None
    forking: Forking | None = None
    keys: KeysRead | None = None
    packs: bool = True
    own_order: bool = False
    lends: bool = False

    def led_like(self, other: Partition) -> Partition:
        """This partition with all that the policy of another one makes of jobs."""
        return replace(
            self,
            short=other.short,
            forking=other.forking,
            keys=other.keys,
            packs=other.packs,
            own_order=other.own_order,
            lends=other.lends,
        )

    def unread(self, spec: JobSpec) -> tuple[str, ...]:
        """Keys that a job states and that no policy here reads, in words."""
        return () if self.keys is None else tuple(self.keys.notes(spec))

    @property
    def bounded(self) -> bool:
        """Whether it has a limit of instances or a budget."""
        return self.limits.instances is not None or self.budget != Budget()

    def allows_spot(self, spec: JobSpec) -> bool:
        """Whether a job that says nothing of spot instances may run on them."""
        if self.short is None or (spec.kind is JobKind.GANG and len(spec.tasks) > 1):
            return False
        return self.short.spot and self.short.has(spec.latency, spec.duration_ms)

    def sells(self, offering: Offering) -> bool:
        """Whether its policy may use an offering."""
        if offering.purchase is Purchase.OWNED:
            return self.default if self.owned is None else offering.id in self.owned
        return self.offers.sells(offering)

    def sold(self, catalog: Catalog) -> Catalog:
        """The part of a catalog that its policy may use."""
        return tuple(filter(self.sells, catalog))

    def admits(self, owner: str) -> bool:
        """Whether somebody may run jobs in it; operators may in each."""
        return self.submitters is None or self.submitters.match(owner)


UNDIVIDED_CLUSTER = Partition(default=True)
"""A cluster that is not divided, as one partition."""


@dataclass(frozen=True, slots=True)
class Partitions:
    """Division of a cluster into partitions.

    Attributes:
        parts: In the order of their rules, exactly one of them the default; empty if the cluster is
            not divided.
        whole: The cluster as one partition, as which it counts if it is not divided.
    """

    parts: tuple[Partition, ...] = ()
    whole: Partition = UNDIVIDED_CLUSTER
    _named: Mapping[str, Partition] = field(init=False, repr=False, compare=False)
    _default: Partition = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_named", {part.name: part for part in self.parts})
        default = next((part for part in self.parts if part.default), self.whole)
        object.__setattr__(self, "_default", default)

    @property
    def divided(self) -> bool:
        """Whether the cluster has partitions."""
        return bool(self.parts)

    @property
    def all(self) -> tuple[Partition, ...]:
        """All partitions; the whole as one if it is not divided."""
        return self.parts or (self._default,)

    @property
    def default(self) -> Partition:
        """The partition of all that belongs to no other one."""
        return self._default

    @property
    def ask_for_time(self) -> bool:
        """Whether a rule asks how long a job's tasks take."""
        rules = (part.rule for part in self.parts if part.rule is not None)
        return any(rule.below_ms is not None or rule.above_ms is not None for rule in rules)

    def __contains__(self, name: str) -> bool:
        return name in self._named

    def home(self, name: str) -> Partition:
        """The partition to which a name on record leads; one that is no more, to the default."""
        return self._named.get(name, self._default)

    def of_node(self, node: InstanceId) -> Partition:
        """The partition of an owned node."""
        return next((part for part in self.parts if node in part.nodes), self._default)

    def chosen(self, spec: JobSpec, expected_ms: int | None) -> str:
        """The partition of a job that names none: the first whose rule matches.

        Args:
            spec: The job.
            expected_ms: Run time of its longest task, `None` if unknown.
        """
        names = (
            part.name
            for part in self.parts
            if part.rule is not None
            and part.admits(spec.owner)
            and part.rule.matches(spec, expected_ms)
        )
        return next(names, self._default.name)


def with_nodes(
    parts: Iterable[Partition],
    nodes: Mapping[InstanceId, OfferingId],
    whole: Partition = UNDIVIDED_CLUSTER,
) -> Partitions:
    """Divide a cluster so that each owned node belongs to one partition.

    Args:
        parts: See `Partitions`.
        nodes: The offerings that the declared nodes stand for, by name.
        whole: See `Partitions`.
    """
    divided = Partitions(tuple(parts), whole)
    owned: dict[str, set[OfferingId]] = {}
    for node, offering in nodes.items():
        owned.setdefault(divided.of_node(node).name, set()).add(offering)
    return Partitions(
        tuple(replace(part, owned=frozenset(owned.get(part.name, ()))) for part in divided.parts),
        whole,
    )


WHOLE = Partitions()
"""A cluster that is not divided."""
