"""The inner loop of Algorithm 1, compiled by numba; imported only where that is installed."""

from __future__ import annotations

from numba import njit

from eva_master.model.ids import MILLION
from eva_master.packing.interference.throughput import Ints


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

    No task adds more than it is worth alone, and what the others gain by its coming, if anything.
    So those that are worth less than the best one adds are not looked at.

    Args:
        candidates: Classes, those worth most first, equal ones ascending; rearranged.
        need: What each class needs, a column per resource.
        left: Per class, how many tasks could still join.
        prices: Per class.
        charges: Per class.
        workloads: Per class.
        newcomer: What a newcomer loses to those who are there, by its workload; in millionths.
        dropped: What those who are there lose to it, by its workload.
        room: What is left of the instance.
        spare: The same as a share of its capacity, in millionths.
        shares: What each class takes of an empty one, a row per resource.

    Returns:
        How many candidates are gone, all of them at the beginning; the best one and its gain, or
        -1 if there is none.
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
    # Those that are kept are put before the ones that were not looked at.
    gone = position - kept
    for place in range(kept - 1, -1, -1):
        candidates[gone + place] = candidates[place]
    return gone, chosen, most


best = njit(cache=True)(_best)
