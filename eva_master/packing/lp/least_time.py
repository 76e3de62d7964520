"""The least total time in which a fleet of several GPU types can do some work, by an LP.

Jobs may change their type at any moment and for nothing, and share GPUs in any proportion. So no
scheduler is done earlier. What one job more would cost tells what the types are worth.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from eva_master.model.ids import Family
from eva_master.packing.lp.pricing.knapsack import Floats
from eva_master.packing.lp.solver import DUAL_SIMPLEX, INFINITY, add_columns, add_rows, solver


@dataclass(frozen=True, slots=True)
class Need:
    """Work that is to be done.

    Attributes:
        gpus: On so many GPUs at a time.
        alone_ms: How long it takes on a type alone, above 0, by type; nothing where it cannot run.
    """

    gpus: int
    alone_ms: Mapping[Family, float]


@dataclass(frozen=True, slots=True)
class LeastTime:
    """The optimum.

    Attributes:
        bound_ms: Nobody can be done with everything before.
        price_of_type: By how many milliseconds the bound rises for each millisecond for which a GPU
            of a type is taken away; 0 where the longest work decides.
    """

    bound_ms: float
    price_of_type: Mapping[Family, float]


def least_time(needs: Sequence[Need], capacity: Mapping[Family, int]) -> LeastTime | None:
    """Find the least total time.

    Args:
        needs: The work.
        capacity: How many GPUs there are, by type.

    Returns:
        It, or `None` if some work can run nowhere.
    """
    types = {family: number for number, family in enumerate(sorted(capacity))}
    if not all(types.keys() & need.alone_ms.keys() for need in needs):
        return None
    if not needs:
        return LeastTime(0.0, dict.fromkeys(types, 0.0))
    # Times count in that of the longest work where it is fastest, so that numbers are near 1.
    unit = max(min(_times(need, types).values()) for need in needs)
    size = len(needs)
    total_time = [float(capacity[family]) for family in types] + [1.0] * size
    first = list(range(len(types), len(types) + size))
    columns = [(1.0, [*types.values(), *first], total_time)]
    for number, need in enumerate(needs):
        for family, alone_ms in _times(need, types).items():
            rows = [types[family], first[number], first[number] + size]
            columns.append((0.0, rows, [-float(need.gpus), -1.0, unit / alone_ms]))
    done = np.concatenate([np.zeros(len(types) + size), np.ones(size)])
    prices, bound = _solved(done, columns)
    return LeastTime(bound * unit, {family: float(prices[row]) for family, row in types.items()})


def _times(need: Need, types: Mapping[Family, int]) -> dict[Family, float]:
    return {family: need.alone_ms[family] for family in types if family in need.alone_ms}


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
