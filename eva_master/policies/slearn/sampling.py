"""Which tasks of a job are its pilots."""

from __future__ import annotations

from hashlib import blake2b

from eva_master.model.ids import MILLION, JobId

MOST_PILOTS = 100
"""More would hardly make a mean surer, and each is looked for whenever room becomes free."""


def pilots_of(tasks: int, ratio_ppm: int) -> int:
    """How many pilots a job has: that share of its tasks, from one to `MOST_PILOTS`."""
    return min(MOST_PILOTS, max(1, tasks * ratio_ppm // MILLION))


def chosen(job: JobId, tasks: int, pilots: int, seed: int) -> tuple[int, ...]:
    """The indexes of a job's pilots, drawn without regard to their order.

    Args:
        job: Whose.
        tasks: How many tasks it has.
        pilots: How many of them; at most all.
        seed: Another one chooses others.
    """
    found: dict[int, None] = {}
    draw = 0
    while len(found) < min(pilots, tasks):
        digest = blake2b(f"{seed}/{job}/{draw}".encode(), digest_size=8).digest()
        found[int.from_bytes(digest, "big") % tasks] = None
        draw += 1
    return tuple(found)
