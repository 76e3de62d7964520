"""A cluster of so many servers, some of them for short tasks, as papers on schedulers have it."""

from __future__ import annotations

from dataclasses import dataclass

from eva_master.model.catalog import Catalog, InstanceType, Offering, Purchase, spot_family
from eva_master.model.fleet.nodes import NODE_ZONE, OwnedNode
from eva_master.model.resources import Resources
from eva_master.model.trace import SLOT
from eva_wire.values.ids import Family, InstanceId, Price

FENCE_MS = 600_000
"""Fencing time of a simulated node; none of them is ever cut off."""
_ZONE = "fixed"
SERVER_PRICE = Price(1_000_000)
"""Price of a server without a known one: a dollar per hour."""


@dataclass(frozen=True, slots=True)
class FixedCluster:
    """Servers of one slot each.

    All servers but those for short tasks are owned nodes, which are there from the beginning to the
    end and cost what servers on demand cost. Servers for short tasks can be bought, and so can
    transient ones in their place.

    Attributes:
        servers: All of them.
        short: How many of them are for short tasks alone.
        price: Of one, in micro-dollars per hour.
        spot_ratio: How many times as much it costs as a transient one.
        provisioning_ms: From the request of a server until it runs tasks.
        slots_per_node: So many of the servers that are always there are one machine.
    """

    servers: int
    short: int
    price: Price = SERVER_PRICE
    spot_ratio: float = 3.0
    provisioning_ms: int = 120_000
    slots_per_node: int = 1

    @property
    def catalog(self) -> Catalog:
        """Offerings: a server on demand, and a transient one."""
        family = Family("server")
        steady = Offering(
            InstanceType("server.1", family, SLOT, acquisition_ms=self.provisioning_ms),
            self.price,
            _ZONE,
        )
        machine = InstanceType(
            "server.1", spot_family(family), SLOT, acquisition_ms=self.provisioning_ms
        )
        price = Price(int(self.price / self.spot_ratio))
        return steady, Offering(machine, price, _ZONE, Purchase.SPOT)

    @property
    def nodes(self) -> tuple[OwnedNode, ...]:
        """The servers that are always there; the last one may be smaller."""
        rest = self.servers - self.short
        owned_nodes: list[OwnedNode] = []
        while rest > 0:
            slots = min(rest, self.slots_per_node)
            name = InstanceId(f"node{len(owned_nodes):05d}")
            owned_nodes.append(OwnedNode(name, self._node(slots), FENCE_MS))
            rest -= slots
        return tuple(owned_nodes)

    def _node(self, slots: int) -> Offering:
        room = Resources(0, SLOT.milli_cpus * slots, SLOT.memory_mib * slots)
        machine = InstanceType(f"node.{slots}", Family("node"), room)
        return Offering(machine, Price(self.price * slots), NODE_ZONE, Purchase.OWNED)
