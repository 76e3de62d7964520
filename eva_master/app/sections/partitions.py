"""The section of the settings that divides the cluster into partitions."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from eva_master.app.sections.base import Entry, Most, PolicySection, Section, Usd
from eva_master.model.accounting.tenants import OwnerPatterns
from eva_master.model.catalog import Catalog, Purchase, base_family
from eva_master.model.fleet.partitions import (
    Budget,
    Offers,
    Partition,
    PartitionLimits,
    Rule,
    is_partition,
    with_nodes,
)
from eva_master.model.resources import Resources
from eva_wire.jobfile.schema import Labels
from eva_wire.settings.refusals import refusal
from eva_wire.text.quantities import Duration, MilliCpus, Size
from eva_wire.text.yamlfile import suggestion
from eva_wire.values.ids import MILLION, InstanceId, OfferingId

Complaint = tuple[tuple[str | int, ...], str, str]
"""Where in the settings, what is wrong, and what to do about it."""

MOST_PARTITIONS = 16
_AS_MANY_AS_THERE_ARE = 10**15


def _check_name(name: str) -> str:
    if not is_partition(name):
        raise refusal(
            f"{name!r} cannot name a partition",
            "use letters, digits and '.', '_', '-', at most 63 of them",
        )
    return name


def _check_workload(text: str) -> str:
    if not text or "*" in text[:-1]:
        raise refusal(f"{text!r} names no workload", "write etl, or etl-* for all that begin so")
    return text


PartitionName = Annotated[str, AfterValidator(_check_name)]
Names = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(min_length=1)]
Entries = Annotated[tuple[Entry, ...], Field(min_length=1)]
WorkloadPattern = Annotated[str, AfterValidator(_check_workload)]


class OfferingsSection(Section):
    """Which offerings are launched for a partition.

    Attributes:
        families: Families of instance types; all if absent.
        zones: Availability zones; all if absent.
        purchase: ``on-demand``, ``spot``; both if absent.
        nodes: Owned nodes that are its own; those that no partition names are the default one's.
            If it says nothing else, nothing is launched beside them.
    """

    families: Names | None = None
    zones: Names | None = None
    purchase: Annotated[tuple[Literal["on-demand", "spot"], ...], Field(min_length=1)] | None = None
    nodes: Names | None = None

    def offers(self) -> Offers:
        """Offerings that are launched for the partition."""
        launched = (self.families, self.zones, self.purchase)
        if self.nodes is not None and launched == (None, None, None):
            return Offers(purchase=frozenset())
        purchase = None if self.purchase is None else frozenset(map(Purchase, self.purchase))
        return Offers(_set(self.families), _set(self.zones), purchase)


class PartitionLimitsSection(Section):
    """How much a partition may have at a time.

    Attributes:
        jobs: Its unfinished jobs.
        tasks: The tasks of these.
        instances: Its instances.
    """

    jobs: Most | None = None
    tasks: Most | None = None
    instances: Most | None = None


class BudgetSection(Section):
    """Spending limits; a budget that is used up stops launches, not running tasks.

    Attributes:
        usd_per_hour: The prices of all instances at a time, together.
        usd_per_month: Limit of all instances' costs in a calendar month, UTC.
    """

    usd_per_hour: Usd | None = None
    usd_per_month: Usd | None = None


class MostSection(Section):
    """Upper bounds of each task's demand.

    Attributes:
        gpus: Whole GPUs.
        cpus: vCPUs.
        memory: With its unit.
    """

    gpus: Annotated[int, Field(ge=0, le=1_024, strict=True)] | None = None
    cpus: Annotated[MilliCpus, Field(gt=0)] | None = None
    memory: Annotated[Size, Field(gt=0)] | None = None


class DurationSection(Section):
    """How long one task takes, as stated by the user or known of earlier tasks.

    Attributes:
        below: Less than this.
        above: At least this.
    """

    below: Annotated[Duration, Field(gt=0)] | None = None
    above: Annotated[Duration, Field(gt=0)] | None = None

    @model_validator(mode="after")
    def _can_hold(self) -> DurationSection:
        if self.below is not None and self.above is not None and self.above >= self.below:
            raise refusal("no duration is above and below these", "write above: 1m, below: 10m")
        return self


class RuleSection(Section):
    """Which jobs come into a partition that name none: those for which all of it holds.

    Attributes:
        owners: Names of owners, and patterns with one ``*``.
        tenants: Names of tenants.
        workloads: Names, or beginnings of names followed by ``*``.
        labels: Labels that they have, all of them.
        most: Upper bounds of each of their tasks' demand.
        spot: Whether they may run on spot instances.
        duration: How long one task takes; a job of which that is not known does not match.
    """

    owners: Entries | None = None
    tenants: Names | None = None
    workloads: Annotated[tuple[WorkloadPattern, ...], Field(min_length=1)] | None = None
    labels: Annotated[Labels, Field(min_length=1)] | None = None
    most: MostSection | None = None
    spot: Annotated[bool, Field(strict=True)] | None = None
    duration: DurationSection | None = None

    @model_validator(mode="after")
    def _says_something(self) -> RuleSection:
        if not self.model_dump(exclude_none=True):
            raise refusal(
                "this rule holds for every job", "say which jobs, or write `default: true` instead"
            )
        return self

    def rule(self) -> Rule:
        """The rule that it describes."""
        most, duration = self.most, self.duration
        return Rule(
            owners=None if self.owners is None else OwnerPatterns(self.owners),
            tenants=None if self.tenants is None else frozenset(self.tenants),
            workloads=self.workloads,
            labels=frozenset((self.labels or {}).items()),
            most=None if most is None else _resources(most),
            spot=self.spot,
            below_ms=None if duration is None else duration.below,
            above_ms=None if duration is None else duration.above,
        )


class PartitionSection(Section):
    """A part of the cluster.

    Attributes:
        policy: Which scheduler decides here; that of the cluster if absent.
        offerings: Offerings that are launched for it.
        limits: How much it may have; the limits of the cluster hold besides.
        budget: Its spending limits.
        submitters: Users of the partition: names of owners, and patterns with one ``*``; everybody
            if absent.
        rule: Which jobs come here that name no partition.
        default: Whether jobs come here that no rule matches; of exactly one partition.
    """

    policy: PolicySection | None = None
    offerings: OfferingsSection = OfferingsSection()
    limits: PartitionLimitsSection = PartitionLimitsSection()
    budget: BudgetSection = BudgetSection()
    submitters: Entries | None = None
    rule: RuleSection | None = None
    default: Annotated[bool, Field(strict=True)] = False

    def partition(self, name: str, policy: str, round_grid_ms: int) -> Partition:
        """The partition that it describes.

        Args:
            name: Of the partition.
            policy: Name of its policy, for users.
            round_grid_ms: At multiples of which time its policy likes to plan.
        """
        return Partition(
            name=name,
            policy=policy,
            offers=self.offerings.offers(),
            nodes=frozenset(map(InstanceId, self.offerings.nodes or ())),
            limits=PartitionLimits(**self.limits.model_dump()),
            budget=Budget(_micro(self.budget.usd_per_hour), _micro(self.budget.usd_per_month)),
            submitters=None if self.submitters is None else OwnerPatterns(self.submitters),
            rule=None if self.rule is None else self.rule.rule(),
            default=self.default,
            round_grid_ms=round_grid_ms,
        )


def _resources(most: MostSection) -> Resources:
    endless = _AS_MANY_AS_THERE_ARE
    return Resources(
        endless if most.gpus is None else most.gpus,
        endless if most.cpus is None else most.cpus,
        endless if most.memory is None else most.memory,
    )


def _set(values: tuple[Any, ...] | None) -> frozenset[Any] | None:
    return None if values is None else frozenset(values)


def _micro(amount: Decimal | None) -> int | None:
    return None if amount is None else int(amount * MILLION)


def contradictions(
    sections: Mapping[str, PartitionSection], tenants: tuple[str, ...], nodes: Collection[str]
) -> Iterator[Complaint]:
    """Contradictions between the partitions.

    Args:
        sections: By name.
        tenants: The names of all tenants.
        nodes: The names of all owned nodes.
    """
    yield from _alike(sections)
    yield from _misnamed_nodes(sections, nodes)
    defaults = [name for name, section in sections.items() if section.default]
    if sections and not defaults:
        yield (
            ("partitions",),
            "no partition is for the jobs that no rule matches",
            "write `default: true` in one of them",
        )
    for name in defaults[1:]:
        message = f"{defaults[0]!r} is the default partition already"
        yield ("partitions", name, "default"), message, "leave one of the two"
    for name, section in sections.items():
        if section.default and section.submitters is not None:
            yield (
                ("partitions", name, "submitters"),
                "jobs that no rule matches come into the default partition, whoever submits them",
                "leave it out, or make another partition the default",
            )
        for at, tenant in enumerate((section.rule and section.rule.tenants) or ()):
            if tenant not in tenants:
                yield (
                    ("partitions", name, "rule", "tenants", at),
                    f"there is no tenant {tenant!r}",
                    suggestion(tenant, tenants) or f"known: {', '.join(tenants)}",
                )


def _alike(sections: Mapping[str, PartitionSection]) -> Iterator[Complaint]:
    first: dict[str, str] = {}
    for name in sections:
        other = first.setdefault(name.casefold(), name)
        if other != name:
            message = f"{name!r} and {other!r} differ in upper and lower case alone"
            yield ("partitions", name), message, "give one of them another name"


def _misnamed_nodes(
    sections: Mapping[str, PartitionSection], nodes: Collection[str]
) -> Iterator[Complaint]:
    owner: dict[str, str] = {}
    for name, section in sections.items():
        for at, node in enumerate(section.offerings.nodes or ()):
            path = ("partitions", name, "offerings", "nodes", at)
            if node not in nodes:
                declared = sorted(nodes)
                hint = (
                    suggestion(node, declared) or f"declared: {', '.join(declared[:8]) or 'none'}"
                )
                yield path, f"there is no owned node {node!r} under `nodes:`", hint
            elif owner.setdefault(node, name) != name:
                message = f"{node!r} is in partition {owner[node]!r} already"
                yield path, message, "a node is in one partition; leave one of the two"


def unsold(
    sections: Mapping[str, PartitionSection],
    catalog: Catalog,
    nodes: Mapping[InstanceId, OfferingId],
) -> Iterator[Complaint]:
    """Offerings that partitions ask for and no cloud sells.

    Args:
        sections: By name.
        catalog: Catalog of a cloud.
        nodes: The offerings that owned nodes stand for, by name.
    """
    divided = with_nodes(
        (section.partition(name, "", 0) for name, section in sections.items()), nodes
    )
    families = sorted({base_family(offering.type.family) for offering in catalog})
    zones = sorted({offering.zone for offering in catalog})
    for name, section in sections.items():
        offers, path = section.offerings, ("partitions", name, "offerings")
        missing = False
        for key, asked, sold in (
            ("families", offers.families, families),
            ("zones", offers.zones, zones),
        ):
            for at, wanted in enumerate(asked or ()):
                if wanted not in sold:
                    missing = True
                    hint = suggestion(wanted, sold) or f"known: {', '.join(sold[:8])}"
                    yield (*path, key, at), f"nothing is sold in {wanted!r}", hint
        part = divided.home(name)
        if (
            not missing
            and not part.owned
            and all(offering.limit == 0 for offering in part.sold(catalog))
        ):
            yield (
                path,
                f"partition {name!r} sells nothing of the catalog, so no job could run there",
                "allow more families, zones, ways of purchase or nodes; see: eva catalog",
            )
