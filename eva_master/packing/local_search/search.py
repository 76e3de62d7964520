"""Local search for the configuration that costs least.

A few instances are taken apart and their tasks are put back one by one, each where it adds least:
on an instance that stays, on one of those that were taken apart, or on a new one. If the whole
comes cheaper the change is kept, else it is undone. See `cost_model` for what is minimised.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from eva_master.packing.local_search.load_cache import LoadCache
from eva_master.packing.local_search.trial import Trial
from eva_master.packing.local_search.working_configuration import (
    InstanceSlot,
    WorkingConfiguration,
)

_SHARE_BY_INSTANCES = (0.1, 0.2, 0.5, 0.8)
"""Share of trials in which at most one, two, ... instances are taken apart; the rest: five."""
_SHARE_ALONE = 0.5
"""Share of trials in which the next instance is taken apart alone, until each was once."""
_SHARE_BUYING = 0.5
"""Share of trials in which a new instance is bought beforehand and filled up."""
_CHEAPEST_BOUGHT, _DEAREST_BOUGHT = 0.25, 1.25
"""Between which parts of what was taken apart such an instance costs."""
_SHARE_PAID = 0.3
"""Share of the instances taken apart that are treated as paid."""
_STALLED = 100
"""A search is over once so many trials per instance in a row have improved nothing."""
_ORDER_NOISE = 0.8
"""How far from order of size tasks are put back."""
_ORDER_DRAWS = 24
"""Random numbers for the order of tasks; more tasks than that use them again."""
_CHOICE_DRAWS = 16
"""Random numbers for all other choices of a trial."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How hard to search.

    Attributes:
        iterations: How often something is taken apart.
    """

    iterations: int = 100


class Search:
    """Improves a working configuration.

    Args:
        working: Where to begin; changed by the search.
        cache: Prices loads.
        seed: Of the random choices.

    Attributes:
        tried: How often something was taken apart.
        kept: How often that was an improvement.
    """

    def __init__(
        self, working: WorkingConfiguration, cache: LoadCache, seed: Sequence[int]
    ) -> None:
        self._working = working
        self._random = np.random.default_rng(list(seed))
        self._budget = cache.budget
        self._buyable = cache.buyable
        self._costs = [cost for cost, _ in cache.buyable]
        self.tried = 0
        self.kept = 0

    def run(self, effort: Effort) -> None:
        """Search until the effort is spent, or nothing better is to be expected.

        When the loads of the round are used up, the trial that is being made is undone.
        """
        draws = self._random.random((effort.iterations, _CHOICE_DRAWS + _ORDER_DRAWS)).tolist()
        ranked = self._working.by_excess()
        alone, improved = list(reversed(ranked)), 0
        for trial, row in enumerate(draws):
            if trial - improved >= _STALLED * len(ranked) or not self._budget.left:
                return
            choices, noise = iter(row[:_CHOICE_DRAWS]), row[_CHOICE_DRAWS:]
            bought, dismantled = -1, []
            if alone and next(choices) < _SHARE_ALONE:
                dismantled = [alone.pop()]
            else:
                dismantled = _chosen(ranked, choices)
                if next(choices) < _SHARE_BUYING:
                    bought = self._offering(dismantled, next(choices))
                for slot in dismantled:
                    if next(choices) < _SHARE_PAID:
                        self._working.treat_as_paid(slot)
            self.tried += 1
            if self._try(dismantled, bought, noise):
                self.kept, improved = self.kept + 1, trial
                ranked = self._working.by_excess()

    def _offering(self, dismantled: Sequence[InstanceSlot], draw: float) -> int:
        """An offering that costs about as much as what is taken apart, or less; -1 if none does."""
        cost = sum(slot.cost for slot in dismantled)
        first = bisect_right(self._costs, int(cost * _CHEAPEST_BOUGHT))
        last = bisect_right(self._costs, int(cost * _DEAREST_BOUGHT))
        if first == last:
            return -1
        return self._buyable[first + int((last - first) * draw)][1]

    def _try(
        self, dismantled: Sequence[InstanceSlot], offering: int, noise: Sequence[float]
    ) -> bool:
        """Take instances apart and put their task runs back; return whether that is kept."""
        working, before = self._working, self._working.total
        trial = Trial(working, dismantled)
        bought = [working.candidate(offering)] if offering >= 0 else []
        opened = list(bought)
        done = self._refill(trial, dismantled, opened, noise=noise, limit=before)
        for slot in (*bought, *dismantled):
            working.count_in_full(slot)
        if done and working.total < before:
            slots = working.slots
            working.slots = [*slots, *opened]
            if working.within_limits():
                working.keep(trial.touched)
                working.drop_empty()
                return True
            working.slots = slots
        trial.undo()
        return False

    def _refill(
        self,
        trial: Trial,
        dismantled: Sequence[InstanceSlot],
        opened: list[InstanceSlot],
        *,
        noise: Sequence[float],
        limit: int,
    ) -> bool:
        """Put task runs back, roughly the largest first; stop if the cost is sure to reach `limit`.

        Args:
            trial: The trial that holds the task runs.
            dismantled: The instances that were taken apart.
            opened: New instances; more are added.
            noise: Random numbers that vary the order.
            limit: Upper limit of the total cost.
        """
        working, sizes = self._working, self._working.minimum_shares
        # A cost treated as paid is saved after all if the instance stays empty or a cheaper one
        # will do.
        paid = [*opened, *(slot for slot in dismantled if slot.paid)]
        order = sorted(
            (sizes[run] * (_ORDER_NOISE / 2 - 1 - _ORDER_NOISE * noise[rank % _ORDER_DRAWS]), rank)
            for rank, run in enumerate(trial.pool)
        )
        fresh, used = working.candidates(), list[InstanceSlot]()
        options = [*opened, *dismantled, *fresh]
        for _, rank in order:
            slot = working.cheapest(trial.pool[rank], options, trial.touched)
            if slot is None or not self._budget.left:
                return False
            trial.put(trial.pool[rank], slot)
            if slot in fresh:
                opened.append(slot)
                fresh = working.candidates()
                options = [*opened, *dismantled, *used, *fresh]
            elif slot not in options:
                used.append(slot)
                options.append(slot)
            spare = sum(slot.paid for slot in paid if slot.instance is None or slot.empty)
            if working.total - spare >= limit:
                return False
        return True


def _chosen(ranked: Sequence[InstanceSlot], choices: Iterator[float]) -> list[InstanceSlot]:
    """Some instances; the first is mostly one that costs much more than what it holds."""
    draw = next(choices)
    size = 1 + sum(draw >= share for share in _SHARE_BY_INSTANCES)
    chosen: list[InstanceSlot] = []
    for number in range(min(size, len(ranked))):
        draw = next(choices)
        index = int(len(ranked) * (draw if number else draw * draw))
        while ranked[index] in chosen:
            index = (index + 1) % len(ranked)
        chosen.append(ranked[index])
    return chosen
