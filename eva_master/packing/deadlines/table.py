"""What a job with a deadline is expected to cost, and what is the cheapest that it can do next.

A table over the work that is left, the time that may be lost, how long spot instances have been
there or away, and where the job runs, by dynamic programming. Costs are parts of what an hour on
demand costs. Time advances in equal steps; a change of instance takes some of them, which are paid
and get nothing done.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from eva_master.learning.market.survival import AGES_MS
from eva_master.model.ids import MILLION, MILLIS_PER_HOUR

CLASSES = len(AGES_MS) + 1
"""Of ages."""
_UP, _AWAY = slice(0, CLASSES), slice(CLASSES, 2 * CLASSES)
_OTHERS_AGE = 2
"""The class of age of another pool that is there when one runs dry, which nobody has watched."""

Costs = npt.NDArray[np.float64]
Choices = npt.NDArray[np.int8]
Rows = npt.NDArray[np.int_]


class Choice(IntEnum):
    """What a job does next, or where it is: when it waits, nowhere."""

    SPOT = 0
    ON_DEMAND = 1
    WAIT = 2


@dataclass(frozen=True, slots=True)
class Outlook:
    """What is expected of the spot instances that a job may run on.

    Attributes:
        price_ppm: What one costs, in millionths of what is paid on demand.
        loss: How often per hour a pool runs dry, by class of age (`survival.AGES_MS`).
        back: How often per hour one of them comes back when all are away, likewise.
        other_ppm: How often another is there when one runs dry, in millionths.
    """

    price_ppm: int
    loss: tuple[float, ...]
    back: tuple[float, ...]
    other_ppm: int = 0


UNKNOWN = Outlook(MILLION, (1.0,) * CLASSES, (1.0,) * CLASSES)
"""For who does not ask."""


def table(
    outlook: Outlook, step_ms: int, change: int, steps: int
) -> Iterator[tuple[Costs, Choices]]:
    """Compute the table, for ever more steps in all.

    Args:
        outlook: What is expected.
        step_ms: The length of a step.
        change: How many steps a change takes, at least one.
        steps: The most steps of work, and of what may be lost beyond the time of a change to an
            instance on demand, together.

    Yields:
        For each number of steps: what it costs, and what is cheapest, by steps of work among them,
        by pools (classes of age of one that is there, then of their absence), and by where it is.
    """
    back = _Steps(outlook, step_ms, change)
    for left in range(steps + 1):
        costs = back.of(left)
        yield costs.min(axis=0), costs.argmin(axis=0).astype(np.int8)


class _Steps:
    """Goes back in time from the deadline."""

    def __init__(self, outlook: Outlook, step_ms: int, change: int) -> None:
        self._change = change
        self._hours = step_ms / MILLIS_PER_HOUR
        self._price = outlook.price_ppm / MILLION
        self._stays, self._drops = _chances(outlook, self._hours)
        moves = self._stays + self._drops
        self._moves = moves
        self._stays_long = np.linalg.matrix_power(self._stays, change)
        self._moves_long = np.linalg.matrix_power(moves, change)
        self._best: deque[Costs] = deque(maxlen=change)
        """What is cheapest with fewer steps left, as far back as a change takes."""

    def of(self, left: int) -> Costs:
        """What each choice costs: by work, by pools, by place; infinite where it cannot be made."""
        costs = np.full((len(Choice), left + 1, 2 * CLASSES, len(Choice)), np.inf)
        work = np.arange(left + 1)
        costs[:, 0] = 0
        # Who has no time to lose goes on, on demand; a change takes the time kept for it.
        nowhere = work + self._change
        none = work >= max(left, 1)
        for place in Choice:
            rest = work if place is Choice.ON_DEMAND else nowhere
            costs[Choice.ON_DEMAND, none, :, place] = self._hours * rest[none, None]
        some = work[(work > 0) & (work < left)]
        if len(some):
            self._go_on(costs, some)
            self._change_over(costs, left, some)
        self._best.append(costs.min(axis=0))
        return costs

    def _go_on(self, costs: Costs, work: Rows) -> None:
        """Who runs may go on where it is, and everybody may wait for a step."""
        then, hours = self._best[-1], self._hours
        costs[Choice.ON_DEMAND, work, :, Choice.ON_DEMAND] = (
            hours + then[work - 1][..., Choice.ON_DEMAND] @ self._moves.T
        )
        spot = then[work - 1][..., Choice.SPOT] @ self._stays.T
        spot += then[work - 1][..., Choice.WAIT] @ self._drops.T
        costs[Choice.SPOT, work, _UP, Choice.SPOT] = (self._price * hours + spot)[:, _UP]
        waits = then[work][..., Choice.WAIT] @ self._moves.T
        costs[Choice.WAIT, work] = waits[..., None]

    def _change_over(self, costs: Costs, left: int, work: Rows) -> None:
        """Who changes to a spot instance must still have the time to change back."""
        hours = self._hours * self._change
        late, able = work[left - work < self._change], work[left - work >= self._change]
        for place in (Choice.SPOT, Choice.WAIT):
            costs[Choice.ON_DEMAND, late, :, place] = (hours + late * self._hours)[:, None]
        if not len(able):
            return
        then = self._best[0][able]
        paid = hours + then[..., Choice.ON_DEMAND] @ self._moves_long.T
        for place in (Choice.SPOT, Choice.WAIT):
            costs[Choice.ON_DEMAND, able, :, place] = paid
        spot = then[..., Choice.SPOT] @ self._stays_long.T
        spot += then[..., Choice.WAIT] @ (self._moves_long - self._stays_long).T
        for place in (Choice.ON_DEMAND, Choice.WAIT):
            costs[Choice.SPOT, able, _UP, place] = (self._price * hours + spot)[:, _UP]


def _chances(outlook: Outlook, hours: float) -> tuple[Costs, Costs]:
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
