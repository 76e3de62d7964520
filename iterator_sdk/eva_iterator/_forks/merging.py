"""One epoch's parts into one merge: the mean of their files, and who is in it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from eva_iterator._forks import formats, parts
from eva_iterator._forks.parts import ForkPart, LeftOut, PartForm
from eva_iterator._forks.states import Mean

MERGED_FILE = "merged.json"
BEST_FOLDER = "best"


class Interrupted(Exception):
    """The program was asked to stop; nothing is published."""


class NothingKept(Exception):
    """All parts were left out, and there is no earlier merge to go on from."""


class Merge(NamedTuple):
    """The parts of a merge.

    Attributes:
        kept: Parts in it, by fork.
        left_out: The other ones, by fork.
    """

    kept: tuple[ForkPart, ...]
    left_out: tuple[LeftOut, ...]

    @property
    def steps(self) -> int:
        """Steps of the parts that are in it."""
        return sum(part.steps for part in self.kept)

    def best(self, larger: bool) -> ForkPart | None:
        """The part whose check metric is best, if any part has one.

        Args:
            larger: Whether a larger metric is better.
        """
        sign = -1.0 if larger else 1.0
        rated = [part for part in self.kept if part.check is not None]
        return min(rated, key=lambda part: (sign * (part.check or 0.0), part.fork), default=None)

    def described(self, check_merged: float | None, check_best: float | None) -> str:
        """The text of `merged.json`.

        Args:
            check_merged: The check metric of the merged weights.
            check_best: The best one of the parts.
        """
        rows = [(part.fork, part.steps, True, "") for part in self.kept]
        rows += [(part.fork, part.steps, False, part.reason) for part in self.left_out]
        keys = ("fork", "steps", "kept", "reason")
        value = {
            "steps": self.steps,
            "parts": [dict(zip(keys, row)) for row in sorted(rows)],
            "check_merged": check_merged,
            "check_best": check_best,
        }
        return json.dumps(value)


def fastest(kept: Sequence[ForkPart]) -> ForkPart:
    """The part with most steps, and of these the first: what is not averaged is taken from it."""
    return min(kept, key=lambda part: (-part.steps, part.fork))


def select(
    directory: Path, own: Path | None, *, own_function: bool, goes_on: Callable[[], bool]
) -> tuple[Merge, PartForm | None]:
    """Reads the parts of an epoch and decides which are averaged.

    Args:
        directory: Holds a directory for each fork that gave.
        own: The program's own part, which says what parts look like; without it, the one with most
            steps says so.
        own_function: Whether a function of the user averages, so that only sizes are compared.
        goes_on: Whether to continue.

    Returns:
        Which parts count, and what they look like unless a function of the user averages.

    Raises:
        Interrupted: `goes_on` is false.
        Unfit: The reference cannot be averaged.
        OSError: The directory cannot be read.
    """
    all_parts = parts.found(directory)
    candidates = [part for part in all_parts if isinstance(part, ForkPart)]
    left_out = [part for part in all_parts if isinstance(part, LeftOut)]
    if not candidates:
        return Merge((), tuple(left_out)), None
    reference = own or fastest(candidates).path
    form = None if own_function else parts.form_of(reference)
    size = form.size if form else parts.size_limit(reference)
    kept = []
    for part in candidates:
        if not goes_on():
            raise Interrupted
        try:
            if form:
                parts.examine(part, form)
            else:
                parts.examine_files(part, size)
            kept.append(part)
        except Exception as error:  # Whatever a hostile part makes numpy or torch raise.
            left_out.append(LeftOut(part.fork, part.steps, str(error)[:300]))
    return Merge(tuple(kept), tuple(left_out)), form


def write_mean(
    kept: Sequence[ForkPart], form: PartForm, directory: Path, goes_on: Callable[[], bool]
) -> None:
    """Writes the mean of parts, weighted by their steps.

    Args:
        kept: Parts of that form, at least one.
        form: Required form of the parts.
        directory: An empty directory.
        goes_on: Whether to continue.

    Raises:
        Interrupted: `goes_on` is false.
        Unfit, OSError: A part cannot be read any more, or the mean not be written.
    """
    first = fastest(kept)
    for name in form.files:
        target = directory / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if name not in form.samples or len(kept) == 1:
            shutil.copyfile(first.path / name, target)
            continue
        total = Mean(formats.read(first.path / name), first.steps)
        for part in kept:
            if not goes_on():
                raise Interrupted
            if part.fork != first.fork:
                total.add(formats.read(part.path / name), part.steps)
        formats.write(target, total.result())


def copy_files(source: Path, directory: Path) -> None:
    """Copies the files of a part or a merge, but not what was noted about it.

    Raises:
        OSError: They cannot be read or written.
    """
    ignored = shutil.ignore_patterns(parts.PART_FILE, MERGED_FILE, BEST_FOLDER)
    shutil.copytree(source, directory, ignore=ignored, dirs_exist_ok=True)
