"""What a policy that shares a fleet says of the whole of it, as figures of a round."""

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
    """What is expected if nothing else arrives.

    Attributes:
        bound_ms: From the round on nobody is done with everything before.
        end_ms: When everything is expected to be done, likewise; `None` if it is not said.
        worth_ppm: What part of the fleet's worth each type has, in millionths; sorted by type.
    """

    bound_ms: int
    end_ms: int | None = None
    worth_ppm: tuple[tuple[str, int], ...] = ()

    @classmethod
    def of(cls, figures: Mapping[str, int | float | str]) -> FleetOutlook | None:
        """Read it from a round's figures, which any policy may have made.

        Returns:
            `None` if they say nothing of a fleet. What cannot be meant is left out.
        """
        bound_ms = _whole(figures.get(_BOUND))
        if bound_ms is None:
            return None
        told = sorted(name for name in figures if name.startswith(_WORTH))
        names = [(name, name.removeprefix(_WORTH)) for name in told]
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
