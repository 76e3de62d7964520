"""A snapshot turned into arrays: offerings, classes of identical tasks, what each is worth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import le
from typing import Any

import numpy as np
import numpy.typing as npt

from eva_master.model.catalog import InstanceType, Offering
from eva_master.model.planning.job_view import JobView
from eva_master.model.planning.snapshot import InstanceView, Snapshot, ThroughputTable
from eva_master.model.values import by_id
from eva_master.packing.incremental.present import PlacedRuns, PresentCluster, TaskSet
from eva_master.packing.interference.throughput import UNPROFILED, Ints, alone_with_its_gang
from eva_master.packing.planner_cache import PlannerCache
from eva_master.packing.profiling import late_in_company, unprofiled
from eva_master.packing.valuation.gang_pace import GangPart, parts
from eva_master.packing.valuation.reservation_price import worths
from eva_master.packing.valuation.task_classes import UNKNOWN, PricedShape, RankedClass, TaskClass
from eva_master.packing.valuation.task_shapes import TaskShape, TaskTraits
from eva_master.packing.valuation.vectors import IMPOSSIBLE, WIDTH, Vector, vector
from eva_wire.values.ids import MILLION, Family, InstanceId, OfferingId, RunId, Workload, base_of

_ClassKey = tuple[TaskShape, Workload, int]
"""Shape, label and charge of a class: no two classes have all three in common."""
Money = npt.NDArray[Any]
"""Micro-dollars per hour (or millionths of one), per class; Python integers where 64 bits might
not do."""


@dataclass(frozen=True, slots=True)
class ClassValues:
    """Worth of running a task of each class, per family.

    Attributes:
        prices: Reservation price times speed, see `TaskClass.price_on`.
        charges: See `TaskClass.charge_on`.
    """

    prices: Mapping[Family, Money]
    charges: Mapping[Family, Money]
    _dearest: dict[Family, Ints] = field(default_factory=dict, repr=False)

    def dearest(self, family: Family) -> Ints:
        """All classes, the most valuable on a family first, equal ones ascending."""
        if family not in self._dearest:
            self._dearest[family] = np.argsort(-self.prices[family], kind="stable")
        return self._dearest[family]


@dataclass(frozen=True, slots=True)
class Valuation:
    """How a policy looks at co-location.

    Attributes:
        interference: Whether tasks are held to slow each other down.
        default_ppm: Throughput of a pair that was never seen together, in millionths.
        multi_task_view: Whether the slowdown of one member is charged for its whole gang.
        by_base: Whether variants of a workload teach each other, see `PlannerCache`.
        infer_pairs: Whether sets teach about pairs, see `PlannerCache`.
    """

    interference: bool = True
    default_ppm: int = 950_000
    multi_task_view: bool = True
    by_base: bool = False
    infer_pairs: bool = False

    def inferred(self, table: ThroughputTable, cache: PlannerCache) -> ThroughputTable:
        """The co-location table with the policy's inferences."""
        if not self.interference:
            return ThroughputTable()
        if self.by_base:
            table = cache.by_base(table)
        return cache.with_pairs(table, self.default_ppm) if self.infer_pairs else table


