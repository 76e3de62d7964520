"""Column generation: the configuration LP over all task sets, without listing them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from eva_master.model.catalog import Offering
from eva_master.packing.greedy.algorithm1 import Supply
from eva_master.packing.interference.throughput import Ints
from eva_master.packing.lp.columns import Column, TaskSetKey, column
from eva_master.packing.lp.pricing import compiled_knapsack
from eva_master.packing.lp.pricing.greedy_columns import GreedyColumns
from eva_master.packing.lp.pricing.knapsack import Floats, KnapsackProblem, KnapsackResult
from eva_master.packing.lp.pricing.remembered import Answers
from eva_master.packing.lp.pricing.workload_multisets import MultisetSearch
from eva_master.packing.lp.restricted_master import Relaxation, Relaxed
from eva_master.packing.problem import Problem
from eva_master.packing.round_work import WorkBudget
from eva_master.packing.valuation.vectors import Vector, vector
from eva_wire.values.ids import MILLION, Family, OfferingId

_NUMERICAL_MARGIN = 1e-9
_CENTER_WEIGHT = 0.5
_SMOOTHED_FROM_BOUND = 0.9
"""Duals of a bound that is so close to the LP's cost are worth staying near to."""
_ROUNDING_GRAIN = float(1 << 36)
_SLOW_FALL, _SLOW_ROUNDS = 1e-3, 3
"""The LP falls slowly if by less than this, as a fraction, so many times on end."""
_FIRST_SHORTENING, _SHORTENING_STEP = 64, 4
"""By what searches are shortened at first, and by how much less once the LP falls slowly."""
_FEWEST_ROUNDS = 4
_PART_FOR_FINDING = 16
"""With interference this part of the limits is for finding columns before proofs."""
_DEEPER_FOR_KNOWN_DUALS = 16
"""Duals that proved a bound before are likely to do so again, so it pays to look deeper."""


@dataclass(frozen=True, slots=True)
class EffortLimits:
    """Limits of effort; counted, never timed, so that plans are equal on all machines.

    Attributes:
        classes: With more classes than this ``auto`` uses Algorithm 1 alone.
        iterations: Rounds of pricing.
        class_iterations: total_nodes: Sets examined, after which the current round of pricing is
            the last.
        total_nodes: class_iterations: Rounds of pricing times classes; at least four rounds are
            made.
        nodes: Sets examined per machine and round of pricing.
        total_multisets: Limit in place of `total_nodes` with interference: multisets of workloads,
            and partial sets.
        multisets: Limit in place of `nodes` with interference.
        columns: Number of columns at which pricing ends.
        gap: Stop when cost and bound are this close, as a fraction.
        dives: How often the remainder of rounding is solved again.
        integer_gap: An integer solution this close to the LP's is good enough.
        integer_classes: With more classes than this the integer programme is left out.
        integer_nodes: Nodes of the integer programme.
        integer_columns: Number of columns in the integer programme.
    """

    classes: int = 600
    iterations: int = 60
    class_iterations: int = 4_000
    total_nodes: int = 64_000
    nodes: int = 12_000
    total_multisets: int = 8_000_000
    multisets: int = 640_000
    columns: int = 20_000
    gap: float = 1e-4
    dives: int = 40
    integer_gap: float = 5e-4
    integer_classes: int = 150
    integer_nodes: int = 10
    integer_columns: int = 300


@dataclass(frozen=True, slots=True)
class PackingRequest:
    """Tasks to pack, and the offerings to use.

    Attributes:
        problem: The packing problem, with its classes.
        counts: Tasks to place, per class.
        supply: Instances that may be bought of each offering; an absent offering may not be used.
        duals: Approximate cost of covering a task of each class, in micro-dollars per hour; NaN
            where unknown. `None` if all are unknown.
    """

    problem: Problem
    counts: Ints
    supply: Supply
    duals: Floats | None = None


