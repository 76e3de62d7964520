"""The place of one test cluster: its files, its network, and the end of both."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Collection
from pathlib import Path

import psutil

from tests.fakes.hosts.network import Switch
from tests.fakes.paths import short_tempdir
from tests.fakes.patience import DEADLINE_S

VARIABLE = "EVA_TEST_SITE"
"""In the environment of every process of a cluster: the directory of its site."""
CGROUP = "eva-hosts"
"""The control group that holds those of all sites."""
_PREFIX = "eva-site-"
_LOCK = "lock"
_CGROUPS = Path("/sys/fs/cgroup")
_POLL_S = 0.05


class Site:
    """A directory and a network for one cluster.

    Leftovers of killed test runs are cleared away before.

    Attributes:
        path: The directory.
        switch: The network.
    """

    def __init__(self) -> None:
        parent = Path(short_tempdir())
        _clear_abandoned(parent)
        # A site without a lock counts as abandoned.
        made = Path(tempfile.mkdtemp(prefix=f"new-{_PREFIX}", dir=parent))
        self._lock = os.open(made / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self.path = made.rename(parent / made.name.removeprefix("new-"))
        (self.path / "addresses").mkdir()
        self.switch = Switch()

    def processes(self) -> list[psutil.Process]:
        """Every process of the cluster outside of containers."""
        return _processes(self.path)

    def contained(self, leave_out: Collection[str]) -> list[tuple[str, int]]:
        """Control group and pid of every process in a container.

        Args:
            leave_out: Instances that are to have such processes.
        """
        return [
            (str(group), int(pid))
            for top in _hierarchies(self.path)
            for group in top.glob("*/*")
            if group.is_dir() and group.parent.name not in leave_out
            for pid in (group / "cgroup.procs").read_text().split()
        ]

    def close(self) -> None:
        """End the network, and every machine with it; remove all files."""
        self.switch.close()
        _clear(self.path)
        os.close(self._lock)


def _clear_abandoned(parent: Path) -> None:
    for path in parent.glob(f"{_PREFIX}*/"):
        with contextlib.suppress(FileNotFoundError, BlockingIOError):
            lock = os.open(path / _LOCK, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _clear(path)
            finally:
                os.close(lock)


def _clear(path: Path) -> None:
    """Kill, remove and forget everything of a site.

    Raises:
        TimeoutError: Something of it does not go away.
    """
    deadline = time.monotonic() + DEADLINE_S
    while left := [*_kill(path), *_remove_cgroups(path), *_remove_files(path)]:
        if time.monotonic() > deadline:
            raise TimeoutError(f"of a test cluster there is left: {left[:5]}")
        time.sleep(_POLL_S)


def _processes(path: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            mine = process.environ().get(VARIABLE) == str(path)
            if mine and process.status() != psutil.STATUS_ZOMBIE and process.pid != os.getpid():
                found.append(process)
    return found


def _kill(path: Path) -> list[psutil.Process]:
    found = _processes(path)
    for process in found:
        with contextlib.suppress(psutil.Error):
            process.kill()
    return found


def _remove_cgroups(path: Path) -> list[Path]:
    """Remove the groups of dead containers; those that are not empty yet stay, and are named."""
    left = []
    for top in _hierarchies(path):
        for group, _, _ in os.walk(top, topdown=False):
            try:
                Path(group).rmdir()
            except OSError:
                left.append(Path(group))
        with contextlib.suppress(OSError):
            top.parent.rmdir()
    return left


def _hierarchies(path: Path) -> list[Path]:
    """Where a site's control groups are: in one hierarchy, or in one for each controller."""
    name = f"{CGROUP}/{path.name}"
    return [*_CGROUPS.glob(name), *_CGROUPS.glob(f"*/{name}")]


def _remove_files(path: Path) -> list[Path]:
    """Remove the directory; the lock goes last, so that a removal cut short is taken up again."""
    for entry in path.iterdir():
        if entry.name != _LOCK:
            shutil.rmtree(entry, ignore_errors=True)
            with contextlib.suppress(OSError):
                entry.unlink()
    left = [entry for entry in path.iterdir() if entry.name != _LOCK]
    if not left:
        shutil.rmtree(path, ignore_errors=True)
    return left
