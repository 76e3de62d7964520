"""The progress that tasks report."""

from __future__ import annotations

from dataclasses import dataclass, field

from eva_master.model.values import quick
from eva_wire.values.ids import Millis


@quick
@dataclass(frozen=True, slots=True)
class Progress:
    """The progress that a task last reported.

    Attributes:
        steps: Iterations done in all attempts, as far as checkpoints preserved them.
        total_steps: Value of `steps` at the end, as the program reports it; 0 if unknown.
        metrics: The program's own metrics, such as loss and accuracy, by name; those of earlier
            attempts until this one reports some.
        rate: Iterations per second over the last window, 0 before the first is complete.
        at_ms: When the master received it, `None` if that is not on record.
        first: When the master first received new iterations of the present attempt, and the total
            by then; `None` before that.
    """

    steps: int = 0
    total_steps: int = 0
    metrics: tuple[tuple[str, float], ...] = ()
    rate: float = 0.0
    at_ms: Millis | None = field(default=None, compare=False)
    first: tuple[Millis, int] | None = field(default=None, compare=False)

    @property
    def rate_so_far(self) -> float:
        """Iterations per second since the first report of this attempt; 0 before the second."""
        if self.first is None or self.at_ms is None or self.at_ms <= self.first[0]:
            return 0.0
        return self.new_steps * 1_000 / (self.at_ms - self.first[0])

    @property
    def new_steps(self) -> int:
        """Iterations of the present attempt since its first report."""
        return 0 if self.first is None else max(0, self.steps - self.first[1])

    def at_rate(self, rate: float) -> Progress:
        """This progress with another rate."""
        if rate == self.rate:
            return self
        return Progress(self.steps, self.total_steps, self.metrics, rate, self.at_ms, self.first)

    def resumed(self) -> Progress:
        """This progress at the start of an attempt, before any measurement."""
        return Progress(self.steps, self.total_steps, self.metrics, at_ms=self.at_ms)

    def heard(self, at: Millis, earlier: Progress) -> Progress:
        """This progress, received at a certain time and after earlier progress."""
        first = earlier.first
        if first is not None and self.steps < first[1]:
            first = None
        if first is None and self.steps > earlier.steps:
            first = (at, self.steps)
        return Progress(self.steps, self.total_steps, self.metrics, self.rate, at, first)

    def after(self, earlier: Progress) -> Progress:
        """This progress with the rate, and metrics if it has none, of earlier progress.

        A program that resumes from its last checkpoint may have nothing left to measure.
        """
        metrics = self.metrics or earlier.metrics
        return Progress(
            self.steps, self.total_steps, metrics, earlier.rate, self.at_ms, earlier.first
        )


NO_PROGRESS = Progress()
"""Nothing was reported."""
