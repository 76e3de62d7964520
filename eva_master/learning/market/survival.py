"""How long something lasts, by its age, from what was watched of it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from eva_master.model.ids import MILLIS_PER_HOUR
from eva_master.model.planning.plan import Json

AGES_MS = tuple(round(hours * MILLIS_PER_HOUR) for hours in (0.25, 0.5, 1, 2, 4, 8, 16))
"""Where one class of ages ends and the next begins."""
_CLASSES = len(AGES_MS) + 1


@dataclass(frozen=True, slots=True)
class Survival:
    """What was watched, and how often it ended, by class of age.

    Attributes:
        watched_ms: How long, in all, for each class; the last is for what began unseen.
        ends: How often it ended at such an age.
    """

    watched_ms: tuple[int, ...] = (0,) * (_CLASSES + 1)
    ends: tuple[int, ...] = (0,) * (_CLASSES + 1)

    def watched(self, lasted_ms: int, *, began: bool, ended: bool) -> Survival:
        """Take in one time.

        Args:
            lasted_ms: For how long it was watched.
            began: Whether it had begun then, rather than earlier.
            ended: Whether it ended then, rather than being lost from sight.
        """
        watched, ends = list(self.watched_ms), list(self.ends)
        number = bisect_right(AGES_MS, lasted_ms) if began else _CLASSES
        ends[number] += ended
        if not began:
            watched[number] += lasted_ms
        for place, (start, stop) in enumerate(pairwise((0, *AGES_MS, lasted_ms)) if began else ()):
            watched[place] += max(0, min(lasted_ms, stop) - start)
        return Survival(tuple(watched), tuple(ends))

    def rate(self, age_ms: int, assumed: float) -> float:
        """How often per hour what has lasted for a time ends.

        What is assumed weighs as much as one end that came when it was expected.

        Args:
            age_ms: The time.
            assumed: The rate before any was seen; above zero.
        """
        number = bisect_right(AGES_MS, age_ms)
        return self._leaning(self.ends[number], self.watched_ms[number], assumed)

    def mean_rate(self, assumed: float) -> float:
        """How often per hour it ends, if nobody knows for how long it has lasted."""
        return self._leaning(sum(self.ends), sum(self.watched_ms), assumed)

    @staticmethod
    def _leaning(ends: int, watched_ms: int, assumed: float) -> float:
        return (1 + ends) / (1 / assumed + watched_ms / MILLIS_PER_HOUR)

    def to_json(self) -> Json:
        """The form in which the journal keeps it."""
        return [list(self.watched_ms), list(self.ends)]

    @classmethod
    def from_json(cls, document: Json) -> Survival | None:
        """The inverse of `to_json`; `None` for what is not of its form."""
        match document:
            case [[*watched], [*ends]]:
                known = tuple(tuple(_counts(it)) for it in (watched, ends))
                if all(len(it) == _CLASSES + 1 for it in known):
                    return cls(*known)
        return None


def _counts(told: Iterable[Json]) -> Iterator[int]:
    return (it for it in told if isinstance(it, int) and it >= 0)


UNSEEN = Survival()
