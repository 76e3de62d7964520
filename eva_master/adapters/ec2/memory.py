"""How much of an instance's memory tasks may use."""

from __future__ import annotations

from dataclasses import replace

from eva_master.model.catalog import Offering

RESERVED_MIB = 400
"""For the system, the container engine and the worker."""
_GUEST_PER_MILLE = 925
"""Share of the listed memory that a guest sees, until it has been measured.

The rest is the hypervisor's and the kernel's. Karpenter assumes the same share.
"""


def offered_mib(listed_mib: int) -> int:
    """Mebibytes that tasks may use of a type before an instance of it was measured."""
    return max(listed_mib * _GUEST_PER_MILLE // 1000 - RESERVED_MIB, listed_mib // 8, 1)


def for_tasks(offering: Offering) -> Offering:
    """An offering of what tasks may use of a type, rather than of what it is listed with."""
    machine = offering.type
    memory = offered_mib(machine.capacity.memory_mib)
    capacity = replace(machine.capacity, memory_mib=memory)
    return replace(offering, type=replace(machine, capacity=capacity))
