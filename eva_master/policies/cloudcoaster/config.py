"""Settings of the CloudCoaster policy."""

from __future__ import annotations

from dataclasses import dataclass

from eva_master.model.ids import MILLION
from eva_master.model.option_types import Count, Seconds, Share


@dataclass(frozen=True, slots=True)
class Config:
    """Settings.

    Attributes:
        slots: N, for how many tasks room is paid for at most, at the price on demand. A task that
            no member of the pools can hold is given one beside these.
        transient_share_ppm: p, the share of that money that goes to spot instances. They are as
            many as it buys.
        clear_within_s: So soon what waits is to have begun: the pools grow by as many slots.
        hold_s: So long after the last need no member leaves for want of work.
        age_cap: A task that has waited for so many times its own run time goes first.
        short_first: Whether short tasks may use room that is free on instances of other jobs.
        long_patience_s: They may not while a task of another job has waited for so long; where
            those stand in a line, its head is passed over for so long at most.
        largest_share_ppm: So much of the spot money is spent on one type in one zone at most.
        explained: Give reasons with every plan; they decide nothing.
    """

    slots: Count = 8
    transient_share_ppm: Share = 500_000
    clear_within_s: Seconds = 20
    hold_s: Seconds = 300
    age_cap: Count = 5
    short_first: bool = True
    long_patience_s: Seconds = 600
    largest_share_ppm: Share = 500_000
    explained: bool = True

    def __post_init__(self) -> None:
        """Check that something is left after a revocation."""
        if self.slots and not self.steady_slots:
            raise ValueError(
                f"of {self.slots} slots none would be on demand: nothing would be left once the "
                "cloud takes the others; lower transient_share_ppm, or have more slots"
            )

    @property
    def steady_slots(self) -> int:
        """N (1 - p): how many slots are on demand, whatever the spot market does."""
        return self.slots * (MILLION - self.transient_share_ppm) // MILLION
