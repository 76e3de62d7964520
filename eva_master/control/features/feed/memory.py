"""Events of a turn, until they are written."""

from __future__ import annotations

from collections import Counter

from eva_master.control.alarms import Alarm, Wake
from eva_master.control.features.feed import wording
from eva_master.control.turn.turn import Feature, Turn
from eva_master.model.feed import FeedEvent, FeedKind
from eva_master.model.records import Instance, Job, TaskRun
from eva_master.model.values import replace
from eva_wire.values.ids import JobId, Millis
from eva_wire.values.states import TERMINAL_JOB

_TOLD_ONE_BY_ONE = 20
"""Events of one kind about tasks of one job that a turn tells one by one; the rest are counted."""


class FeedMemory(Feature):
    """Follows the records, and writes what happened in the words of `wording`.

    A turn tells at most `_TOLD_ONE_BY_ONE` events of one kind about the tasks of a job, and how
    many more there were, so that the feed is no longer for an array of a hundred thousand tasks.
    """

    wakes = frozenset({Wake.DUE})

    def __init__(self) -> None:
        self._events: list[FeedEvent] = []
        self._counts: Counter[tuple[JobId, FeedKind, int]] = Counter()

    def started(self, turn: Turn) -> None:
        """Tell that a master is in charge, and wait for the deadlines of the journal's jobs."""
        since = turn.state.wall.of(turn.state.journal_ms)
        put_back = turn.state.counters.restored_ms == turn.now
        text = wording.of_master(since if put_back else None)
        self._events.append(FeedEvent(0, turn.now, FeedKind.LEADER, text=text))
        for name in turn.state.with_deadlines:
            self._set_alarm(turn, turn.state.jobs[name])

    def job_changed(self, turn: Turn, old: Job | None, job: Job) -> None:
        """Tell how a job comes, rests, fails and ends."""
        for kind, text in wording.of_job(old, job):
            stored = kind is not FeedKind.CAPPED or any(
                run.generation for run in turn.state.in_hand(job.id)
            )
            more = "" if stored else "; no checkpoint of it is stored yet"
            goes_on = kind is FeedKind.FAILED and job.state not in TERMINAL_JOB
            self._tell(turn, (kind, text + more), job, failure=job.failures if goes_on else 0)
        if old is None and job.spec.deadline is not None:
            self._set_alarm(turn, job)

    def run_changed(self, turn: Turn, old: TaskRun | None, run: TaskRun) -> None:
        """Tell where a task starts, and why it stops."""
        state = turn.state
        place = None if run.instance is None else state.instances.get(run.instance)
        for said in wording.of_run(old, run, place):
            on = run.instance or (None if old is None else old.instance) or ""
            failure = run.failures if said[0] is FeedKind.FAILED else 0
            job = state.jobs[run.job]
            self._tell(turn, said, job, task=run.id, instance=on, failure=failure)

    def instance_changed(self, turn: Turn, old: Instance | None, instance: Instance) -> None:
        """Tell how an instance comes and goes."""
        for kind, text in wording.of_instance(old, instance):
            self._events.append(FeedEvent(0, turn.now, kind, instance=instance.id, text=text))

    def ring(self, turn: Turn, alarm: Alarm) -> None:
        """Tell that a job is late."""
        job = turn.state.jobs.get(JobId(alarm.about))
        if job is None or job.state in TERMINAL_JOB or job.spec.deadline is None:
            return
        if job.spec.deadline.due_ms(job.submitted_ms, turn.state.wall) > turn.now:
            self._set_alarm(turn, job)  # The wall clock was set back.
            return
        self._tell(turn, (FeedKind.LATE, "its deadline has passed"), job)

    def end(self, turn: Turn) -> None:
        """Number the events of the turn, and have them written."""
        for (name, kind, failure), count in self._counts.items():
            if (more := count - _TOLD_ONE_BY_ONE) > 0:
                said = kind, f"{more:,} more of its tasks alike"
                self._tell(turn, said, turn.state.jobs[name], failure=failure)
        self._counts.clear()
        self._events += turn.news
        if not self._events:
            return
        first = turn.state.count(events=len(self._events)).events - len(self._events) + 1
        turn.state.feed.extend(
            replace(event, number=number) for number, event in enumerate(self._events, first)
        )
        self._events.clear()

    def _set_alarm(self, turn: Turn, job: Job) -> None:
        """Be woken when a job is late; one that is late already has been told."""
        assert job.spec.deadline is not None
        due_ms = Millis(job.spec.deadline.due_ms(job.submitted_ms, turn.state.wall))
        if due_ms > turn.now:
            turn.alarms.at(due_ms, Alarm(Wake.DUE, job.id))

    def _tell(
        self,
        turn: Turn,
        said: wording.Said,
        job: Job,
        *,
        task: str = "",
        instance: str = "",
        failure: int = 0,
    ) -> None:
        """Add an event about a job or one of its tasks, unless there were many alike."""
        kind, text = said
        if task:
            self._counts[job.id, kind, failure] += 1
            if self._counts[job.id, kind, failure] > _TOLD_ONE_BY_ONE:
                return
        owner = job.spec.owner
        self._events.append(
            FeedEvent(0, turn.now, kind, job.id, task, instance, owner, text, failure)
        )
