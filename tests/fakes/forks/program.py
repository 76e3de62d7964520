"""A forked program within a test: its fork, its state and its loop, without an own process."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from eva_iterator import EvaIterator, Forked, Stopped
from eva_iterator._forks.fork import Fork
from eva_iterator._forks.link import ForkPlace, ForkRound
from eva_iterator._session import AgentSession

from tests.fakes.patience import DEADLINE_S

Answer = Callable[[int, int], ForkRound | None]


class Trainee:
    """A program whose weights say which steps it made: each step adds its fork's number plus one.

    Args:
        fork: Its number.
        directory: $EVA_MERGE_DIR.
        answer: The agent's answer to a fork that gave up to an epoch.
        check: Name of the check metric.
        patience_s: How long it waits for a merge.
    """

    def __init__(
        self,
        fork: int,
        directory: Path,
        answer: Answer,
        *,
        check: str = "",
        patience_s: float = 600.0,
    ) -> None:
        self.session = AgentSession(None)
        self.session.active = True
        self.fork = Fork(ForkPlace(directory, fork, 8, 0.0, check), self.session)
        self.session.fork = self.fork
        self.session.wake = self._report  # type: ignore[method-assign]
        self._answer = answer
        self.weights = np.zeros(3)
        self.count = np.array(0)
        self.made = 0
        self.loaded: list[str] = []
        self.checked: list[float] = []
        self.stopped_with: object = None
        self.forked = Forked(
            self.save, self.load, check=self.metric if check else None, patience_s=patience_s
        )
        self.on_step: Callable[[Trainee], None] = lambda trainee: None

    def save(self, directory: Path) -> None:
        np.savez(directory / "model.npz", weights=self.weights, count=self.count)
        (directory / "settings.json").write_text(json.dumps({"fork": self.fork.place.fork}))

    def load(self, directory: Path) -> None:
        with np.load(directory / "model.npz", allow_pickle=False) as state:
            self.weights, self.count = state["weights"], state["count"]
        self.loaded.append(directory.name)

    def metric(self) -> float:
        self.checked.append(float(self.weights[0]))
        return self.checked[-1]

    def run(self, steps: int | None = None, **keywords: Any) -> Trainee:
        """Loops until the loop ends, or raises `Stopped`, whose code is noted."""
        source = itertools.count() if steps is None else range(steps)
        wrapped = EvaIterator(source, forked=self.forked, **keywords)
        self._report()
        try:
            for _ in wrapped._forked_loop(self.session, self.fork, self.forked):
                self.weights = self.weights + (self.fork.place.fork + 1)
                self.count = self.count + 1
                self.made += 1
                self.on_step(self)
        except Stopped as stopped:
            self.stopped_with = stopped.code
        return self

    def _report(self) -> None:
        if (said := self._answer(self.fork.place.fork, self.fork.link.given)) is not None:
            self.fork.link.enter(said)


def run_together(trainees: Sequence[Trainee]) -> None:
    """Runs loops on threads of their own until all have ended; all end if one of them fails."""

    def run(trainee: Trainee) -> None:
        try:
            trainee.run()
        except BaseException:
            for other in trainees:
                other.session.stop.requested = True
            raise

    with ThreadPoolExecutor(len(trainees)) as pool:
        for result in [pool.submit(run, trainee) for trainee in trainees]:
            result.result(DEADLINE_S)
