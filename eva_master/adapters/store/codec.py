"""Records as JSON documents, and back, exactly.

The record types are the single description of the documents: a field with a default may be added
to a record at any time. Any other change raises `RECORD_VERSION` and comes with a migration that
rewrites the documents.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, Generic, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

from eva_master.adapters.store import task_specs
from eva_master.model.job import JobSpec
from eva_master.model.planning.reasons import Reasons
from eva_master.model.progress import NO_PROGRESS
from eva_master.model.records import Ended, Instance, Job, TaskRun
from eva_wire.values.errors import StorageError

RECORD_VERSION = 1
"""Of the documents' form; stored with each of them."""
SPEC_VERSION = 3
"""Of the form of specs: 1 had the tasks written out, 2 had no groups."""

# JSON has no number for NaN, which a diverged loss is. As a string it is read back as NaN.
_CONFIG = ConfigDict(ser_json_inf_nan="strings")

T = TypeVar("T")


class Codec(Generic[T]):
    """Encodes records of one type one by one, and decodes them in bulk.

    Args:
        adapter: Adapter of a list, because one call that decodes thousands is several times faster
            than thousands of calls.
        leave_out: Fields that are stored elsewhere.
        brief: Tells the records whose fields are left out where they have their default. So the
            default of a field may never change.
        unsaid: Fields that are left out of every record where they are false, 0 or `None`; of
            records within it by all names on the way.
    """

    def __init__(
        self,
        adapter: TypeAdapter[list[T]],
        *,
        leave_out: frozenset[str],
        brief: Callable[[T], bool] = lambda _: False,
        unsaid: Iterable[tuple[str, ...]] = (),
    ) -> None:
        self._adapter = adapter
        self._leave_out = leave_out
        self._brief = brief
        self._unsaid = [(attrgetter(".".join(path)), path) for path in unsaid]
        self._excluded: dict[tuple[bool, ...], dict[str, Any] | None] = {}

    def encode(self, record: T) -> str:
        """Encode a record as one JSON object."""
        said = tuple([bool(value(record)) for value, _ in self._unsaid])
        if said not in self._excluded:
            self._excluded[said] = self._without(said)
        # A list of one, less its brackets.
        document = self._adapter.dump_json(
            [record], exclude=self._excluded[said], exclude_defaults=self._brief(record)
        )
        return document[1:-1].decode()

    def _without(self, said: Sequence[bool]) -> dict[str, Any] | None:
        """The fields that a record is encoded without, as pydantic wants them.

        Args:
            said: Of each field in `unsaid`, whether the record has a value there.
        """
        left_out: dict[str, Any] = dict.fromkeys(self._leave_out, True)
        for present, (_, (*within, last)) in zip(said, self._unsaid, strict=True):
            if not present:
                inner = left_out
                for name in within:
                    inner = inner.setdefault(name, {})
                inner[last] = True
        return {"__all__": left_out} if left_out else None

    def decode(self, documents: Iterable[str]) -> list[T]:
        """Decode the records that `documents` describe, in their order.

        Raises:
            StorageError: A document is damaged.
        """
        try:
            return self._adapter.validate_json(f"[{','.join(documents)}]")
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            raise StorageError(
                f"the journal holds a damaged record: {where}: {first['msg']}",
                hint="restore the journal from a backup: see docs/reference/journal.md",
            ) from error


_NOTHING: frozenset[str] = frozenset()

SPECS = Codec(
    TypeAdapter(list[JobSpec], config=_CONFIG),
    leave_out=frozenset({"tasks"}),
    brief=lambda _: True,
)
"""Without the tasks, see `eva_master.adapters.store.task_specs`."""
RUNS = Codec(
    TypeAdapter(list[TaskRun], config=_CONFIG),
    leave_out=_NOTHING,
    # When progress was heard of is not compared: a time alone would be taken for the default.
    brief=lambda run: (
        run.progress != NO_PROGRESS or (run.progress.at_ms is None and run.progress.first is None)
    ),
    unsaid=[("batch_ppm",), ("stored",), ("past",)],
)
"""A job has up to ten thousand of them, of which most say little."""
INSTANCES = Codec(
    TypeAdapter(list[Instance], config=_CONFIG),
    leave_out=_NOTHING,
    unsaid=[
        ("offering", "attached"),
        ("offering", "by_disk"),
        ("offering", "type", "capacity", "disk_mib"),
        ("offering", "type", "gpu"),
        ("offering", "type", "sized_disk"),
    ],
)
JOBS = Codec(
    TypeAdapter(list[Job], config=_CONFIG),
    leave_out=frozenset({"spec"}),
    unsaid=[("missing_secrets",)],
)
"""Without the spec, which never changes."""


_UNMET = TypeAdapter(Ended | None)


def unmet(document: str) -> Ended | None:
    """The reason why a job was given up before it ran, from its document; `None` if it was not.

    Raises:
        StorageError: The document is damaged.
    """
    try:
        return _UNMET.validate_python(json.loads(document).get("unmet"))
    except (ValueError, AttributeError) as error:
        raise StorageError(
            f"the journal holds a damaged record: {error}",
            hint="restore the journal from a backup: see docs/reference/journal.md",
        ) from error


_REASONS = TypeAdapter(Reasons)


def encode_reasons(reasons: Reasons) -> bytes:
    """Encode a round's reasons, compressed because they repeat the same words."""
    return zlib.compress(_REASONS.dump_json(reasons))


def decode_reasons(document: bytes) -> Reasons | None:
    """The inverse of `encode_reasons`; `None` for those of a release that wrote another form."""
    try:
        return _REASONS.validate_json(zlib.decompress(document))
    except (ValidationError, zlib.error):
        return None


@dataclass(frozen=True, slots=True)
class StoredSpec:
    """A job's spec as the journal has it.

    Attributes:
        record: All but the tasks.
        tasks: The tasks.
        runs: So many task runs, from the first one on, were there when the job was submitted.
    """

    record: str
    tasks: str
    runs: int = 0


def jobs(documents: Iterable[tuple[str, StoredSpec]]) -> list[Job]:
    """The jobs whose documents, and those of whose specs, are given; in their order.

    Raises:
        StorageError: A document is damaged.
    """
    pairs = list(documents)
    decoded = JOBS.decode(
        f'{{"spec":{{"tasks":[],{spec.record[1:]},{job[1:]}' for job, spec in pairs
    )
    return [
        replace(job, spec=replace(job.spec, tasks=task_specs.decode(spec.tasks)))
        for job, (_, spec) in zip(decoded, pairs, strict=True)
    ]
