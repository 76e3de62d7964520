"""Local search for the configuration that costs least by one objective.

A few instances are taken apart and their tasks are put back one by one, each where it adds least:
on an instance that stays, on one of those that were taken apart, or on a new one. If the whole
comes cheaper the change stands, else it is undone. See `objective` for what is minimised.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from eva_master.packing.local_search.cost_model import Book
from eva_master.packing.local_search.working_configuration import Arrangement, Attempt, Place

_SIZES = (0.1, 0.2, 0.5, 0.8)
"""Share of attempts in which at most one, two, ... instances are taken apart; the rest: five."""
_SINGLY = 0.5
"""Share of attempts in which the next instance is taken apart alone, until each was once."""
_BOUGHT = 0.5
"""Share of attempts in which a new instance is bought beforehand and filled up."""
_CHEAPEST, _DEAREST = 0.25, 1.25
"""Between which parts of what was taken apart such an instance costs."""
_SUNK = 0.3
"""Share of instances taken apart that count as paid for."""
_NOISE = 0.8
"""How far from order of size tasks are put back."""
_FEW = 24
"""Random numbers for the order of tasks; more tasks than that use them again."""
_CHOICES = 16
"""Random numbers for all other choices of an attempt."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How hard to search.

    Attributes:
        attempts: How often something is taken apart.
    """

    attempts: int = 100


class Search:
    """Improves an arrangement.

    Args:
        arrangement: Where to begin; changed by the search.
        book: Prices loads.
        seed: Of the random choices.

    Attributes:
        tried: How often something was taken apart.
        kept: How often that was an improvement.
    """

    def __init__(self, arrangement: Arrangement, book: Book, seed: Sequence[int]) -> None:
        self._now = arrangement
        self._random = np.random.default_rng(list(seed))
        self._kinds = book.kinds
        self._costs = [cost for cost, _ in book.kinds]
        self.tried = 0
        self.kept = 0

    def run(self, effort: Effort) -> None:
        """Search until the effort is spent."""
        draws = self._random.random((effort.attempts, _CHOICES + _FEW)).tolist()
        ranked = self._now.ranked()
        singly = list(reversed(ranked))
        for row in draws:
            if not ranked:
                return
            choices, noise = iter(row[:_CHOICES]), row[_CHOICES:]
            bought, victims = -1, []
            if singly and next(choices) < _SINGLY:
                victims = [singly.pop()]
            else:
                victims = _victims(ranked, choices)
                if next(choices) < _BOUGHT:
                    bought = self._kind(victims, next(choices))
                for place in victims:
                    if next(choices) < _SUNK:
                        self._now.sink(place)
            self.tried += 1
            if self._attempt(victims, bought, noise):
                self.kept += 1
                ranked = self._now.ranked()

    def _kind(self, victims: Sequence[Place], draw: float) -> int:
        """An offering that costs about as much as what is taken apart, or less."""
        cost = sum(place.cost for place in victims)
        first = bisect_right(self._costs, int(cost * _CHEAPEST))
        last = bisect_right(self._costs, int(cost * _DEAREST))
        if first == last:
            return -1
        return self._kinds[first + int((last - first) * draw)][1]

    def _attempt(self, victims: Sequence[Place], kind: int, noise: Sequence[float]) -> bool:
        """Take instances apart and put their task runs back; returns whether that stands."""
        now, before = self._now, self._now.total
        attempt = Attempt(now, victims)
        bought = [now.prospect(kind)] if kind >= 0 else []
        opened = list(bought)
        done = self._refill(attempt, victims, opened, noise=noise, limit=before)
        for place in (*bought, *victims):
            now.settle(place)
        if done and now.total < before:
            known = now.places
            now.places = [*known, *opened]
            if now.legal():
                now.stand(attempt.touched)
                now.forget_empty()
                return True
            now.places = known
        attempt.undo()
        return False

    def _refill(
        self,
        attempt: Attempt,
        victims: Sequence[Place],
        opened: list[Place],
        *,
        noise: Sequence[float],
        limit: int,
    ) -> bool:
        """Put task runs back, roughly the largest first; stops when it will not come below `limit`.

        Args:
            attempt: Whose pool it is.
            victims: What was taken apart.
            opened: New instances; more are added.
            noise: Changes the order.
            limit: What the whole must cost less than.
        """
        now, sizes = self._now, self._now.sizes
        # What is sunk may yet be saved, if nothing is put there or something smaller will do.
        sunk = [*opened, *(place for place in victims if place.sunk)]
        order = sorted(
            (sizes[run] * (_NOISE / 2 - 1 - _NOISE * noise[rank % _FEW]), rank)
            for rank, run in enumerate(attempt.pool)
        )
        fresh, used = now.prospects(), list[Place]()
        spots = [*opened, *victims, *fresh]
        for _, rank in order:
            place = now.cheapest(attempt.pool[rank], spots, attempt.touched)
            if place is None:
                return False
            attempt.put(attempt.pool[rank], place)
            if place in fresh:
                opened.append(place)
                fresh = now.prospects()
                spots = [*opened, *victims, *used, *fresh]
            elif place not in spots:
                used.append(place)
                spots.append(place)
            spare = sum(place.sunk for place in sunk if place.id is None or place.empty)
            if now.total - spare >= limit:
                return False
        return True


def _victims(ranked: Sequence[Place], choices: Iterator[float]) -> list[Place]:
    """Some instances; the first is mostly one that costs much more than what it holds."""
    draw = next(choices)
    size = 1 + sum(draw >= share for share in _SIZES)
    chosen: list[Place] = []
    for number in range(min(size, len(ranked))):
        draw = next(choices)
        index = int(len(ranked) * (draw if number else draw * draw))
        while ranked[index] in chosen:
            index = (index + 1) % len(ranked)
        chosen.append(ranked[index])
    return chosen
