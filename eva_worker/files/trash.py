"""Removes what tasks have left, aside, since they may leave millions of files."""

from __future__ import annotations

import contextlib
import queue
import secrets
import threading
from collections.abc import Callable
from pathlib import Path

from eva_worker.files.beneath import make_accessible, remove_tree


class Trash:
    """A directory whose content is removed by a thread of its own.

    Leftovers of an earlier agent go, too.

    Args:
        root: The directory, on the file system of what is thrown away.
        emptied: Called in that thread after each removal.
    """

    def __init__(self, root: Path, emptied: Callable[[], None] = lambda: None) -> None:
        self._root = root
        self._emptied = emptied
        self._waiting: queue.SimpleQueue[Path] = queue.SimpleQueue()
        with contextlib.suppress(FileNotFoundError):
            for path in root.iterdir():
                self._waiting.put(path)
        threading.Thread(target=self._work, name="trash", daemon=True).start()

    def throw_away(self, directory: Path) -> None:
        """Remove a directory: at once from its place, and later from the disk.

        Raises:
            OSError: The directory cannot be moved.
        """
        self._root.mkdir(parents=True, exist_ok=True)
        place = self._root / secrets.token_hex(8)
        with contextlib.suppress(FileNotFoundError):
            make_accessible(directory)  # A directory that may not be written cannot be moved.
            directory.rename(place)
            self._waiting.put(place)

    def _work(self) -> None:
        while True:
            remove_tree(self._waiting.get())
            self._emptied()
