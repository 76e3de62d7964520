"""Reads ended jobs and gone instances from the journal's database."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Connection, Engine, Row, Table, func, select

from eva_master.adapters.store import codec, rows, tables, untouched
from eva_master.adapters.store.journal import check_versions, translated, typed
from eva_master.model.changes import JobAccount
from eva_master.model.feed import FeedEvent
from eva_master.model.records import Ended, Job, TaskRun, untouched_state
from eva_master.model.records import untouched as as_submitted
from eva_master.ports.instances import InstanceRecord
from eva_master.ports.reading import (
    SHOWN,
    SMALL_JOB,
    FeedPage,
    JobRecord,
    TaskPage,
)
from eva_wire.values.ids import InstanceId, JobId, Millis, RunId, number_of, run_id, run_order
from eva_wire.values.states import TERMINAL_JOB, JobState, RunState, of_task

Id = TypeVar("Id", JobId, InstanceId)
_NAMES_AT_ONCE = 500
"""Names of one statement."""
_FAILED = 20
"""Failed tasks of a large job that are shown before the first ones, if no page is asked for."""


class SqlArchive:
    """Implements `eva_master.ports.reading.Archive`; any thread may use it.

    Args:
        engine: See `eva_master.adapters.store.SqlJournal.engine`.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def job(self, job: JobId, page: TaskPage = SHOWN) -> JobRecord | None:
        """See `Archive.job`."""
        return self._records_of_jobs([job], page).get(job)

    def newest_named(self, owner: str, name: str, page: TaskPage = SHOWN) -> JobRecord | None:
        """See `Archive.newest_named`."""
        table = tables.JOBS
        query = select(table.c.id).where(table.c.owner == owner, table.c.name == name)
        with self._transaction() as connection:
            job_id = connection.scalar(query.order_by(table.c.number.desc()).limit(1))
        return None if job_id is None else self.job(JobId(job_id), page)

    def owned(self, owner: str, references: Sequence[str]) -> dict[str, tuple[JobId, Ended | None]]:
        """See `Archive.owned`."""
        jobs = tables.JOBS.c
        columns = select(tables.JOBS).where(jobs.owner == owner)
        newest = (
            select(func.max(jobs.number))
            .where(jobs.owner == owner, jobs.name.in_(references))
            .group_by(jobs.name)
        )
        named = columns.where(jobs.name.in_(references), jobs.number.in_(newest))
        with self._transaction() as connection:
            newest_ones = rows.intact(tables.JOBS, connection.execute(named).all())
            by_name = {row.name: _end(row) for row in newest_ones}
            by_id = connection.execute(columns.where(jobs.id.in_(references))).all()
            return by_name | {row.id: _end(row) for row in rows.intact(tables.JOBS, by_id)}

    def submitted(self, owner: str, command: str) -> JobId | None:
        """See `Archive.submitted`."""
        table = tables.JOBS
        query = select(table.c.id).where(table.c.command == command, table.c.owner == owner)
        with self._transaction() as connection:
            job_id = connection.scalar(query)
        return None if job_id is None else JobId(job_id)

    def ended(self, after: Millis, until: Millis, most: int) -> tuple[Sequence[JobId], Millis]:
        """See `Archive.ended`."""
        jobs = tables.JOBS.c
        within = (jobs.ended_ms > after, jobs.ended_ms <= until)
        in_order = select(jobs.ended_ms).where(*within).order_by(jobs.ended_ms)
        with self._transaction() as connection:
            last = connection.scalar(in_order.offset(most - 1).limit(1))
            last = until if last is None else last
            query = select(jobs.id).where(jobs.ended_ms > after, jobs.ended_ms <= last)
            names = connection.scalars(query.order_by(jobs.ended_ms, jobs.number)).all()
        return [JobId(name) for name in names], Millis(last)

    def page_of_jobs(self, before: JobId | None, limit: int) -> Sequence[JobId]:
        """See `Archive.page_of_jobs`."""
        return self._page(tables.JOBS, before, limit)

    def page_of_instances(self, before: InstanceId | None, limit: int) -> Sequence[InstanceId]:
        """See `Archive.page_of_instances`."""
        return self._page(tables.INSTANCES, before, limit)

    def records_of_jobs(self, jobs: Sequence[JobId]) -> dict[JobId, JobRecord]:
        """See `Archive.records_of_jobs`."""
        return self._records_of_jobs(jobs, SHOWN)

    def _records_of_jobs(self, jobs: Sequence[JobId], page: TaskPage) -> dict[JobId, JobRecord]:
        with self._transaction() as connection:
            specs = {
                row.job_id: rows.stored_spec(row)
                for row in _of(connection, tables.JOB_SPECS, "job_id", jobs)
            }
            stored = _of(connection, tables.JOBS, "id", jobs)
            records = codec.jobs((row.record, specs[row.id]) for row in stored)
            begun = {name: spec.runs for name, spec in specs.items()}
            pages = _pages(connection, records, begun, page)
            states = _states(connection, records, begun)
            booked = map(rows.job_account, _of(connection, tables.JOB_ACCOUNTS, "job_id", jobs))
            accounts = {account.job: account for account in booked}
        return {
            job.id: JobRecord(
                job,
                pages[job.id],
                accounts.get(job.id, JobAccount(job.id)),
                states[job.id],
            )
            for job in records
        }

    def records_of_instances(
        self, instances: Sequence[InstanceId]
    ) -> dict[InstanceId, InstanceRecord]:
        """See `Archive.records_of_instances`."""
        with self._transaction() as connection:
            instances_stored = codec.INSTANCES.decode(
                row.record for row in _of(connection, tables.INSTANCES, "id", instances)
            )
            booked = map(
                rows.instance_account,
                _of(connection, tables.INSTANCE_ACCOUNTS, "instance_id", instances),
            )
            accounts = {account.instance: account for account in booked}
        return {
            instance.id: InstanceRecord(instance, accounts.get(instance.id))
            for instance in instances_stored
        }

    def events(self, chosen: FeedPage) -> Sequence[FeedEvent]:
        """See `Archive.events`."""
        feed = tables.FEED.c
        conditions = [feed.number > chosen.after]
        if chosen.before:
            conditions.append(feed.number < chosen.before)
        if chosen.job:
            conditions.append(feed.job == chosen.job)
        if chosen.instance:
            conditions.append(feed.instance == chosen.instance)
        order = feed.number.desc() if chosen.newest else feed.number
        query = select(tables.FEED).where(*conditions).order_by(order).limit(chosen.most)
        with self._transaction() as connection:
            stored = rows.intact(tables.FEED, connection.execute(query).all())
        return sorted(map(rows.feed_event, stored), key=lambda event: event.number)

    def _page(self, table: Table, before: Id | None, limit: int) -> list[Id]:
        query = select(table.c.id).order_by(table.c.number.desc()).limit(limit)
        if before is not None:
            query = query.where(table.c.number < number_of(before))
        with self._transaction() as connection:
            return list(connection.scalars(query))

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        with typed(), translated(self._engine.url), self._engine.begin() as connection:
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
    stored = connection.execute(select(table).where(table.c[column].in_(names))).all()
    check_versions(table, rows.intact(table, stored))
    return stored


