"""Sends tasks back to where they run, where an equal instance would do as well."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from math import isqrt

import numpy as np

from eva_master.packing.configuration.assignment import assigned
from eva_master.packing.local_search.load_cache import Load, LoadCache
from eva_master.packing.local_search.search_start import (
    NOWHERE,
    SearchResult,
    SearchStart,
    is_new,
    runs_on,
    within_limits,
)
from eva_master.packing.round_work import WorkBudget, WorkKind


def send_home(
    start: SearchStart, cache: LoadCache, result: SearchResult, budget: WorkBudget
) -> SearchResult:
    """Exchange what is on instances of one offering for what it costs least to move there.

    Args:
        start: The begin of a search.
        cache: Source of loads' prices.
        result: Its end.
        budget: Work that may still be done.
    """
    held = runs_on(result)
    strays = {
        slot
        for home, place in zip(start.homes, result.places, strict=True)
        if home not in (NOWHERE, place)
        for slot in (home, place)
    }
    alike: dict[int, list[int]] = {}
    for slot, load in result.loads.items():
        new = is_new(start, slot)
        if not load.classes if new else load.classes and slot not in strays:
            continue
        if all(start.movable[run] for run in held.get(slot, ())):
            offering = load.cheapest if new else start.offerings[slot]
            alike.setdefault(offering, []).append(slot)
    homing = _Homing(start, cache, result, held)
    for offering, slots in alike.items():
        foremost = homing.foremost(slots, isqrt(budget.affords(WorkKind.EXCHANGED)))
        if len(foremost) > 1:
            budget.spend(WorkKind.EXCHANGED, len(foremost) ** 2)
            homing.exchange(foremost, cache.launch_costs[offering])
    return homing.result


class _Homing:
    """A result that is improved by exchanges.

    Instances of one offering are of one family, so an exchange changes what is moved and what is
    launched alone, and no loss to neighbours.
    """

    def __init__(
        self,
        start: SearchStart,
        cache: LoadCache,
        result: SearchResult,
        held: Mapping[int, Sequence[int]],
    ) -> None:
        self.result = result
        self._start, self._cache, self._held = start, cache, dict(held)
        self._away = Counter(
            start.groups[run]
            for run, place in enumerate(result.places)
            if start.homes[run] not in (NOWHERE, place)
        )

    def foremost(self, slots: Sequence[int], most: int) -> Sequence[int]:
        """As many instances as the work allows, first those from which a task may go home."""
        if len(slots) <= most:
            return slots
        alike = set(slots)
        pairs = [
            (slot, self._start.homes[run]) for slot in slots for run in self._held.get(slot, ())
        ]
        pairs = [(slot, home) for slot, home in pairs if home in alike and home != slot]
        bought = [slot for slot in slots if is_new(self._start, slot)]
        empty = (slot for slot in slots if not self.result.loads[slot].classes)
        pairs += zip(bought, empty, strict=False)
        return list(dict.fromkeys(slot for pair in pairs for slot in pair))[:most]

    def exchange(self, slots: Sequence[int], launch: int) -> None:
        """Assign the loads of instances of one offering to them anew, if that costs less.

        At equal cost fewer are launched or moved.

        Args:
            slots: The instances.
            launch: Cost of launching one of them.
        """
        start, rows = self._start, {slot: row for row, slot in enumerate(slots)}
        saved = np.zeros((len(slots), len(slots)))
        bought = [row for slot, row in rows.items() if is_new(start, slot)]
        for slot, column in rows.items():
            if not self.result.loads[slot].classes:
                saved[bought, column] = launch + 1
            for run in self._held.get(slot, ()):
                home = start.homes[run]
                if home in rows:
                    saved[rows[home], column] += start.move_costs[start.groups[run]] + 1
        if not saved.any():
            return
        hosts, loads = assigned(saved)
        if saved[hosts, loads].sum() > saved.trace():
            pairs = zip(hosts, loads, strict=True)
            self._assign({slots[host]: slots[load] for host, load in pairs})

    def _assign(self, source: Mapping[int, int]) -> None:
        """Have instances hold what others hold, if that costs less, or is less to change.

        Args:
            source: For each instance, the one of which it gets the load.
        """
        start, slots = self._start, tuple(source)
        held = {slot: self._held.get(source[slot], ()) for slot in slots}
        places = list(self.result.places)
        for slot, runs in held.items():
            for run in runs:
                places[run] = slot
        away = self._away.copy()
        for slot in slots:
            for run in held[slot]:
                group, home = start.groups[run], start.homes[run]
                if home != NOWHERE:
                    away[group] += (home != slot) - (home != self.result.places[run])
        changed = {slot: self.result.loads[source[slot]] for slot in slots}
        groups = {start.groups[run] for runs in held.values() for run in runs}
        before = self._cost({slot: self.result.loads[slot] for slot in slots}, groups, self._away)
        after = self._cost(changed, groups, away)
        result = replace(
            self.result,
            places=places,
            loads={**self.result.loads, **changed},
            total=self.result.total + after - before,
        )
        # A gang's move is saved once, not by each member, so only the total cost decides.
        now = self._changes(slots, self.result.loads, self._held)
        fewer = (after, self._changes(slots, changed, held)) < (before, now)
        if fewer and within_limits(self._cache, start, result):
            self.result, self._away = result, away
            self._held.update(held)

    def _cost(self, loads: Mapping[int, Load], groups: set[int], away: Counter[int]) -> int:
        """Cost of some instances and of the moves of some groups."""
        prices = sum(
            load.new_cost if is_new(self._start, slot) else self._start.prices[slot]
            for slot, load in loads.items()
            if load.classes
        )
        return prices + sum(self._start.move_costs[group] for group in groups if away[group])

    def _changes(
        self,
        slots: Collection[int],
        loads: Mapping[int, Load],
        held: Mapping[int, Sequence[int]],
    ) -> int:
        """How many of some instances are launched, and how many tasks are moved to them."""
        start = self._start
        launched = sum(is_new(start, slot) and bool(loads[slot].classes) for slot in slots)
        return launched + sum(
            start.homes[run] not in (NOWHERE, slot) for slot in slots for run in held.get(slot, ())
        )
