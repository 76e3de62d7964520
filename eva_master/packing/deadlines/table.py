"""Expected cost of a job with a deadline, and its cheapest next choice.

The table is over the remaining work, the time that may be lost, the age of spot instances' presence
or absence, and the job's place, by dynamic programming. Costs are parts of the price of an hour on
demand. Time advances in equal steps; a change of instance takes some of them, which are paid and
get nothing done.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from eva_master.learning.market.survival import AGES_MS
from eva_wire.values.ids import MILLION, MILLIS_PER_HOUR

CLASSES = len(AGES_MS) + 1
"""Of ages."""
_UP, _AWAY = slice(0, CLASSES), slice(CLASSES, 2 * CLASSES)
_OTHERS_AGE = 2
"""The class of age of another pool that is there when one runs dry, which nobody has watched."""

Costs = npt.NDArray[np.float64]
Choices = npt.NDArray[np.int8]
Rows = npt.NDArray[np.int_]


class MarketChoice(IntEnum):
    """Next choice of a job, or its present place; a job that waits has none."""

    SPOT = 0
    ON_DEMAND = 1
    WAIT = 2


@dataclass(frozen=True, slots=True)
class SpotForecast:
    """Forecast for the spot instances that a job may run on.

    Attributes:
        price_ppm: Spot price, in millionths of the on-demand price.
        loss: How often per hour a pool runs dry, by class of age (`survival.AGES_MS`).
        back: How often per hour a pool comes back when all are away, by class of age.
        other_ppm: How often another pool is available when one runs dry, in millionths.
    """

    price_ppm: int
    loss: tuple[float, ...]
    back: tuple[float, ...]
    other_ppm: int = 0


UNKNOWN = SpotForecast(MILLION, (1.0,) * CLASSES, (1.0,) * CLASSES)
"""For who does not ask."""


def table(
    outlook: SpotForecast, step_ms: int, change: int, steps: int
) -> Iterator[tuple[Costs, Choices]]:
    """Compute the table, for a growing total of steps.

    Args:
        outlook: The forecast.
        step_ms: The length of a step.
        change: How many steps a change takes, at least one.
        steps: The most steps, both of work and of time to lose beyond the time of a change to on
            demand.

    Yields:
        For each number of steps: the least cost and the cheapest choice, by steps of work among
        them, by pools (classes of age of an available pool, then of the pools' absence), and by
        place.
    """
    back = _Steps(outlook, step_ms, change)
    for rest in range(steps + 1):
        costs = back.of(rest)
        yield costs.min(axis=0), costs.argmin(axis=0).astype(np.int8)


class _Steps:
    """Goes back in time from the deadline."""

    def __init__(self, outlook: SpotForecast, step_ms: int, change: int) -> None:
        self._change = change
        self._hours = step_ms / MILLIS_PER_HOUR
        self._price = outlook.price_ppm / MILLION
        self._stays, self._drops = _chances(outlook, self._hours)
        moves = self._stays + self._drops
        self._moves = moves
        self._stays_long = np.linalg.matrix_power(self._stays, change)
        self._moves_long = np.linalg.matrix_power(moves, change)
        self._best: deque[Costs] = deque(maxlen=change)
        """Least costs with fewer steps left, as far back as a change takes."""

    def of(self, left: int) -> Costs:
        """Cost of each choice: by work, by pools, by place; infinite where it is not possible."""
        costs = np.full((len(MarketChoice), left + 1, 2 * CLASSES, len(MarketChoice)), np.inf)
        work = np.arange(left + 1)
        costs[:, 0] = 0
        # Without time to lose the job continues on demand; a change takes the time kept for it.
        nowhere = work + self._change
        none = work >= max(left, 1)
        for place in MarketChoice:
            rest = work if place is MarketChoice.ON_DEMAND else nowhere
            costs[MarketChoice.ON_DEMAND, none, :, place] = self._hours * rest[none, None]
        some = work[(work > 0) & (work < left)]
        if len(some):
            self._go_on(costs, some)
            self._change_over(costs, left, some)
        self._best.append(costs.min(axis=0))
        return costs

    def _go_on(self, costs: Costs, work: Rows) -> None:
        """Costs of running on in the present place, and of waiting for a step."""
        then, hours = self._best[-1], self._hours
        costs[MarketChoice.ON_DEMAND, work, :, MarketChoice.ON_DEMAND] = (
            hours + then[work - 1][..., MarketChoice.ON_DEMAND] @ self._moves.T
        )
        spot = then[work - 1][..., MarketChoice.SPOT] @ self._stays.T
        spot += then[work - 1][..., MarketChoice.WAIT] @ self._drops.T
        costs[MarketChoice.SPOT, work, _UP, MarketChoice.SPOT] = (self._price * hours + spot)[
            :, _UP
        ]
        waits = then[work][..., MarketChoice.WAIT] @ self._moves.T
        costs[MarketChoice.WAIT, work] = waits[..., None]

    def _change_over(self, costs: Costs, left: int, work: Rows) -> None:
        """Costs of changes; a change to spot requires the time to change back."""
        hours = self._hours * self._change
        late, able = work[left - work < self._change], work[left - work >= self._change]
        for place in (MarketChoice.SPOT, MarketChoice.WAIT):
            costs[MarketChoice.ON_DEMAND, late, :, place] = (hours + late * self._hours)[:, None]
        if not len(able):
            return
        then = self._best[0][able]
        paid = hours + then[..., MarketChoice.ON_DEMAND] @ self._moves_long.T
        for place in (MarketChoice.SPOT, MarketChoice.WAIT):
            costs[MarketChoice.ON_DEMAND, able, :, place] = paid
        spot = then[..., MarketChoice.SPOT] @ self._stays_long.T
        spot += then[..., MarketChoice.WAIT] @ (self._moves_long - self._stays_long).T
        for place in (MarketChoice.ON_DEMAND, MarketChoice.WAIT):
            costs[MarketChoice.SPOT, able, _UP, place] = (self._price * hours + spot)[:, _UP]


def _chances(outlook: SpotForecast, hours: float) -> tuple[Costs, Costs]:
    """The chances of getting from one class to another within a step.

    Returns:
        For whom nothing is lost, and for whom a pool runs dry.
    """
    stays, drops = np.zeros((2, 2 * CLASSES, 2 * CLASSES))
    other, starts = outlook.other_ppm / MILLION, (0, *AGES_MS)
    for first, rates in ((0, outlook.loss), (CLASSES, outlook.back)):
        for number in range(CLASSES):
            here, ends = first + number, -np.expm1(-rates[number] * hours)
            older = 0.0
            if number + 1 < CLASSES:
                width_ms = AGES_MS[number] - starts[number]
                older = min(1.0, hours * MILLIS_PER_HOUR / width_ms)
                stays[here, here + 1] = (1 - ends) * older
            stays[here, here] = (1 - ends) * (1 - older)
            if first:
                stays[here, 0] += ends
            else:
                drops[here, CLASSES] = ends * (1 - other)
                drops[here, _OTHERS_AGE] = ends * other
    return stays, drops
