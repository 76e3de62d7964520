"""How much room short tasks need: arithmetic alone."""

from __future__ import annotations


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