@dataclass(frozen=True, slots=True)
class Generated:
    """Result of column generation.

    Attributes:
        relaxation: The LP with its columns.
        relaxed: Its solution.
        bound: No packing of these tasks costs less; in millionths of micro-dollars per hour.
        iterations: Rounds of pricing.
        nodes: Number of sets examined.
        duals: Duals that prove the bound, in micro-dollars per hour.
        unit: The LP's costs are multiples of this many millionths of micro-dollars per hour.
    """

    relaxation: Relaxation
    relaxed: Relaxed
    bound: int
    iterations: int
    nodes: int
    duals: Floats
    unit: float

    @property
    def cost(self) -> float:
        """Cost of the LP's solution, in millionths of micro-dollars per hour."""
        return self.relaxed.cost * self.unit

    def tight(self, budget: EffortLimits) -> bool:
        """Whether cost and bound are within the budget's gap."""
        return self.cost * (1 - budget.gap) <= self.bound

    def reduced_costs(self) -> list[float]:
        """Cost change by one more of each column, in millionths of micro-dollars per hour."""
        relaxed = self.relaxed
        rent_of = self.relaxation.rent_of(relaxed.rents)
        return [
            self.unit * _reduced(column, self.unit, relaxed.duals, rent_of)
            for column in self.relaxation.columns
        ]


@dataclass(slots=True)
class _Spent:
    """Rounds of pricing, and sets that were looked at."""

    iterations: int = 0
    nodes: int = 0


@dataclass(frozen=True, slots=True)
class _Machine:
    """Machines of one family and capacity.

    Attributes:
        capacity: Their capacity.
        need: Demand on the family: a row per class, with the columns of `capacity`.
        hosted: Whether a class is wanted, and an empty machine holds one of it.
        offerings: The offerings that sell them.
    """

    capacity: Ints
    need: Ints
    hosted: npt.NDArray[np.bool_]
    offerings: list[Offering] = field(default_factory=list)


