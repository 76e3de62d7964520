"""The cost of single jobs with deadlines on spot pools, each as part of its cost on demand.

The settings of a file (`benchmarks/spot_markets/single.yaml`) are all combinations of sets of
recorded pools, deadlines and times that a change of instance takes. Pools are learned from the
first third of the recording; jobs begin in the rest. At each sample the product's own rules choose
between a spot instance, one on demand, and waiting; on demand is always to be had.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from statistics import fmean
from typing import Any

import numpy as np
import numpy.typing as npt

from eva_master.learning.market.pools import SpotPool, SpotPools
from eva_master.model.planning.spot_choice import SpotChoice
from eva_master.packing.deadlines.choice import Chooser, Situation
from eva_master.packing.deadlines.outlook import outlook
from eva_master.packing.deadlines.table import MarketChoice, SpotForecast
from eva_wire.values.ids import MILLION, MILLIS_PER_HOUR, Millis

_COLUMNS = {
    "greedy": SpotChoice.UNTIL_SAFETY_NET,
    "uniform_progress": SpotChoice.UNIFORM_PROGRESS,
    "eva": SpotChoice.LEARNED,
}
_LEARNED_PART = 3
"""From one part of so many it is learned what pools are like."""


@dataclass(frozen=True)
class Recording:
    """Pools of which each may have a job's instance.

    Attributes:
        pools: Which.
        prices: Price of each pool, as part of the price on demand.
        gap_ms: From one sample to the next.
        up: Whether each was there, by pool and sample.
    """

    pools: tuple[SpotPool, ...]
    prices: tuple[float, ...]
    gap_ms: int
    up: npt.NDArray[np.bool_]

    def learned(self) -> SpotPools:
        """The knowledge of a cluster that tried all pools all the time in the first part."""
        spot_pools = SpotPools()
        for sample in range(self.up.shape[1] // _LEARNED_PART):
            now = Millis(sample * self.gap_ms)
            for number, pool in enumerate(self.pools):
                if self.up[number, sample]:
                    spot_pools = spot_pools.sold(pool, now)
                elif spot_pools.retry_ms(pool) <= now:
                    spot_pools = spot_pools.refused(pool, now)
        return spot_pools

    def ages(self) -> npt.NDArray[np.int_]:
        """For how many samples each pool has been as it is, and whether any is there."""
        rows = (*self.up, self.up.any(axis=0))
        return np.array([_ages(row) for row in rows])


def _ages(row: npt.NDArray[np.bool_]) -> npt.NDArray[np.int_]:
    places = np.arange(len(row))
    changed = np.concatenate(([True], row[1:] != row[:-1]))
    return places - np.maximum.accumulate(np.where(changed, places, 0))


@dataclass(frozen=True)
class Setting:
    """How long a job takes, how long it may take, and how long a change of instance takes."""

    work_ms: int
    within_ms: int
    change_ms: int


@dataclass
class _Run:
    """A job under way."""

    left_ms: float
    now_ms: float = 0
    ready_ms: float = 0
    cost: float = 0
    place: MarketChoice = MarketChoice.WAIT
    pool: int = -1


class Trial:
    """One recording, as jobs with one setting meet it."""

    def __init__(self, recording: Recording, setting: Setting) -> None:
        self._of, self._setting, self._chooser = recording, setting, Chooser()
        self._up, self._ages = recording.up.tolist(), recording.ages().tolist()
        price_ppm = round(MILLION * fmean(recording.prices))
        self._outlook: SpotForecast = outlook(recording.learned(), recording.pools, price_ppm)

    def starts(self, every_ms: int) -> range:
        """Samples at which jobs begin, all of which can end before the recording does."""
        samples = self._of.up.shape[1]
        last = samples - self._setting.within_ms // self._of.gap_ms - 2
        return range(samples // _LEARNED_PART, last, max(1, every_ms // self._of.gap_ms))

    def run(self, rule: SpotChoice, start: int) -> tuple[float, bool]:
        """The cost of a job, in hours on demand, and whether it is late."""
        job = _Run(float(self._setting.work_ms))
        sample = start
        while job.left_ms > 0:
            self._choose(rule, job, sample)
            self._pass(job)
            sample += 1
        return job.cost, job.now_ms > self._setting.within_ms

    def _choose(self, rule: SpotChoice, job: _Run, sample: int) -> None:
        there = [it for it, up in enumerate(self._up) if up[sample]]
        if job.place is MarketChoice.SPOT and job.pool not in there:
            job.place = MarketChoice.WAIT
        if job.place is not MarketChoice.WAIT and job.ready_ms > job.now_ms:
            return
        pool = job.pool
        if job.place is not MarketChoice.SPOT:  # The one that has been there for longest.
            pool = max(there, key=lambda it: self._ages[it][sample], default=-1)
        age_ms = self._ages[pool][sample] * self._of.gap_ms
        found = self._chooser.choose(rule, self._outlook, self._situation(job, bool(there), age_ms))
        if found is not job.place:
            job.place, job.pool = found, pool
            job.ready_ms = job.now_ms + self._setting.change_ms

    def _situation(self, job: _Run, there: bool, age_ms: int) -> Situation:
        setting = self._setting
        rest_ms = setting.within_ms - job.now_ms
        # Between two samples nobody looks.
        slack_ms = rest_ms - job.left_ms - setting.change_ms - self._of.gap_ms
        return Situation(
            round(job.left_ms),
            round(slack_ms),
            setting.change_ms,
            job.place,
            there,
            age_ms,
            ahead_ms=round(setting.work_ms * rest_ms / setting.within_ms - job.left_ms),
        )

    def _pass(self, job: _Run) -> None:
        """Let the time until the next sample pass."""
        gap_ms = self._of.gap_ms
        if job.place is MarketChoice.WAIT:
            job.now_ms += gap_ms
            return
        price = 1.0 if job.place is MarketChoice.ON_DEMAND else self._of.prices[job.pool]
        works_ms = min(float(gap_ms), max(0.0, job.now_ms + gap_ms - job.ready_ms))
        unused_ms = max(0.0, works_ms - job.left_ms)
        job.left_ms -= works_ms - unused_ms
        job.now_ms += gap_ms - unused_ms
        job.cost += price * (gap_ms - unused_ms) / MILLIS_PER_HOUR

    def bound(self, start: int) -> float:
        """The least cost with the future known, even if changes took no time."""
        gap_ms, of = self._of.gap_ms, self._of
        window = of.up[:, start : start + self._setting.within_ms // gap_ms]
        prices = np.where(window, np.array(of.prices)[:, None], 1.0).min(axis=0)
        needed = self._setting.work_ms / gap_ms
        cheapest = np.sort(prices)[: int(needed)]
        hours = float(cheapest.sum()) + needed - len(cheapest)
        return hours * gap_ms / MILLIS_PER_HOUR


def rows(recordings: Mapping[str, Recording], told: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A row for each setting."""
    for (name, recording), factor, minutes in product(
        recordings.items(), told["within"], told["change_minutes"]
    ):
        work_ms = round(told["hours"] * MILLIS_PER_HOUR)
        setting = Setting(work_ms, round(factor * work_ms), round(60_000 * minutes))
        trial, found = Trial(recording, setting), dict[str, Any]()
        starts, missed = trial.starts(round(told["every_hours"] * MILLIS_PER_HOUR)), 0
        for column, rule in _COLUMNS.items():
            runs = [trial.run(rule, start) for start in starts]
            found[column] = round(fmean(cost for cost, _ in runs) / told["hours"], 4)
            missed += sum(late for _, late in runs)
        bound = fmean(map(trial.bound, starts)) / told["hours"]
        yield {
            "scenario": f"{name} {factor:g}x {minutes:g}m",
            "starts": len(starts),
            **found,
            "bound": round(bound, 4),
            "missed": missed,
        }
