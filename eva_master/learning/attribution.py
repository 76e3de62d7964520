"""Which task of a job is held to be the one that slows it down (Eva, section 4.4)."""

from __future__ import annotations

from collections.abc import Sequence

from eva_master.learning.colocation import Key, recorded
from eva_master.model.planning.snapshot import ThroughputTable


def attribute(
    table: ThroughputTable, members: Sequence[Key], observed_ppm: int
) -> tuple[Key, int] | None:
    """Find the entry that a job's throughput says something about, and its new value.

    Only members that share their instance with other tasks count. The only task of a job is
    slowed down by its neighbours alone, so what was observed is the entry's value. Of several
    tasks the slowest sets the pace of all, and one entry is updated:

    1. if none of them is recorded: that of the task with the most neighbours;
    2. if one is recorded lower than what was observed: the lowest one, which is raised to it;
    3. if all that are recorded are higher: that of the unrecorded task with the most
       neighbours; and if there is none, the lowest one, which is lowered half the way, since
       one window's measurement is no reason to forget all earlier ones.

    Equal candidates are told apart by their keys, the lower one is taken.

    Args:
        table: The recorded throughputs.
        members: The entry of each task of the job that runs, see `colocation.key`.
        observed_ppm: The job's normalised throughput, in millionths.

    Returns:
        The entry and its new value, `None` if there is nothing to learn: no member shares its
        instance, or a recorded entry explains the observation exactly.
    """
    sharing = sorted({entry for entry in members if entry[1]})
    if not sharing:
        return None
    if len(members) == 1:
        return sharing[0], observed_ppm
    entries = [(ppm, entry) for entry in sharing if (ppm := recorded(table, entry)) is not None]
    if entries and min(entries)[0] <= observed_ppm:
        lowest_ppm, lowest = min(entries)
        return None if lowest_ppm == observed_ppm else (lowest, observed_ppm)
    seen = {entry for _, entry in entries}
    unseen = [entry for entry in sharing if entry not in seen]
    if unseen:
        return min(unseen, key=lambda entry: (-len(entry[1]), entry)), observed_ppm
    lowest_ppm, lowest = min(entries)
    return lowest, (lowest_ppm + observed_ppm) // 2
