"""The paper's rule of how many transient instances there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from eva_master.model.catalog import Offering
from eva_master.model.job import TaskSpec
from eva_master.model.planning.snapshot import SharedInstance, Snapshot
from eva_master.model.values import alike
from eva_master.packing.toolkit import OpenInstances
from eva_policies.cloudcoaster.config import Config
from eva_policies.cloudcoaster.market import KindPurchases, is_spot, slots_in, slots_of
from eva_policies.cloudcoaster.sizing import published


@dataclass(frozen=True, slots=True)
class LongLoad:
    """How much of the cluster long tasks hold, in slots of the size of a short task.

    Attributes:
        held: Slots that they hold, N_long.
        static: Slots that no cloud takes back, N_static.
    """

    held: int
    static: int

    def describe(self, threshold_ppm: int, transient: int) -> str:
        """Description of this load, with so many transient slots."""
        whole = self.static + transient
        share = 100 * self.held / whole if whole else 0.0
        return (
            f"long tasks hold {self.held} of {whole} slots, {share:.1f} %; there are as many as "
            f"bring that to {threshold_ppm / 10_000:g} %, as far as the money goes"
        )


def long_load(
    shared: Sequence[SharedInstance], steady: int, task: TaskSpec, outlasting: int = 0
) -> LongLoad:
    """Slots of others' instances, and of those for short tasks, that long tasks hold.

    Args:
        shared: The instances of others.
        steady: Slots on demand for short tasks.
        task: A short task.
        outlasting: Tasks of short jobs on instances for these that have turned out to be long.
    """
    held = static = 0
    for room, count in alike([instance.room for instance in shared]):
        need, whole = task.demand_on(room.offering.type.family), room.offering.type.capacity
        slots = slots_in(whole, need)
        static += slots * count
        held += (slots - slots_in(whole - room.own, need)) * count
    return LongLoad(held + outlasting, static + steady)


@dataclass(frozen=True, slots=True)
class Resized:
    """Change of the transient instances.

    Attributes:
        kept: The rows of the instances that stay.
        bought: Offerings that are added.
        reason: The rule in numbers.
    """

    kept: frozenset[int]
    bought: tuple[Offering, ...]
    reason: str


def resized(
    config: Config,
    snapshot: Snapshot,
    instances: OpenInstances,
    rows: Sequence[int],
    task: TaskSpec,
    *,
    released: Set[int] = frozenset(),
) -> Resized:
    """Choose as many transient instances as the rule says.

    Args:
        config: The settings.
        snapshot: The cluster.
        instances: Its instances, with those that the plan buys in any case.
        rows: Rows of the members.
        task: A short task, which has the size of a slot.
        released: The rows of members released before, whose price still counts.
    """
    every = [row for row in rows if is_spot(instances.offerings[row])]
    steady = sum(_slots(instances, row, task) for row in rows if row not in set(every))
    spot = [row for row in every if row not in released]
    residents = [run for row in rows for run in instances.residents[row]]
    outlasting = sum(instances.runs[run].long for run in residents)
    load = long_load(snapshot.beside.instances, steady, task, outlasting)
    leaving = [view.offering for view in snapshot.draining]

    def market(more: Sequence[Offering] = ()) -> KindPurchases:
        offerings = [instances.offerings[row] for row in rows]
        members = (*offerings, *leaving, *more)
        return KindPurchases(config, task, members, instances.on_sale(), listed=snapshot.catalog)

    transient = sum(_slots(instances, row, task) for row in spot)
    most = market().most_spot_slots
    wanted = published(load.held, load.static, config.threshold_ppm, most)
    bought: list[Offering] = []
    added = 0
    while transient + added < wanted:
        offering = market(bought).choose_spot(wanted - transient - added)
        if offering is None:
            break
        bought.append(offering)
        added += slots_of(offering, task)
    slots = {row: _slots(instances, row, task) for row in spot}
    kept = staying(snapshot, instances, slots, wanted)
    slots_left = sum(slots[row] for row in kept) + added
    return Resized(kept, tuple(bought), load.describe(config.threshold_ppm, slots_left))


def staying(
    snapshot: Snapshot, instances: OpenInstances, slots: Mapping[int, int], wanted: int
) -> frozenset[int]:
    """Members that stay; empty ones, and those that will be empty soonest, go first.

    Args:
        snapshot: The cluster.
        instances: Its instances.
        slots: Number of slots of each member, by its row.
        wanted: Least number of slots that stay.
    """
    kept, slots_left = set(slots), sum(slots.values())
    for row in sorted(slots, key=lambda row: (_idle_at(snapshot, instances, row), row)):
        if slots_left - slots[row] >= wanted and row < instances.live:
            kept.discard(row)
            slots_left -= slots[row]
    return frozenset(kept)


def within_budget(
    config: Config,
    snapshot: Snapshot,
    instances: OpenInstances,
    kept: Set[int],
    task: TaskSpec,
) -> frozenset[int]:
    """The staying members that the budget pays for: the dearest spot members go.

    The budget may not pay for all members once prices have risen. Of the budgets for the
    present tasks the largest counts.

    Args:
        config: The settings.
        snapshot: The cluster.
        instances: Its instances.
        kept: The rows of the members that were to stay.
        task: A short task, which has the size of a slot.
    """
    rows = sorted(row for row in kept if row < instances.live)
    offerings = [instances.offerings[row] for row in rows]
    leaving = [view.offering for view in snapshot.draining]
    on_sale = instances.on_sale()

    def missing(task: TaskSpec) -> int:
        market = KindPurchases(
            config, task, (*offerings, *leaving), on_sale, listed=snapshot.catalog
        )
        return market.spent - market.budget

    over, gone = missing(task), set[int]()
    if over > 0:
        over = min(map(missing, {run.task.demand: run.task for run in snapshot.runs}.values()))
    spot = [row for row in rows if is_spot(instances.offerings[row])]
    for row in sorted(spot, key=lambda row: (-instances.offerings[row].price, row)):
        if over <= 0:
            break
        over -= instances.offerings[row].price
        gone.add(row)
    return frozenset(kept) - gone


def _slots(instances: OpenInstances, row: int, task: TaskSpec) -> int:
    return max(1, slots_of(instances.offerings[row], task))


def _idle_at(snapshot: Snapshot, instances: OpenInstances, row: int) -> tuple[bool, int]:
    """Whether any task is on an instance, and for how long."""
    residents = [instances.runs[run] for run in instances.residents[row]]
    works = [run.remaining for run in residents if run.remaining is not None]
    return bool(residents), max((work.goes_on_ms(snapshot.now_ms) for work in works), default=0)
