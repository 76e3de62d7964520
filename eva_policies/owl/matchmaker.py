"""Pairs are made: who joins whom, and where."""

from __future__ import annotations

from collections.abc import Sequence

from eva_master.model.catalog import Offering
from eva_master.packing.bins.open_instances import OpenInstances
from eva_master.packing.bins.placement_groups import PlacementGroup
from eva_policies.owl.pairs import Class, Pairs
from eva_wire.values.ids import MILLION, RunId


class _Pool:
    """The task runs of a class that may still be paired.

    Attributes:
        guests: Task runs that may be given a place: waiting ones, then movable ones.
        settled: Task runs that are alone on an instance, on the cheapest one first.
    """

    def __init__(self) -> None:
        self.guests: dict[RunId, None] = {}
        self.settled: dict[RunId, None] = {}

    def guest(self, host: RunId | None = None) -> RunId | None:
        """A guest to be paired with a host."""
        return next((run for run in self.guests if run != host), None)

    def leave(self, *runs: RunId) -> None:
        """Remove task runs that have been paired."""
        for run in runs:
            self.guests.pop(run, None)
            self.settled.pop(run, None)


class Matchmaker:
    """Pairs waiting tasks and those that are alone on an instance.

    Args:
        instances: Where everything is.
        pairs: Which pairs pay.
        movable: Whether tasks that are alone may be moved.
        single: Task runs that stay without a partner.
    """

    def __init__(
        self,
        instances: OpenInstances,
        pairs: Pairs,
        *,
        movable: bool,
        single: frozenset[RunId] = frozenset(),
    ) -> None:
        self._instances = instances
        self._pairs = pairs
        self._movable = movable
        self._single = single

    def place(self, groups: Sequence[PlacementGroup]) -> None:
        """Place waiting groups: in pairs where that pays, the rest alone.

        Tasks that are alone join in; if they may be moved, those that are left over go where they
        cost less.
        """
        instances = self._instances
        fresh = [run.id for group in groups for run in group.runs]
        if fresh or self._movable:
            self._pair(fresh)
        for run in fresh:
            offering = (
                instances.cheapest(instances.priced(run)) if run not in instances.row_of else None
            )
            if offering is not None:
                instances.put(run, instances.open(offering))
        if self._movable:
            self._shrink()

    def _class_of(self, run: RunId) -> Class:
        instances = self._instances
        workload = instances.runs[run].task.workload
        return self._pairs.of(instances.priced(run), workload, instances.others_price(run))

    def _alone(self) -> list[RunId]:
        """Task runs that nobody shares an instance with, on the cheapest one first."""
        instances = self._instances
        rows = [row for row, those in enumerate(instances.residents) if len(those) == 1]
        rows.sort(key=lambda row: (instances.offerings[row].price, row))
        return [next(iter(instances.residents[row])) for row in rows]

    def _may_move(self, run: RunId) -> bool:
        return self._movable and not self._instances.runs[run].pinned

    def _pair(self, fresh: Sequence[RunId]) -> None:
        """Make pairs, the best first."""
        pools: dict[Class, _Pool] = {}
        for run in fresh:
            if run not in self._single:
                pools.setdefault(self._class_of(run), _Pool()).guests[run] = None
        for run in self._alone():
            if run in self._single:
                continue
            pool = pools.setdefault(self._class_of(run), _Pool())
            pool.settled[run] = None
            if self._may_move(run):
                pool.guests[run] = None
        for first, other, offering in self._pairs.worthwhile(list(pools)):
            first_pool, right = pools[first], pools[other]
            while first_pool.guests or right.guests:
                pair = (
                    self._joined(first, other, offering, first_pool, right)
                    or self._joined(other, first, offering, right, first_pool)
                    or self._met(first, other, offering, first_pool, right)
                )
                if pair is None:
                    break
                first_pool.leave(*pair)
                right.leave(*pair)

    def _joined(
        self, host: Class, guest: Class, offering: Offering, hosts: _Pool, guests: _Pool
    ) -> tuple[RunId, RunId] | None:
        """Have a task run of one class join one of the other where that is; the two if it did."""
        if not guests.guests:
            return None
        for run in hosts.settled:
            row = self._instances.row_of[run]
            comer = guests.guest(run)
            if comer is not None and self._suits(row, run, host, guest, offering):
                self._move(comer, row)
                return run, comer
        return None

    def _suits(self, row: int, run: RunId, host: Class, guest: Class, offering: Offering) -> bool:
        """Whether a pair stays on the instance that one of them is on.

        One that may move does so if there is a cheaper instance for both.
        """
        instances = self._instances
        price, family = instances.offerings[row].price, instances.family(row)
        if price > offering.price and self._may_move(run):
            return False
        return bool(
            instances.holds(row, guest.priced)
            and self._pairs.value(host, guest, family) > price * MILLION
        )

    def _met(
        self, one: Class, other: Class, offering: Offering, left: _Pool, right: _Pool
    ) -> tuple[RunId, RunId] | None:
        """Put two task runs onto an instance that is new to both; they, if there are any."""
        first = left.guest()
        second = None if first is None else right.guest(first)
        if first is None or second is None:
            return None
        home = offering
        if not self._instances.obtainable(home):
            another = self._pairs.another(one, other, self._instances.on_sale())
            if another is None:
                return None
            home = another
        row = self._instances.open(home)
        self._move(first, row)
        self._move(second, row)
        return first, second

    def _move(self, run: RunId, row: int) -> None:
        if run in self._instances.row_of:
            self._instances.take(run)
        self._instances.put(run, row)

    def _shrink(self) -> None:
        """Move task runs that are alone to a cheaper instance."""
        instances = self._instances
        for run in self._alone():
            row = instances.row_of[run]
            if self._may_move(run):
                offering = instances.cheapest(instances.priced(run))
                if offering is not None and offering.price < instances.offerings[row].price:
                    self._move(run, instances.open(offering))
