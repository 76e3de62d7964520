"""Remaining work of a task, computed in this module alone.

The unit is standalone time: the time that the task alone, on an instance of the family that sets
its reservation price, would still take without delays.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import isfinite

from eva_master.model.planning.estimate import LONGEST_MS
from eva_wire.values.ids import MILLION

_FASTEST_PPM = 10**15
"""A thousand million iterations per second, in millionths."""


@dataclass(frozen=True, slots=True)
class Extent:
    """Known size of all the work of a task.

    Attributes:
        duration_ms: Standalone time stated by the user, `None` if not stated.
        total_steps: Iterations in all, `None` if unknown.
        rate_ppm: Standalone iterations per second on the family that sets the task's reservation
            price, in millionths; 0 if unknown.
        expected_ms: Standalone time expected if none of these determines it, `None` if unknown.
    """

    duration_ms: int | None = None
    total_steps: int | None = None
    rate_ppm: int = 0
    expected_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Left:
    """Remaining work of a task.

    Attributes:
        ms: Standalone time, from 0 to ten years.
        by_steps: Whether it follows from the task's own steps; else from its running time.
        estimated: Whether it rests only on run times of other tasks.
    """

    ms: int
    by_steps: bool
    estimated: bool


def whole_ms(extent: Extent) -> tuple[int, bool] | None:
    """Find the standalone time of all of a task's work.

    A stated duration takes precedence, then iterations and their rate, then run times of other
    tasks.

    Returns:
        Milliseconds, and whether they are an estimate from other tasks; `None` if unknown.
    """
    if extent.duration_ms is not None:
        return min(extent.duration_ms, LONGEST_MS), False
    if extent.total_steps and extent.rate_ppm > 0:
        return min(extent.total_steps * 1_000 * MILLION // extent.rate_ppm, LONGEST_MS), False
    if extent.expected_ms is not None:
        return min(extent.expected_ms, LONGEST_MS), True
    return None


def left(extent: Extent, steps: int = 0, ran_ms: int = 0) -> Left | None:
    """Find what is left of a task's work.

    Args:
        extent: All of the work.
        steps: Iterations done, as far as they are not lost; 0 if the task reports none.
        ran_ms: Standalone time that the task has run for, which counts where steps say nothing.

    Returns:
        `None` if the extent is unknown.
    """
    whole = whole_ms(extent)
    if whole is None:
        return None
    ms, estimated = whole
    if extent.total_steps and steps > 0:
        missing = max(0, extent.total_steps - steps)
        return Left(ms * missing // extent.total_steps, by_steps=True, estimated=estimated)
    return Left(max(0, ms - max(0, ran_ms)), by_steps=False, estimated=estimated)


def rate_of_ppm(steps: int, ran_ms: int) -> int:
    """Find the standalone rate of a task by all that it has done.

    Args:
        steps: Iterations done, as far as they are not lost.
        ran_ms: Standalone time that the task has run for.

    Returns:
        Millionths per second; 0 if that is unknown.
    """
    if steps <= 0 or ran_ms <= 0:
        return 0
    return max(1, min(_FASTEST_PPM, steps * 1_000 * MILLION // ran_ms))


def standalone_rate_ppm(
    known_ppm: int, own_rate: float, speed: Fraction, company_ppm: int | None
) -> int:
    """Find the standalone rate by which steps that are left are turned into time.

    A task that runs alone is measured itself, which says more than what holds for its workload.
    In company its rate is only used if nothing is known of its workload.

    Args:
        known_ppm: Rate that the user states or that was measured of the workload, on the family
            that sets the reservation price, in millionths per second; 0 if unknown.
        own_rate: Iterations per second that were measured of the task itself; 0 if none were.
        speed: How fast the family that it is on is against that family.
        company_ppm: How fast it is expected to be against running alone; `None` if it does.

    Returns:
        Millionths per second; 0 if unknown.
    """
    own_ppm = min(_FASTEST_PPM, round(own_rate * MILLION)) if isfinite(own_rate) else 0
    if own_ppm <= 0 or speed <= 0 or (known_ppm > 0 and company_ppm is not None):
        return max(0, known_ppm)
    share = speed * Fraction(MILLION if company_ppm is None else max(1, company_ppm), MILLION)
    return max(1, min(_FASTEST_PPM, round(own_ppm / share)))
