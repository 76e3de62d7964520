"""The settings of owned nodes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from eva_master.adapters.catalog.gpus import Pcie, parse_gpu, sheet
from eva_master.model.catalog import Catalog, InstanceType, Offering, Purchase
from eva_master.model.fleet.nodes import NODE_ZONE, OwnedNode
from eva_master.model.resources import Resources
from eva_master.model.values import replace
from eva_wire.settings.refusals import between, refusal
from eva_wire.text.quantities import Duration, MilliCpus, Size
from eva_wire.values.ids import MILLION, Family, InstanceId, Price

_NAME = re.compile(r"[a-z][a-z0-9-]{0,39}")
_LAUNCHED = re.compile(r"i[0-9]+")
_TYPE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)?")
_LONGEST_TYPE = 40
_MOST_USD = 10**6
_FENCE_MS = 10_000, 86_400_000
_MOST_NODES = 10_000
FEWEST_BEATS = 3
"""A node is fenced after so many heartbeats at least: one or two are late on any busy machine."""

Complaint = tuple[tuple[str | int, ...], str, str]
"""Where in the settings something is wrong, what it is, and what to write instead."""


def _check_name(name: str) -> str:
    if not _NAME.fullmatch(name) or _LAUNCHED.fullmatch(name):
        raise refusal(
            f"{name!r} cannot name a node",
            "use a-z, 0-9 and '-', beginning with a letter; i00001 and the like are launched ones",
        )
    return name


def _check_type(name: str) -> str:
    if not _TYPE.fullmatch(name) or len(name) > _LONGEST_TYPE:
        raise refusal(f"{name!r} cannot name a type", "write FAMILY.SIZE, such as rack.large")
    return name


def _parse_usd(price: object) -> int:
    """Micro-dollars of a number of dollars, digit by digit."""
    try:
        if isinstance(price, bool) or not isinstance(price, (int, float, str)):
            raise InvalidOperation
        micros = Decimal(str(price)) * MILLION
        if not micros.is_finite() or micros != micros.to_integral_value():
            raise InvalidOperation
    except InvalidOperation:
        raise refusal(
            f"{price!r} is not a price", "write dollars per hour such as 0.35, or 0"
        ) from None
    if not 0 <= micros <= _MOST_USD * MILLION:
        raise refusal(f"{price!r} is not a price per hour", "write 0.35, or 0 for nothing")
    return int(micros)


class CapacitySection(BaseModel):
    """The capacity of a node for tasks.

    Attributes:
        gpu: Memory bandwidth of a GPU in GB/s, by its name or as stated; 0 if it is not stated.
        pcie: The generation of its PCIe bus.
        disk: Disk for tasks' files; if absent, what the node's worker measures.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    gpus: int = Field(default=0, ge=0, le=1_024, strict=True)
    gpu: Annotated[int, BeforeValidator(parse_gpu)] = 0
    pcie: Pcie | None = None
    cpus: Annotated[MilliCpus, Field(gt=0)]
    memory: Annotated[Size, Field(gt=0)]
    disk: Annotated[Size, Field(gt=0)] | None = None

    @property
    def resources(self) -> Resources:
        """The section as a value."""
        return Resources(self.gpus, self.cpus, self.memory, self.disk or 0)


class NodeSection(BaseModel):
    """An owned node.

    Attributes:
        type: Type for demands and speeds, as of an instance type: FAMILY.SIZE.
        capacity: Its capacity for tasks.
        usd_per_hour: Price while it is in the cluster, in micro-dollars.
        fence_after: So long after the last word of a master it has stopped its tasks.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    type: Annotated[str, AfterValidator(_check_type)]
    capacity: CapacitySection
    usd_per_hour: Annotated[int, BeforeValidator(_parse_usd)] = 0
    fence_after: Annotated[Duration, between(*_FENCE_MS, "10s and 1d", "10m")] = 600_000

    def node(self, name: str) -> OwnedNode:
        """The node as a value."""
        family = Family(self.type.partition(".")[0])
        room = self.capacity
        machine = InstanceType(
            self.type,
            family,
            room.resources,
            gpu_bandwidth=room.gpu,
            gpu=sheet(room.gpu, room.pcie),
        )
        offering = Offering(machine, Price(self.usd_per_hour), NODE_ZONE, Purchase.OWNED)
        return OwnedNode(InstanceId(name), offering, self.fence_after)


NodeSections = Annotated[
    dict[Annotated[str, AfterValidator(_check_name)], NodeSection], Field(max_length=_MOST_NODES)
]


def owned_nodes(sections: Mapping[str, NodeSection]) -> dict[InstanceId, OwnedNode]:
    """The declared nodes, by name."""
    return {InstanceId(name): section.node(name) for name, section in sections.items()}


def contradictions(sections: Mapping[str, NodeSection]) -> list[Complaint]:
    """Nodes of one type that are stated to be different."""
    first: dict[str, str] = {}
    complaints: list[Complaint] = []
    for name, section in sections.items():
        other = first.setdefault(section.type, name)
        for key in ("capacity", "usd_per_hour"):
            if getattr(section, key) != getattr(sections[other], key):
                complaints.append(
                    (
                        ("nodes", name, key),
                        f"{name} and {other} are both of type {section.type}, and differ in this",
                        "give one of them a type of its own",
                    )
                )
    return complaints


def short_fences(sections: Mapping[str, NodeSection], heartbeat_ms: int) -> list[Complaint]:
    """Nodes that would stop their tasks because a few signs of life are late."""
    return [
        (
            ("nodes", name, "fence_after"),
            f"it is less than {FEWEST_BEATS} heartbeats of {heartbeat_ms / 1000:g}s",
            f"write {FEWEST_BEATS * heartbeat_ms / 1000:g}s or more, or a shorter `heartbeat`",
        )
        for name, section in sections.items()
        if section.fence_after < FEWEST_BEATS * heartbeat_ms
    ]


def clashes(sections: Mapping[str, NodeSection], catalog: Catalog) -> list[Complaint]:
    """Nodes of a type that a cloud sells with another capacity."""
    sold: dict[str, Resources] = {
        offering.type.name: _without_disk(offering.type.capacity) for offering in catalog
    }
    stated = {name: _without_disk(section.capacity.resources) for name, section in sections.items()}
    names: Sequence[str] = [
        name
        for name, section in sections.items()
        if sold.get(section.type, stated[name]) != stated[name]
    ]
    return [
        (
            ("nodes", name, "type"),
            f"the cloud sells {sections[name].type} with {sold[sections[name].type]}",
            "state that capacity, or give the node a type of its own",
        )
        for name in names
    ]


def _without_disk(capacity: Resources) -> Resources:
    """A capacity to compare with others: instances of a cloud have disks of their own."""
    return replace(capacity, disk_mib=0)
