"""Which offerings EC2 has refused of late, and when each may be tried again."""

from __future__ import annotations

from dataclasses import dataclass

from eva_master.model.ids import Millis, OfferingId

_LONGEST = 16
"""The longest pause is so many times the first one."""


@dataclass(slots=True)
class _Refusals:
    """Refusals in a row; `trying` while one launch finds out whether they are over."""

    count: int = 0
    trying: bool = False


class AvailabilityBook:
    """What is known of each offering; of one thread.

    An offering that was refused is left alone for a while, each time for twice as long. Then one
    launch is let through, and the others wait for what becomes of it.
    """

    def __init__(self) -> None:
        self._refusals: dict[OfferingId, _Refusals] = {}

    def admit(self, offering: OfferingId) -> bool:
        """Whether a launch may be tried now; if so, `sold` or `refused` or `unclear` follows."""
        known = self._refusals.get(offering)
        if known is None:
            return True
        if known.trying:
            return False
        known.trying = True
        return True

    def sold(self, offering: OfferingId) -> None:
        """There is an instance."""
        self._refusals.pop(offering, None)

    def unclear(self, offering: OfferingId) -> None:
        """Nobody knows whether there is one: the same launch is tried again."""
        if (known := self._refusals.get(offering)) is not None:
            known.trying = False

    def refused(self, offering: OfferingId, pause_ms: int, now: Millis) -> Millis:
        """There is none.

        Args:
            offering: Of which.
            pause_ms: How long to leave it alone the first time.
            now: The time.

        Returns:
            When to try again. Launches that were under way together count as one refusal.
        """
        known = self._refusals.setdefault(offering, _Refusals())
        if known.count == 0 or known.trying:
            known.count += 1
        known.trying = False
        return Millis(now + min(pause_ms << (known.count - 1), pause_ms * _LONGEST))
