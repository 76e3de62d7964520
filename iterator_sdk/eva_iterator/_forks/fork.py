"""The fork that a process is: carries out what `turns` decides, between two steps.

Everything here runs on the looping thread, so the program's state is consistent whenever it is
saved or replaced.
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from eva_iterator import _checkpoints
from eva_iterator._forks import merging, parts
from eva_iterator._forks.link import ForkLink, ForkPlace, ForkRound
from eva_iterator._forks.merging import BEST_FOLDER, MERGED_FILE, Interrupted, Merge, NothingKept
from eva_iterator._forks.states import Unfit
from eva_iterator._forks.turns import Done, ForkStep, There, next_turn

if TYPE_CHECKING:
    from eva_iterator._forks.sides import Host, Weights

NOTE_FILE = "fork.json"
"""Beside a checkpoint of a job that goes on unforked: its epoch, and the steps made in it."""

_LOOK_EVERY_S = 0.1
_REPORT_EVERY_S = 1.0
_WORST = 1e300
_LARGEST_NOTE = 4096

_log = logging.getLogger("eva_iterator")


class Fork:
    """One of the forks of a job.

    Attributes:
        place: Which fork it is.
        link: Link to the agent.
    """

    def __init__(self, place: ForkPlace, session: Host) -> None:
        """Begins without having heard anything.

        Args:
            place: Which fork it is, and where its merges are.
            session: The process's connection to its agent.
        """
        self.place = place
        self.link = ForkLink()
        self._session = session
        self._done = Done()
        self._made = 0  # steps since `_done` was brought up to date
        self._left: float = 0  # steps until it must look again
        self._seen: ForkRound | None = None
        self._alone = False
        self._restored = False
        self._written: list[int] = []

    @property
    def unforked(self) -> bool:
        """Whether it is the only one of its job, which then goes on as one without forks."""
        heard = self.link.round
        return heard is not None and heard.forks == 1

    @property
    def dismissed(self) -> bool:
        """Whether the job goes on without it."""
        heard = self.link.round
        return heard is not None and heard.finished and heard.forks == 1

    @property
    def steps(self) -> int:
        """Steps of the whole job that are in the program's weights, as far as it has heard."""
        heard = self._seen
        if heard is None:
            return 0
        made = self._made if self._done.epoch == heard.epoch else 0
        return heard.base_steps + self._done.steps_in(heard.epoch) + made

    def ready(self, forked: Weights) -> bool:
        """Whether the program is to make another step.

        Gives the program's part, averages, loads a merge and waits, if it is time for that.

        Args:
            forked: How.
        """
        if self._left > 0 and self.link.round is self._seen and not self._session.stop.requested:
            return True
        return self._look(forked)

    def stepped(self) -> None:
        """Counts a step that the program has made."""
        self._made += 1
        self._left -= 1

    def leave(self, forked: Weights) -> None:
        """Gives what was done so far, if the program was asked to stop in the middle of an epoch.

        Args:
            forked: How.
        """
        self._settle()
        heard = self.link.round
        if heard is None or not self._session.stop.requested or heard.finished:
            return
        begun = self._done.epoch == heard.epoch and self._done.steps > 0
        if begun and self._done.given < heard.epoch and self._done.merged == heard.epoch - 1:
            self._give(forked, heard.epoch)

    def noting(self, save: Callable[[Path], object]) -> Callable[[Path], object]:
        """A function that saves, and notes beside it which steps of which epoch that holds.

        Args:
            save: Writes a checkpoint of a job that goes on unforked.
        """

        def noted(directory: Path) -> None:
            save(directory)
            self._settle()
            note = {"epoch": self._done.epoch, "steps": self._done.steps}
            (directory / NOTE_FILE).write_text(json.dumps(note))

        return noted

    def _settle(self) -> None:
        self._done = self._done._replace(steps=self._done.steps + self._made)
        self._made = 0

    def _look(self, forked: Weights) -> bool:
        self._settle()
        patience_s = max(forked.patience_s, self.place.patience_s)
        waits_until_s = time.monotonic() + patience_s
        acts = {
            ForkStep.GIVE: self._give,
            ForkStep.AVERAGE: self._average,
            ForkStep.LOAD: self._load,
            ForkStep.GO_BACK: self._go_back,
        }
        while not self._session.stop.requested:
            self.link.heard.clear()
            self._seen = self.link.round
            self._restore()
            turn, epoch = next_turn(self._seen, self._done, self._there())
            if turn is ForkStep.TRAIN:
                self._enter(epoch)
                return True
            if turn is ForkStep.END:
                return False
            if turn is ForkStep.WAIT:
                if not self._wait(waits_until_s):
                    return True
            else:
                acts[turn](forked, epoch)
                waits_until_s = time.monotonic() + patience_s
        return False

    def _enter(self, epoch: int) -> None:
        self._alone = False
        if self._done.epoch != epoch:
            self._done = self._done._replace(epoch=epoch, steps=0)
        heard = self._seen
        if heard is not None and heard.give:
            self._left = 1  # A part without a step would be of no use.
        elif heard is not None and heard.quota:
            self._left = heard.quota - self._done.steps
        else:
            self._left = math.inf

    def _wait(self, until_s: float) -> bool:
        """Waits for news; False if it has waited for long enough, and is to train on alone."""
        if not self._alone and time.monotonic() < until_s:
            self._session.wake()
            if not self.link.heard.wait(_LOOK_EVERY_S):
                self._dawdle(until_s)
            return True
        if not self._alone:
            _log.warning("nothing was heard of a merge for long; training on without")
        self._alone = True
        self._left = math.inf
        return False

    def _dawdle(self, until_s: float) -> None:
        """Looks at the files until there is news, or it is time to report again."""
        before = self._there()
        until_s = min(until_s, time.monotonic() + _REPORT_EVERY_S)
        while time.monotonic() < until_s and not self._session.stop.requested:
            if self.link.heard.wait(_LOOK_EVERY_S) or self._there() != before:
                return

    def _path(self, kind: str, epoch: int) -> Path:
        return _checkpoints.path_of(self.place.directory / kind, epoch)

    def _there(self) -> There:
        if self._seen is None:
            return There()
        epoch = self._seen.epoch
        return There(
            parts=self._path("parts", epoch).is_dir(),
            merge=self._path("merged", epoch).is_dir(),
            base=epoch > 1 and self._path("merged", epoch - 1).is_dir(),
        )

    def _restore(self) -> None:
        """Takes the program's checkpoint for what it has, once, if it is of the present epoch."""
        if self._restored or self._seen is None:
            return
        self._restored = True
        if self._done.steps or self._seen.finished:
            return
        steps = _noted_steps(self._seen.epoch)
        if steps is not None:
            base = self._seen.epoch - 1
            self._done = Done(epoch=base + 1, steps=steps, merged=base, best=base)
            self.link.merged = base

    def _give(self, forked: Weights, epoch: int) -> None:
        steps = self._done.steps_in(epoch)
        heard = self.link.round
        if heard is not None and heard.quota and not self.unforked:
            steps = min(steps, heard.quota)
        check = self._check(forked, before=True)

        def write(draft: Path) -> None:
            forked.save(draft)
            if forked.average is None:
                parts.weights_of(draft)
            note = {"steps": steps, "check": check}
            (draft / parts.PART_FILE).write_text(json.dumps(note))

        _checkpoints.publish_as(self.place.directory / "given", epoch, write)
        _checkpoints.prune(self.place.directory / "given")
        self._done = self._done._replace(given=epoch)
        self.link.given = epoch
        self._session.wake()

    def _average(self, forked: Weights, epoch: int) -> None:
        try:
            written = self._merge(forked, epoch)
        except Interrupted:
            return
        except (OSError, Unfit, NothingKept) as error:
            _log.warning("epoch %d cannot be averaged here: %s", epoch, error)
            self._done = self._done._replace(failed=epoch)
            return
        if written:
            self._written.append(epoch)
            self._holds(epoch)
            merged = self.place.directory / "merged"
            _checkpoints.prune(merged, only=frozenset(self._written))

    def _merge(self, forked: Weights, epoch: int) -> bool:
        """Writes and loads the merge of an epoch; False if there is one already."""
        own = self._path("given", epoch)
        merge, form = merging.select(
            self._path("parts", epoch),
            own if own.is_dir() else None,
            own_function=forked.average is not None,
            goes_on=self._goes_on,
        )

        def write(draft: Path) -> None:
            self._write_weights(forked, merge, form, draft)
            forked.load(draft)
            self._note_merge(forked, merge, draft)

        return _checkpoints.publish_as(self.place.directory / "merged", epoch, write)

    def _write_weights(
        self, forked: Weights, merge: Merge, form: parts.PartForm | None, draft: Path
    ) -> None:
        if not merge.kept:
            base = self._path("merged", (self._seen.epoch if self._seen else 0) - 1)
            if not base.is_dir():
                raise NothingKept("all parts were left out, and there is no earlier merge")
            merging.copy_files(base, draft)
        elif form is not None:
            merging.write_mean(merge.kept, form, draft, self._goes_on)
        elif forked.average is not None:
            try:
                forked.average(merge.kept, draft)
            except Exception as error:  # The fork met files that another process wrote.
                raise Unfit(f"`average` failed: {error!r}") from error

    def _note_merge(self, forked: Weights, merge: Merge, draft: Path) -> None:
        larger = self.place.larger_is_better
        best = merge.best(larger)
        check = self._check(forked, before=False) if merge.kept else None
        best_check = None if best is None else best.check
        if best is not None and best_check is not None and check is not None:
            worse = check < best_check if larger else check > best_check
            if worse:
                merging.copy_files(best.path, draft / BEST_FOLDER)
        (draft / MERGED_FILE).write_text(merge.described(check, best_check))

    def _goes_on(self) -> bool:
        return not self._session.stop.requested

    def _load(self, forked: Weights, epoch: int) -> None:
        path = self._path("merged", epoch)
        try:
            forked.load(path)
        except OSError:
            if path.is_dir():
                raise
            return  # A newer one replaced it meanwhile.
        self._holds(epoch)

    def _go_back(self, forked: Weights, epoch: int) -> None:
        path = self._path("merged", epoch) / BEST_FOLDER
        if path.is_dir():
            forked.load(path)
        self._done = self._done._replace(best=epoch)

    def _holds(self, epoch: int) -> None:
        self._done = self._done._replace(merged=epoch)
        self.link.merged = epoch
        self._session.wake()

    def _check(self, forked: Weights, *, before: bool) -> float | None:
        """The check metric of the present weights, if there is one.

        Args:
            forked: Knows how to compute it.
            before: Whether the weights are those that were trained, to which reports apply.
        """
        name = self.place.check
        metrics = self._session.progress.metrics
        if forked.check is not None:
            value = float(forked.check())
        elif before and name in metrics:
            value = metrics[name]
        else:
            return None
        if not math.isfinite(value):
            return -_WORST if self.place.larger_is_better else _WORST
        if name:
            metrics[name] = value
        return value


def _noted_steps(epoch: int) -> int | None:
    """Steps of an epoch that are in the newest checkpoint, None if it is not of that epoch."""
    directory = _checkpoints.directory()
    newest = 0 if directory is None else _checkpoints.newest(directory)
    if directory is None or newest == 0:
        return None
    try:
        text = (_checkpoints.path_of(directory, newest) / NOTE_FILE).read_text()[:_LARGEST_NOTE]
        note = json.loads(text)
        steps = int(note["steps"]) if int(note["epoch"]) == epoch else -1
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return steps if steps >= 0 else None
