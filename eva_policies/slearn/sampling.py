"""Which tasks of a job are its pilots."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from itertools import chain, zip_longest

from eva_master.model.planning.job_view import JobView
from eva_wire.values.bounds import MOST_PILOTS
from eva_wire.values.ids import MILLION, JobId


def pilots_of(tasks: int, ratio_ppm: int) -> int:
    """How many pilots a job has: that share of its tasks, from one to `MOST_PILOTS`."""
    return min(MOST_PILOTS, max(1, tasks * ratio_ppm // MILLION))


def chosen(job: JobId, tasks: int, pilots: int, seed: int) -> tuple[int, ...]:
    """The indexes of a job's pilots, drawn without regard to their order.

    Args:
        job: The job.
        tasks: Number of its tasks.
        pilots: Number of pilots; at most all tasks.
        seed: Seed of the draw.
    """
    drawn_indexes: dict[int, None] = {}
    draw = 0
    while len(drawn_indexes) < min(pilots, tasks):
        digest = blake2b(f"{seed}/{job}/{draw}".encode(), digest_size=8).digest()
        drawn_indexes[int.from_bytes(digest, "big") % tasks] = None
        draw += 1
    return tuple(drawn_indexes)


def chosen_of(job: JobView, ratio_ppm: int, seed: int) -> tuple[int, ...]:
    """The indexes of a job's pilots: some of each kind of its tasks, as far as they go round.

    Args:
        job: The job.
        ratio_ppm: Share of its tasks that are pilots, if its user does not state the number.
        seed: Seed of the draw.
    """
    if not job.array.kinds:
        return chosen(
            job.id,
            job.array.size,
            job.spec.array.pilots or pilots_of(job.array.size, ratio_ppm),
            seed,
        )
    drawn: list[Sequence[int]] = []
    for number, kind in enumerate(job.array.kinds):
        count = len(kind) if job.spec.array.pilots else pilots_of(len(kind), ratio_ppm)
        name = JobId(f"{job.id}#{number}")
        drawn.append(
            [kind[index] for index in chosen(name, len(kind), min(MOST_PILOTS, count), seed)]
        )
    in_turn = [index for index in chain(*zip_longest(*drawn)) if index is not None]
    return tuple(in_turn[: job.spec.array.pilots or MOST_PILOTS])
