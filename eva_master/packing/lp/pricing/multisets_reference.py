"""The search over workload multisets, step by step: what `multisets.c` decides, bit for bit.

Every sum of floating-point numbers is in the same order there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import Any

from eva_master.packing.interference.throughput import Ints
from eva_master.packing.lp.pricing.knapsack import Floats

DEEPEST = 256
"""Most tasks in a set."""
KEPT = 64
"""Most sets of a search; if there are more, the best ones."""
_STEPS = 6
"""Of the subgradient method."""
_LEVELS = 2
"""Levels of prices that are tried in each direction."""
_NUMERICAL_ZERO = 1e-12


@dataclass(frozen=True, slots=True)
class MultisetQuestion:
    """A search for task sets on one machine; classes are sorted by workload, a position each.

    Attributes:
        value: Value of a task alone, by position.
        charge: Loss of a task that does not run at all, by position.
        fraction: Need as fractions of the machine, a row for each position.
        need: Need, a row for each position.
        most: How many tasks of each position there may be.
        starts: Where each workload begins, and the end.
        pairs: Throughput of a task of each workload (rows) beside one of another.
        directions: Prices of the machine's parts, which sum up to one; a row each.
        shares: Price of a task of each position, in each direction.
        observed: Larger sets that were observed: tasks of each workload, then the workload meant.
        rates: Its throughput in them.
        capacity: Of the machine.
        least: The least need of a task of each workload.
        tasks: Most tasks of each workload.
        nodes: Limit of multisets and partial sets together.
        limit: Worth that is to be exceeded.
        whole: No set is worth more.
    """

    value: Floats
    charge: Floats
    fraction: Floats
    need: Ints
    most: Ints
    starts: Ints
    pairs: Floats
    directions: Floats
    shares: Floats
    observed: Ints
    rates: Floats
    capacity: Ints
    least: Ints
    tasks: Ints
    nodes: int
    limit: float
    whole: float


@dataclass(frozen=True, slots=True)
class MultisetAnswer:
    """Result of a search.

    Attributes:
        bound: No set is worth more, but those not above the limit.
        nodes: Multisets and partial sets that were looked at.
        sets: The worth of the best sets of several multisets, and their tasks by position.
    """

    bound: float
    nodes: int
    sets: list[tuple[float, list[int]]]


def search(question: MultisetQuestion) -> MultisetAnswer:
    """Look for the best sets."""
    walk = _Walk(question)
    ones = [1.0] * len(walk.count)
    walk.widen(0, question.capacity.tolist(), (ones, ones), question.whole)
    return MultisetAnswer(walk.bound, walk.nodes, walk.found)


class _Walk:
    """One search."""

    def __init__(self, question: MultisetQuestion) -> None:
        lists: Any = {
            name: getattr(question, name).tolist()
            for name in MultisetQuestion.__slots__
            if name not in ("nodes", "limit", "whole")
        }
        self._value, self._charge = lists["value"], lists["charge"]
        self._fraction, self._need, self._most = lists["fraction"], lists["need"], lists["most"]
        self._pairs, self._observed = lists["pairs"], lists["observed"]
        self._turns = list(zip(lists["directions"], lists["shares"], strict=True))
        self._rates, self._capacity = lists["rates"], lists["capacity"]
        self._least, self._tasks = lists["least"], lists["tasks"]
        starts = lists["starts"]
        self._of = [range(*ends) for ends in pairwise(starts)]
        self._nodes = question.nodes
        self._limit = self.bound = question.limit
        self.count = [0] * len(self._of)
        self.nodes = 0
        self.found: list[tuple[float, list[int]]] = []
        self._worth = [0.0] * len(self._value)
        self._above = [0.0] * len(self._value)
        self._order: list[int] = []
        self._rest: list[float] = []
        self._path: list[int] = []
        self._best, self._best_path = 0.0, list[int]()

    def widen(
        self, last: int, room: list[int], rates: tuple[list[float], list[float]], outer: float
    ) -> None:
        """Go through the multisets that include this one, by workloads from `last` on.

        Args:
            last: The workload.
            room: Room that the smallest tasks of the multiset leave.
            rates: Throughput of a task of each workload that joins, and of one that is there.
            outer: A bound of all these multisets.
        """
        joining, present = rates
        if sum(self.count) == DEEPEST:
            self.bound = max(self.bound, outer)
            return
        for label in range(last, len(self.count)):
            remaining = [free - need for free, need in zip(room, self._least[label], strict=True)]
            if self.count[label] >= self._tasks[label] or min(remaining) < 0:
                continue
            if self._enough(outer):
                return
            pairs = [row[label] for row in self._pairs]
            slower = [rate * pair for rate, pair in zip(joining, pairs, strict=True)]
            among = [rate * pair for rate, pair in zip(present, pairs, strict=True)]
            if not self.count[label]:
                among[label] = joining[label]
            self.count[label] += 1
            bound, price = self._bounded(label, remaining, *self._at_most(slower, among))
            bound = min(bound, outer)
            if bound > self._limit:
                self._choose(self._exact(among), price)
            if bound > self._limit:
                self.widen(label, remaining, (slower, among), bound)
            self.count[label] -= 1

    def _enough(self, bound: float) -> bool:
        """Whether the limit of nodes is reached, and what the bound tells of is left out."""
        if self.nodes >= self._nodes:
            self.bound = max(self.bound, bound)
            return True
        self.nodes += 1
        return False

    def _at_most(
        self, joining: list[float], present: list[float]
    ) -> tuple[list[float], list[float]]:
        """Throughput in any set that includes the multiset, as larger sets may run faster."""
        joins, rates, count = joining.copy(), present.copy(), self.count
        for (*row, its), rate in zip(self._observed, self._rates, strict=True):
            if all(held <= seen for held, seen in zip(count, row, strict=True)):
                rates[its] = max(rates[its], rate)
                if count[its] < row[its]:
                    joins[its] = max(joins[its], rate)
        return joins, rates

    def _exact(self, present: list[float]) -> list[float]:
        """Throughput in the multiset itself."""
        rates = present.copy()
        for (*row, its), rate in zip(self._observed, self._rates, strict=True):
            if self.count == row:
                rates[its] = rate
        return rates

    def _bounded(
        self, last: int, room: list[int], joining: list[float], present: list[float]
    ) -> tuple[float, list[float]]:
        """A bound of the multiset and all that include it, and the prices that prove it."""
        best, price = inf, [0.0] * len(room)
        held = [(label, number) for label, number in enumerate(self.count) if number]
        for direction, share in self._turns:
            level = self._no_bargain(last, room, joining, share)
            for _ in range(_LEVELS):
                bound, used = level, 0.0
                for label, number in held:
                    most, its, lost = -inf, 0.0, 1.0 - present[label]
                    for c in self._of[label]:
                        above = self._value[c] - self._charge[c] * lost - level * share[c]
                        if above > most:
                            most, its = above, share[c]
                    bound += number * most
                    used += number * its
                if bound < best:
                    best, price = bound, [level * part for part in direction]
                if best <= self._limit:
                    return best, price
                if used <= 1.0:
                    break
                level += (bound - self._limit) / (used - 1.0)
        return best, price

    def _no_bargain(
        self, last: int, room: list[int], joining: list[float], share: list[float]
    ) -> float:
        """The level of prices at which no task that may still join is a bargain."""
        level = 0.0
        for label in range(last, len(self.count)):
            if self.count[label] >= self._tasks[label]:
                continue
            lost = 1.0 - joining[label]
            for c in self._of[label]:
                worth = self._value[c] - self._charge[c] * lost
                if worth > level * share[c] and _within(self._need[c], room):
                    level = worth / share[c]
        return level

    def _choose(self, rate: list[float], price: list[float]) -> None:
        """Find the best set of the multiset, whose tasks run at these rates."""
        held = [(label, number) for label, number in enumerate(self.count) if number]
        for label, _ in held:
            for c in self._of[label]:
                self._worth[c] = self._value[c] - self._charge[c] * (1.0 - rate[label])
        best, prices = inf, price
        for _ in range(_STEPS):
            bound, moved = self._lowered(held, price)
            if bound < best:
                best, prices = bound, price
            if best <= self._limit:
                return
            price = moved
        self._order, self._rest = [], []
        for label, number in held:
            for c in self._of[label]:
                self._above[c] = self._worth[c] - _cost(prices, self._fraction[c])
            self._order += [label] * number
            self._rest += [max(self._above[c] for c in self._of[label])] * number
        self._rest.append(0.0)
        for place in reversed(range(len(self._order))):
            self._rest[place] += self._rest[place + 1]
        self._best = self._limit
        self._fill(self._capacity, _cost(prices, [1.0] * len(prices)), 0.0)
        if self._best > self._limit:
            self._keep()

    def _lowered(
        self, held: Sequence[tuple[int, int]], price: list[float]
    ) -> tuple[float, list[float]]:
        """The bound of the multiset at prices, and prices at which it may be less."""
        bound, over = _cost(price, [1.0] * len(price)), [-1.0] * len(price)
        for label, number in held:
            most, chosen = -inf, 0
            for c in self._of[label]:
                above = self._worth[c] - _cost(price, self._fraction[c])
                if above > most:
                    most, chosen = above, c
            bound += number * most
            for part, fraction in enumerate(self._fraction[chosen]):
                over[part] += number * fraction
        length = (bound - self._limit) / max(_cost(over, over), _NUMERICAL_ZERO)
        moved = [part + length * more for part, more in zip(price, over, strict=True)]
        return bound, [part if part > 0 else 0.0 for part in moved]

    def _fill(self, room: list[int], above: float, value: float) -> None:
        """Choose classes for the tasks after those on the path."""
        path, place = self._path, len(self._path)
        if place == len(self._order):
            if value > self._best:
                self._best, self._best_path = value, path.copy()
            return
        label = self._order[place]
        classes, taken = self._of[label], -1
        if place and self._order[place - 1] == label:
            # Classes of one workload are taken in order, so that each set is met once.
            taken = path[-1]
            classes = range(taken, classes.stop)
        for c in classes:
            reached = above + self._above[c]
            bound = reached + self._rest[place + 1]
            if bound <= self._best or (c == taken and path.count(c) >= self._most[c]):
                continue
            remaining = [free - need for free, need in zip(room, self._need[c], strict=True)]
            if min(remaining) < 0 or self._enough(bound):
                continue
            path.append(c)
            self._fill(remaining, reached, value + self._worth[c])
            path.pop()

    def _keep(self) -> None:
        """Keep the best set of the multiset in place of the worst if there are too many."""
        members = [0] * len(self._value)
        for c in self._best_path:
            members[c] += 1
        entry = (self._best, members)
        if len(self.found) < KEPT:
            self.found.append(entry)
        else:
            self.found[self._worst()] = entry
        if len(self.found) == KEPT:
            self._limit = self.found[self._worst()][0]
        self.bound = max(self.bound, self._best)

    def _worst(self) -> int:
        return min(range(len(self.found)), key=lambda at: self.found[at][0])


def _within(need: list[int], room: list[int]) -> bool:
    return all(part <= free for part, free in zip(need, room, strict=True))


def _cost(price: list[float], amounts: list[float]) -> float:
    cost = 0.0
    for part, amount in zip(price, amounts, strict=True):
        cost += part * amount
    return cost
