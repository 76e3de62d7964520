"""From what workers measure to how much memory instances of a type are given tasks for."""

from __future__ import annotations

from eva_master.control.measure import ledger
from eva_master.control.state import sizes
from eva_master.control.state.store import State
from eva_master.model.ids import InstanceId, Millis
from eva_master.model.records import Instance


def heard(state: State, name: InstanceId, mib: int, now: Millis) -> bool:
    """Learn what tasks may use of a machine; returns whether a plan may depend on it.

    Args:
        state: The state.
        name: The instance whose worker has registered.
        mib: What it has measured, 0 if it has not.
        now: The time.
    """
    machine = state.instances[name].offering.type.name
    if (learned := state.sizes.heard(machine, mib)) is not None:
        state.set_sizes(learned)
    return _fit(state, state.instances[name], now)


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
    sizes.fit(state)
    return True
