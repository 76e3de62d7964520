"""Seats contenders in a fleet: whole or not at all, and on few instances."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from eva_master.model.planning.snapshot import Snapshot
from eva_master.model.resources import Resources
from eva_master.packing.bins.open_instances import OpenInstances
from eva_master.packing.fleet.capacity import fixed_live, is_fixed
from eva_master.packing.fleet.contenders import Contender
from eva_master.packing.interference.throughput import Ints
from eva_wire.values.ids import Family, RunId


class Seats:
    """Free room of a fleet while a plan gives it away.

    Args:
        snapshot: The cluster.
        instances: Its instances, with all tasks where they are.
        contenders: The contenders for it. Contenders that are not fixed are taken off their places.
    """

    def __init__(
        self, snapshot: Snapshot, instances: OpenInstances, contenders: Iterable[Contender]
    ) -> None:
        self._instances = instances
        self._rows: dict[Family, list[int]] = {}
        live = fixed_live(snapshot)
        for row, view in enumerate(snapshot.instances):
            if view.id in live:
                self._rows.setdefault(view.offering.type.family, []).append(row)
        self._before: dict[RunId, list[int]] = {}
        for contender in contenders:
            if not contender.fixed and contender.seated:
                self._before[contender.id] = [instances.take(run.id) for run in contender.runs]

    def types_of(self, one: Contender) -> frozenset[Family]:
        """Types of the former place of a contender that was taken off it."""
        rows = self._before.get(one.id, ())
        return frozenset(self._instances.offerings[row].type.family for row in rows)

    def has(self, one: Contender) -> bool:
        """Whether all of a contender is seated."""
        return all(run.id in self._instances.row_of for run in one.runs)

    def room(self, family: Family) -> Resources:
        """Free room on a type, on live instances and those launched so far."""
        free = self._instances.free()[self._rows_of(family)].sum(axis=0)
        return Resources(*map(int, free))

    def back(self, one: Contender) -> bool:
        """Seat a contender of unchanged size in its former place; return whether it fitted."""
        rows = self._before.get(one.id)
        return rows is not None and len(rows) == len(one.runs) and self._put(one, rows)

    def seated_on(self, one: Contender) -> frozenset[Family]:
        """Types on which a contender is seated now."""
        rows_of_runs = (self._instances.row_of.get(run.id) for run in one.runs)
        rows = {row for row in rows_of_runs if row is not None}
        return frozenset(self._instances.offerings[row].type.family for row in rows)

    def on(self, one: Contender, types: Sequence[Family]) -> bool:
        """Seat a contender on some types, as much as fits on the first ones.

        Its former place is preferred, if that is on the types and has room.

        Args:
            one: The contender.
            types: The types; several are for a gang on mixed types.

        Returns:
            Whether it is seated.
        """
        if self.types_of(one) and self.types_of(one) <= set(types) and self.back(one):
            return True
        mark = self._instances.mark()
        remaining = [run.id for run in one.runs if run.id not in self._instances.row_of]
        for family in types:
            remaining = self._seat(remaining, family)
            if not remaining:
                return True
        self._instances.back(mark)
        return False

    def each(self, one: Contender, types: Sequence[Family]) -> bool:
        """Seat each task run of a contender on a type of its own.

        Its former place is preferred, if that is on these types and has room.

        Args:
            one: The contender.
            types: The type of each of its task runs.

        Returns:
            Whether it is seated.
        """
        offerings = self._instances.offerings
        before = [offerings[row].type.family for row in self._before.get(one.id, ())]
        if before == list(types) and self.back(one):
            return True
        mark = self._instances.mark()
        for family in dict.fromkeys(types):
            on_family = [
                run.id for run, run_type in zip(one.runs, types, strict=True) if run_type == family
            ]
            if self._seat([run for run in on_family if run not in self._instances.row_of], family):
                self._instances.back(mark)
                return False
        return True

    def _put(self, one: Contender, rows: Sequence[int]) -> bool:
        mark = self._instances.mark()
        for run, row in zip(one.runs, rows, strict=True):
            if not self._instances.holds(row, self._instances.priced(run.id)):
                self._instances.back(mark)
                return False
            self._instances.put(run.id, row)
        return True

    def _seat(self, runs: Sequence[RunId], family: Family) -> list[RunId]:
        """Seat as many task runs as fit on a type; return the others."""
        remaining = list(runs)
        while remaining:
            alike = self._instances.priced(remaining[0]).shape
            many = [run for run in remaining if self._instances.priced(run).shape is alike]
            if not self._seat_alike(many, family):
                break
            remaining = [run for run in remaining if run not in self._instances.row_of]
        return remaining

    def _seat_alike(self, runs: Sequence[RunId], family: Family) -> int:
        """Seat tasks of one shape; return how many fitted."""
        instances, number = self._instances, 0
        need = instances.priced(runs[0]).need
        rows = self._rows_of(family)
        if len(rows):
            each = need[instances.family(int(rows[0]))]
            free = instances.free()[rows]
            asked = each > 0
            room = np.full(len(rows), len(runs))
            if asked.any():
                room = (free[:, asked] // each[asked]).min(axis=1)
            remaining = len(runs)
            while remaining > 0 and room.max(initial=0) > 0:
                # The tightest row that holds all remaining tasks, else the row that holds most.
                whole = np.flatnonzero(room >= remaining)
                pick = int(whole[np.argmin(room[whole])]) if len(whole) else int(room.argmax())
                count = min(remaining, int(room[pick]))
                for run in runs[number : number + count]:
                    instances.put(run, int(rows[pick]))
                number, remaining = number + count, remaining - count
                room[pick] = 0
        while number < len(runs) and (row := self._launched(runs[number], family)) is not None:
            shape = instances.priced(runs[number])
            while number < len(runs) and instances.holds(row, shape):
                instances.put(runs[number], row)
                number += 1
        return number

    def _rows_of(self, family: Family) -> Ints:
        """Live instances of a type, then those that are launched for others already."""
        instances = self._instances
        fresh = (
            row
            for row in range(instances.live, len(instances))
            if instances.offerings[row].type.family == family and is_fixed(instances.offerings[row])
        )
        return np.array([*self._rows.get(family, ()), *fresh], dtype=np.int64)

    def _launched(self, run: RunId, family: Family) -> int | None:
        """A new instance of a type that may still be launched, the largest that a task fits."""
        shape = self._instances.priced(run)
        for offering in self._instances.on_sale():
            if offering.type.family != family or offering.limit is None:
                continue
            need = next((demand for name, demand in shape.shape.demand if name == family), None)
            if need is not None and need.fits(offering.type.capacity):
                return self._instances.open(offering)
        return None