def _pages(
    connection: Connection, jobs: Sequence[Job], begun: Mapping[JobId, int], page: TaskPage
) -> dict[JobId, tuple[TaskRun, ...]]:
    """A page of the task runs of each job, by index.

    Args:
        connection: To the journal.
        jobs: The jobs.
        begun: How many task runs each of them began with.
        page: Tasks to read. By default, some failed and the first tasks of a large job.
    """
    small = [job for job in jobs if page == SHOWN and begun[job.id] <= SMALL_JOB]
    pages = _all(connection, small, begun)
    for job in jobs:
        if job.id not in pages:
            indices = _indices(connection, job, begun[job.id], page)
            pages[job.id] = _some(connection, job, indices)
    return pages


def _states(
    connection: Connection, jobs: Iterable[Job], begun: Mapping[JobId, int]
) -> dict[JobId, Mapping[RunState, int]]:
    """How many tasks of each job are in each state."""
    columns = tables.TASK_RUNS.c
    names = [job.id for job in jobs]
    query = (
        select(columns.job_id, columns.state, func.count())
        .where(columns.job_id.in_(names))
        .group_by(columns.job_id, columns.state)
    )
    counts: defaultdict[JobId, Counter[RunState]] = defaultdict(Counter)
    for name, state, count in connection.execute(query):
        counts[JobId(name)][RunState(state)] += count
    for job in jobs:
        of_job = counts[job.id]
        for runs in _several(connection, job).values():
            of_job.subtract(runs)
            of_job[of_task(runs)] += 1
        of_job += Counter()  # without those of which there is none
        rest = begun[job.id] - sum(of_job.values())
        if rest > 0:
            of_job[untouched_state(job)] += rest
    return {name: counts[name] for name in names}


