"""Sends tasks back to where they run, where an equal instance would do as well."""

from __future__ import annotations

from collections.abc import Sequence
from math import isqrt

import numpy as np
from scipy.optimize import linear_sum_assignment  # type: ignore[import-untyped]

from eva_master.packing.configuration.build import Configuration
from eva_master.packing.local_search.trial import Trial
from eva_master.packing.local_search.working_configuration import (
    InstanceSlot,
    WorkingConfiguration,
)
from eva_master.packing.round_work import WorkBudget, WorkKind


def finished(
    working: WorkingConfiguration, start: Configuration, budget: WorkBudget | None = None
) -> Configuration:
    """The configuration of a search, with as few moves as its instances and the budget allow.

    Args:
        working: The search's result, which is changed.
        start: The configuration that the search began with.
        budget: Work that may still be done.
    """
    send_home(working, budget or WorkBudget())
    return working.configuration(start)


def send_home(working: WorkingConfiguration, budget: WorkBudget) -> None:
    """Exchange what is on instances of one offering for what it costs least to move there."""
    alike: dict[int, list[InstanceSlot]] = {}
    strays = working.strays()
    for slot in working.slots:
        if len(slot.movable) < len(slot.load.classes):
            continue  # what is pinned stays
        if slot.instance is None and not slot.empty:
            alike.setdefault(1 << slot.load.cheapest, []).append(slot)
        elif slot.instance is not None and (slot.empty or slot in strays):
            alike.setdefault(slot.bit, []).append(slot)
    for bit, slots in alike.items():
        foremost = _foremost(working, slots, isqrt(budget.affords(WorkKind.EXCHANGED)))
        if len(foremost) > 1:
            budget.spend(WorkKind.EXCHANGED, len(foremost) ** 2)
            _exchange(working, foremost, working.launch_costs[bit.bit_length() - 1])


def _foremost(
    working: WorkingConfiguration, slots: Sequence[InstanceSlot], most: int
) -> Sequence[InstanceSlot]:
    """As many of some instances as the work allows: first those of which something may go home."""
    if len(slots) <= most:
        return slots
    alike = set(slots)
    homes = ((slot, working.home[run]) for slot in slots for run in slot.movable)
    pairs = [(slot, home) for slot, home in homes if home in alike and home is not slot]
    bought = [slot for slot in slots if slot.instance is None]
    pairs += zip(bought, (slot for slot in slots if slot.empty), strict=False)
    return list(dict.fromkeys(slot for pair in pairs for slot in pair if slot is not None))[:most]


def _exchange(working: WorkingConfiguration, slots: Sequence[InstanceSlot], launch: int) -> None:
    """Assign the loads of instances of one offering to them anew, if that costs less.

    At equal cost fewer are launched or moved.

    Args:
        working: The working configuration of the instances.
        slots: The instances.
        launch: Cost of launching one of them.
    """
    rows = {slot: row for row, slot in enumerate(slots)}
    saved = np.zeros((len(slots), len(slots)))
    bought = [row for slot, row in rows.items() if slot.instance is None]
    for slot, column in rows.items():
        if slot.empty:
            saved[bought, column] = launch + 1
        for run in slot.movable:
            home = working.home[run]
            if home in rows:
                saved[rows[home], column] += working.move_cost(run) + 1
    if not saved.any():
        return
    hosts, loads = linear_sum_assignment(saved, maximize=True)
    if saved[hosts, loads].sum() <= saved.trace():
        return
    exchanged = [pair for pair in zip(hosts, loads, strict=True) if pair[0] != pair[1]]
    targets = {run: slots[host] for host, load in exchanged for run in slots[load].movable}
    before = working.total, _changes(working, slots)
    trial = Trial(working, [slots[load] for _, load in exchanged])
    for run in trial.pool:
        trial.put(run, targets[run])
    # A gang's move is saved once, not by each member, so only the total cost decides.
    if (working.total, _changes(working, slots)) >= before or not working.within_limits():
        trial.undo()


def _changes(working: WorkingConfiguration, slots: Sequence[InstanceSlot]) -> int:
    """How many of some instances are launched, and how many tasks are moved to them."""
    launched = sum(slot.instance is None and not slot.empty for slot in slots)
    held = [(working.home[run], slot) for slot in slots for run in slot.movable]
    return launched + sum(home is not None and home is not slot for home, slot in held)
