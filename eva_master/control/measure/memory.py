"""From what workers measure to how much memory and disk of a type tasks are given."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace

from eva_master.control.measure import ledger
from eva_master.control.state.store import State
from eva_master.model.catalog import Offering, Purchase
from eva_master.model.records import Instance
from eva_wire.values.ids import InstanceId, Millis
from eva_wire.values.states import JobState


def heard(state: State, name: InstanceId, mib: int, now: Millis) -> bool:
    """Learn the memory that tasks may use on a machine; return whether a plan may depend on it.

    Args:
        state: The state.
        name: The instance whose worker has registered.
        mib: The measured memory, 0 if not measured.
        now: The time.
    """
    machine = state.instances[name].offering.type.name
    if (learned := state.sizes.heard(machine, mib)) is not None:
        state.remember(learned)
    return _fit(state, state.instances[name], now)


def heard_disk(state: State, name: InstanceId, mib: int) -> bool:
    """Learn the disk of an owned node; return whether a plan may depend on it.

    Args:
        state: The state.
        name: The node whose worker has registered.
        mib: Size of its disk, 0 if not measured.
    """
    machine = state.instances[name].offering.type
    if (learned := state.sizes.heard_disk(machine.name, mib)) is not None:
        state.remember(learned)
    if machine.capacity.disk_mib == state.sizes.disks.get(machine.name, machine.capacity.disk_mib):
        return False
    fit(state)
    return True


def relax(state: State, gone: Instance, now: Millis) -> None:
    """Go back to the size that a type is to have, should tasks on an instance have had more."""
    _fit(state, gone, now)


def _fit(state: State, instance: Instance, now: Millis) -> bool:
    """Have sizes apply if an instance has another one than its type is to have."""
    machine = instance.offering.type
    if state.sizes.wanted(machine.name) in (None, machine.capacity.memory_mib):
        return False
    # Shares of an instance's price are booked as they were.
    for name in tuple(state.live):
        ledger.book(state, name, now)
    fit(state)
    return True


def fit(state: State) -> None:
    """Give offerings and live instances the sizes that they are to have.

    No type becomes smaller than what tasks take, or are about to take, of an instance of it, nor
    than a task of a job that was submitted when it was larger: a task that runs could have no place
    then, not even its own.
    """
    least, disks = _taken(state), _disks(state)
    for machine, mib in _promised(state):
        least[machine] = max(least[machine], mib)
    sizes = {
        machine: max(state.sizes.wanted(machine) or 0, least[machine])
        for machine in state.sizes.listed
    }
    catalog = tuple(_sized(offering, sizes, disks) for offering in state.catalog)
    if catalog != state.catalog:
        state.set_catalog(catalog)
    for name in tuple(state.live):
        instance = state.instances[name]
        offering = _sized(instance.offering, sizes, disks)
        if offering is not instance.offering:
            state.put_instance(replace(instance, offering=offering))


def _taken(state: State) -> defaultdict[str, int]:
    """The most memory that tasks take on one instance of a type."""
    taken: defaultdict[str, int] = defaultdict(int)
    for name in state.live:
        instance = state.instances[name]
        machine = instance.offering.type.name
        runs = {run.id: run for run in (*state.occupants(name), *state.places.targeting(name))}
        demand = state.demand(runs.values(), instance).memory_mib
        taken[machine] = max(taken[machine], demand)
    return taken


def _disks(state: State) -> dict[str, int]:
    """Disk of types of owned nodes whose disk is measured, and no less than tasks take there."""
    disks = dict(state.sizes.disks)
    for name in state.live if disks else ():
        instance = state.instances[name]
        machine = instance.offering.type.name
        if machine in disks and instance.offering.purchase is Purchase.OWNED:
            runs = {run.id: run for run in (*state.occupants(name), *state.places.targeting(name))}
            disks[machine] = max(disks[machine], state.demand(runs.values(), instance).disk_mib)
    return disks


def _promised(state: State) -> Iterator[tuple[str, int]]:
    """Types that are smaller than listed, and tasks that only what is listed could hold."""
    for machine in {offering.type for offering in state.catalog}:
        listed, now = state.sizes.listed[machine.name], state.sizes.wanted(machine.name)
        if now is None or now >= listed:
            continue
        jobs = (state.jobs[job] for job in state.active)
        for job in (job for job in jobs if job.state is not JobState.ENDING):
            for task in state.tasks.kinds(job.id):
                need = task.demand_on(machine.family)
                if need is not None and now < need.memory_mib <= listed:
                    yield machine.name, need.memory_mib


def _sized(offering: Offering, sizes: Mapping[str, int], disks: Mapping[str, int]) -> Offering:
    capacity, name = offering.type.capacity, offering.type.name
    if offering.purchase is Purchase.OWNED:  # Its operator states the memory.
        sized = replace(capacity, disk_mib=disks.get(name, capacity.disk_mib))
    else:
        sized = replace(capacity, memory_mib=sizes.get(name, capacity.memory_mib))
    if sized == capacity:
        return offering
    return replace(offering, type=replace(offering.type, capacity=sized))