class Problem:
    """The packing problem of one snapshot.

    Args:
        snapshot: The cluster.
        valuation: The policy's treatment of interference.
        cache: The policy's memory; a new one if not given.

    Attributes:
        snapshot: The cluster.
        valuation: The policy's treatment of interference.
        cache: The policy's memory.
        offerings: The catalog, and offerings of live instances that are no longer in it; cheapest
            first.
        by_id: `offerings` by id, cheapest first.
        dearest: `offerings`, the dearest first, equal prices by offering id.
        sold_as: Offering of each live instance.
        classes: Sorted; a class is named by its number.
        class_of: Class of every task run.
        need: Per family, a row per class, with the columns of a `Vector`.
        width: Number of its columns that matter: without the last if no class needs disk.
        uniform: Whether all tasks are worth the same on every family.
        workloads: Per class, its number in `throughput`.
        values: Values of the classes, at the reservation prices of this snapshot.
        table: The co-location table with the policy's inferences.
        default_ppm: See `Valuation`.
        throughput: Speeds of tasks that share an instance.
    """

    def __init__(
        self, snapshot: Snapshot, valuation: Valuation, cache: PlannerCache | None = None
    ) -> None:
        self.snapshot = snapshot
        self.valuation = valuation
        self.cache = cache = cache or PlannerCache()
        self.runs = by_id(snapshot.runs)
        self.jobs = by_id(snapshot.jobs)
        self.instances: Mapping[InstanceId, InstanceView] = by_id(snapshot.instances)
        self.sold_as = cache.sold_as(snapshot)
        offered = (instance.offering for instance in snapshot.instances)
        bought = dict(zip(self.sold_as.values(), offered, strict=True))
        index = cache.offerings(snapshot.catalog, bought)
        self.offerings, self.by_id, self.dearest = index.offerings, index.by_id, index.dearest
        self._prices = index.prices(snapshot.now_ms)
        self._expected = index.type_speeds.of(snapshot.standalone.measured)
        self._measured = cache.measured_rates(snapshot.standalone)
        self.table = table = valuation.inferred(snapshot.throughput, cache)
        self.default_ppm = valuation.default_ppm if valuation.interference else MILLION
        self._by_base = valuation.by_base
        self._observed = cache.observations(table)
        self._alone = late_in_company(snapshot) if self.placed.alone else {}
        if valuation.interference:
            self._alone.update(dict.fromkeys(unprofiled(snapshot, self._measured)))
        ranked, self.class_of = self._classify(valuation.multi_task_view and valuation.interference)
        self.classes = tuple([ranking.task_class for ranking in ranked])
        self.uniform = not any(task_class.prices for task_class in self.classes)
        self._rows = {
            family: [ranking.needs[number] for ranking in ranked]
            for number, family in enumerate(self._prices.families)
        }
        self.width = WIDTH if any(map(_needs_disk, self.classes)) else WIDTH - 1
        self.need: Mapping[Family, Ints] = {
            family: np.array(rows, dtype=np.int64).reshape(-1, WIDTH)
            for family, rows in self._rows.items()
        }
        labels = frozenset(task_class.workload for task_class in self.classes)
        self.throughput = cache.throughput(table, labels, self.default_ppm)
        self.workloads: Ints = np.array(
            [self.throughput.index[task_class.workload] for task_class in self.classes],
            dtype=np.int64,
        )
        self._shares: dict[InstanceType, Ints] = {}
        self._hosted: dict[InstanceType, npt.NDArray[np.bool_]] = {}
        self._values: dict[tuple[Family | None, frozenset[tuple[int, int]]], int] = {}
        self.values = self._class_values(self.classes)

    def _classify(self, multi_task_view: bool) -> tuple[list[RankedClass], dict[RunId, int]]:
        """Price every task run and group them: linear in the number of task runs."""
        traits = self.cache.shapes.of(self.snapshot.runs)
        shape_of, shape_in_gang = self._shapes_of(traits, multi_task_view)
        priced = self._prices.priced([*shape_of.values(), *shape_in_gang.values()])
        charges = {}
        if multi_task_view:
            charges = self._gang_charges(priced, shape_of, shape_in_gang, traits)
        special: dict[RunId, _ClassKey] = {}
        for run in self.snapshot.runs if charges or self._alone else ():
            if run.job in charges or run.id in self._alone:
                trait = traits[run.id]
                shape = shape_in_gang.get(run.id, shape_of[trait])
                label = self._label(trait.workload)
                if run.id in self._alone:
                    gang = self._alone[run.id]
                    label = UNPROFILED if gang is None else alone_with_its_gang(gang, label)
                special[run.id] = shape, label, charges.get(run.job, priced[shape].price)
        plain = Counter(traits.values())
        plain.subtract(map(traits.__getitem__, special))
        of_kind: dict[TaskTraits, _ClassKey] = {
            trait: (shape, self._label(trait.workload), priced[shape].price)
            for trait, shape in shape_of.items()
            if plain[trait]
        }
        ranked = {
            key: self._prices.ranked(priced[key[0]], *key[1:])
            for key in (*of_kind.values(), *special.values())
        }
        keys = sorted(ranked, key=lambda key: ranked[key].rank)
        numbers = {key: number for number, key in enumerate(keys)}
        kinds = {trait: numbers[key] for trait, key in of_kind.items()}
        class_of = {run: kinds[trait] for run, trait in traits.items() if run not in special}
        class_of.update((run, numbers[key]) for run, key in special.items())
        return [ranked[key] for key in keys], class_of

    @cached_property
    def placed(self) -> PlacedRuns:
        """Facts about all task runs."""
        return self.cache.placed(self.snapshot)

    @cached_property
    def standing(self) -> PresentCluster:
        """The place of every task run now."""
        return self.cache.present.of(self.runs, self.placed, self.instances, self.class_of)

    def _shapes_of(
        self, traits: Mapping[RunId, TaskTraits], multi_task_view: bool
    ) -> tuple[dict[TaskTraits, TaskShape], dict[RunId, TaskShape]]:
        """Shapes of task runs: their demand, their speed, and their effect on their gang.

        Returns:
            Shapes of tasks by their traits; and shapes of members of gangs that run faster on some
            families than on others.
        """
        measured, expected = self._measured, self._expected
        shape_of = {
            trait: trait.shape(measured.get(trait.workload, ()), expected.of(trait.workload))
            for trait in dict.fromkeys(traits.values())
        }
        shape_in_gang: dict[RunId, TaskShape] = {}
        if multi_task_view and any(shape.part.speeds for shape in shape_of.values()):
            parts_of: dict[tuple[tuple[TaskTraits, ...], bool], list[GangPart] | None] = {}
            for job in self.gangs:
                gang, split = (
                    tuple(traits[name] for name in job.runs),
                    job.spec.training.split_batch,
                )
                if (gang, split) not in parts_of:
                    members = [
                        (
                            member.demand,
                            member.rates(
                                measured.get(member.workload, ()), expected.of(member.workload)
                            ),
                        )
                        for member in gang
                    ]
                    parts_of[gang, split] = parts(members, self._prices.on_sale, split=split)
                gang_parts = parts_of[gang, split] or ()
                for name, trait, part in zip(job.runs, gang, gang_parts, strict=False):
                    shape_in_gang[name] = trait.as_part(part)
        return shape_of, shape_in_gang

    @cached_property
    def gangs(self) -> Sequence[JobView]:
        """Gangs of more than one task run."""
        return self.cache.jobs(self.snapshot).gangs

    def _gang_charges(
        self,
        priced: Mapping[TaskShape, PricedShape],
        shape_of: Mapping[TaskTraits, TaskShape],
        shape_in_gang: Mapping[RunId, TaskShape],
        traits: Mapping[RunId, TaskTraits],
    ) -> dict[str, int]:
        """Summed reservation prices of each gang's members."""
        jobs = {job.id for job in self.gangs}
        charges: dict[str, int] = dict.fromkeys(jobs, 0)
        for run in self.snapshot.runs if jobs else ():
            if run.job in jobs:
                shape = shape_in_gang.get(run.id, shape_of[traits[run.id]])
                charges[run.job] += priced[shape].price
        return charges

    def _label(self, workload: Workload) -> Workload:
        """The workload, or the label of all that nothing is known about: they are alike."""
        if self._by_base:
            workload = base_of(workload)
        return workload if self._observed.mentions(workload) else UNKNOWN

    def _class_values(self, classes: Sequence[TaskClass]) -> ClassValues:
        """Choose integers wide enough for the value of any instance's contents."""
        families = [None] if self.uniform else list(self.need)
        prices = {
            family: [c.price if family is None else c.price_on(family) for c in classes]
            for family in families
        }
        charges = {
            family: [c.charge if family is None else c.charge_on(family) for c in classes]
            for family in families
        }
        largest = max((max(row, default=0) for row in charges.values()), default=0)
        few = 2 * largest * max(len(self.runs), 1) * MILLION < 2**62
        narrow = few or 2 * largest * max(self._most_tasks(), 1) * MILLION < 2**62
        dtype = np.int64 if narrow else np.object_
        each = {family: np.array(row, dtype=dtype) for family, row in prices.items()}
        every = {family: np.array(row, dtype=dtype) for family, row in charges.items()}
        if self.uniform:
            return ClassValues(
                dict.fromkeys(self.need, each[None]), dict.fromkeys(self.need, every[None])
            )
        return ClassValues(
            {family: each[family] for family in self.need},
            {family: every[family] for family in self.need},
        )

    def _most_tasks(self) -> int:
        """Bound how many tasks any instance may hold."""
        bounds = [
            min(
                (
                    int(size // smallest)
                    for size, smallest in zip(
                        vector(offering.type.capacity),
                        self.need[offering.type.family].min(axis=0, initial=IMPOSSIBLE),
                        strict=True,
                    )
                    if smallest > 0
                ),
                default=len(self.runs),
            )
            for offering in self.offerings
        ]
        return min(max(bounds, default=0), len(self.runs))

    def values_among(
        self, offerings: Sequence[Offering]
    ) -> tuple[ClassValues, npt.NDArray[np.bool_]]:
        """Value the classes as if only these offerings were on sale.

        Args:
            offerings: Cheapest first.

        Returns:
            The values, and which classes one of the offerings hosts; values of the others are
            unchanged.
        """
        paces, others = [c.speeds for c in self.classes], [c.others for c in self.classes]
        reserved = worths(self.need, offerings, paces, others)
        revalued = [
            task_class if offering is None else task_class.reserved(offering)
            for task_class, offering in zip(self.classes, reserved, strict=True)
        ]
        hosted = np.array([offering is not None for offering in reserved], dtype=np.bool_)
        return self._class_values(revalued), hosted

    def reservation(self, number: int) -> Offering | None:
        """The offering that sets the reservation price of a class, if it is on sale now."""
        return self._prices.reservation(self.classes[number])

    @cached_property
    def sold(self) -> Mapping[InstanceId, Offering]:
        """Offering of each live instance, at the present price; in order."""
        return {name: self.by_id[offering] for name, offering in self.sold_as.items()}

    def offering_of(self, instance: InstanceId) -> Offering:
        """Offering of a live instance, at the present price."""
        return self.by_id[self.sold_as[instance]]

    def buyable(self, offering: OfferingId) -> bool:
        """Whether the offering may be launched now, its limit aside."""
        return offering in self._prices.ids_on_sale

    def hosted(self, machine: InstanceType) -> npt.NDArray[np.bool_]:
        """Whether an empty machine of a type holds a task, by class."""
        holds = self._hosted.get(machine)
        if holds is None:
            fits = self.need[machine.family] <= self.capacity(machine)
            holds = self._hosted[machine] = np.asarray(fits.all(axis=1))
        return holds

    def capacity(self, machine: InstanceType) -> Ints:
        """Capacity of a type, with the columns of `need`."""
        return np.array(vector(machine.capacity), dtype=np.int64)

    def shares(self, machine: InstanceType) -> Ints:
        """Share of a machine's resources for a task of each class (columns).

        In millionths, rounded down.
        """
        shares = self._shares.get(machine)
        if shares is None:
            capacity = np.maximum(self.capacity(machine), 1)
            need = np.ascontiguousarray(self.need[machine.family].T)
            shares = need * MILLION // capacity[:, np.newaxis]
            self._shares[machine] = shares
        return shares

    def total(self, family: Family, task_set: TaskSet) -> Vector:
        """Demand of a set of tasks on a family."""
        rows = self._rows[family]
        gpus = cpus = memory = disk = 0
        for number, count in task_set.items():
            need = rows[number]
            gpus, cpus, memory, disk = (
                gpus + count * need[0],
                cpus + count * need[1],
                memory + count * need[2],
                disk + count * need[3],
            )
        return gpus, cpus, memory, disk

    def fits(self, offering: OfferingId, task_set: TaskSet) -> bool:
        """Whether an empty instance of the offering holds a set of tasks."""
        machine = self.by_id[offering].type
        return all(map(le, self.total(machine.family, task_set), vector(machine.capacity)))

    def value(self, task_set: TaskSet, family: Family) -> int:
        """TNRP of a set of tasks on a family (Eva, sections 4.3 and 4.4).

        In millionths of micro-dollars per hour.
        """
        key = None if self.uniform else family, frozenset(task_set.items())
        if key not in self._values:
            self._values[key] = self._value(task_set, family)
        return self._values[key]

    def lost(self, task_set: TaskSet, family: Family) -> int:
        """Loss of a set of tasks by being together, and on this family.

        The loss is the worth of each task alone where it runs fastest, less the set's TNRP; in
        millionths of micro-dollars per hour.
        """
        worth = sum(count * self.classes[number].most for number, count in task_set.items())
        return worth * MILLION - self.value(task_set, family)

    def slowness(self, number: int, family: Family) -> int:
        """Loss of a task of a class alone by running on this family.

        The loss is in micro-dollars per hour.
        """
        task_class = self.classes[number]
        return task_class.most - task_class.price_on(family)

    def _value(self, task_set: TaskSet, family: Family) -> int:
        tasks: dict[int, int] = {}
        charges: dict[int, int] = {}
        total = 0
        for number, count in task_set.items():
            task_class, workload = self.classes[number], int(self.workloads[number])
            total += count * task_class.price_on(family) * MILLION
            tasks[workload] = tasks.get(workload, 0) + count
            charge = count * task_class.charge_on(family)
            charges[workload] = charges.get(workload, 0) + charge
        multiset = tuple(sorted(tasks.items()))
        for (workload, _), ppm in zip(multiset, self.throughput.exact(multiset), strict=True):
            total -= (MILLION - ppm) * charges[workload]
        return total

    def counts(self, runs: Iterable[RunId]) -> Ints:
        """How many of these task runs each class has."""
        numbers = [self.class_of[run] for run in runs]
        return np.bincount(np.array(numbers, dtype=np.int64), minlength=len(self.classes)).astype(
            np.int64
        )


def _needs_disk(task_class: TaskClass) -> bool:
    return any(need.disk_mib for _, need in task_class.demand)
