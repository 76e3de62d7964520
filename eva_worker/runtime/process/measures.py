"""Decides how the processes of tasks are confined on this machine, and says what is missing."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog

from eva_worker.isolation import Isolation
from eva_worker.runtime import TaskSpec
from eva_worker.runtime.process import confinement
from eva_worker.runtime.process.groups import Groups, NoGroups

_log = structlog.get_logger()
_OWN = ("EVA_STORAGE", "EVA_CHECKPOINT_DIR", "EVA_MERGE_DIR")


@dataclass(frozen=True, slots=True)
class Measures:
    """How tasks are confined.

    Attributes:
        how: See `confinement.confine`.
        hidden: What they are not to see.
        groups: Makes their control groups; `None` if there cannot be any.
        isolation: What the operator decided.
    """

    how: str
    hidden: Sequence[str]
    groups: Groups | None
    isolation: Isolation = field(default_factory=Isolation)

    @property
    def harmless(self) -> bool:
        """Whether tasks of root give up root's rights."""
        return self.isolation.user == "unprivileged"

    def document(self, spec: TaskSpec, entrances: Sequence[str]) -> dict[str, Any]:
        """What a task's shim is told.

        Args:
            spec: The task.
            entrances: See `Group.entrances`.
        """
        own = [spec.env[name] for name in _OWN if name in spec.env]
        if "EVA_SOCKET" in spec.env:
            own.append(str(Path(spec.env["EVA_SOCKET"]).parent))
        kept = [str(spec.workdir.absolute()), *own, *map(str, spec.elsewhere.values())]
        return {
            "how": self.how,
            "hidden": list(self.hidden),
            "kept": [*kept, *_programs(self.hidden)],
            "harmless": self.harmless,
            "open_files": self.isolation.open_files,
            "groups": list(entrances),
        }


def measures(home: Path, hidden: Sequence[Path], isolation: Isolation) -> Measures:
    """Find out what this machine allows, and log what it does not.

    Args:
        home: The worker's state directory, which is hidden but for each task's own.
        hidden: What else is hidden, such as the keys of a master on this machine.
        isolation: What the operator decided.
    """
    wanted = [str(place.absolute()) for place in (home, *hidden) if place.exists()]
    trial = [str(home.absolute()), *_programs(wanted)]
    harmless = isolation.user == "unprivileged"
    how, why = confinement.tried_out(wanted, trial, harmless=harmless)
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
    _log.info("tasks are confined", by=how, limits=groups is not None)
    return Measures(how, wanted, groups, isolation)


def _programs(hidden: Sequence[str]) -> list[str]:
    """Directories of the interpreter that lie below hidden ones."""
    places = {os.path.realpath(it) for it in (sys.prefix, sys.base_prefix)}
    tops = [f"{os.path.realpath(it)}/" for it in hidden]
    return sorted(place for place in places if any(place.startswith(top) for top in tops))
