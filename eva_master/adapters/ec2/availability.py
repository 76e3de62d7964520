"""Remembers which offerings EC2 has refused, and when each may be tried again."""

from __future__ import annotations

from dataclasses import dataclass

from eva_wire.values.ids import Millis, OfferingId

_LONGEST_PAUSE_FACTOR = 16
"""The longest pause as a multiple of the first."""


@dataclass(slots=True)
class _Refusals:
    """Consecutive refusals; `trying` while one launch tests whether they are over."""

    count: int = 0
    trying: bool = False


class AvailabilityBook:
    """The availability of each offering. One thread uses it.

    A refused offering is not tried for a while, each time twice as long. Then one launch is let
    through, and the others wait for its result.
    """

    def __init__(self) -> None:
        self._refusals: dict[OfferingId, _Refusals] = {}

    def admit(self, offering: OfferingId) -> bool:
        """Whether a launch may be tried now. If so, report `sold`, `refused` or `unclear`."""
        refusals = self._refusals.get(offering)
        if refusals is None:
            return True
        if refusals.trying:
            return False
        refusals.trying = True
        return True

    def sold(self, offering: OfferingId) -> None:
        """Note that a launch has made an instance."""
        self._refusals.pop(offering, None)

    def unclear(self, offering: OfferingId) -> None:
        """Note that the result of a launch is unknown: the same launch is tried again."""
        if (refusals := self._refusals.get(offering)) is not None:
            refusals.trying = False

    def refused(self, offering: OfferingId, pause_ms: int, now: Millis) -> Millis:
        """Note that a launch was refused.

        Args:
            offering: The offering.
            pause_ms: The first pause.
            now: The time.

        Returns:
            When to try again. Concurrent launches that fail count as one refusal.
        """
        refusals = self._refusals.setdefault(offering, _Refusals())
        if refusals.count == 0 or refusals.trying:
            refusals.count += 1
        refusals.trying = False
        return Millis(now + min(pause_ms << (refusals.count - 1), pause_ms * _LONGEST_PAUSE_FACTOR))
