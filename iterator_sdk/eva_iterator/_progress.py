"""The progress of a process: steps, total and metrics."""

from __future__ import annotations

import math
import threading
import time


class CountedLoop:
    """One pass over an iterable.

    The looping thread writes `steps` and, at the end, `closed`; the reporter writes `due`. No lock
    is taken, since the looping thread would need it at every step.

    Attributes:
        steps: Steps finished.
        every_s: Seconds between checkpoints, infinite for none.
        saves: Whether it has a checkpoint of its own.
        thread: The looping thread.
        due: Whether a checkpoint is to be published after the current step.
        closed: Whether the pass is over.
    """

    __slots__ = ("closed", "due", "every_s", "saves", "steps", "thread")

    def __init__(self, every_s: float, *, saves: bool) -> None:
        self.steps = 0
        self.every_s = every_s
        self.saves = saves
        self.thread = threading.get_ident()
        self.due = False
        self.closed = False


class Progress:
    """Cumulative progress of one process, from its loops and its explicit reports.

    Attributes:
        total_steps: Steps that the program will have made when it is done, 0 if unknown.
        metrics: Latest value of each of the program's metrics.
    """

    def __init__(self) -> None:
        self.total_steps = 0
        self.metrics: dict[str, float] = {}
        # Re-entrant: a finalizer or signal handler that counts a step may interrupt a holder.
        self._lock = threading.RLock()
        self._loops: list[CountedLoop] = []
        self._settled_steps = 0
        # The newest checkpoint of this process and the steps in it, replaced as one by `saved`.
        self._saved = (0, 0)
        self._saved_at_s = time.monotonic()

    def open(self, every_s: float, *, saves: bool = False) -> CountedLoop:
        """Starts to count the steps of a loop, until its `closed` is set."""
        loop = CountedLoop(every_s, saves=saves)
        self._loops.append(loop)
        return loop

    def within_step(self, loop: CountedLoop) -> bool:
        """Whether a loop runs within a step of another one that has a checkpoint of its own."""
        return any(
            other.saves and not other.closed and other.thread == loop.thread
            for other in list(self._loops)
            if other is not loop
        )

    def add(self, steps: int) -> None:
        """Counts steps made outside any loop."""
        with self._lock:
            self._settled_steps += steps

    def steps(self) -> int:
        """Steps finished since the process started."""
        with self._lock:
            for loop in [loop for loop in self._loops if loop.closed]:
                self._settled_steps += loop.steps
                self._loops.remove(loop)
            return self._settled_steps + sum(loop.steps for loop in list(self._loops))

    def saved(self, generation: int) -> None:
        """Notes that a checkpoint contains all steps made so far.

        Args:
            generation: The checkpoint's number.
        """
        self._saved = (generation, self.steps())
        self._saved_at_s = time.monotonic()

    def saved_steps(self, generation: int) -> int:
        """Steps that a checkpoint contains; 0 unless it is the newest one of this process.

        Args:
            generation: The checkpoint's number.
        """
        newest, steps = self._saved
        return steps if newest == generation else 0

    def unsaved(self) -> bool:
        """Whether steps were made since the last checkpoint."""
        return self.steps() != self._saved[1]

    def complete(self) -> bool:
        """Whether the program has made all of its steps, if it said how many there are."""
        return 0 < self.total_steps <= self.steps()

    def mark_due(self, now_s: float) -> float:
        """Tells every loop whose checkpoint is due.

        Args:
            now_s: `time.monotonic()`.

        Returns:
            When the next checkpoint of a loop falls due, on the same clock; infinite for never.
        """
        soonest_s = math.inf
        for loop in list(self._loops):
            due_s = self._saved_at_s + loop.every_s
            if loop.closed or loop.due:
                continue
            if due_s <= now_s:
                loop.due = True
            else:
                soonest_s = min(soonest_s, due_s)
        return soonest_s
