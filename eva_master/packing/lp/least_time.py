"""The least total time in which a fleet of several types can do some work, by an LP.

Work may change its type at any moment and for nothing, and share machines in any proportion. So no
scheduler is done earlier. What a type's time is worth then tells what it should be used for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from eva_master.model.ids import Family
from eva_master.model.resources import Resources
from eva_master.packing.lp.pricing.knapsack import Floats
from eva_master.packing.lp.solver import DUAL_SIMPLEX, INFINITY, add_columns, add_rows, solver
from eva_master.packing.valuation.vectors import vector


@dataclass(frozen=True, slots=True)
class Need:
    """Work that is to be done.

    Attributes:
        demand: What it takes while it is done on a type alone, by type.
        alone_ms: How long it takes on a type alone, above 0; of the same types.
        count: So many independent pieces of work are like this.
    """

    demand: Mapping[Family, Resources]
    alone_ms: Mapping[Family, float]
    count: int = 1


@dataclass(frozen=True, slots=True)
class LeastTime:
    """The optimum.

    Attributes:
        bound_ms: Nobody can be done with everything before.
        price: By how many milliseconds the bound rises for each millisecond for which a unit of a
            resource is taken away, as (GPUs, milli-CPUs, MiB) by type; 0 where something else
            decides, be it another type or the longest work.
        parts: What part of the bound is due to each type: what all of it costs.
    """

    bound_ms: float
    price: Mapping[Family, tuple[float, float, float]]
    parts: Mapping[Family, float]

    def cost(self, family: Family, need: Resources) -> float:
        """What a millisecond of some resources of a type costs, in milliseconds of the bound."""
        return sum(
            each * amount for each, amount in zip(self.price[family], vector(need), strict=True)
        )


def least_time(
    needs: Sequence[Need], capacity: Mapping[Family, Resources], *, one_by_one: bool = True
) -> LeastTime | None:
    """Find the least total time.

    Args:
        needs: The work.
        capacity: All that there is, by type.
        one_by_one: Whether a piece of work takes at least as long as it does without pause; if
            not, only what there is of each type limits it.

    Returns:
        It, or `None` if some work can run nowhere.
    """
    if not all(need.alone_ms.keys() & capacity.keys() for need in needs):
        return None
    if not needs:
        return LeastTime(
            0.0, dict.fromkeys(capacity, (0.0, 0.0, 0.0)), dict.fromkeys(capacity, 0.0)
        )
    rows = {row: number for number, row in enumerate(scarce(needs, capacity))}
    # Times count in that of the longest work where it is fastest, so that numbers are near 1.
    unit = max(min(_times(need, capacity).values()) for need in needs)
    limits = len(rows) + (len(needs) if one_by_one else 0)
    columns = [(1.0, list(range(limits)), [1.0] * limits)]
    for number, need in enumerate(needs):
        for family, alone_ms in _times(need, capacity).items():
            shares = parts_taken(need.demand[family], capacity[family])
            taken = {rows[family, it]: part for it, part in shares if (family, it) in rows}
            entries = {row: -part * need.count for row, part in taken.items()}
            if one_by_one:
                entries[len(rows) + number] = -1.0
            entries[limits + number] = unit / alone_ms
            columns.append((0.0, list(entries), list(entries.values())))
    done = np.concatenate([np.zeros(limits), np.ones(len(needs))])
    duals, bound = _solved(done, columns)
    prices, parts = _prices(duals, rows, capacity), dict.fromkeys(capacity, 0.0)
    for (family, _), row in rows.items():
        parts[family] += float(duals[row])
    return LeastTime(bound * unit, prices, parts)


def largest_share(need: Resources, there: Resources) -> float:
    """What part of a type something takes, of the resource of which it takes the largest part."""
    return max((part for _, part in parts_taken(need, there)), default=0.0)


def _times(need: Need, capacity: Mapping[Family, Resources]) -> dict[Family, float]:
    return {family: need.alone_ms[family] for family in capacity if family in need.alone_ms}


def parts_taken(need: Resources, there: Resources) -> list[tuple[int, float]]:
    """What part of each resource of a type something takes, of those that it takes any of."""
    each = enumerate(zip(vector(need), vector(there), strict=True))
    return [(number, amount / size) for number, (amount, size) in each if amount and size]


def scarce(
    needs: Sequence[Need], capacity: Mapping[Family, Resources]
) -> Iterator[tuple[Family, int]]:
    """The resources of types that can be scarce, as (type, 0 for GPUs, 1 for CPUs, 2 for memory).

    One of which nobody takes a larger part than of another one is not.
    """
    for family, there in capacity.items():
        demands = {need.demand[family] for need in needs if family in need.alone_ms}
        shares = [dict(parts_taken(demand, there)) for demand in demands]
        taken = {it: [parts.get(it, 0.0) for parts in shares] for it in range(3)}
        left = [it for it in taken if any(taken[it])]
        for number in reversed(left[:]):
            mine = taken[number]
            if any(_covers(taken[it], mine) for it in left if it != number):
                left.remove(number)
        yield from ((family, number) for number in left)


def _covers(parts: Sequence[float], others: Sequence[float]) -> bool:
    return all(part >= other for part, other in zip(parts, others, strict=True))


def _prices(
    duals: Floats, rows: Mapping[tuple[Family, int], int], capacity: Mapping[Family, Resources]
) -> dict[Family, tuple[float, float, float]]:
    """What a unit of each resource of a type is worth."""

    def price(family: Family, number: int, size: int) -> float:
        row = rows.get((family, number))
        return 0.0 if row is None else float(duals[row]) / size

    return {
        family: (
            price(family, 0, there.gpus),
            price(family, 1, there.milli_cpus),
            price(family, 2, there.memory_mib),
        )
        for family, there in capacity.items()
    }


def _solved(
    least: Floats, columns: Sequence[tuple[float, list[int], list[float]]]
) -> tuple[Floats, float]:
    """The duals of all rows, and the optimum; there is one, since time is not limited."""
    lp = solver()
    lp.setOptionValue("simplex_strategy", DUAL_SIMPLEX)
    add_rows(lp, least, np.full(len(least), INFINITY))
    add_columns(lp, columns)
    lp.run()
    return np.maximum(np.array(lp.getSolution().row_dual), 0.0), float(lp.getObjectiveValue())
