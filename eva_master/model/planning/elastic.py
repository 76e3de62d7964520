"""Elastic gangs as policies see them: how many members may run, and how fast they are then."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from eva_master.model.arithmetic.fixed_point import exp_of_ppm, log_ppm
from eva_wire.values.ids import MILLION

_LOG_MILLION = log_ppm(MILLION)


@dataclass(frozen=True, slots=True)
class Scaling:
    """How the speed of a gang follows from its number of members.

    Where nothing is known of a number, the gang is expected to be as fast as the nearest known
    number below, or else above, and from there on its speed grows with a power of the number.

    Attributes:
        known: Numbers of members and iterations per second, in millionths; in order, none twice.
        exponent_ppm: That power, in millionths: a million if twice the members do twice as much.
    """

    known: tuple[tuple[int, int], ...] = ()
    exponent_ppm: int = MILLION

    def speed_ppm(self, members: int, against: int = 1) -> int:
        """How fast it is with some number of members, against another number.

        Args:
            members: At least 1.
            against: At least 1.

        Returns:
            Millionths, at least 1.
        """
        if members == against:
            return MILLION
        return max(1, exp_of_ppm(_LOG_MILLION + self._log(members) - self._log(against)))

    def _log(self, members: int) -> int:
        """The logarithm of its speed, in millionths, up to the same constant for all numbers."""
        if not self.known:
            return self._grown(1, members)
        place = bisect_left(self.known, (members + 1,)) - 1
        number, rate = self.known[max(0, place)]
        return log_ppm(rate) + self._grown(number, members)

    def _grown(self, before: int, after: int) -> int:
        return self.exponent_ppm * (log_ppm(after) - log_ppm(before)) // MILLION


@dataclass(frozen=True, slots=True)
class Elastic:
    """Sizes of an elastic gang that a policy may choose, and their speeds.

    Attributes:
        least: The fewest members that run.
        most: The most members that run.
        together: Speeds while all members are on one instance.
        apart: Speeds while members are on several instances.
    """

    least: int
    most: int
    together: Scaling = Scaling()
    apart: Scaling = Scaling()

    def speed_ppm(self, members: int, *, apart: bool) -> int:
        """Speed of so many members against one member, in millionths."""
        scaling = self.apart if apart else self.together
        return scaling.speed_ppm(members)
