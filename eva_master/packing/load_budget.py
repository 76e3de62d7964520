"""How much the searches of one round may look at: counted, never timed.

So a plan is the same on every machine, and tasks that all differ take no round much longer than
tasks that are alike.
"""

from __future__ import annotations

LOADS_PER_ROUND = 100_000
"""So many loads are met in a round by all of its searches together."""
_SETS_PER_LOAD = 32
"""Pricing looks at so many sets in the time in which the local search works out one load."""
_UNLIMITED = 1 << 62


class LoadBudget:
    """What a search may still look at in this round; what is spent is gone.

    Args:
        loads: Task multisets that may be met.

    Attributes:
        left: Of them.
        spent: How many were met.
    """

    __slots__ = ("left", "spent")

    def __init__(self, loads: int = _UNLIMITED) -> None:
        self.left = loads
        self.spent = 0

    def spend(self, loads: int = 1) -> None:
        """Count loads that are met; there are as many left, or all that are left are."""
        loads = min(loads, self.left)
        self.left -= loads
        self.spent += loads


def round_budgets() -> tuple[LoadBudget, LoadBudget]:
    """Budgets of one round: of the local search in loads, and of the LP's pricing in sets.

    Each gets half, so that the one that comes first leaves something to the other.
    """
    half = LOADS_PER_ROUND // 2
    return LoadBudget(half), LoadBudget((LOADS_PER_ROUND - half) * _SETS_PER_LOAD)