class Generator:
    """Generates columns for one request."""

    def __init__(
        self, request: PackingRequest, *, interference: bool = True, sets: WorkBudget | None = None
    ) -> None:
        self._sets = sets or WorkBudget()
        self._problem = problem = request.problem
        self._counts, self._supply = request.counts, request.supply
        self._interference = interference and not problem.throughput.harmless
        supply = request.supply
        self._unit = float(max(1, *(o.price for o in problem.offerings)) * MILLION)
        self._limits = {
            name: limit for name, limit in sorted(supply.items()) if limit is not None and limit > 0
        }
        self._machines: dict[tuple[Family, Vector], _Machine] = {}
        width, wanted = problem.width, self._counts > 0
        for offering in problem.offerings:
            if supply.get(offering.id, 0) == 0:
                continue
            family, capacity = offering.type.family, vector(offering.type.capacity)
            machine = self._machines.get((family, capacity))
            if machine is None:
                hosted, need = wanted & problem.hosted(offering.type), problem.need[family]
                machine = _Machine(np.array(capacity[:width]), need[:, :width], hosted)
                self._machines[family, capacity] = machine
            machine.offerings.append(offering)
        self._ratios: dict[tuple[Family, Vector], float] = {}
        self._proving = False
        self._known = None if request.duals is None else request.duals * MILLION / self._unit
        self._bound = 0.0
        self._center: Relaxed | None = None
        self._multiset_searches: dict[Family, MultisetSearch] = {}
        self._answers = problem.cache.remembered("answers", problem.throughput, Answers, limit=1)
        self._greedy_columns: dict[Family, GreedyColumns] = {}
        self._slow: dict[Family, Floats] = {}
        scale = MILLION / self._unit
        for family in sorted({family for family, _ in self._machines}):
            if not problem.uniform:
                slow = [float(problem.slowness(n, family)) for n in range(len(problem.classes))]
                self._slow[family] = _rounded(np.array(slow) * scale)
            if self._interference:
                charges = np.array([float(c.charge_on(family)) for c in problem.classes]) * scale
                model = problem.throughput
                self._multiset_searches[family] = MultisetSearch(model, problem.workloads, charges)
                self._greedy_columns[family] = GreedyColumns(
                    problem.workloads, charges, model.pairwise
                )

    def run(self, seeds: Sequence[Column], budget: EffortLimits) -> Generated | None:
        """Solve the LP as far as the budget goes.

        Args:
            seeds: Columns to begin with; they must cover all tasks within the supply.
            budget: How hard to try.
        """
        self._relaxation = Relaxation(self._counts, self._limits, self._unit)
        self._relaxation.add(seeds)
        finding = budget
        if self._interference:
            total, each = (
                budget.total_multisets // _PART_FOR_FINDING,
                budget.multisets // _PART_FOR_FINDING,
            )
            finding = replace(budget, total_nodes=total, nodes=max(each, 1))
            if self._known is None:
                self._begin_without_interference(seeds, budget)
        spent = _Spent()
        relaxed = None
        if self._known is None:
            relaxed = self._rounds(finding, spent, _FIRST_SHORTENING)
            if relaxed is None:
                return None
        if self._interference and not self._settled(relaxed, budget):
            self._proving = True
            total = spent.nodes + budget.total_multisets
            proving = replace(budget, total_nodes=total, nodes=budget.multisets)
            relaxed = self._rounds(proving, spent, 1)
        elif relaxed is None:
            relaxed = self._rounds(finding, spent, 1)
        if relaxed is None:
            return None
        duals = (self._center or relaxed).duals * (self._unit / MILLION)
        return Generated(
            self._relaxation,
            relaxed,
            self._lower(),
            spent.iterations,
            spent.nodes,
            duals,
            self._unit,
        )

    def _settled(self, relaxed: Relaxed | None, budget: EffortLimits) -> bool:
        """Whether the LP's cost is proven."""
        return relaxed is not None and relaxed.cost <= self._bound * (1 + budget.gap)

    def _rounds(self, budget: EffortLimits, spent: _Spent, haste: int) -> Relaxed | None:
        """Solve the LP and look for columns, in turn; `None` if it has no solution.

        Args:
            budget: Limits of effort.
            spent: Effort so far, to which this is added.
            haste: Factor by which searches are shortened at first.
        """
        relaxation = self._relaxation
        classes = int(np.count_nonzero(self._counts))
        most = min(
            budget.iterations, max(_FEWEST_ROUNDS, budget.class_iterations // max(classes, 1))
        )
        last = spent.iterations + most
        before, slow = float("inf"), 0
        while True:
            relaxed = relaxation.solve()
            if (
                relaxed is None
                or spent.iterations == last
                or spent.nodes >= budget.total_nodes
                or not self._sets.left
                or len(relaxation.columns) >= budget.columns
                or self._settled(relaxed, budget)
            ):
                return relaxed
            spent.iterations += 1
            # While the LP falls fast any column will do; later they have to be the best.
            slow = slow + 1 if relaxed.cost > before * (1 - _SLOW_FALL) else 0
            if slow == _SLOW_ROUNDS:
                slow, haste = 0, max(haste // _SHORTENING_STEP, 1)
            before = relaxed.cost
            effort = replace(budget, nodes=max(budget.nodes // haste, 1))
            fresh, tried = self._price(relaxed, effort)
            spent.nodes += tried
            if not relaxation.add(fresh):
                if haste == 1:
                    return relaxed
                haste = max(haste // _SHORTENING_STEP, 1)

    def _begin_without_interference(self, seeds: Sequence[Column], budget: EffortLimits) -> None:
        """Take bound and duals of the problem without interference.

        In that problem all tasks of equal demand and speed are one class. Interference only adds
        costs, so the bound holds, and the duals are near the wanted ones.
        """
        problem = self._problem
        first: dict[object, int] = {}
        like = np.array(
            [
                first.setdefault((c.demand, c.prices), number)
                for number, c in enumerate(problem.classes)
            ]
        )
        counts = np.zeros_like(self._counts)
        np.add.at(counts, like, self._counts)
        request = PackingRequest(problem, counts, self._supply)
        generator = Generator(request, interference=False, sets=self._sets)
        alike = []
        for seed in seeds:
            task_set: dict[int, int] = {}
            for number, count in seed.task_set:
                task_set[int(like[number])] = task_set.get(int(like[number]), 0) + count
            alike.append(generator.column(seed.offering, tuple(sorted(task_set.items()))))
        generated = generator.run(alike, budget)
        if generated is not None and generator._center is not None:
            center = generator._center
            self._bound = generator._bound
            self._center = replace(center, duals=center.duals[like])

    def _price(self, relaxed: Relaxed, budget: EffortLimits) -> tuple[list[Column], int]:
        """Find columns that make the LP cheaper.

        Pricing first uses duals halfway to those with the best bound so far, which keeps them from
        oscillating; if that finds nothing, the LP's own.

        Returns:
            The columns, and the number of sets examined.
        """
        nodes, deep = 0, 1
        if self._known is not None:
            # Duals of an earlier round are a good guess; the first round of pricing uses them.
            duals = np.where(np.isnan(self._known), relaxed.duals, self._known)
            self._center, self._known = replace(relaxed, duals=duals), None
            weights, deep = (1.0, 0.0), _DEEPER_FOR_KNOWN_DUALS
        elif self._center is not None and (
            not self._proving or self._bound > _SMOOTHED_FROM_BOUND * relaxed.cost
        ):
            weights = (_CENTER_WEIGHT, 0.0)
        else:
            weights = (0.0, 0.0)
        for weight in dict.fromkeys(weights):
            duals, rents = relaxed.duals, relaxed.rents
            if weight and self._center is not None:
                duals = weight * self._center.duals + (1 - weight) * duals
                rents = weight * self._center.rents + (1 - weight) * rents
            candidates, bound, tried = self._search_all(
                _rounded(duals), _rounded(rents), budget, deep
            )
            nodes, deep = nodes + tried, 1
            if bound > self._bound:
                self._bound, self._center = bound, replace(relaxed, duals=duals, rents=rents)
            prices = self._relaxation.rent_of(relaxed.rents)
            paying = [
                column
                for column in candidates
                if _reduced(column, self._unit, relaxed.duals, prices) < -_NUMERICAL_MARGIN
            ]
            columns = candidates if paying else []
            if columns or relaxed.cost <= self._bound * (1 + budget.gap):
                break
        return columns, nodes

    def _search_all(
        self, duals: Floats, rents: Floats, budget: EffortLimits, deep: int = 1
    ) -> tuple[list[Column], float, int]:
        """Look for task sets on every machine, and prove a bound on the LP.

        Args:
            duals: Values of tasks, per class.
            rents: Duals of limited offerings.
            budget: Limits of effort.
            deep: Factor on the effort per machine, within the budget of all machines.
        """
        rent_of = self._relaxation.rent_of(rents)
        nodes, ratios = 0, np.ones(len(self._counts))
        columns: list[Column] = []
        for key in sorted(self._machines, key=lambda key: -self._ratios.get(key, 1.0)):
            (family, capacity), machine = key, self._machines[key]
            price, offering = min(
                (
                    (o.price * MILLION / self._unit - rent_of.get(o.id, 0.0), o)
                    for o in machine.offerings
                ),
                key=lambda item: item[0],
            )
            hosted = machine.hosted
            # A search need not go below the ratio of worth to price that other machines have
            # reached for each class that fits.
            reached = float(ratios[hosted].min()) if hosted.any() else 1.0
            worth = price * (1 + max(budget.gap, reached - 1 if self._proving else 0.0) / 2)
            value = duals - self._slow[family] if self._slow else duals
            spare = min(deep * budget.nodes, budget.total_nodes - nodes)
            most_nodes = max(budget.nodes, spare)
            question = KnapsackProblem(
                machine.capacity,
                machine.need,
                value,
                self._counts,
                worth,
                most_nodes,
                self._sets,
            )
            outcome = self._find(family, question)
            nodes += outcome.nodes
            self._ratios[key] = outcome.bound / price if price > 0 else 1.0
            ratios[hosted] = np.maximum(ratios[hosted], self._ratios[key])
            columns.extend(self.column(offering, task_set) for task_set in outcome.task_sets)
            if self._greedy_columns and capacity[0]:
                greedy = self._greedy_columns[family].task_sets(question)
                columns.extend(self.column(offering, task_set) for task_set in greedy)
        # Each class scaled by the largest ratio of all machines that hold it, the duals admit no
        # column that pays, so they prove a bound.
        bound = float((np.maximum(duals, 0.0) / ratios * self._counts).sum())
        bound += sum(rent * self._limits[name] for name, rent in rent_of.items())
        return columns, bound, nodes

    def column(self, offering: Offering, task_set: TaskSetKey) -> Column:
        """Price a task set, without what its tasks lose to one another if that is left out."""
        if self._interference:
            return column(self._problem, offering, task_set)
        slow, family = self._problem.slowness, offering.type.family
        price = offering.price + sum(count * slow(number, family) for number, count in task_set)
        return Column(offering, task_set, price * MILLION)

    def _find(self, family: Family, question: KnapsackProblem) -> KnapsackResult:
        if not self._interference:
            return compiled_knapsack.search(question)
        search = self._multiset_searches[family]
        return self._answers.run(search, question) if self._proving else search.run(question)

    def _lower(self) -> int:
        return max(0, int(self._bound * self._unit * (1 - _NUMERICAL_MARGIN)))


def _reduced(
    column: Column, unit: float, duals: Floats, rent_of: Mapping[OfferingId, float]
) -> float:
    """Change of the LP's cost by one more of a column."""
    covered = sum(count * float(duals[number]) for number, count in column.task_set)
    return column.cost / unit - rent_of.get(column.offering.id, 0.0) - covered


def _rounded(values: Floats) -> Floats:
    """Rounded down to multiples of a power of two, so that their sums are exact."""
    return np.asarray(np.floor(values * _ROUNDING_GRAIN) / _ROUNDING_GRAIN)
