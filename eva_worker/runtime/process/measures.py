"""Decides how the processes of tasks are confined on this machine, and says what is missing."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import structlog

from eva_worker.isolation import Isolation
from eva_worker.runtime import TaskSpec
from eva_worker.runtime.process import confinement
from eva_worker.runtime.process.groups import Groups, NoGroups
from eva_worker.runtime.short_names import ELSEWHERE

_log = structlog.get_logger()
_OWN = ("EVA_STORAGE", "EVA_CHECKPOINT_DIR", "EVA_MERGE_DIR")
_PLACES = ("HOME", "VIRTUAL_ENV", "PATH", "PYTHONPATH", "LD_LIBRARY_PATH")
"""Variables of this process that tasks inherit, and that name directories."""


@dataclass(frozen=True, slots=True)
class Measures:
    """How tasks are confined.

    Attributes:
        how: See `confinement.confine`.
        hidden: Paths that tasks are not to see.
        groups: Makes their control groups; `None` if there cannot be any.
        isolation: The operator's decisions.
        why: Why they are not confined in a better way; empty where there is none.
    """

    how: str
    hidden: Sequence[str]
    groups: Groups | None
    isolation: Isolation = field(default_factory=Isolation)
    why: str = ""

    @property
    def own_tmp(self) -> bool:
        """Whether each task has a /tmp of its own."""
        return self.how == confinement.NAMESPACES

    @property
    def sentence(self) -> str:
        """How tasks are confined and why in no better way, for users."""
        how = self.how or "nothing"
        return f"{how} ({self.why})" if self.why else how

    @property
    def harmless(self) -> bool:
        """Whether tasks of root give up root's rights."""
        return self.isolation.user == "unprivileged"

    def document(self, spec: TaskSpec, temporary: Path, entrances: Sequence[str]) -> dict[str, Any]:
        """The instructions for a task's shim.

        Args:
            spec: The task.
            temporary: Directory of its temporary files.
            entrances: See `Group.entrances`.
        """
        own = [spec.env[name] for name in _OWN if name in spec.env]
        if "EVA_SOCKET" in spec.env:
            own.append(str(Path(spec.env["EVA_SOCKET"]).parent))
        kept = [str(spec.workdir.absolute()), *own, *map(str, spec.elsewhere.values())]
        if self.own_tmp:
            kept += _inherited(self.hidden)
        else:
            # Programs open /dev/stderr, which leads to the log.
            kept += [str(temporary.absolute()), str(spec.log.absolute())]
        return {
            "how": self.how,
            "hidden": [*self.hidden, *(() if self.own_tmp else _others_short_names())],
            "kept": [*kept, *_programs(self.hidden)],
            "temporary": str(temporary.absolute()) if self.own_tmp else "",
            "harmless": self.harmless,
            "apart": not spec.gang,
            "open_files": self.isolation.open_files,
            "groups": list(entrances),
        }


def measures(home: Path, hidden: Sequence[Path], isolation: Isolation) -> Measures:
    """Find out what this machine allows, and log what it does not.

    Args:
        home: The worker's state directory, which is hidden but for each task's own.
        hidden: Further hidden paths, such as the keys of a master on this machine.
        isolation: The operator's decisions.
    """
    wanted = [str(place.absolute()) for place in (home, *hidden) if place.exists()]
    kept = [str(home.absolute()), *_programs(wanted), *_inherited(wanted)]
    harmless = isolation.user == "unprivileged"
    with contextlib.suppress(OSError):  # Programs want it, and where it would be may be read-only.
        Path("~/.cache").expanduser().mkdir(mode=0o700)
    with tempfile.TemporaryDirectory(prefix="trial-", dir=home) as temporary:
        how, why = confinement.tried_out(wanted, kept, harmless=harmless, temporary=temporary)
    if how == confinement.NOTHING:
        _log.error(
            "TASKS READ WHAT THIS WORKER'S USER READS, THE KEYS OF THE CLUSTER AMONG IT",
            reason=why,
            hint="allow user namespaces, run a kernel with Landlock, or run tasks in containers",
        )
    elif os.geteuid() == 0:
        _log.warning(
            "tasks run as root: run the worker as another user, or tasks in containers",
            rights="none but root's own files" if harmless else "all, as the operator decided",
        )
    groups = None
    try:
        groups = Groups.found(home)
    except NoGroups as error:
        _log.error(
            "NOTHING LIMITS THE PROCESSES AND THE MEMORY OF TASKS",
            reason=str(error),
            hint="run the worker in a service with Delegate=yes, or tasks in containers",
        )
    _log.info("tasks are confined", by=how or "nothing", why=why, limits=groups is not None)
    return Measures(how, wanted, groups, isolation, why)


def _others_short_names() -> list[str]:
    """Directories of sockets of this user's other tasks, but for those in /tmp, which all need.

    One that does not exist has the directory above them closed, for those that will be made there.
    """
    base = os.environ.get("XDG_RUNTIME_DIR", "")
    if not base.startswith("/") or not os.path.isdir(base):  # noqa: PTH112
        return []
    made = [entry.path for entry in os.scandir(base) if ELSEWHERE.fullmatch(entry.name)]
    return [os.path.join(base, "eva-"), *made]  # noqa: PTH118


def _programs(hidden: Sequence[str]) -> list[str]:
    """Directories of the interpreter and of its modules that lie below hidden ones."""
    return _below(_interpreter(), hidden)


def _interpreter() -> list[str]:
    """Directories of the interpreter and of its modules: those of an editable install lie apart."""
    return [sys.prefix, sys.base_prefix, *sys.path]


def _inherited(hidden: Sequence[str]) -> list[str]:
    """Directories below /tmp and /dev/shm that tasks find where each has those of its own.

    A user who tries things out has them there beside the state.
    """
    named = (os.environ.get(name, "").split(os.pathsep) for name in _PLACES)
    beside = map(os.path.dirname, hidden)
    places = [*_interpreter(), *beside, *chain.from_iterable(named)]
    secret = {*_below(places, hidden), *map(os.path.realpath, hidden)}
    tops = [confinement.TEMPORARY, confinement.MEMORY_FILES]
    return [place for place in _below(places, tops) if place not in secret]


def _below(places: Iterable[str], tops: Sequence[str]) -> list[str]:
    """Places that exist and lie below one of the tops; relative ones are left out."""
    above = [f"{os.path.realpath(top)}/" for top in tops]
    real_paths = {os.path.realpath(place) for place in places if place.startswith("/")}
    return sorted(
        place
        for place in real_paths
        if any(place.startswith(top) for top in above) and os.access(place, os.F_OK)
    )
