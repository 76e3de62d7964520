"""How many pilots pay: the ratio that served the last jobs best, as the paper finds it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

JOBS_SCORED = 100
"""T: as many jobs speak for a ratio, those that ended last."""
_FIRST = (30_000, 20_000, 40_000)
"""These are tried first, each by so many jobs."""
_LESS, _ONE, _FIVE = 20_000, 10_000, 50_000
_STEP_FROM = 11, 10
"""The next ratio is tried if the best one is so many times better than the one beside it."""
Scores = Mapping[int, tuple[int, ...]]
"""By ratio, in millionths: time in the cluster over work, in millionths, of the last jobs."""


@dataclass(frozen=True, slots=True)
class Ratios:
    """What is known of ratios.

    Attributes:
        started: How many jobs have had pilots.
        scores: Those of the last jobs that ended.
    """

    started: int = 0
    scores: Scores = field(default_factory=dict)

    def next(self) -> int:
        """The ratio for the next job, in millionths."""
        phase = self.started // JOBS_SCORED
        if phase < len(_FIRST):
            return _FIRST[phase]
        means = {it: sum(scores) // len(scores) for it, scores in self.scores.items() if scores}
        known = {it: mean for it, mean in means.items() if it in _FIRST}
        if not known:
            return _FIRST[0]
        best = min(known, key=lambda it: (known[it], it))
        middle, (up, down) = means.get(_FIRST[0]), _STEP_FROM
        if middle is None or best == _FIRST[0]:
            return best
        beyond = _ONE if best == _LESS else _FIVE
        if up * known[best] >= down * middle:
            return best
        return beyond if means.get(beyond, 0) <= known[best] else best

    def begun(self) -> Ratios:
        """Once one more job has pilots."""
        return Ratios(self.started + 1, self.scores)

    def ended(self, ratio_ppm: int, score: int) -> Ratios:
        """Once a job with this ratio has ended."""
        last = (*self.scores.get(ratio_ppm, ()), score)[-JOBS_SCORED:]
        return Ratios(self.started, {**self.scores, ratio_ppm: last})
