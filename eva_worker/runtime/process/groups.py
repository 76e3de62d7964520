"""Control groups for tasks that are plain processes: they limit processes, threads and memory."""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from eva_worker.orders import TaskKey
from eva_worker.process.durable_files import write_json

_MIB = 1 << 20
_ROOT, _OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
_CONTROLLERS = ("pids", "memory")


class NoGroups(Exception):
    """This worker cannot have control groups; the message says why."""


@dataclass(frozen=True, slots=True)
class TaskControlGroups:
    """The control groups of one task.

    Attributes:
        directories: One of version 2, or one for each controller of version 1.
    """

    directories: Sequence[Path]

    @property
    def entrances(self) -> list[str]:
        """Files that a process joins by when it writes 0 to them."""
        return [str(directory / "cgroup.procs") for directory in self.directories]

    def ran_out_of_memory(self) -> bool:
        """Whether the kernel has killed a process of it, for the limit of its memory."""
        for directory in self.directories:
            for name in ("memory.events", "memory.oom_control"):
                with contextlib.suppress(OSError):
                    lines = (directory / name).read_text().splitlines()
                    counts = dict(line.split() for line in lines)
                    if int(counts.get("oom_kill", 0)):
                        return True
        return False

    def kill(self) -> bool:
        """Kill all of its processes; returns whether there were none."""
        pids = list(self._processes())
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        return not pids

    def remove(self) -> None:
        """Remove it; it stays while a process is in it."""
        for directory in self.directories:
            with contextlib.suppress(OSError):
                directory.rmdir()

    def _processes(self) -> Iterator[int]:
        for entrance in self.entrances:
            with contextlib.suppress(OSError):
                yield from map(int, Path(entrance).read_text().split())


class Groups:
    """Makes the control groups of a worker's tasks. Its methods block.

    Args:
        tops: Directories in which each task gets one, by controller.
        unified: Whether they are of version 2, where one directory has all controllers.
    """

    def __init__(self, tops: Mapping[str, Path], *, unified: bool) -> None:
        self._tops = tops
        self._unified = unified
        self._lock = threading.Lock()

    @classmethod
    def found(cls, home: Path, *, root: Path = _ROOT, own: Path = _OWN) -> Groups:
        """Find the groups of a worker and try them out.

        Args:
            home: A directory of the worker's, which tells it from others.
            root: Where control groups are mounted.
            own: Says which this process is in.

        Raises:
            NoGroups: The worker cannot have any.
        """
        name = f"eva-{hashlib.sha256(os.fsencode(home.absolute())).hexdigest()[:12]}"
        paths = _own_paths(own)
        reasons = []
        for unified in (root, root / "unified"):
            if not _has(unified / "cgroup.controllers"):
                continue
            place = unified / paths.get("", "")
            for parent in (place, *place.parents):
                if not parent.is_relative_to(unified):
                    break
                groups = cls(dict.fromkeys(_CONTROLLERS, parent / name), unified=True)
                if not (reason := groups._tried()):
                    return groups._noted(home)
                reasons.append(f"{parent}: {reason}")
        if all((root / controller / "cgroup.procs").exists() for controller in _CONTROLLERS):
            tops = {
                controller: root / controller / paths.get(controller, "") / name
                for controller in _CONTROLLERS
            }
            groups = cls(tops, unified=False)
            if not (reason := groups._tried()):
                return groups._noted(home)
            reasons.append(reason)
        raise NoGroups("; ".join(reasons) or f"{root} has no controllers of processes and memory")

    def make(self, key: TaskKey, *, processes: int, memory_mib: int) -> TaskControlGroups:
        """Make the group of an attempt.

        Args:
            key: The attempt.
            processes: Most processes and threads.
            memory_mib: Most memory, swap included; 0 for no limit.

        Raises:
            OSError: The group cannot be made.
        """
        with self._lock:
            return self._made(key, processes, memory_mib)

    def remove(self, group: TaskControlGroups) -> None:
        """Remove a group without processes, and what it was in if that is empty now."""
        with self._lock:
            group.remove()
            for top in self._tops.values():
                with contextlib.suppress(OSError):
                    top.rmdir()

    def _made(self, key: TaskKey, processes: int, memory_mib: int) -> TaskControlGroups:
        name = str(key.path).replace("/", "-")
        directories = list(dict.fromkeys(top / name for top in self._tops.values()))
        if self._unified:
            top = directories[0].parent
            top.mkdir(exist_ok=True)
            wanted = " ".join(f"+{controller}" for controller in _CONTROLLERS)
            with contextlib.suppress(OSError):
                (top.parent / "cgroup.subtree_control").write_text(wanted)
            (top / "cgroup.subtree_control").write_text(wanted)
        for directory in directories:
            directory.mkdir(parents=True, exist_ok=True)
        self._limit(name, processes, memory_mib)
        return TaskControlGroups(directories)

    def _limit(self, name: str, processes: int, memory_mib: int) -> None:
        (self._tops["pids"] / name / "pids.max").write_text(str(processes))
        if not memory_mib:
            return
        memory, limit = self._tops["memory"] / name, str(memory_mib * _MIB)
        if self._unified:
            (memory / "memory.max").write_text(limit)
            without_swap, most = memory / "memory.swap.max", "0"
        else:
            (memory / "memory.limit_in_bytes").write_text(limit)
            without_swap, most = memory / "memory.memsw.limit_in_bytes", limit
        if without_swap.exists():
            without_swap.write_text(most)

    def _noted(self, home: Path) -> Groups:
        """Write down where they are, for whoever removes what a worker that was killed leaves."""
        with contextlib.suppress(OSError):  # The disk is full: empty groups may stay.
            write_json(home / "groups.json", list(dict.fromkeys(map(str, self._tops.values()))))
        return self

    def _tried(self) -> str:
        """Have a process join a group; returns why it cannot, empty if it can."""
        group = None
        try:
            group = self.make(TaskKey("trial/0", 1), processes=16, memory_mib=64)
            script = 'for file; do echo 0 >"$file" || exit 1; done'
            subprocess.run(
                ["/bin/sh", "-c", script, "sh", *group.entrances], check=True, capture_output=True
            )
        except (OSError, subprocess.SubprocessError) as error:
            return str(error)
        finally:
            if group is not None:
                self.remove(group)
        return ""


def _own_paths(own: Path) -> dict[str, str]:
    """The control groups of this process by controller; that of version 2 by an empty name."""
    paths = {}
    with contextlib.suppress(OSError):
        for line in own.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            paths.update(dict.fromkeys(controllers.split(","), path.strip("/")))
    return paths


def _has(controllers: Path) -> bool:
    try:
        return {*_CONTROLLERS} <= {*controllers.read_text().split()}
    except OSError:
        return False
