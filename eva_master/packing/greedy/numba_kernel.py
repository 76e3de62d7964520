"""The inner loop of Algorithm 1, compiled by numba; imported only where that is installed."""

from __future__ import annotations

from numba import njit

from eva_master.packing.interference.throughput import Ints
from eva_wire.values.ids import MILLION


def _best(  # noqa: PLR0917 - numba wants arrays, not objects
    candidates: Ints,
    need: Ints,
    left: Ints,
    prices: Ints,
    charges: Ints,
    workloads: Ints,
    newcomer: Ints,
    dropped: Ints,
    room: Ints,
    spare: Ints,
    shares: Ints,
) -> tuple[int, int, int]:
    """Find the task that should join next, and drop candidates that can never join any more.

    A task's gain is at most its worth alone, plus the gain of the others by its joining, if any. So
    classes that are worth less than the best gain are skipped.

    Args:
        candidates: Classes, the most valuable first, equal ones ascending; rearranged.
        need: Demand of each class, a column per resource.
        left: Number of tasks that could still join, per class.
        prices: Reservation price of each class.
        charges: Charge of each class.
        workloads: Workload number of each class.
        newcomer: Loss of a newcomer to the tasks present, by its workload; in millionths.
        dropped: Loss of the tasks present to it, by its workload.
        room: Free room of the instance.
        spare: Free room as a share of its capacity, in millionths.
        shares: Share of each class in an empty instance, a row per resource.

    Returns:
        Number of candidates removed, all of them at the beginning; the best one and its gain, or -1
        if there is none.
    """
    chosen, most, closest = -1, -1, -1
    gained = min(0, dropped.min())
    kept, position = 0, 0
    while position < len(candidates):
        number = candidates[position]
        if prices[number] * MILLION - gained < most:
            break
        position += 1
        if (
            left[number] <= 0
            or need[number, 0] > room[0]
            or need[number, 1] > room[1]
            or need[number, 2] > room[2]
        ):
            continue
        candidates[kept] = number
        kept += 1
        workload = workloads[number]
        gain = prices[number] * MILLION - newcomer[workload] * charges[number] - dropped[workload]
        if gain < most or gain < 0:
            continue
        aligned = (
            spare[0] * shares[0, number]
            + spare[1] * shares[1, number]
            + spare[2] * shares[2, number]
        )
        if gain > most or aligned > closest or (aligned == closest and number < chosen):
            chosen, most, closest = number, gain, aligned
    # Move the kept candidates to just before the ones that were not examined.
    gone = position - kept
    for place in range(kept - 1, -1, -1):
        candidates[gone + place] = candidates[place]
    return gone, chosen, most


best = njit(cache=True)(_best)
