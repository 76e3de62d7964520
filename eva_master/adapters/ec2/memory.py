"""How much of an instance's memory tasks may use, how much disk they may have, and its price."""

from __future__ import annotations

from dataclasses import replace

from eva_master.adapters.ec2.settings import MOST_VOLUME_GIB
from eva_master.model.catalog import Attached, Offering, with_attached

RESERVED_MIB = 400
"""For the system, the container engine and the worker."""
_GUEST_PER_MILLE = 925
"""Share of the listed memory that a guest sees, until it has been measured.

The rest is the hypervisor's and the kernel's. Karpenter assumes the same share.
"""


def offered_mib(listed_mib: int) -> int:
    """Mebibytes that tasks may use of a type before an instance of it was measured."""
    return max(listed_mib * _GUEST_PER_MILLE // 1000 - RESERVED_MIB, listed_mib // 8, 1)


def for_tasks(offering: Offering, attached: Attached) -> Offering:
    """An offering of what tasks may use of a type, and at the price of all that is launched.

    Args:
        offering: A type as AWS lists it.
        attached: The root volume and the address of its instances.
    """
    machine = offering.type
    memory = offered_mib(machine.capacity.memory_mib)
    disk = 1024 * max(0, MOST_VOLUME_GIB - attached.root_gib)
    capacity = replace(machine.capacity, memory_mib=memory, disk_mib=disk)
    sized = replace(offering, type=replace(machine, capacity=capacity, sized_disk=True))
    return with_attached(sized, attached)
