"""A fork's messages from and to the agent, and its place in the environment."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from eva_iterator._forks.parts import MOST_FORKS

if TYPE_CHECKING:
    from eva_iterator._proto.iterator_pb2 import ReportResponse

DIRECTORY_VARIABLE = "EVA_MERGE_DIR"
FORK_VARIABLE = "EVA_FORK"
FORKS_VARIABLE = "EVA_FORKS"
CHECK_VARIABLE = "EVA_MERGE_CHECK"
BETTER_VARIABLE = "EVA_MERGE_BETTER"
PATIENCE_VARIABLE = "EVA_MERGE_PATIENCE_MS"


class ForkRound(NamedTuple):
    """The agent's message about the present epoch; see `MergeRound` in iterator.proto."""

    epoch: int
    base_steps: int = 0
    quota: int = 0
    average: bool = False
    give: bool = False
    finished: bool = False
    forks: int = 0
    best: bool = False


class ForkPlace(NamedTuple):
    """Which fork of how many a program is, and where its merges are.

    Attributes:
        directory: Holds `given`, `parts` and `merged`.
        fork: The number of this fork.
        forks: How many forks the job has.
        check: Name of the check metric, empty for none.
        patience_s: Seconds within which there is a merge, even if the fork that is to make it has
            to be replaced; 0 if unknown.
        better: `larger` or `smaller`, whichever is better of it; empty if its name says so.
    """

    directory: Path
    fork: int
    forks: int
    patience_s: float
    check: str
    better: str = ""

    @property
    def larger_is_better(self) -> bool:
        """Whether a larger check metric is better, as the job file or else its name says."""
        if self.better in ("larger", "smaller"):
            return self.better == "larger"
        return self.check.startswith("accuracy") or self.check.endswith("acc")


def place_in(environ: Mapping[str, str]) -> ForkPlace | None:
    """The place that an environment names, None unless the program is a fork."""
    directory = environ.get(DIRECTORY_VARIABLE)
    fork, forks = shard_in(environ)
    if not directory or forks < 1:
        return None
    try:
        patience_s = max(0, int(environ.get(PATIENCE_VARIABLE, "0"))) / 1000
    except ValueError:
        patience_s = 0.0
    check, better = environ.get(CHECK_VARIABLE, ""), environ.get(BETTER_VARIABLE, "")
    return ForkPlace(Path(directory), fork, forks, patience_s, check, better)


def shard_in(environ: Mapping[str, str]) -> tuple[int, int]:
    """The number of the fork, and how many there are; (0, 1) unless both are stated."""
    try:
        fork, forks = int(environ[FORK_VARIABLE]), int(environ[FORKS_VARIABLE])
    except (KeyError, ValueError):
        return 0, 1
    return (fork, forks) if 0 <= fork < forks <= MOST_FORKS else (0, 1)


class ForkLink:
    """State that the looping thread and the reporter share.

    The reporter writes `round`, the looping thread the rest; each is replaced as a whole.

    Attributes:
        round: The newest that was heard, None for nothing yet.
        given: Newest epoch whose part was published.
        merged: Newest epoch whose merge was written or loaded.
        heard: Set when `round` has changed.
    """

    def __init__(self) -> None:
        self.round: ForkRound | None = None
        self.given = 0
        self.merged = 0
        self.heard = threading.Event()

    def said(self) -> dict[str, int]:
        """Fields of the next report."""
        return {"given_epoch": self.given, "merged_epoch": self.merged}

    def hear(self, response: ReportResponse) -> None:
        """Takes note of what the agent answers."""
        if not response.HasField("merge"):
            return
        merge = response.merge
        self.enter(
            ForkRound(
                epoch=merge.epoch,
                base_steps=merge.base_steps,
                quota=merge.quota,
                average=merge.average,
                give=merge.give,
                finished=merge.finished,
                forks=merge.forks,
                best=merge.best,
            )
        )

    def enter(self, news: ForkRound) -> None:
        """Takes note of a round; an epoch that is over is ignored."""
        current = self.round
        if news == current or (current is not None and news.epoch < current.epoch):
            return
        self.round = news
        self.heard.set()
