"""Checkpoint generations on disk: numbered directories that appear atomically.

A generation is written into a hidden sibling, flushed to the disk and renamed to its number. The
largest number is the newest.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import uuid
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TypeVar

KEPT_GENERATIONS = 2
"""Generations kept: the newest, and the one before in case the newest proves unusable."""

CHECKPOINT_VARIABLE = "EVA_CHECKPOINT_DIR"

R = TypeVar("R")

_GENERATION = re.compile(r"\d{8,}")
_TAKEN = (errno.ENOTEMPTY, errno.EEXIST)


def directory() -> Path | None:
    """Where this process publishes checkpoint generations, None outside Eva."""
    value = os.environ.get(CHECKPOINT_VARIABLE)
    return Path(value) if value else None


def generations(directory: Path) -> list[int]:
    """Lists the published generations, oldest first; none where there is no such directory."""
    try:
        names = [path.name for path in directory.iterdir()]
    except FileNotFoundError:
        return []
    return sorted(int(name) for name in names if _GENERATION.fullmatch(name))


def newest(directory: Path) -> int:
    """Number of the newest published generation, 0 for none."""
    return max(generations(directory), default=0)


def path_of(directory: Path, generation: int) -> Path:
    """The path of a generation, published or not."""
    return directory / f"{generation:08d}"


def publish(directory: Path, save: Callable[[Path], object]) -> int:
    """Publishes a new generation and removes all but the newest ones.

    Args:
        directory: Directory of the generations, created if need be.
        save: Writes the checkpoint into the empty directory that it is given.

    Returns:
        The number of the new generation.

    Raises:
        OSError: The checkpoint cannot be written. Nothing is published then, as when `save` raises.
    """
    generation = _publish(directory, save, _rename)
    prune(directory)
    return generation


def publish_as(directory: Path, generation: int, save: Callable[[Path], object]) -> bool:
    """Publishes a generation under a number, and keeps all others.

    Args:
        directory: Directory of the generations, created if need be.
        generation: The number.
        save: Writes the generation into the empty directory that it is given.

    Returns:
        Whether it was published; not if there is one of that number, which then remains.

    Raises:
        OSError: The checkpoint cannot be written. Nothing is published then, as when `save` raises.
    """

    def rename(draft: Path, directory: Path) -> bool:
        try:
            draft.rename(path_of(directory, generation))
        except OSError as error:
            if error.errno not in _TAKEN:
                raise
            shutil.rmtree(draft, ignore_errors=True)
            return False
        return True

    return _publish(directory, save, rename)


def _publish(
    directory: Path, save: Callable[[Path], object], rename: Callable[[Path, Path], R]
) -> R:
    draft = directory / f".tmp-{os.getpid()}-{uuid.uuid4().hex}"
    draft.mkdir(parents=True)
    try:
        save(draft)
        _sync_tree(draft)
        renamed = rename(draft, directory)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    _sync(directory)
    return renamed


def _rename(draft: Path, directory: Path) -> int:
    generation = newest(directory) + 1
    while True:
        try:
            draft.rename(path_of(directory, generation))
        except OSError as error:
            if error.errno not in _TAKEN:
                raise
            # Another process of the program was faster.
            generation += 1
        else:
            return generation


def prune(directory: Path, only: Collection[int] | None = None) -> None:
    """Removes all but the newest generations.

    Args:
        directory: Directory of the generations.
        only: Generations that may be removed, None for all.
    """
    for generation in generations(directory)[:-KEPT_GENERATIONS]:
        if only is not None and generation not in only:
            continue
        terminating = directory / f".tmp-{os.getpid()}-{uuid.uuid4().hex}"
        try:
            # Renamed first, so that no half-removed generation is seen.
            path_of(directory, generation).rename(terminating)
        except FileNotFoundError:
            continue  # another process prunes too
        shutil.rmtree(terminating, ignore_errors=True)


def _sync_tree(root: Path) -> None:
    for folder, _, files in os.walk(root):
        for name in files:
            path = Path(folder, name)
            if not path.is_symlink():
                _sync(path)
        _sync(Path(folder))


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
