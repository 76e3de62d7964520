"""Two-dimensional least attained service, in two steps: GPUs times time decide the queue."""

from __future__ import annotations

from collections.abc import Iterable

from eva_master.packing.fleet.contenders import Contender
from eva_wire.values.ids import Millis


def in_order(
    contenders: Iterable[Contender], now: Millis, first_queue_gpu_s: int
) -> list[Contender]:
    """Contenders by priority, queue, arrival and name.

    No contender returns to the first queue: the promote knob of Tiresias is off.

    Args:
        contenders: The contenders.
        now: Time until which GPU time counts.
        first_queue_gpu_s: Limit of GPU time for the first queue, in seconds of one GPU.
    """
    least = 1000 * first_queue_gpu_s

    def rank(one: Contender) -> tuple[object, ...]:
        job = one.job
        return -job.priority, job.progress.attained.at_ms(now) >= least, job.submitted_ms, one.id

    return sorted(contenders, key=rank)
