"""Owned nodes: machines that no cloud launches or terminates, and the lease that fences them.

No cloud can confirm that such a machine is gone. So its agent holds a lease, which every word of a
master renews, and stops its tasks when the lease has run out. The master takes the node for empty
some time after that, and not before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from eva_master.model.catalog import Catalog, Offering, tally
from eva_master.model.values import replace
from eva_wire.values.ids import InstanceId, OfferingId

NODE_ZONE = "nodes"
"""The zone of the offerings that owned nodes stand for."""
_LEAST_MARGIN_MS = 10_000
_MARGIN_PARTS = 10


@dataclass(frozen=True, slots=True)
class OwnedNode:
    """A machine that the operator declares.

    Attributes:
        name: Its name, which is its instance id too.
        offering: Type, capacity and price; its purchase option is `Purchase.OWNED`.
        fence_ms: So long after the last word of a master its agent has stopped its tasks.
    """

    name: InstanceId
    offering: Offering
    fence_ms: int


@dataclass(frozen=True, slots=True)
class NodeTotals:
    """Sums over the owned nodes of a partition, be they up or not.

    Attributes:
        count: Their number.
        per_hour: Their prices together, in micro-dollars.
        of_offering: Their number by offering.
    """

    count: int = 0
    per_hour: int = 0
    of_offering: Mapping[OfferingId, int] = field(default_factory=dict)

    @classmethod
    def of(cls, nodes: Iterable[OwnedNode]) -> NodeTotals:
        """The totals of the nodes of one partition."""
        sold = [node.offering for node in nodes]
        return cls(len(sold), sum(offering.price for offering in sold), tally(sold))


class NodeVerb(StrEnum):
    """Requests that an operator may make about an owned node."""

    DRAIN = "drain"
    """Give it no new tasks; tasks there finish."""
    RESUME = "resume"
    """Give it tasks again."""
    GONE = "gone"
    """Count it as gone: the operator has made sure that nothing runs there any more."""
    REMOVE = "remove"
    """Remove it from the cluster; only a new token lets it return."""


def taken_for_empty_ms(fence_ms: int) -> int:
    """Time from the last word to a node's agent until nothing runs on the node any more.

    The margin is for the clocks of two machines, which may differ in pace, and for the time that
    it takes to kill.
    """
    return fence_ms + max(_LEAST_MARGIN_MS, fence_ms // _MARGIN_PARTS)


def offerings(nodes: Iterable[OwnedNode]) -> Catalog:
    """Offerings for the nodes, one per type, limited to the number of nodes of that type."""
    nodes = tuple(nodes)
    counts = Counter(node.offering.id for node in nodes)
    types = {node.offering.id: node.offering for node in nodes}
    return tuple(replace(types[name], limit=count) for name, count in counts.items())
