"""How many pilots pay: the sampling ratio by which jobs ended soonest, as SLearn finds it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

JOBS_SCORED = 100
"""T: number of the last ended jobs that determine a ratio's score."""
_MIDDLE = 30_000
_FIRST = (_MIDDLE, 20_000, 40_000)
"""Ratios tried first, each by this many jobs."""
_BEYOND = {20_000: 10_000, 40_000: 50_000}
"""Ratios one step further from the middle."""
_STEP_FROM = 11, 10
"""The step is taken if the middle's score is more than this many times the best one."""
Scores = Mapping[int, tuple[int, ...]]
"""By ratio, in millionths: time in the cluster over work, in millionths, of the last jobs."""


@dataclass(frozen=True, slots=True)
class Ratios:
    """Scores of the ratios tried so far.

    Attributes:
        started: Number of jobs that have had pilots.
        scores: Scores of the last jobs that ended.
    """

    started: int = 0
    scores: Scores = field(default_factory=dict)

    def next(self) -> int:
        """The ratio for the next job, in millionths (SLearn, Figure 4).

        The lowest score of *all* ratios decides. A ratio at the edge of those tried first leads one
        step further if it beats the middle one by more than a tenth. Of equal scores the smaller
        ratio counts, and the middle one stands while no job has ended.
        """
        phase = self.started // JOBS_SCORED
        if phase < len(_FIRST):
            return _FIRST[phase]
        means = {ratio: sum(last) // len(last) for ratio, last in self.scores.items() if last}
        if not means:
            return _MIDDLE
        best = min(means, key=lambda ratio: (means[ratio], ratio))
        up, down = _STEP_FROM
        if best in _BEYOND and up * means[best] < down * means.get(_MIDDLE, 0):
            return _BEYOND[best]
        return best

    def begun(self) -> Ratios:
        """The ratios after one more job with pilots."""
        return Ratios(self.started + 1, self.scores)

    def ended(self, ratio_ppm: int, score: int) -> Ratios:
        """The ratios after the end of a job with this ratio."""
        last = (*self.scores.get(ratio_ppm, ()), score)[-JOBS_SCORED:]
        return Ratios(self.started, {**self.scores, ratio_ppm: last})
