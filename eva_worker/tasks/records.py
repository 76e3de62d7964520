"""What the agent knows of every attempt, on disk before it acts on it."""

from __future__ import annotations

import shutil
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from eva_worker.orders import Order, TaskKey
from eva_worker.process.durable_files import read_json, write_json
from eva_worker.tasks.devices import Assignment


class Stage(StrEnum):
    """Where an attempt is, as the agent sees it."""

    PREPARING = "preparing"
    """Files are being fetched; the runtime may have been told to start it this very moment."""
    RUNNING = "running"
    CLOSING = "closing"
    """Nothing of it runs; what it leaves behind is being uploaded."""
    EXITED = "exited"
    """All is done; listed until the master has written it down."""


@dataclass(frozen=True, slots=True)
class Record:
    """One attempt.

    Attributes:
        order: What was asked for; `None` for an attempt whose stop came before its start.
        devices: What it holds, from its start to its end.
        stop_grace_ms: The grace of the stop that was asked for before it ended, if one was.
        exit_code: As in `Report`, as are the others.
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

    def to_json(self) -> dict[str, Any]:
        """A document for the state directory."""
        return asdict(self)

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Record:
        """Undo `to_json`."""
        order, devices = document["order"], document["devices"]
        return cls(
            **document
            | {
                "key": TaskKey(**document["key"]),
                "stage": Stage(document["stage"]),
                "order": order and Order.from_json(order),
                "devices": devices and Assignment.from_json(devices),
            }
        )


class Book:
    """The records of all attempts, and the highest attempt ever seen of each task run.

    Methods that write block until the disk has it.

    Args:
        root: Its directory.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._highest: dict[str, int] = {}
        for path in root.glob("*/*/seen.json"):
            run = "/".join(path.parent.parts[-2:])
            self._highest[run] = (read_json(path) or {"attempt": 0})["attempt"]

    def load(self) -> list[Record]:
        """Every attempt that has not been forgotten."""
        documents = map(read_json, sorted(self._root.glob("*/*/*/record.json")))
        return [Record.from_json(document) for document in documents if document]

    def highest(self, run: str) -> int:
        """The highest attempt of a task run that was ever added; 0 for none."""
        return self._highest.get(run, 0)

    def add(self, record: Record) -> None:
        """Begin to keep an attempt, which from now on has been seen, whatever happens.

        Raises:
            OSError: The disk fails; as long as this process lives, it has been seen all the same.
        """
        key = record.key
        self._highest[key.run] = key.attempt
        write_json(self._root / key.run / "seen.json", {"attempt": key.attempt})
        self.save(record)

    def save(self, record: Record) -> None:
        """Replace the record of an attempt."""
        write_json(self.directory(record.key) / "record.json", record.to_json())

    def remove(self, key: TaskKey) -> None:
        """Drop an attempt's record and all of its files; that it was seen stays known."""
        directory = self.directory(key)
        # The record first: what is half removed must not come back as an attempt.
        (directory / "record.json").unlink(missing_ok=True)
        shutil.rmtree(directory, ignore_errors=True)

    def directory(self, key: TaskKey) -> Path:
        """Where everything of an attempt is."""
        return self._root / key.path
