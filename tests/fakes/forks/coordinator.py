"""The agents and the master of a forked job, as its programs see them, by the agreed files."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from eva_iterator._forks.link import ForkRound


@dataclass
class Epoch:
    """An epoch: what each fork may do, and what was given."""

    number: int
    base: int
    quotas: Mapping[int, int]
    gave: set[int] = field(default_factory=set)
    closed: dict[int, int] = field(default_factory=dict)


class Coordinator:
    """Opens epochs, carries files between the forks' directories, and sums up steps.

    Args:
        root: A directory for each fork's merges is made below it.
        speeds: Steps of each fork in an epoch.
        total: Steps of the job.
    """

    def __init__(self, root: Path, speeds: Mapping[int, int], total: int) -> None:
        self.root = root
        self.total = total
        self.speeds = dict(speeds)
        self.steps: list[int] = []
        self.notes: list[dict] = []
        self.forks: int | None = None
        self._lock = threading.Lock()
        self.leader = max(speeds, key=lambda fork: (speeds[fork], -fork))
        self.epoch = self._open(1)

    def directory(self, fork: int) -> Path:
        """$EVA_MERGE_DIR of a fork."""
        return self.root / str(fork)

    @property
    def done(self) -> int:
        """Steps in the merges so far."""
        return sum(self.steps)

    def answer(self, fork: int, given: int) -> ForkRound:
        """The answer to a fork's report."""
        with self._lock:
            self._note(fork, given)
            epoch = self.epoch
            return ForkRound(
                epoch=epoch.number,
                base_steps=epoch.base,
                quota=epoch.quotas.get(fork, 0),
                average=fork == self.leader and epoch.gave == set(epoch.quotas),
                finished=self.done >= self.total,
                forks=self.forks or len(epoch.quotas),
            )

    def _open(self, number: int) -> Epoch:
        left = self.total - self.done
        quotas = {}
        for fork in sorted(self.speeds):
            quotas[fork] = min(self.speeds[fork], left)
            left -= quotas[fork]
        return Epoch(number, self.done, {fork: n for fork, n in quotas.items() if n})

    def _note(self, fork: int, given: int) -> None:
        epoch = self.epoch
        if not epoch.quotas:
            return
        if given == epoch.number and fork in epoch.quotas:
            epoch.gave.add(fork)
        parts = self.directory(self.leader) / "parts" / f"{epoch.number:08d}"
        if epoch.gave == set(epoch.quotas) and not parts.exists():
            draft = parts.with_name(f".{parts.name}")
            for one in epoch.gave:
                source = self.directory(one) / "given" / parts.name
                shutil.copytree(source, draft / str(one))
                self.on_part(draft / str(one), one, epoch.number)
            draft.rename(parts)
        merged = self.directory(self.leader) / "merged" / parts.name
        if merged.exists():
            self._close(merged)

    def on_part(self, path: Path, fork: int, epoch: int) -> None:
        """A part was carried to the leader; tests spoil some."""

    def _close(self, merged: Path) -> None:
        note = json.loads((merged / "merged.json").read_text())
        self.notes.append(note)
        self.steps.append(note["steps"])
        for fork in self.speeds:
            target = self.directory(fork) / "merged" / merged.name
            if not target.exists():
                draft = target.with_name(f".{merged.name}")
                shutil.copytree(merged, draft)
                draft.rename(target)
        self.epoch = self._open(self.epoch.number + 1)
