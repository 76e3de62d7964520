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
from collections.abc import Callable
from pathlib import Path

KEPT_GENERATIONS = 2
"""Generations kept: the newest, and the one before in case the newest proves unusable."""

_GENERATION = re.compile(r"\d{8,}")
_TAKEN = (errno.ENOTEMPTY, errno.EEXIST)


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
    draft = directory / f".tmp-{os.getpid()}-{uuid.uuid4().hex}"
    draft.mkdir(parents=True)
    try:
        save(draft)
        _sync_tree(draft)
        generation = _rename(draft, directory)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    _sync(directory)
    _prune(directory)
    return generation


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


def _prune(directory: Path) -> None:
    for generation in generations(directory)[:-KEPT_GENERATIONS]:
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
