"""A fork's next step: a pure decision over what it heard and what it has done."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from eva_iterator._forks.link import ForkRound


class ForkStep(Enum):
    """Steps of a fork between two training steps."""

    TRAIN = "train"
    GIVE = "give"
    AVERAGE = "average"
    LOAD = "load"
    GO_BACK = "go back"
    WAIT = "wait"
    END = "end"


class Done(NamedTuple):
    """Progress of a fork.

    Attributes:
        epoch: The epoch in which its steps were made.
        steps: Steps made in it.
        given: Newest epoch whose part was published.
        merged: Newest epoch whose merge was written or loaded.
        best: Newest epoch whose best part was loaded in place of its merge.
        failed: Newest epoch that could not be averaged here.
    """

    epoch: int = 0
    steps: int = 0
    given: int = 0
    merged: int = 0
    best: int = 0
    failed: int = 0

    def steps_in(self, epoch: int) -> int:
        """Steps made in an epoch, as far as it is the present one."""
        return self.steps if self.epoch == epoch else 0


class There(NamedTuple):
    """Contents of the directory of merges, for the epoch that was heard of.

    Attributes:
        parts: All parts of the epoch.
        merge: The merge of the epoch.
        base: The merge of the epoch before.
    """

    parts: bool = False
    merge: bool = False
    base: bool = False


def next_turn(heard: ForkRound | None, done: Done, there: There) -> tuple[ForkStep, int]:
    """Decides what a fork does next.

    Args:
        heard: The newest from the agent.
        done: Progress of the fork.
        there: Contents of the directory of merges.

    Returns:
        The next step, and the epoch that it is about.
    """
    if heard is None:
        return ForkStep.WAIT, 0
    epoch = heard.epoch
    if heard.finished:
        return _last(heard, done, there)
    if epoch - 1 > done.merged:
        return (ForkStep.LOAD if there.base else ForkStep.WAIT), epoch - 1
    if heard.best and done.best < epoch - 1 and done.steps_in(epoch) == 0:
        return ForkStep.GO_BACK, epoch - 1
    if done.merged >= epoch:
        return ForkStep.WAIT, epoch
    if heard.average and there.parts and done.failed < epoch:
        return ForkStep.AVERAGE, epoch
    if done.given >= epoch and heard.forks != 1:
        return (ForkStep.LOAD if there.merge else ForkStep.WAIT), epoch
    return _in_epoch(heard, done.steps_in(epoch)), epoch


def _last(heard: ForkRound, done: Done, there: There) -> tuple[ForkStep, int]:
    if heard.forks != 1:
        if there.merge and done.merged < heard.epoch:
            return ForkStep.LOAD, heard.epoch
        if there.base and done.merged < heard.epoch - 1:
            return ForkStep.LOAD, heard.epoch - 1
    return ForkStep.END, heard.epoch


def _in_epoch(heard: ForkRound, steps: int) -> ForkStep:
    if heard.give and steps:
        return ForkStep.GIVE
    if heard.forks == 1:
        return ForkStep.END if 0 < heard.quota <= steps else ForkStep.TRAIN
    if heard.quota == 0:
        return ForkStep.WAIT
    return ForkStep.GIVE if steps >= heard.quota else ForkStep.TRAIN
