"""Gives waiting tasks the room that there is, and adds members where that is not enough."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from eva_master.model.catalog import Offering
from eva_master.model.catalog import is_spot as is_spot_family
from eva_master.model.job import TaskSpec
from eva_master.model.planning.job_view import JobView
from eva_master.model.planning.snapshot import SharedInstance, Snapshot
from eva_master.model.resources import Resources
from eva_master.model.values import alike
from eva_master.packing.toolkit import (
    OpenInstances,
    PlacementGroup,
    PricedShape,
    Speeds,
    UnplacedGroup,
)
from eva_policies.cloudcoaster.config import Config
from eva_policies.cloudcoaster.market import KindPurchases, is_spot, slots_in, slots_of
from eva_policies.cloudcoaster.order import Key, task_ms
from eva_policies.cloudcoaster.sizing import needed
from eva_wire.values.ids import Family, RunId

_STEADY_ALONE = "no room on demand at present, and it takes no spot instances (spot: never)"


def _stays(unplaced: UnplacedGroup) -> bool:
    """Whether spot instances are of no use to who waits."""
    return not any(is_spot_family(family) for family, _ in unplaced.run.task.demand)


def holds_short(instances: OpenInstances, row: int) -> bool:
    """Whether a task of a job that can stand in a line is on an instance."""
    jobs_there = (instances.jobs[instances.runs[run].job] for run in instances.residents[row])
    return any(job.stands_in_line for job in jobs_there)


def _shared(config: Config, snapshot: Snapshot) -> tuple[SharedInstance, ...]:
    waiting = snapshot.beside.waiting_ms
    patient = waiting is None or snapshot.now_ms - waiting < config.long_patience_s * 1000
    return snapshot.beside.instances if config.short_first and patient else ()


def _alike(instances: Sequence[SharedInstance]) -> Counter[tuple[Family, Resources]]:
    """Number of instances with equal free room, by family and room."""
    counts: Counter[tuple[Family, Resources]] = Counter()
    for room, count in alike([instance.room for instance in instances]):
        counts[room.offering.type.family, room.free] += count
    return counts


class RowFilling:
    """One plan's rounds over the rows of open instances.

    Args:
        config: The settings.
        snapshot: The cluster.
        instances: Its instances; the plan fills them.
        order: Sort key of jobs.

    Attributes:
        needed: Number of slots needed beyond those that stay, at any price.
        added: The rows of new instances that no task run has been given as a place.
        taken: The rows of live instances that are used from now on.
        shared: Instances of others whose free room may be used.
    """

    def __init__(
        self,
        config: Config,
        snapshot: Snapshot,
        instances: OpenInstances,
        order: Callable[[JobView], Key],
    ) -> None:
        self._config = config
        self._instances = instances
        self._order = order
        self._listed = snapshot.catalog
        self._leaving = [view.offering for view in snapshot.draining]
        self._stood = {
            row
            for row, view in enumerate(snapshot.instances)
            if view.pool or holds_short(instances, row)
        }
        instances.keep(self._stood)
        self._booting = {row for row, view in enumerate(snapshot.instances) if not view.ready}
        self.added: list[int] = []
        self.taken: list[int] = []
        self.needed = 0
        self.shared = _shared(config, snapshot)
        self._shared_rooms = _alike(self.shared)

    def place_each(self, groups: Sequence[PlacementGroup]) -> None:
        """Put task runs on existing or purchasable instances, as many as fit.

        For task runs that cannot stand in a line.
        """
        instances = self._instances
        for group in groups:
            for run in group.runs:
                if self._fits_in(run.id, range(len(instances))):
                    continue
                offering = instances.cheapest(instances.priced(run.id))
                if offering is None:
                    return
                instances.put(run.id, instances.open(offering))

    def place(
        self, groups: Sequence[PlacementGroup], *, at_once: bool = True
    ) -> list[UnplacedGroup]:
        """Put single tasks on instances, as many as fit, and add members.

        No task is bound to an instance that does not take tasks yet: a task in the line gets the
        room that becomes free first.

        Args:
            groups: Single tasks.
            at_once: Whether they take free room; else they only stand in line for it.

        Returns:
            Groups without a place, in the order of the line.
        """
        singles = sorted(groups, key=lambda group: (self._order(group.job), group.runs[0].id))
        rest = self._first_fit(singles) if at_once else singles
        if rest:
            rest = self._grow(rest, at_once=at_once)
        spot = any(is_spot(self._instances.offerings[row]) for row in self._members())
        waits = [UnplacedGroup(group, group.runs[0]) for group in rest]
        return [
            replace(unplaced, why=_STEADY_ALONE) if spot and _stays(unplaced) else unplaced
            for unplaced in waits
        ]

    def fill_up(self, unit: TaskSpec) -> None:
        """Have as many slots on demand as there are always to be, if it is said how large one is.

        Args:
            unit: A task that takes one.
        """
        while self._config.slot is not None and (offering := self._steady(unit)):
            row = self._instances.open(offering)
            if row < self._instances.live:
                break  # An empty one that nobody wants is about to go.
            self.added.append(row)

    def _steady(self, unit: TaskSpec) -> Offering | None:
        return self._market(unit).choose_steady(self._config.steady_slots)

    def _market(
        self, task: TaskSpec, speeds: Speeds = (), on_sale: Sequence[Offering] | None = None
    ) -> KindPurchases:
        members = [self._instances.offerings[row] for row in self._members()]
        all_members = (*members, *self._leaving)
        on_sale = self._instances.on_sale() if on_sale is None else on_sale
        return KindPurchases(self._config, task, all_members, on_sale, speeds, listed=self._listed)

    # -- room that there is ----------------------------------------------------------------------

    def _fits_in(self, run: RunId, among: Collection[int]) -> bool:
        """Whether the task run found room; on demand first, and where least is free."""
        instances = self._instances
        fitting = np.flatnonzero(instances.fitting(instances.priced(run))).tolist()
        rows = [row for row in fitting if row in among]
        if not rows:
            return False
        free = instances.free()

        def rank(row: int) -> tuple[bool, bool, tuple[int, ...], int]:
            stays = row >= instances.live or row in self._stood or bool(instances.residents[row])
            return not stays, is_spot(instances.offerings[row]), tuple(free[row].tolist()), row

        instances.put(run, min(rows, key=rank))
        return True

    def _first_fit(self, groups: Sequence[PlacementGroup]) -> list[PlacementGroup]:
        """Fill the existing room; return the groups that found none."""
        full: set[PricedShape] = set()
        unplaced = []
        for group in groups:
            run = group.runs[0].id
            shape = self._instances.priced(run)
            if shape in full or not self._fits_in(run, self._stood - self._booting):
                full.add(shape)
                unplaced.append(group)
        return unplaced

    # -- room that is added ----------------------------------------------------------------------

    def _grow(self, groups: list[PlacementGroup], *, at_once: bool) -> list[PlacementGroup]:
        """Add members for waiting tasks, the first in line first; return the tasks that still wait.

        The need of slots is computed for tasks of each shape by themselves.
        """
        clear_ms = self._config.clear_within_s * 1000
        queued: Counter[PricedShape] = Counter()
        for group in groups:
            queued[self._shape(group)] += task_ms(group.job, clear_ms)
        most = len(groups)
        for group in {group.job.id: group for group in groups}.values():
            queued[self._shape(group)] += task_ms(group.job, clear_ms) * group.job.array.unseen
            most += group.job.array.unseen
        tasks = {self._shape(group): group.runs[0].task for group in groups}
        wanted = {
            shape: needed(work, self._lasting_slots(tasks[shape]), clear_ms, most)
            for shape, work in queued.items()
        }
        self.needed = sum(wanted.values())
        for shape, task in tasks.items():
            wanted[shape] -= self._added_before(task)
        refused: set[PricedShape] = set()
        rest = groups
        while head := next((group for group in rest if self._shape(group) not in refused), None):
            run, shape = head.runs[0], self._shape(head)
            offering = self._bought(run.id, wanted[shape])
            if offering is None:
                refused.add(shape)
                continue
            offering = self._emptied(run.id, wanted[shape], offering)
            wanted[shape] -= slots_of(offering, run.task)
            row = self._instances.open(offering)
            if row >= self._instances.live:
                self.added.append(row)
                continue
            self._stood.add(row)  # a live instance without tasks
            self.taken.append(row)
            if at_once:
                self._instances.put(run.id, row)
                rest = self._first_fit([group for group in rest if group is not head])
        return rest

    def _lasting_slots(self, task: TaskSpec) -> int:
        """How many slots for a task there are without what is added: shared ones are free."""
        steady = sum(
            slots_of(self._instances.offerings[row], task)
            for row in self._stood - self._booting
            if not is_spot(self._instances.offerings[row])
        )
        return steady + self.shared_slots(task)

    def _added_before(self, task: TaskSpec) -> int:
        """How many slots for a task are on spot instances, or on those that boot."""
        instances = self._instances
        return sum(
            slots_of(instances.offerings[row], task)
            for row in self._stood
            if is_spot(instances.offerings[row]) or row in self._booting
        )

    def shared_slots(self, task: TaskSpec) -> int:
        """How many tasks of a kind find room on instances of others at once."""
        return sum(
            count * slots_in(free, task.demand_on(family))
            for (family, free), count in self._shared_rooms.items()
        )

    def _shape(self, group: PlacementGroup) -> PricedShape:
        return self._instances.priced(group.runs[0].id)

    def _bought(self, head: RunId, wanted: int) -> Offering | None:
        instances = self._instances
        if wanted <= 0:
            return None
        forced = not self.can_ever_hold(head)
        task, speeds = instances.runs[head].task, instances.priced(head).shape.part.speeds
        market = self._market(task, speeds)
        if self._config.resize == "published" and not forced:
            return market.choose_steady(wanted)
        return market.choose(wanted, forced=forced)

    def _emptied(self, head: RunId, wanted: int, bought: Offering) -> Offering:
        """The offering of an empty instance that is no dearer than the purchase, or the purchase.

        An empty instance may cost more for a slot, but the task has no boot to wait for.
        """
        instances = self._instances
        vacant = {
            instances.offerings[row].id: instances.offerings[row]
            for row in range(instances.live)
            if not (instances.residents[row] or row in self._stood)
            and instances.offerings[row].price <= bought.price
        }
        if bought.id in vacant or not vacant or self._config.resize == "published":
            return bought
        task, speeds = instances.runs[head].task, instances.priced(head).shape.part.speeds
        market = self._market(task, speeds, tuple(vacant.values()))
        return market.choose(wanted, forced=False) or bought

    def can_ever_hold(self, run: RunId) -> bool:
        """Whether some member would hold the task run if nobody else were there.

        So would an instance of others that has room for it now.
        """
        return bool(self.shared_slots(self._instances.runs[run].task) or self.hosts(run))

    def hosts(self, run: RunId) -> list[int]:
        """The rows of the members that would hold the task run if nobody else were there."""
        instances = self._instances
        fits: npt.NDArray[np.bool_] = np.all(
            instances.needed(instances.priced(run)) <= instances.capacity(), axis=1
        )
        return [row for row in self.rows if fits[row]]

    def _members(self) -> set[int]:
        """The rows of the pools' members, those that are added included."""
        return self._stood | set(self.added)

    @property
    def rows(self) -> tuple[int, ...]:
        """The rows of the pools' members, in order."""
        return tuple(sorted(self._members()))
