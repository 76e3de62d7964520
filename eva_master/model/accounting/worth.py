"""Worth of a finished job to its user, as a function of when it is done."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from eva_master.model.arithmetic.fixed_point import exp_of_ppm, log_ppm
from eva_wire.values.ids import MILLION, MILLIS_PER_HOUR

_LN_TWO_PPM = log_ppm(2)
MOST_WORTH = 1_000_000_000 * MILLION
"""In micro-dollars: a billion dollars, and likewise what is lost in an hour."""


class Decay(StrEnum):
    """How what a job is worth falls while it is not done."""

    LINEAR = "linear"
    """By the same amount every hour."""
    HALVING = "halving"
    """By half every so many hours."""
    POWER = "power"
    """With a power of the time since submission; only traces have it."""


@dataclass(frozen=True, slots=True)
class Worth:
    """Worth of a job, which never grows and is never below zero.

    Attributes:
        amount: Micro-dollars if the job is done at once; with `Decay.POWER`, if it is done after
            `span_ms`.
        decay: How the worth falls.
        loses_per_hour: Of `Decay.LINEAR`: loss in micro-dollars per hour.
        span_ms: Of `Decay.HALVING`: the time in which the worth halves. Of `Decay.POWER`: the time
            after which the job is worth `amount`.
        exponent_ppm: Of `Decay.POWER`: the power, in millionths.
        since_ms: Of `Decay.POWER`: the worth is constant before this time.
    """

    amount: int
    decay: Decay = Decay.LINEAR
    loses_per_hour: int = 0
    span_ms: int = MILLIS_PER_HOUR
    exponent_ppm: int = MILLION
    since_ms: int = MILLIS_PER_HOUR

    def after(self, elapsed_ms: int) -> int:
        """Worth in micro-dollars of a job done so many milliseconds after its submission."""
        elapsed_ms = max(0, elapsed_ms)
        if self.decay is Decay.LINEAR:
            return max(0, self.amount - self.loses_per_hour * elapsed_ms // MILLIS_PER_HOUR)
        if self.decay is Decay.HALVING:
            return self.amount * exp_of_ppm(_SCALE - self._halvings_ppm(elapsed_ms)) // _SCALED
        ratio = log_ppm(max(1, self.since_ms, elapsed_ms)) - log_ppm(max(1, self.span_ms))
        grown = exp_of_ppm(_SCALE - self.exponent_ppm * ratio // MILLION)
        return min(MOST_WORTH, self.amount * grown // _SCALED)

    def loss_per_hour(self, elapsed_ms: int) -> int:
        """Micro-dollars lost by an hour of waiting, so many milliseconds after submission.

        The result is at most `MOST_WORTH`, so that no product with it leaves 64 bits.
        """
        now = self.after(elapsed_ms)
        if self.decay is Decay.LINEAR:
            return self.loses_per_hour if now else 0
        if self.decay is Decay.HALVING:
            lost = now * _LN_TWO_PPM * MILLIS_PER_HOUR // (self.span_ms * MILLION)
            return min(MOST_WORTH, lost)
        if elapsed_ms < self.since_ms:
            return 0
        lost = now * self.exponent_ppm * MILLIS_PER_HOUR // (max(1, elapsed_ms) * MILLION)
        return min(MOST_WORTH, lost)

    def _halvings_ppm(self, elapsed_ms: int) -> int:
        return elapsed_ms * _LN_TWO_PPM // self.span_ms


_SCALE = 20 * MILLION
"""Exponentials are taken of so much more, so that small ones keep their digits."""
_SCALED = exp_of_ppm(_SCALE)
