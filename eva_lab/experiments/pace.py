"""In which order the runs of a sweep are carried out, and when it ends."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import fmean

from eva_lab.experiments.runs import Cell, Results, Run

_Kind = tuple[str, str]


class Pace:
    """How long runs take, as those tell that have ended; runs of one kind differ in seeds alone.

    Args:
        runs: The runs to carry out.
        earlier: Runs that ended in an earlier sweep, with their seconds.
        clock: The time in seconds.
    """

    def __init__(
        self,
        runs: Sequence[Run],
        earlier: Iterable[tuple[Run, float]],
        clock: Callable[[], float],
    ) -> None:
        self._clock = clock
        # Backends take runs in a thread of theirs.
        self._lock = threading.Lock()
        self._seconds: dict[_Kind, list[float]] = {}
        for run, seconds in earlier:
            self._seconds.setdefault(_kind(run), []).append(seconds)
        self._waiting = list(runs)
        self._begun: dict[str, tuple[Run, float]] = {}
        self._tried = Counter[_Kind]()

    def longest_first(self) -> Iterator[Run]:
        """The runs, each chosen when a worker is free for it.

        A long run that begins last would keep one worker busy while all others are idle. So one run
        of each kind of which none has ended comes first, which tells how long the others take, then
        the longest.
        """
        while True:
            with self._lock:
                if not self._waiting:
                    return
                run = max(self._waiting, key=self._urgency)
                self._waiting.remove(run)
                self._tried[_kind(run)] += 1
                self._begun[run.digest] = run, self._clock()
            yield run

    def _urgency(self, run: Run) -> tuple[bool, float]:
        kind = _kind(run)
        return kind not in self._seconds and not self._tried[kind], self._expected_s(run)

    def ended(self, digest: str, seconds: float | None) -> None:
        """A run has ended, and took so long; `None` if it failed, which tells nothing of others."""
        with self._lock:
            run, _ = self._begun.pop(digest)
            if seconds is None:
                return
            self._seconds.setdefault(_kind(run), []).append(seconds)

    def left_s(self, workers: int) -> float | None:
        """Seconds until the last run ends; `None` until a first one has ended."""
        with self._lock:
            if not self._seconds:
                return None
            now = self._clock()
            begun = [
                max(0.0, self._expected_s(run) - (now - at)) for run, at in self._begun.values()
            ]
            waiting = [self._expected_s(run) for run in self._waiting]
            return max((sum(begun) + sum(waiting)) / max(1, workers), *begun, *waiting, 0.0)

    def _expected_s(self, run: Run) -> float:
        """The mean of its kind, or of all kinds if none of that has ended."""
        same = self._seconds.get(_kind(run))
        if same:
            return fmean(same)
        return fmean(map(fmean, self._seconds.values())) if self._seconds else 0.0


def timed(cells: Sequence[Cell], results: Results) -> list[tuple[Run, float]]:
    """Runs of an experiment that have a result, with the seconds that each took."""
    runs = {cell.digest: cell.run for cell in cells}
    run_results = ((run, results.find(digest)) for digest, run in runs.items())
    return [
        (run, float(result["made"]["wall_s"]))
        for run, result in run_results
        if result is not None and isinstance(result.get("made"), dict)
    ]


def _kind(run: Run) -> _Kind:
    return run.title, repr(run.recipe)
