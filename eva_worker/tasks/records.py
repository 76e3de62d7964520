"""Records of all attempts, which the agent saves before it acts on them."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from eva_worker.files.beneath import remove_tree
from eva_worker.files.trash import Trash
from eva_worker.orders import Order, TaskKey
from eva_worker.process.durable_files import read_json, write_json
from eva_worker.process.lease import boot_id
from eva_worker.tasks.devices import Assignment


class Stage(StrEnum):
    """The stage of an attempt, as the agent sees it."""

    PREPARING = "preparing"
    """Files are being downloaded, or the runtime is just starting it."""
    RUNNING = "running"
    CLOSING = "closing"
    """No process of it runs; its files are being uploaded."""
    EXITED = "exited"
    """All is done, and the attempt is listed until the master has acknowledged it."""


@dataclass(frozen=True, slots=True)
class Began:
    """A moment by CLOCK_MONOTONIC, which nobody sets and which stands still in sleep.

    Attributes:
        boot: The boot of the machine that the clock counts from.
        at_ms: Milliseconds since then.
    """

    boot: str
    at_ms: int

    @classmethod
    def now(cls) -> Began:
        """The moment of the call."""
        return cls(boot_id(), time.monotonic_ns() // 1_000_000)

    def passed_ms(self) -> int | None:
        """Milliseconds since then; `None` after another boot."""
        now = Began.now()
        return max(0, now.at_ms - self.at_ms) if now.boot == self.boot else None


@dataclass(frozen=True, slots=True)
class Record:
    """The record of one attempt.

    Attributes:
        order: The order; `None` for an attempt whose stop came before its start.
        devices: The devices assigned to it, from its start to its end.
        stop_grace_ms: The grace period of the stop that was requested before it ended; `None` if
            none was.
        refusal: Why the attempt must fail, whatever its program's exit code; empty for no reason.
        began: When its program began to run; `None` before, and if that is not known.
        ran_ms: For how long it has run in all; `None` before its end, and if that is not known.
        exit_code: As in `Report`, like the other attributes.
    """

    key: TaskKey
    stage: Stage
    order: Order | None = None
    devices: Assignment | None = None
    stop_grace_ms: int | None = None
    exit_code: int = 0
    never_started: bool = False
    generation: int = 0
    message: str = ""
    refusal: str = ""
    blameless: bool = False
    not_stored: str = ""
    began: Began | None = None
    ran_ms: int | None = None

    def ran_by_now_ms(self) -> int | None:
        """For how long its program has run; `None` before it runs, and if that is not known."""
        if self.ran_ms is not None or self.began is None:
            return self.ran_ms
        return self.began.passed_ms()

    def to_json(self) -> dict[str, Any]:
        """Convert it to a JSON document for the state directory."""
        return asdict(self)

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Record:
        """Restore a record from the document of `to_json`."""
        order, devices = document["order"], document["devices"]
        began = document.get("began")
        return cls(
            **document
            | {
                "key": TaskKey(**document["key"]),
                "stage": Stage(document["stage"]),
                "order": order and Order.from_json(order),
                "devices": devices and Assignment.from_json(devices),
                "began": began and Began(**began),
            }
        )


class AttemptRecords:
    """The records of all attempts, and the highest attempt ever seen of each task run.

    Methods that write block until the data are on the disk.

    Args:
        root: The directory of the records.
        trash: Takes what is removed; beside the records if not given.
    """

    def __init__(self, root: Path, trash: Trash | None = None) -> None:
        self._root = root
        self._trash = trash or Trash(root.with_name("trash"))
        self._highest: dict[str, int] = {}
        for path in root.glob("*/*/seen.json"):
            run = "/".join(path.parent.parts[-2:])
            self._highest[run] = (read_json(path) or {"attempt": 0})["attempt"]

    def load(self) -> list[Record]:
        """Read the record of every attempt that has not been forgotten.

        The files of attempts without a record are removed: an agent has died while it did that.
        """
        for directory in self._root.glob("*/*/[0-9]*/"):
            if not (directory / "record.json").exists():
                self.throw_away(directory)
        documents = map(read_json, sorted(self._root.glob("*/*/*/record.json")))
        return [Record.from_json(document) for document in documents if document]

    def highest(self, run: str) -> int:
        """The highest attempt of a task run that was ever added, 0 for none."""
        return self._highest.get(run, 0)

    def add(self, record: Record) -> None:
        """Add a new attempt, which from now on counts as seen.

        Raises:
            OSError: The disk failed. The attempt counts as seen for as long as this process lives.
        """
        key = record.key
        self._highest[key.run] = key.attempt
        write_json(self._root / key.run / "seen.json", {"attempt": key.attempt})
        self.save(record)

    def save(self, record: Record) -> None:
        """Replace the record of an attempt."""
        write_json(self.directory(record.key) / "record.json", record.to_json())

    def remove(self, key: TaskKey) -> None:
        """Remove an attempt's record and all of its files. The attempt still counts as seen."""
        directory = self.directory(key)
        # The record goes first, so that a half-removed attempt does not come back.
        (directory / "record.json").unlink(missing_ok=True)
        self.throw_away(directory)

    def throw_away(self, directory: Path) -> None:
        """Remove a directory of an attempt; nothing happens if there is none."""
        try:
            self._trash.throw_away(directory)
        except OSError:  # Then here, however long it takes.
            remove_tree(directory)

    def directory(self, key: TaskKey) -> Path:
        """The directory of all files of an attempt."""
        return self._root / key.path
