"""A fleet of owned servers of several GPU types, as papers on schedulers have it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eva_lab.simulator.scenario.fixed_cluster import FENCE_MS, SERVER_PRICE
from eva_master.model.catalog import Gpu, InstanceType, Offering, Purchase
from eva_master.model.fleet.nodes import NODE_ZONE, OwnedNode
from eva_master.model.resources import Resources
from eva_master.model.trace import GPU_SLOT
from eva_wire.values.ids import Family, InstanceId, Price


@dataclass(frozen=True, slots=True)
class Servers:
    """Servers of one GPU type.

    Attributes:
        servers: How many.
        gpus: Of each, with a slot for a task beside each GPU.
        price: Of one, in micro-dollars per hour.
        gpu_bandwidth: Memory bandwidth of a GPU in GB/s, 0 if it is not known.
        gpu: Data sheet of its GPUs, `None` if unknown.
    """

    family: Family
    servers: int
    gpus: int
    price: Price = SERVER_PRICE
    gpu_bandwidth: int = 0
    gpu: Gpu | None = None


def fleet_nodes(fleet: Sequence[Servers]) -> tuple[OwnedNode, ...]:
    """The servers as owned nodes, which are there from the beginning to the end."""
    nodes = []
    for kind in fleet:
        room = Resources(
            kind.gpus, GPU_SLOT.milli_cpus * kind.gpus, GPU_SLOT.memory_mib * kind.gpus
        )
        machine = InstanceType(
            f"{kind.family}.{kind.gpus}",
            kind.family,
            room,
            gpu_bandwidth=kind.gpu_bandwidth,
            gpu=kind.gpu,
        )
        offering = Offering(machine, kind.price, NODE_ZONE, Purchase.OWNED)
        for number in range(kind.servers):
            nodes.append(OwnedNode(InstanceId(f"{kind.family}-{number:05d}"), offering, FENCE_MS))
    return tuple(nodes)
