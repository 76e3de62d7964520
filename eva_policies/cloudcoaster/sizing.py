"""How much room short tasks need: arithmetic alone."""

from __future__ import annotations

from eva_wire.values.ids import MILLION


def published(n_long: int, n_static: int, threshold_ppm: int, most: int) -> int:
    """Wanted number of transient servers, by the share of servers with long tasks.

    The number is the outcome of the loop in CloudCoaster's section 3.2, which adds and removes one
    server after the other until the share crosses the threshold.

    Args:
        n_long: Servers that hold a long task.
        n_static: Servers that are not transient, including those for short tasks alone.
        threshold_ppm: The share, in millionths, above which servers are added.
        most: Number of servers that the budget buys, K.

    Returns:
        From 0 to `most`, including servers that are requested and not there yet.
    """
    return max(0, min(most, -(-n_long * MILLION // threshold_ppm) - n_static))


def needed(queued_ms: int, free_slots: int, clear_within_ms: int, most: int) -> int:
    """How many slots are to be added, so that what waits has begun in time.

    Args:
        queued_ms: Run time of all tasks that wait, one after the other.
        free_slots: Slots that they can have at once.
        clear_within_ms: So soon all of it is to be done, by slots that are as many as that takes.
        most: No more than these.

    Returns:
        From 0 to `most`.
    """
    return max(0, min(most, -(-queued_ms // clear_within_ms) - free_slots))
