"""Reads ended jobs and gone instances from the journal's database."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, Row, Table, func, select

from eva_master.adapters.store import codec, rows, tables, untouched
from eva_master.adapters.store.journal import check_versions, translated
from eva_master.model.changes import JobAccount
from eva_master.model.ids import InstanceId, JobId, number_of, run_order
from eva_master.model.records import Ended, TaskRun
from eva_master.model.states import TERMINAL_JOB, JobState
from eva_master.ports.reading import InstanceRecord, JobRecord

Id = TypeVar("Id", JobId, InstanceId)


class SqlArchive:
    """Implements `eva_master.ports.reading.Archive`; any thread may use it.

    Args:
        engine: See `eva_master.adapters.store.SqlJournal.engine`.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def job(self, job: JobId) -> JobRecord | None:
        """See `Archive.job`."""
        return self.records_of_jobs([job]).get(job)

    def newest_named(self, owner: str, name: str) -> JobRecord | None:
        """See `Archive.newest_named`."""
        table = tables.JOBS
        query = select(table.c.id).where(table.c.owner == owner, table.c.name == name)
        with self._transaction() as connection:
            found = connection.scalar(query.order_by(table.c.number.desc()).limit(1))
        return None if found is None else self.job(JobId(found))

    def owned(self, owner: str, references: Sequence[str]) -> dict[str, tuple[JobId, Ended | None]]:
        """See `Archive.owned`."""
        jobs = tables.JOBS.c
        columns = select(jobs.id, jobs.name, jobs.state, jobs.record).where(jobs.owner == owner)
        newest = (
            select(func.max(jobs.number))
            .where(jobs.owner == owner, jobs.name.in_(references))
            .group_by(jobs.name)
        )
        named = columns.where(jobs.name.in_(references), jobs.number.in_(newest))
        with self._transaction() as connection:
            by_name = {row.name: _end(row) for row in connection.execute(named)}
            by_id = columns.where(jobs.id.in_(references))
            return by_name | {row.id: _end(row) for row in connection.execute(by_id)}

    def submitted(self, owner: str, command: str) -> JobId | None:
        """See `Archive.submitted`."""
        table = tables.JOBS
        query = select(table.c.id).where(table.c.command == command, table.c.owner == owner)
        with self._transaction() as connection:
            found = connection.scalar(query)
        return None if found is None else JobId(found)

    def page_of_jobs(self, before: JobId | None, limit: int) -> Sequence[JobId]:
        """See `Archive.page_of_jobs`."""
        return self._page(tables.JOBS, before, limit)

    def page_of_instances(self, before: InstanceId | None, limit: int) -> Sequence[InstanceId]:
        """See `Archive.page_of_instances`."""
        return self._page(tables.INSTANCES, before, limit)

    def records_of_jobs(self, jobs: Sequence[JobId]) -> dict[JobId, JobRecord]:
        """See `Archive.records_of_jobs`."""
        with self._transaction() as connection:
            specs = {
                row.job_id: rows.stored_spec(row)
                for row in _of(connection, tables.JOB_SPECS, "job_id", jobs)
            }
            found = _of(connection, tables.JOBS, "id", jobs)
            records = codec.jobs((row.record, specs[row.id]) for row in found)
            held = _of(connection, tables.TASK_RUNS, "job_id", jobs)
            written = codec.RUNS.decode(row.record for row in held)
            begun = {name: spec.runs for name, spec in specs.items()}
            runs: defaultdict[JobId, list[TaskRun]] = defaultdict(list)
            for run in (*written, *untouched.missing(records, begun, written)):
                runs[run.job].append(run)
            booked = map(rows.job_account, _of(connection, tables.JOB_ACCOUNTS, "job_id", jobs))
            accounts = {account.job: account for account in booked}
        return {
            job.id: JobRecord(
                job,
                tuple(sorted(runs[job.id], key=lambda run: run_order(run.id))),
                accounts.get(job.id, JobAccount(job.id)),
            )
            for job in records
        }

    def records_of_instances(
        self, instances: Sequence[InstanceId]
    ) -> dict[InstanceId, InstanceRecord]:
        """See `Archive.records_of_instances`."""
        with self._transaction() as connection:
            found = codec.INSTANCES.decode(
                row.record for row in _of(connection, tables.INSTANCES, "id", instances)
            )
            booked = map(
                rows.instance_account,
                _of(connection, tables.INSTANCE_ACCOUNTS, "instance_id", instances),
            )
            accounts = {account.instance: account for account in booked}
        return {it.id: InstanceRecord(it, accounts.get(it.id)) for it in found}

    def _page(self, table: Table, before: Id | None, limit: int) -> list[Id]:
        query = select(table.c.id).order_by(table.c.number.desc()).limit(limit)
        if before is not None:
            query = query.where(table.c.number < number_of(before))
        with self._transaction() as connection:
            return list(connection.scalars(query))

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        with translated(self._engine.url), self._engine.begin() as connection:
            yield connection


def _end(row: Any) -> tuple[JobId, Ended | None]:
    """The id of a job, and how it ended if it has."""
    name, state = JobId(row.id), JobState(row.state)
    if state not in TERMINAL_JOB:
        return name, None
    return name, Ended.known(name, state, codec.unmet(row.record))


def _of(
    connection: Connection, table: Table, column: str, names: Sequence[str]
) -> Sequence[Row[Any]]:
    found = connection.execute(select(table).where(table.c[column].in_(names))).all()
    check_versions(table, found)
    return found
