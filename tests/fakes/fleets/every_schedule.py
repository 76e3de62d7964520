"""Every schedule of a few gangs on a small fleet, tried one by one: what no scheduler can beat.

Nothing here is Eva's. In each round a gang has all of its GPUs or none, of whatever types are free.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product

Pace = Callable[[Sequence[int]], Fraction]
"""A gang's progress in a round, by what each of its members would do on its GPU."""

Counts = tuple[int, ...]
"""GPUs of each type."""


def slowest(rates: Sequence[int]) -> Fraction:
    """Members wait for each other."""
    return Fraction(min(rates))


def slowest_of_each(rates: Sequence[int]) -> Fraction:
    """Members wait for each other, and what each does counts: equation (1a) as printed."""
    return Fraction(min(rates) * len(rates))


def own(rates: Sequence[int]) -> Fraction:
    """Each member goes at its own pace, on its part of the batch."""
    return Fraction(sum(rates), len(rates))


@dataclass(frozen=True)
class Gang:
    """Work of the example.

    Attributes:
        gpus: All at once.
        epochs: That are to be done.
        rates: Epochs a round, by GPU type.
    """

    gpus: int
    epochs: int
    rates: tuple[int, ...]


FLEET: Mapping[str, int] = {"v100": 2, "p100": 3, "k80": 1}
GANGS = {
    "j1": Gang(3, 80, (40, 20, 30)),
    "j2": Gang(2, 30, (5, 15, 5)),
    "j3": Gang(2, 50, (10, 2, 20)),
}
"""The example of section II-A of Hadar."""


@dataclass(frozen=True)
class Best:
    """Results of the best schedules.

    Attributes:
        rounds: The fewest until everybody is done.
        mean: The least mean number of rounds until a gang is done.
    """

    rounds: int
    mean: Fraction


def best(gangs: Sequence[Gang], fleet: Counts, pace: Pace, *, one_type: bool) -> Best:
    """Try every schedule.

    Args:
        gangs: Gangs with their work.
        fleet: GPUs of each type.
        pace: How fast a gang is.
        one_type: Whether all members of a gang are on GPUs of one type.
    """
    choices = [list(_choices(gang, fleet, pace, one_type=one_type)) for gang in gangs]
    known: dict[tuple[Fraction, ...], tuple[int, int]] = {}
    start = tuple(Fraction(gang.epochs) for gang in gangs)
    rounds, waited = _least(start, choices, fleet, known)
    return Best(rounds, Fraction(waited, len(gangs)))


def _choices(
    gang: Gang, fleet: Counts, pace: Pace, *, one_type: bool
) -> Iterator[tuple[Counts, Fraction]]:
    """The GPUs that a gang may have in a round, and what it does on them."""
    for counts in product(*(range(number + 1) for number in fleet)):
        types = sum(count > 0 for count in counts)
        if sum(counts) == gang.gpus and not (one_type and types > 1):
            pairs = zip(gang.rates, counts, strict=True)
            yield counts, pace([rate for rate, count in pairs for _ in range(count)])


def _least(
    left: tuple[Fraction, ...],
    choices: Sequence[Sequence[tuple[Counts, Fraction]]],
    fleet: Counts,
    known: dict[tuple[Fraction, ...], tuple[int, int]],
) -> tuple[int, int]:
    """The fewest rounds from here on, and the least sum of what all gangs still need."""
    if not any(left):
        return 0, 0
    if left in known:
        return known[left]
    unfinished = sum(it > 0 for it in left)
    rounds, waited = [], []
    for after in _rounds(left, choices, fleet):
        one, other = _least(after, choices, fleet, known)
        rounds.append(one)
        waited.append(other)
    known[left] = 1 + min(rounds), unfinished + min(waited)
    return known[left]


def _rounds(
    left: tuple[Fraction, ...],
    choices: Sequence[Sequence[tuple[Counts, Fraction]]],
    fleet: Counts,
) -> set[tuple[Fraction, ...]]:
    """Remaining work after a round, without states that others improve on."""
    nothing = (tuple(0 for _ in fleet), Fraction(0))
    options = [
        [*choice, nothing] if rest else [nothing]
        for choice, rest in zip(choices, left, strict=True)
    ]
    found = set()
    for chosen in product(*options):
        used = [sum(column) for column in zip(*(counts for counts, _ in chosen), strict=True)]
        if all(one <= other for one, other in zip(used, fleet, strict=True)):
            done = zip(left, (step for _, step in chosen), strict=True)
            found.add(tuple(max(Fraction(0), rest - step) for rest, step in done))
    return {it for it in found if not any(it != one and _no_more(one, it) for one in found)}


def _no_more(one: tuple[Fraction, ...], other: tuple[Fraction, ...]) -> bool:
    return all(mine <= its for mine, its in zip(one, other, strict=True))
