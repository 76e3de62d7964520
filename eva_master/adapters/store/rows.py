"""Converts values of the model to rows of the tables and back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from operator import itemgetter
from typing import Any, TypeVar
from zlib import crc32

from sqlalchemy import Connection, Engine, Row, Table
from sqlalchemy.exc import SQLAlchemyError

from eva_master.adapters.store import codec, tables, task_specs
from eva_master.model.accounting.pool_costs import read, written
from eva_master.model.changes import InstanceAccount, JobAccount, Round
from eva_master.model.feed import FeedEvent, FeedKind
from eva_master.model.planning.plan import Json
from eva_master.model.records import Instance, Job, TaskRun
from eva_wire.values.errors import StorageError
from eva_wire.values.ids import Exact, number_of
from eva_wire.values.states import TERMINAL_JOB, InstanceState

Values = dict[str, Any]
"""A row to be written, by column."""
RESTORE = "restore the journal from a backup: see docs/reference/journal.md"

_ANY = TypeVar("_ANY", bound=Sequence[Any])
_SEPARATOR = "\x1f"
_VALUES = {
    table: itemgetter(*(column.name for column in table.columns if column.name != "checksum"))
    for table in tables.METADATA.sorted_tables
}
"""All values of a row but its checksum, in the order of the table's columns."""


@contextmanager
def transaction(engine: Engine, name: str) -> Iterator[Connection]:
    """One transaction on a table of its own.

    Args:
        engine: The database.
        name: Of the table, for users.

    Raises:
        StorageError: The database fails.
    """
    try:
        with engine.begin() as connection:
            yield connection
    except SQLAlchemyError as error:
        raise StorageError(f"the table of {name}: {error}") from error


def sealed(table: Table, values: Sequence[Values]) -> Sequence[Values]:
    """Rows with their checksums, which are added to them.

    Args:
        table: Theirs.
        values: The rows, with all columns.
    """
    get = _VALUES[table]
    for row in values:
        row["checksum"] = _checksum(get(row))
    return values


def intact(table: Table, found: Sequence[_ANY]) -> Sequence[_ANY]:
    """Rows that are as they were written; those of before there were checksums are believed.

    Args:
        table: Theirs.
        found: The rows, with all columns in the order of the table's.

    Raises:
        StorageError: A row has another checksum than it was written with.
    """
    for row in found:
        *values, stated = row
        if stated is not None and _checksum(values) != stated:
            key = " ".join(
                str(row[at]) for at, column in enumerate(table.columns) if column.primary_key
            )
            raise StorageError(
                f"the journal holds a damaged record of {table.name}: {key!r} is not as it was"
                " written",
                hint=RESTORE,
            )
    return found


def _checksum(values: Iterable[object]) -> int:
    return crc32(_SEPARATOR.join(map(str, values)).encode("utf-8", "surrogatepass"))


def job_row(job: Job) -> Values:
    """A job without its spec."""
    return {
        "id": job.id,
        "owner": job.spec.owner,
        "name": job.spec.name,
        "state": job.state.value,
        "submitted_ms": job.submitted_ms,
        "record": codec.JOBS.encode(job),
        "version": codec.RECORD_VERSION,
        "number": number_of(job.id),
        "ended_ms": job.since_ms if job.state in TERMINAL_JOB else None,
        "command": job.command,
    }


def spec_row(job: Job, runs: int = 0) -> Values:
    """The spec of a job.

    Args:
        job: Job of the specification.
        runs: So many of its task runs have no row yet, see `eva_master.adapters.store.untouched`.
    """
    return {
        "job_id": job.id,
        "record": codec.SPECS.encode(job.spec),
        "version": codec.SPEC_VERSION,
        "tasks": task_specs.encode(job.spec.tasks),
        "runs": runs,
    }


def stored_spec(row: Row[Any]) -> codec.StoredSpec:
    """The inverse of `spec_row`, still encoded."""
    return codec.StoredSpec(row.record, row.tasks, row.runs)


