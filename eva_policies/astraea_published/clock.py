"""When batches are closed and when their rounds are (Astraea, section 4.2).

Slots are counted from the clock's beginning. Batch l has the jobs that came up to slot 2^l and are
not scheduled yet. Scheduling takes lambda rounds of 2^l slots each, from slot lambda * 2^l on, and
ends where the rounds of batch l + 1 begin.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BatchRound:
    """A round of a batch.

    Attributes:
        batch: The batch, l.
        number: Which of its rounds it is, from 1.
        start: Its first slot.
        end: The slot after its last one.
    """

    batch: int
    number: int
    start: int
    end: int

    @property
    def slots(self) -> int:
        """How long it is: up to that slot the jobs of its batch came."""
        return self.end - self.start

    @property
    def key(self) -> tuple[int, int]:
        """Batch and number: later rounds have larger keys."""
        return self.batch, self.number


def round_at(slot: int, rounds: int) -> BatchRound | None:
    """The round that a slot is in; `None` before the first one.

    Args:
        slot: Not negative.
        rounds: Lambda, at least 1.
    """
    if slot < rounds:
        return None
    batch = (slot // rounds).bit_length() - 1
    length = 1 << batch
    number = (slot - rounds * length) // length
    start = (rounds + number) * length
    return BatchRound(batch, number + 1, start, start + length)
