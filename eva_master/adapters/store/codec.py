"""Records as JSON documents, and back, exactly.

The record types are the single description of the documents: a field with a default may be added
to a record at any time. Any other change raises `RECORD_VERSION` and comes with a migration that
rewrites the documents.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Generic, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

from eva_master.model.errors import StorageError
from eva_master.model.job import JobSpec
from eva_master.model.planning.reasons import Reasons
from eva_master.model.records import Instance, Job, TaskRun

RECORD_VERSION = 1
"""Of the documents' form; stored with each of them."""

# A diverged loss is NaN, which JSON cannot say as a number; as a string it comes back as NaN.
_CONFIG = ConfigDict(ser_json_inf_nan="strings")

T = TypeVar("T")


class Codec(Generic[T]):
    """Encodes records of one type one by one, and decodes them in bulk.

    Args:
        adapter: Of a list, because one call that decodes thousands is several times faster than
            thousands of calls.
        leave_out: Fields that are stored elsewhere.
    """

    def __init__(self, adapter: TypeAdapter[list[T]], *, leave_out: frozenset[str]) -> None:
        self._adapter = adapter
        self._exclude = {"__all__": set(leave_out)} if leave_out else None

    def encode(self, record: T) -> str:
        """The record as one JSON object."""
        # A list of one, less its brackets.
        return self._adapter.dump_json([record], exclude=self._exclude)[1:-1].decode()

    def decode(self, documents: Iterable[str]) -> list[T]:
        """The records that `documents` describe, in their order.

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
                hint="restore the journal from a backup",
            ) from error


_NOTHING: frozenset[str] = frozenset()

SPECS = Codec(TypeAdapter(list[JobSpec], config=_CONFIG), leave_out=_NOTHING)
RUNS = Codec(TypeAdapter(list[TaskRun], config=_CONFIG), leave_out=_NOTHING)
INSTANCES = Codec(TypeAdapter(list[Instance], config=_CONFIG), leave_out=_NOTHING)
JOBS = Codec(TypeAdapter(list[Job], config=_CONFIG), leave_out=frozenset({"spec"}))
"""Without the spec: it never changes, and that of a large array is megabytes long."""


_REASONS = TypeAdapter(Reasons)


def encode_reasons(reasons: Reasons) -> bytes:
    """A round's reasons, compressed: most of them are the same words again."""
    return zlib.compress(_REASONS.dump_json(reasons))


def decode_reasons(document: bytes) -> Reasons | None:
    """The inverse of `encode_reasons`; `None` for those of a release that wrote another form."""
    try:
        return _REASONS.validate_json(zlib.decompress(document))
    except (ValidationError, zlib.error):
        return None


def with_spec(job: str, spec: str) -> str:
    """Put the document of a job and that of its spec together, to be decoded as one."""
    return f'{{"spec":{spec},{job[1:]}'