def run_row(run: TaskRun) -> Values:
    """A task run of a task."""
    return {
        "id": run.id,
        "job_id": run.job,
        "state": run.state.value,
        "instance": run.instance,
        "record": codec.RUNS.encode(run),
        "version": codec.RECORD_VERSION,
    }


def instance_row(instance: Instance) -> Values:
    """The row of an instance's record."""
    return {
        "id": instance.id,
        "type": instance.offering.type.name,
        "state": instance.state.value,
        "up_ms": instance.up_ms,
        "gone_ms": instance.gone_ms,
        "record": codec.INSTANCES.encode(instance),
        "version": codec.RECORD_VERSION,
        "number": number_of(instance.id),
        "ended_ms": instance.since_ms if instance.state is InstanceState.GONE else None,
    }


def job_account_row(account: JobAccount) -> Values:
    """The row of a job's account."""
    return {
        "job_id": account.job,
        "charged": str(account.charged),
        "alone": str(account.alone),
        "busy_ms": account.busy_ms,
        "replicas": str(account.replicas),
        "spot": str(account.spot),
        "spot_ms": account.spot_ms,
        "listed": str(account.listed),
        "interruptions": account.interruptions,
    }


def job_account(row: Row[Any]) -> JobAccount:
    """Read a job's account from its row."""
    return JobAccount(
        row.job_id,
        Exact(int(row.charged)),
        Exact(int(row.alone)),
        row.busy_ms,
        Exact(int(row.replicas)),
        Exact(int(row.spot)),
        row.spot_ms,
        Exact(int(row.listed)),
        row.interruptions,
    )


def instance_account_row(account: InstanceAccount) -> Values:
    """The row of an instance's account."""
    return {
        "instance_id": account.instance,
        "until_ms": account.until_ms,
        "charged": str(account.charged),
        "idle": str(account.idle),
        "closed": account.closed,
        "standing": json.dumps(written(dict(account.standing))) if account.standing else "",
    }


def instance_account(row: Row[Any]) -> InstanceAccount:
    """Read an instance's account from its row."""
    return InstanceAccount(
        row.instance_id,
        row.until_ms,
        Exact(int(row.charged)),
        Exact(int(row.idle)),
        row.closed,
        tuple(read(json.loads(row.standing)).items()) if row.standing else (),
    )


def round_row(record: Round) -> Values:
    """The row of a planning round."""
    return {
        "number": record.number,
        "at_ms": record.at_ms,
        "planned_ms": record.planned_ms,
        "launches": record.launches,
        "moves": record.moves,
        "figures": json.dumps(dict(record.figures)),
    }


def round_record(row: Row[Any]) -> Round:
    """Read a planning round from its row."""
    return Round(
        row.number, row.at_ms, row.planned_ms, row.launches, row.moves, json.loads(row.figures)
    )


def feed_row(event: FeedEvent) -> Values:
    """The row of an event."""
    return {
        "number": event.number,
        "at_ms": event.at_ms,
        "kind": event.kind.value,
        "job": event.job,
        "task": event.task,
        "instance": event.instance,
        "owner": event.owner,
        "text": event.text,
        "failure": event.failure,
    }


def feed_event(row: Row[Any]) -> FeedEvent:
    """Read an event from its row."""
    return FeedEvent(
        row.number, row.at_ms, FeedKind(row.kind), row.job, row.task, row.instance, row.owner,
        row.text, row.failure,
    )  # fmt: skip


def reasons_row(record: Round) -> Values:
    """The row of the reasons for a round's plan."""
    assert record.reasons is not None
    return {"round": record.number, "record": codec.encode_reasons(record.reasons)}


def explained_round(row: Row[Any], reasons: Row[Any]) -> Round:
    """A round with its reasons, from a row of each table."""
    return replace(round_record(row), reasons=codec.decode_reasons(reasons.record))


def document_row(item: tuple[str, Json]) -> Values:
    """The row of a named document."""
    name, value = item
    return {"name": name, "value": json.dumps(value)}


def documents(rows: Sequence[Row[Any]]) -> dict[str, Json]:
    """The inverse of `document_row`, for all documents at once."""
    return {row.name: json.loads(row.value) for row in rows}
