"""How far the members of a gang get on, counted, so that the slowest is known at once."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping

from eva_wire.values.ids import MILLION


class GangProgress:
    """Members of one gang by how far they count as getting on, see `CostWeights.counted`.

    A change of some members and the slowest of all but some take a time that depends on how many
    different figures there are of those, and not on the size of the gang.

    Args:
        members: Members of the gang. None has a place at first, so each counts in full.
    """

    __slots__ = ("_counts", "_figures")

    def __init__(self, members: int) -> None:
        self._counts = {MILLION: members}
        self._figures = [MILLION]

    @property
    def slowest(self) -> int:
        """Progress of the member that counts for least, in millionths."""
        return self._figures[0]

    def change(self, before: int, after: int, members: int) -> None:
        """Have some members that counted alike count otherwise from now on.

        Args:
            before: Their progress so far, in millionths.
            after: Their progress from now on.
            members: How many they are.
        """
        if before == after:
            return
        counts, figures = self._counts, self._figures
        rest = counts[before] - members
        if rest:
            counts[before] = rest
        else:
            del counts[before]
            del figures[bisect_left(figures, before)]
        if after in counts:
            counts[after] += members
        else:
            counts[after] = members
            insort(figures, after)

    def slowest_with(self, after: int, members: Mapping[int, int]) -> int:
        """Progress of the slowest member once some members count otherwise, in millionths.

        Args:
            after: Progress of the slowest of these from then on.
            members: How many they are, by their progress so far.
        """
        for figure in self._figures:
            if self._counts[figure] != members.get(figure, 0):
                return min(figure, after)
        return after
