"""Colours of jobs: the same job has the same colour on every page, at every moment."""

from __future__ import annotations

from dataclasses import dataclass

from eva_wire.values.ids import number_of

HUES = 12
_SPREAD = 5
"""Jobs that follow each other get hues far apart: the number of hues and this share no divisor."""


@dataclass(frozen=True, slots=True)
class Colour:
    """Colour of a job, as classes of the style sheet.

    Attributes:
        hue: Number of the hue, from 0 to 11.
        striped: Whether stripes tell it from a job with the same hue.
    """

    hue: int
    striped: bool

    @property
    def classes(self) -> str:
        """Names of its classes, for templates."""
        return f"h{self.hue} striped" if self.striped else f"h{self.hue}"


def colour_of(job: str) -> Colour:
    """The colour of a job, by the number of its id."""
    number = max(0, number_of(job))
    return Colour(number * _SPREAD % HUES, bool(number // HUES % 2))
