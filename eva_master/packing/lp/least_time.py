"""The least total time in which a fleet of several types can do some work, by an LP.

Work may change its type at any moment and for nothing, and share machines in any proportion. So the
result is a lower bound for every scheduler. The duals give the worth of each type's time, and so
the best use of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from eva_master.model.resources import Resources
from eva_master.packing.lp.pricing.knapsack import Floats
from eva_master.packing.lp.solver import DUAL_SIMPLEX, INFINITY, add_columns, add_rows, solver
from eva_master.packing.valuation.vectors import WIDTH, vector
from eva_wire.values.ids import Family


@dataclass(frozen=True, slots=True)
class Need:
    """One kind of work to do.

    Attributes:
        demand: Resources that it takes while it is done on a type alone, by type.
        alone_ms: Its duration on a type alone, above 0; of the same types.
        count: Number of independent pieces of work of this kind.
    """

    demand: Mapping[Family, Resources]
    alone_ms: Mapping[Family, float]
    count: int = 1


@dataclass(frozen=True, slots=True)
class LeastTime:
    """The least total time, and the duals behind it.

    Attributes:
        bound_ms: Lower bound of the time until all work is done.
        price: Rise of the bound in milliseconds for each millisecond for which a unit of a resource
            is taken away, see `Vector`, by type; 0 for a resource that is not the bottleneck.
        parts: Part of the bound that is due to each type: the price of all its resources.
    """

    bound_ms: float
    price: Mapping[Family, tuple[float, ...]]
    parts: Mapping[Family, float]

    def cost(self, family: Family, need: Resources) -> float:
        """Cost of a millisecond of some resources of a type, in milliseconds of the bound."""
        return sum(
            each * amount for each, amount in zip(self.price[family], vector(need), strict=True)
        )


def least_time(
    needs: Sequence[Need], capacity: Mapping[Family, Resources], *, one_by_one: bool = True
) -> LeastTime | None:
    """Find the least total time.

    Args:
        needs: The work.
        capacity: All resources of each type.
        one_by_one: Whether a piece of work takes at least as long as without pause; if not, only
            the capacities limit it.

    Returns:
        The least time, or `None` if some work can run nowhere.
    """
    if not all(need.alone_ms.keys() & capacity.keys() for need in needs):
        return None
    if not needs:
        return LeastTime(0.0, dict.fromkeys(capacity, (0.0,) * WIDTH), dict.fromkeys(capacity, 0.0))
    rows = {row: number for number, row in enumerate(scarce(needs, capacity))}
    # The unit of time is the longest work on its fastest type, so that numbers are near 1.
    unit = max(min(_times(need, capacity).values()) for need in needs)
    limits = len(rows) + (len(needs) if one_by_one else 0)
    columns = [(1.0, list(range(limits)), [1.0] * limits)]
    for number, need in enumerate(needs):
        for family, alone_ms in _times(need, capacity).items():
            shares = parts_taken(need.demand[family], capacity[family])
            taken = {
                rows[family, resource]: part
                for resource, part in shares
                if (family, resource) in rows
            }
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
    """Share of a type's most used resource that a demand takes."""
    return max((part for _, part in parts_taken(need, there)), default=0.0)


def _times(need: Need, capacity: Mapping[Family, Resources]) -> dict[Family, float]:
    return {family: need.alone_ms[family] for family in capacity if family in need.alone_ms}


def parts_taken(need: Resources, there: Resources) -> list[tuple[int, float]]:
    """Share of each resource of a type that a demand takes, where it takes any."""
    each = enumerate(zip(vector(need), vector(there), strict=True))
    return [(number, amount / size) for number, (amount, size) in each if amount and size]


def scarce(
    needs: Sequence[Need], capacity: Mapping[Family, Resources]
) -> Iterator[tuple[Family, int]]:
    """The resources of types that can be scarce, as (type, column of a `Vector`).

    A resource is left out if another one always has at least as large a share in use.
    """
    for family, size in capacity.items():
        demands = {need.demand[family] for need in needs if family in need.alone_ms}
        shares = [dict(parts_taken(demand, size)) for demand in demands]
        taken = {
            resource: [parts.get(resource, 0.0) for parts in shares] for resource in range(WIDTH)
        }
        used = [resource for resource in taken if any(taken[resource])]
        for number in reversed(used[:]):
            mine = taken[number]
            if any(_covers(taken[resource], mine) for resource in used if resource != number):
                used.remove(number)
        yield from ((family, number) for number in used)


def _covers(parts: Sequence[float], others: Sequence[float]) -> bool:
    return all(part >= other for part, other in zip(parts, others, strict=True))


def _prices(
    duals: Floats, rows: Mapping[tuple[Family, int], int], capacity: Mapping[Family, Resources]
) -> dict[Family, tuple[float, ...]]:
    """Worth of a unit of each resource of a type."""

    def price(family: Family, number: int, size: int) -> float:
        row = rows.get((family, number))
        return 0.0 if row is None else float(duals[row]) / size

    return {
        family: tuple(price(family, *column) for column in enumerate(vector(size)))
        for family, size in capacity.items()
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
