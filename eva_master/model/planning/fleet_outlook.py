"""Forecast for a whole fleet by a policy that shares it, as figures of a round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_BOUND, _END, _WORTH = "bound_ms", "expected_end_ms", "worth_ppm:"
_LARGEST = 2**53
"""No time or part is above that: nobody waits for 285,000 years."""
_TYPES, _NAME = 64, 64
"""So many types at most are told of, with names of so many characters."""


@dataclass(frozen=True, slots=True)
class FleetOutlook:
    """Expected completion of all present jobs if no other job arrives.

    Attributes:
        bound_ms: Lower bound of the time from the round until all jobs are done.
        end_ms: Expected time from the round until all jobs are done; `None` if the policy does not
            say.
        worth_ppm: Part of the fleet's worth in each type, in millionths; sorted by type.
    """

    bound_ms: int
    end_ms: int | None = None
    worth_ppm: tuple[tuple[str, int], ...] = ()

    @classmethod
    def of(cls, figures: Mapping[str, int | float | str]) -> FleetOutlook | None:
        """Read a forecast from a round's figures, which any policy may have made.

        Returns:
            The forecast; `None` if the figures hold none. Impossible values are left out.
        """
        bound_ms = _whole(figures.get(_BOUND))
        if bound_ms is None:
            return None
        keys = sorted(name for name in figures if name.startswith(_WORTH))
        names = [(name, name.removeprefix(_WORTH)) for name in keys]
        parts = [
            (family, part)
            for name, family in names
            if 0 < len(family) <= _NAME and (part := _whole(figures[name])) is not None
        ]
        return cls(bound_ms, _whole(figures.get(_END)), tuple(parts[:_TYPES]))


def _whole(figure: object) -> int | None:
    """A figure that counts something; `None` if it is none."""
    sound = isinstance(figure, int) and not isinstance(figure, bool)
    return figure if isinstance(figure, int) and sound and 0 <= figure <= _LARGEST else None