def _several(connection: Connection, job: Job) -> dict[int, list[RunState]]:
    """The states of all runs of those tasks that were given extra runs, by index."""
    if not job.spec.several_runs:
        return {}
    columns = tables.TASK_RUNS.c
    query = select(columns.id, columns.state).where(columns.job_id == job.id)
    extras = connection.execute(query.where(columns.id.contains("+"))).all()
    own = [run_id(job.id, index) for index in dict.fromkeys(_index(row.id) for row in extras)]
    own_rows: list[Row[tuple[str, str]]] = []
    for start in range(0, len(own), _NAMES_AT_ONCE):
        names = own[start : start + _NAMES_AT_ONCE]
        own_rows += connection.execute(
            select(columns.id, columns.state).where(columns.id.in_(names))
        )
    runs: defaultdict[int, list[RunState]] = defaultdict(list)
    for row in (*own_rows, *sorted(extras, key=lambda extra: run_order(extra.id))):
        runs[_index(row.id)].append(RunState(row.state))
    return runs


def _all(
    connection: Connection, jobs: Sequence[Job], begun: Mapping[JobId, int]
) -> dict[JobId, tuple[TaskRun, ...]]:
    names = [job.id for job in jobs]
    written = _read(connection, tables.TASK_RUNS.c.job_id.in_(names)) if names else ()
    runs: defaultdict[JobId, list[TaskRun]] = defaultdict(list)
    for run in (*written, *untouched.missing(jobs, begun, written)):
        runs[run.job].append(run)
    return {name: tuple(sorted(runs[name], key=lambda run: run_order(run.id))) for name in names}


def _some(connection: Connection, job: Job, indices: Sequence[int]) -> tuple[TaskRun, ...]:
    names = [run_id(job.id, index) for index in indices]
    written = {run.id: run for run in _read(connection, tables.TASK_RUNS.c.id.in_(names))}
    extras = {
        run.id: [run_id(job.id, run.index, number) for number in range(1, run.replicas + 1)]
        for run in written.values()
        if run.replicas
    }
    if extras:
        more = tables.TASK_RUNS.c.id.in_(
            [extra for several in extras.values() for extra in several]
        )
        written.update((run.id, run) for run in _read(connection, more))
    task_runs: list[TaskRun] = []
    for name, index in zip(names, indices, strict=True):
        task_runs.append(written.get(name) or as_submitted(job, index))
        task_runs += [written[extra] for extra in extras.get(name, ())]
    return tuple(task_runs)


def _indices(connection: Connection, job: Job, size: int, page: TaskPage) -> list[int]:
    if page.first is not None and not page.failed:
        last = page.first + page.most
        return [index for index in _begun(job, size) if page.first <= index < last]
    failed = _failed(connection, job, size)
    if page.failed:
        return [index for index in failed if index >= (page.first or 0)][: page.most]
    return sorted({*failed[:_FAILED], *_begun(job, size)[: SMALL_JOB - _FAILED]})


def _begun(job: Job, size: int) -> Sequence[int]:
    """The indices of the tasks that a job began with, of which there were so many."""
    return range(size) if job.spec.retry is None else job.spec.indices


def _failed(connection: Connection, job: Job, size: int) -> list[int]:
    several = {index: of_task(runs) for index, runs in _several(connection, job).items()}
    failed = {index for index in _failed_runs(connection, job, size) if index not in several}
    failed.update(index for index, state in several.items() if state is RunState.FAILED)
    return sorted(failed)


def _failed_runs(connection: Connection, job: Job, size: int) -> list[int]:
    columns = tables.TASK_RUNS.c
    of_job = columns.job_id == job.id
    if untouched_state(job) is RunState.FAILED:
        others = columns.state != RunState.FAILED.value
        fine = {
            _index(scalar)
            for scalar in connection.scalars(select(columns.id).where(of_job, others))
        }
        return [index for index in _begun(job, size) if index not in fine]
    failed = columns.state == RunState.FAILED.value
    return [
        _index(scalar) for scalar in connection.scalars(select(columns.id).where(of_job, failed))
    ]


def _index(name: str) -> int:
    return run_order(RunId(name))[2]


def _read(connection: Connection, condition: ColumnElement[bool]) -> Sequence[TaskRun]:
    stored = connection.execute(select(tables.TASK_RUNS).where(condition)).all()
    check_versions(tables.TASK_RUNS, rows.intact(tables.TASK_RUNS, stored))
    return tuple(codec.RUNS.decode(row.record for row in stored))
