"""An archive of what a journal holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from eva_master.model.changes import Changes, JobAccount
from eva_master.model.feed import FeedEvent
from eva_master.model.records import Ended, TaskRun, untouched
from eva_master.ports.instances import InstanceRecord
from eva_master.ports.reading import SHOWN, FeedPage, JobRecord, TaskPage
from eva_wire.values.ids import InstanceId, JobId, Millis, instance_order, job_order, run_order
from eva_wire.values.states import TERMINAL_JOB, RunState


def none_ended(after: Millis, until: Millis, most: int) -> tuple[Sequence[JobId], Millis]:
    """Find no job by the time of its end."""
    return [], until


class LoadedArchive:
    """Implements `eva_master.ports.reading.Archive`.

    Args:
        load: Everything that was ever committed.
        feed: Every event that was.
    """

    def __init__(self, load: Callable[[], Changes], feed: Sequence[FeedEvent] = ()) -> None:
        self._load, self._feed = load, feed

    def events(self, chosen: FeedPage) -> Sequence[FeedEvent]:
        events = [
            event
            for event in self._feed
            if event.number > chosen.after
            and (not chosen.before or event.number < chosen.before)
            and chosen.job in ("", event.job)
            and chosen.instance in ("", event.instance)
        ]
        return events[-chosen.most :] if chosen.newest else events[: chosen.most]

    def job(self, job: JobId, page: TaskPage = SHOWN) -> JobRecord | None:
        return self._records([job], page).get(job)

    def newest_named(self, owner: str, name: str, page: TaskPage = SHOWN) -> JobRecord | None:
        found = [
            job.id for job in self._load().jobs if (job.spec.owner, job.spec.name) == (owner, name)
        ]
        return self.job(max(found, key=job_order), page) if found else None

    def owned(
        self, owner: str, references: Sequence[str]
    ) -> Mapping[str, tuple[JobId, Ended | None]]:
        mine = [job for job in self._load().jobs if job.spec.owner == owner]
        mine.sort(key=lambda job: job_order(job.id))
        meant = {job.spec.name: job for job in mine} | {job.id: job for job in mine}
        return {
            name: (job.id, Ended.of(job) if job.state in TERMINAL_JOB else None)
            for name, job in meant.items()
            if name in references
        }

    def submitted(self, owner: str, command: str) -> JobId | None:
        jobs = self._load().jobs
        return next(
            (job.id for job in jobs if (job.spec.owner, job.command) == (owner, command)), None
        )

    def ended(self, after: Millis, until: Millis, most: int) -> tuple[Sequence[JobId], Millis]:
        ended = sorted(
            (job.finished_ms, job_order(job.id), job.id)
            for job in self._load().jobs
            if job.finished_ms is not None and after < job.finished_ms <= until
        )
        last = ended[most - 1][0] if len(ended) >= most else until
        return [name for ms, _, name in ended if ms <= last], last

    def page_of_jobs(self, before: JobId | None, limit: int) -> Sequence[JobId]:
        found = [
            job.id
            for job in self._load().jobs
            if before is None or job_order(job.id) < job_order(before)
        ]
        return sorted(found, key=job_order, reverse=True)[:limit]

    def records_of_jobs(self, jobs: Sequence[JobId]) -> Mapping[JobId, JobRecord]:
        return self._records(jobs, SHOWN)

    def _records(self, jobs: Sequence[JobId], page: TaskPage) -> dict[JobId, JobRecord]:
        held = self._load()
        accounts = {account.job: account for account in held.job_accounts}
        found = {}
        for job in held.jobs:
            if job.id not in jobs:
                continue
            runs = [run for run in held.runs if run.job == job.id]
            known = {run.index for run in runs}
            runs += [untouched(job, at) for at, _ in enumerate(job.spec.tasks) if at not in known]
            runs.sort(key=lambda run: run_order(run.id))
            account = accounts.get(job.id, JobAccount(job.id))
            tasks: dict[int, list[TaskRun]] = {}
            for run in runs:
                tasks.setdefault(run.index, []).append(run)
            states = Counter(map(_state, tasks.values()))
            shown = [run for index in _of_page(tasks, page) for run in tasks[index]]
            found[job.id] = JobRecord(job, tuple(shown), account, states)
        return found

    def page_of_instances(self, before: InstanceId | None, limit: int) -> Sequence[InstanceId]:
        found = [
            it.id
            for it in self._load().instances
            if before is None or instance_order(it.id) < instance_order(before)
        ]
        return sorted(found, key=instance_order, reverse=True)[:limit]

    def records_of_instances(
        self, instances: Sequence[InstanceId]
    ) -> Mapping[InstanceId, InstanceRecord]:
        held = self._load()
        accounts = {account.instance: account for account in held.instance_accounts}
        return {
            it.id: InstanceRecord(it, accounts.get(it.id))
            for it in held.instances
            if it.id in instances
        }


def _state(runs: list[TaskRun]) -> RunState:
    """The state of a task of a job that has ended, by its runs, its own one first."""
    states = {run.state for run in runs}
    for state in (RunState.SUCCEEDED, RunState.FAILED):
        if state in states:
            return state
    return runs[0].state


def _of_page(tasks: dict[int, list[TaskRun]], page: TaskPage) -> list[int]:
    chosen = list(tasks)
    failed = [index for index in chosen if _state(tasks[index]) is RunState.FAILED]
    if page.failed:
        chosen = failed
    if page.first is not None:
        return [index for index in chosen if index >= page.first][: page.most]
    if page.failed or len(chosen) <= page.most:
        return chosen[: page.most]
    return sorted({*failed[:20], *chosen[:80]})
