"""How long something lasts, by its age, from what was watched of it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from eva_master.model.planning.plan import Json
from eva_wire.values.ids import MILLIS_PER_HOUR

AGES_MS = tuple(round(hours * MILLIS_PER_HOUR) for hours in (0.25, 0.5, 1, 2, 4, 8, 16))
"""Where one class of ages ends and the next begins."""
_CLASSES = len(AGES_MS) + 1


@dataclass(frozen=True, slots=True)
class Survival:
    """Watched time and number of ends, by class of age.

    Attributes:
        watched_ms: Watched time of each class; the last class is for spells with an unseen
            beginning.
        ends: Number of ends in each class.
    """

    watched_ms: tuple[int, ...] = (0,) * (_CLASSES + 1)
    ends: tuple[int, ...] = (0,) * (_CLASSES + 1)

    def watched(self, lasted_ms: int, *, began: bool, ended: bool) -> Survival:
        """Add one spell.

        Args:
            lasted_ms: How long it was watched.
            began: Whether its beginning was seen.
            ended: Whether its end was seen; otherwise it was lost from sight.
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
        """Ends per hour of a spell of some age.

        The assumption weighs as much as one end at the expected time.

        Args:
            age_ms: The age.
            assumed: The rate assumed before any end was seen; above zero.
        """
        number = bisect_right(AGES_MS, age_ms)
        return self._leaning(self.ends[number], self.watched_ms[number], assumed)

    def mean_rate(self, assumed: float) -> float:
        """Ends per hour of a spell of unknown age."""
        return self._leaning(sum(self.ends), sum(self.watched_ms), assumed)

    @staticmethod
    def _leaning(ends: int, watched_ms: int, assumed: float) -> float:
        return (1 + ends) / (1 / assumed + watched_ms / MILLIS_PER_HOUR)

    def to_json(self) -> Json:
        """The form in which the journal keeps it."""
        return [list(self.watched_ms), list(self.ends)]

    @classmethod
    def from_json(cls, document: Json) -> Survival | None:
        """The inverse of `to_json`; `None` for a document of another form."""
        match document:
            case [[*watched], [*ends]]:
                columns = tuple(tuple(_counts(column)) for column in (watched, ends))
                if all(len(column) == _CLASSES + 1 for column in columns):
                    return cls(*columns)
        return None


def _counts(told: Iterable[Json]) -> Iterator[int]:
    return (number for number in told if isinstance(number, int) and number >= 0)


UNSEEN = Survival()
