"""Settings of the CloudCoaster policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from eva_master.model.option_types import Count, PositiveShare, Seconds, Share, UsdPerHour
from eva_master.model.resources import NOTHING, Resources
from eva_wire.values.ids import MILLION, Price


@dataclass(frozen=True, slots=True)
class Config:
    """Settings.

    Attributes:
        slots: N, for how many tasks room is paid for at most, at the price on demand. A task that
            no member of the pools can hold is given one beside these.
        slot_milli_cpus: How large a slot is, in thousandths of a CPU; `slot_memory_mib` and
            `slot_gpus` likewise. If anything is said of it, the slots on demand are bought at once.
            Else a slot is what the first short task takes, and they are bought when it waits.
        transient_share_ppm: p, the share of that money that goes to spot instances. They are as
            many as it buys.
        budget_usd_per_hour: That money, if it is not to follow from `slots`; K, how many transient
            slots there are at most, is what it buys.
        resize: How many transient instances there are: `need` goes by the short tasks that wait,
            `published` by the share of slots with long tasks, as the paper does.
        threshold_ppm: That share, above which `published` adds slots.
        clear_within_s: So soon what waits is to have begun: the pools grow by as many slots.
        hold_s: So long after the last need no member leaves for want of work.
        age_cap: A task that has waited for so many times its own run time goes first; in the queue
            of a server, one that others were preferred to for so long.
        short_first: Whether short tasks may use room that is free on instances of other jobs.
        long_patience_s: They may not while a task of another job has waited for so long; where
            those stand in a line, its head is passed over for so long at most.
        largest_share_ppm: So much of the spot money is spent on one type in one zone at most.
        placement: Where short tasks wait: in one `line` for all rooms, or, with `probes`, in the
            queues of servers that their job has asked at random, as Eagle does.
        seed: Which servers those are.
        explained: Give reasons with every plan; they decide nothing.
    """

    slots: Count = 8
    slot_milli_cpus: Count = 0
    slot_memory_mib: Count = 0
    slot_gpus: Count = 0
    transient_share_ppm: Share = 500_000
    budget_usd_per_hour: UsdPerHour | None = None
    resize: Literal["need", "published"] = "need"
    threshold_ppm: PositiveShare = 950_000
    clear_within_s: Seconds = 20
    hold_s: Seconds = 300
    age_cap: Count = 5
    short_first: bool = True
    long_patience_s: Seconds = 600
    largest_share_ppm: Share = 500_000
    placement: Literal["line", "probes"] = "line"
    seed: Count = 1
    explained: bool = True

    def __post_init__(self) -> None:
        """Check that something is left after a revocation."""
        if self.slots and not self.steady_slots:
            raise ValueError(
                f"of {self.slots} slots none would be on demand: nothing would be left once the "
                "cloud takes the others; lower transient_share_ppm, or have more slots"
            )
        if self.resize == "need" and not self.short_first:
            raise ValueError(
                "resize: need goes by the room on instances of other jobs, too; without "
                "short_first have resize: published"
            )

        if self.resize == "need" and self.probes:
            raise ValueError(
                "resize: need goes by what waits in one line; with placement: probes have resize: "
                "published"
            )

    @property
    def probes(self) -> bool:
        """Whether short tasks wait in the queues of servers that their job has asked."""
        return self.placement == "probes"

    @property
    def budget(self) -> Price | None:
        """Stated limit of the price of all spot members, in micro-dollars per hour, if any."""
        usd = self.budget_usd_per_hour
        return None if usd is None else Price(round(usd * MILLION))

    @property
    def slot(self) -> Resources | None:
        """The size of a slot, if it is said."""
        size = Resources(self.slot_gpus, self.slot_milli_cpus, self.slot_memory_mib)
        return None if size == NOTHING else size

    @property
    def steady_slots(self) -> int:
        """N (1 - p): how many slots are on demand, whatever the spot market does."""
        return self.slots * (MILLION - self.transient_share_ppm) // MILLION


PRESETS: Mapping[str, Mapping[str, Any]] = {
    "published": {"placement": "probes", "resize": "published"},
    "eagle": {"placement": "probes", "resize": "published", "transient_share_ppm": 0},
}
"""CloudCoaster as its paper has it, and what it builds on: Eagle, with no transient instance."""
