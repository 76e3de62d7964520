"""Counts of one job's tasks, and the tasks of an array that a plan may place next."""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from heapq import merge

from eva_master.control.state.derived.kinds import Kinds
from eva_master.control.state.derived.task_counts import TaskCounts
from eva_master.control.state.finished import Kind
from eva_master.learning.run_times.posterior import Finished
from eva_master.model.job import Stragglers, TaskSpec
from eva_master.model.records import Job, TaskRun, untouched_state
from eva_wire.values.ids import JobId, RunId, run_id
from eva_wire.values.states import HOLDING, TERMINAL_RUN, RunState, of_task

SHOWN_AT_ONCE = 1_000
"""Most waiting tasks of one array in a plan. The next plan is shown the next ones."""


_DOUBLED_PART = 10
"""One task in this many may have an extra run at a time, and one task of a smaller array."""
_SHOWN_AT_LEAST = 125
"""Most waiting tasks in a plan after one that had no place for some: room for many more seldom
comes at once.
"""
_ENDED_LAST = 10
"""Number of the latest ended tasks that are remembered."""
_TERMINAL = tuple(TERMINAL_RUN)
_HOLDING = tuple(HOLDING)


class JobTasks:
    """Counts of one job's task runs; each change takes the same time for any number of tasks.

    Attributes:
        counts: Number of tasks in each state, tasks without a record included.
        touched: Task runs with a record, extra runs included.
        unsettled: The touched task runs that are not over.
        in_hand: Task runs that have an instance or a target, with their indices.
        by_kind: Its tasks by kind: with the same workload, demand and rates.
        most_shown: Most waiting tasks in the next plan.
        gpu_ms: Time for which the tasks had GPUs, without the present stretch of running tasks.
        doubled: Tasks with extra runs.
        moving: Number of task runs on an instance that are to be on another, or on none.
        measuring: The first member of a gang that reports progress, when last looked for.
        size: How many tasks the job has.
    """

    __slots__ = (
        *("_counted", "_done", "_ended", "_forked", "_headed", "_provided", "_reasons"),
        *("_suspended", "_waiting"),
        *("by_kind", "counts", "doubled", "gpu_ms", "in_hand"),
        *("measuring", "most_shown", "moving", "size", "touched", "unsettled"),
    )

    def __init__(self, job: Job) -> None:
        self.size = job.spec.size
        self.counts = dict.fromkeys(RunState, 0)
        self.counts[untouched_state(job)] = self.size
        self.touched: dict[RunId, None] = {}
        self.unsettled: dict[RunId, None] = {}
        self.in_hand: dict[RunId, int] = {}
        self.by_kind = Kinds(job.spec)
        self._waiting = None if job.is_gang else _Waiting(job.spec.tasks, self.by_kind)
        self.most_shown = SHOWN_AT_ONCE
        self.gpu_ms = 0
        self._forked = job.spec.forked
        self.doubled = _NONE_DOUBLED
        self.moving = 0
        self.measuring: RunId | None = None
        self._headed = 0
        """Number of waiting task runs with a target."""
        self._reasons: dict[int, str] = {}
        """Reasons for which tasks without a record wait, see `Kinds.place`."""
        self._suspended = 0
        """Number of tasks suspended by plans that are not over and do not run."""
        self._done: set[int] | None = None if job.spec.elastic.least is None else set()
        """Members of an elastic gang that have succeeded, whether among the running members or not.
        """
        self._counted, self._provided = 0, 0
        """So many first members of an elastic gang, and how many of them have a place or are done.
        """
        self._ended: list[tuple[int, int]] = []
        """End times of the latest ended tasks, with their indices; the latest comes last."""

    @property
    def kinds(self) -> tuple[TaskSpec, ...]:
        """The first task of each kind."""
        return self.by_kind.tasks

    def why(self, task: TaskSpec) -> str:
        """Why a task waits to which nothing has happened."""
        return self.by_kind.why(self._reasons, task)

    def explain(self, task: TaskSpec, reason: str) -> bool:
        """The last plan had no place for such a task; returns whether the reason is a new one."""
        place = self.by_kind.place(task)
        if self._reasons.get(place) == reason:
            return False
        self._reasons[place] = reason
        return True

    def counted(
        self,
        telling: Mapping[Kind, Finished],
        finished: Mapping[Kind, Finished] | None = None,
        pilots_left: int | None = None,
    ) -> TaskCounts:
        """Counts of all tasks, for readers.

        Args:
            telling: Run times of finished tasks, by kind, on which estimates for the others rest.
            finished: Run times of all finished tasks.
            pilots_left: Number of pilots that have not succeeded; `None` without pilots.
        """
        return TaskCounts(
            self.by_kind,
            self.doubled.by_task(self.counts),
            len(self.in_hand),
            self._suspended,
            dict(self._reasons),
            tuple(index for _, index in reversed(self._ended)),
            telling,
            telling if finished is None else finished,
            pilots_left,
        )

    def job_changed(self, old: Job, new: Job) -> None:
        """The job's record was replaced: with its outcome what was never touched ends."""
        before, after = untouched_state(old), untouched_state(new)
        if before is not after:
            self.counts[before] -= self.untouched
            self.counts[after] += self.untouched

    @property
    def untouched(self) -> int:
        """How many tasks there are to which nothing has happened."""
        return self.size - len(self.touched) + len(self.doubled.extras)

    def follow(self, old: TaskRun | None, new: TaskRun) -> None:
        """A task run was replaced, maybe for the first time; an extra run may be new (`None`)."""
        before, after, name = None if old is None else old.state, new.state, new.id
        if before is not after:
            if before is not None:
                self.counts[before] -= 1
            self.counts[after] += 1
        over, waits = after in _TERMINAL, after is RunState.WAITING
        # A task that was not touched may be over, by what became of its job.
        fresh = before is not after or name not in self.touched
        if over and fresh and not new.extra:
            insort(self._ended, (new.since_ms, new.index))
            del self._ended[:-_ENDED_LAST]
        self.touched[name] = None
        if over:
            self.unsettled.pop(name, None)
        else:
            self.unsettled[name] = None
        if self._done is not None:
            before_provided = (name in self.in_hand) + (new.index in self._done)
            done = after is RunState.SUCCEEDED
            (self._done.add if done else self._done.discard)(new.index)
            if new.index < self._counted:
                self._provided += new.in_hand + done - before_provided
        if waits or before is RunState.WAITING:
            self._headed += _headed(new) - _headed(old)
        self.moving += _moves(new) - _moves(old)
        self.gpu_ms += new.gpu_ms - (0 if old is None else old.gpu_ms)
        if new.suspension is not None or (old is not None and old.suspension is not None):
            self._suspended += _rests(new) - _rests(old)
        if new.in_hand:
            self.in_hand[name] = new.index
        else:
            self.in_hand.pop(name, None)
        waits = waits and new.target is None
        if new.replicas or new.extra:
            waits = self._follow_doubled(new)
        if self._waiting is not None:
            self._waiting.note(new.index, waits=waits)

    def _follow_doubled(self, run: TaskRun) -> bool:
        """Follow a run of a task that has several; returns whether the task waits for a plan."""
        if self.doubled is _NONE_DOUBLED:
            self.doubled = DoubledTasks(forked=self._forked)
        self.doubled.follow(run)
        return self.doubled.waits(run.index)

    @property
    def holding(self) -> int:
        """How many occupy an instance."""
        return sum(map(self.counts.__getitem__, _HOLDING))

    @property
    def failed(self) -> int:
        """How many tasks have failed for good: with all of their runs."""
        if not self.counts[RunState.FAILED]:
            return 0
        return self.doubled.by_task(self.counts).get(RunState.FAILED, 0)

    @property
    def left(self) -> int:
        """How many are not over."""
        return sum(count for state, count in self.counts.items() if state not in TERMINAL_RUN)

    @property
    def unplaced(self) -> int:
        """How many wait for a plan to give them a place."""
        return self.counts[RunState.WAITING] - self._headed - self.doubled.covered

    def placeable(self, job: Job) -> int:
        """How many of these may be given one now."""
        if job.missing_secrets:
            return 0
        if self._done is not None:
            return min(self.unplaced, job.members - self._provided_of(job.members, self._done))
        limit = job.spec.array.concurrency
        return self.unplaced if limit is None else min(self.unplaced, limit - len(self.in_hand))

    def _provided_of(self, members: int, done: Collection[int]) -> int:
        """How many of the first members have a place or are done; another size is counted anew."""
        if self._counted != members:
            self._counted = members
            placed = sum(index < members for index in self.in_hand.values())
            self._provided = placed + sum(index < members for index in done)
        return self._provided

    def replicas_left(self, job: Job) -> int | None:
        """How many more tasks may be given an extra run now: a bounded share of them at a time."""
        if job.is_gang or job.spec.array.stragglers is Stragglers.KEEP:
            return None
        share = max(1, job.spec.size // _DOUBLED_PART) - self.doubled.in_hand
        limit = len(self.in_hand) if job.missing_secrets else job.spec.array.concurrency
        return max(0, share if limit is None else min(share, limit - len(self.in_hand)))

    def planned(self, placed: int, *, held: bool, lined: bool = False) -> bool:
        """Note an adopted plan that placed some tasks, and may have had no place for others.

        While there is no room, the next plan is shown few tasks: twice as many as were placed, or
        as many as are in hand, whose room may all become free. Every kind is among them. Tasks in a
        line take free room without a plan.

        Returns:
            Whether the next plan is shown other waiting tasks.
        """
        before = self.most_shown, self._reasons
        if not held:
            self._reasons = {}
        if held or lined:
            leaving = 0 if lined else len(self.in_hand)
            enough = max(_SHOWN_AT_LEAST, 2 * placed, leaving, 4 * len(self.kinds))
            self.most_shown = min(SHOWN_AT_ONCE, enough)
        elif placed:
            self.most_shown = SHOWN_AT_ONCE
        return before != (self.most_shown, self._reasons)

    def shown(self, job: Job, first: Sequence[int] = ()) -> list[RunId]:
        """The tasks of an array that a plan is shown, by index.

        All tasks in hand are shown, and the first of the waiting tasks that may be placed.

        Args:
            job: The job.
            first: Indexes of waiting tasks that precede all others.
        """
        assert self._waiting is not None
        room = min(self.most_shown, self.placeable(job))
        indices = self._waiting.first(room) if room > 0 else ()
        first = [index for index in first if not self.doubled.covers(index)]
        if first and room > 0:
            chosen = dict.fromkeys((*first[:room], *indices))
            indices = sorted([*chosen][:room])
        held = sorted((index, run) for run, index in self.in_hand.items())
        waiting = ((index, run_id(job.id, index)) for index in indices)
        return [run for _, run in merge(held, waiting)]

    def unseen(self, job: Job) -> int:
        """How many tasks of an array wait, and may be placed, beside those that are shown."""
        return 0 if job.is_gang else max(0, self.placeable(job) - self.most_shown)


class TasksOfJobs(dict[JobId, JobTasks]):
    """The tasks of each job, and how many of them have ended.

    Args:
        jobs: The records of jobs.
        first: Returns the indices of an array's tasks that a plan is about before all others.
    """

    def __init__(self, jobs: Mapping[JobId, Job], first: Callable[[JobId], Sequence[int]]) -> None:
        super().__init__()
        self._jobs, self._first = jobs, first

    def succeeded(self, job: JobId) -> int:
        """How many tasks of a job have succeeded."""
        return self[job].counts[RunState.SUCCEEDED]

    def failed(self, job: JobId) -> int:
        """How many tasks of a job have failed for good, see `JobTasks.failed`."""
        return self[job].failed

    def gpu_ms(self, job: JobId) -> int:
        """The time for which tasks had GPUs, see `JobTasks.gpu_ms`."""
        return self[job].gpu_ms

    def shown(self, job: JobId) -> list[RunId]:
        """The tasks of an array that a plan is about, see `JobTasks.shown`."""
        return self[job].shown(self._jobs[job], self._first(job))

    def replicas_left(self, job: JobId) -> int | None:
        """How many more of its tasks may be given an extra run, see `JobTasks.replicas_left`."""
        return self[job].replicas_left(self._jobs[job])

    def unseen(self, job: JobId) -> int:
        """How many tasks of an array wait that plans are not shown, see `JobTasks.unseen`."""
        return self[job].unseen(self._jobs[job])

    def kinds(self, job: JobId) -> tuple[TaskSpec, ...]:
        """The first of a job's tasks of each kind, see `JobTasks.kinds`."""
        return self[job].kinds

    def by_kind(self, job: JobId) -> tuple[Sequence[int], ...]:
        """The indices of a job's tasks of each kind, see `Kinds.groups`."""
        return self[job].by_kind.groups


class DoubledTasks:
    """Follows the runs of a job's tasks that have several; there is nothing of any other.

    Attributes:
        extras: The extra runs, over or not.
        covered: Number of tasks that wait for no plan though they wait, since an extra run of them
            is in hand.
    """

    __slots__ = (
        *("_covered", "_forked", "_idle", "_in_hand", "_more"),
        *("_placed", "_resting", "_states", "_unplaced", "covered", "extras"),
    )

    def __init__(self, *, forked: bool = False) -> None:
        self.extras: dict[RunId, None] = {}
        self.covered = 0
        self._forked = forked
        self._resting: set[RunId] = set()
        """Forks without a place, which wait for no plan."""
        self._in_hand: dict[int, set[RunId]] = {}
        self._idle: set[int] = set()
        self._covered: set[int] = set()
        self._unplaced: dict[int, RunId] = {}
        self._placed: set[int] = set()
        self._states: dict[int, dict[int, RunState]] = {}
        """Of each task the states of its runs, by number."""
        self._more: Counter[RunState] = Counter()
        """How many more tasks than runs are in each state."""

    def follow(self, run: TaskRun) -> None:
        """Follow the new record of a run whose task has several runs."""
        index = run.index
        states = self._states.setdefault(index, {})
        self._compare(states, -1)
        states[run.replica] = run.state
        self._compare(states, 1)
        if run.extra:
            self.extras[run.id] = None
            extras = self._in_hand.setdefault(index, set())
            (extras.add if run.in_hand else extras.discard)(run.id)
            if not extras:
                del self._in_hand[index]
            rests = self._forked and run.state is RunState.WAITING and run.target is None
            (self._resting.add if rests else self._resting.discard)(run.id)
            if run.state is RunState.SUCCEEDED and index not in self._placed:
                self._unplaced[index] = run.id
        else:
            idle = run.state is RunState.WAITING and run.target is None
            (self._idle.add if idle else self._idle.discard)(index)
            if run.outputs_of:
                self._placed.add(index)
                self._unplaced.pop(index, None)
        covered = index in self._idle and index in self._in_hand and not self._forked
        (self._covered.add if covered else self._covered.discard)(index)
        self.covered = len(self._covered) + len(self._resting)

    def _compare(self, states: dict[int, RunState], sign: int) -> None:
        for state in states.values():
            self._more[state] -= sign
        if 0 in states:
            self._more[of_task([states[number] for number in sorted(states)])] += sign

    def by_task(self, counts: Mapping[RunState, int]) -> dict[RunState, int]:
        """How many tasks are in each state, by how many task runs are."""
        return {
            state: count + self._more[state]
            for state, count in counts.items()
            if count + self._more[state]
        }

    @property
    def in_hand(self) -> int:
        """How many tasks have an extra run that has an instance or a target."""
        return len(self._in_hand)

    def covers(self, index: int) -> bool:
        """Whether a task waits for no plan though it waits, since an extra run is in hand."""
        return index in self._covered

    def waits(self, index: int) -> bool:
        """Whether a task's own run waits for a plan."""
        return index in self._idle and (self._forked or index not in self._in_hand)

    @property
    def unplaced_outputs(self) -> list[RunId]:
        """Extra runs that have succeeded and whose outputs are not in their tasks' place yet."""
        return list(self._unplaced.values())


_NONE_DOUBLED = DoubledTasks()
"""That of all jobs of which no task has had an extra run; nothing is ever added to it."""


class _Queue:
    """Tasks that are alike: a cursor behind which nothing was touched, and those that came back."""

    __slots__ = ("_ahead", "_at", "_indices", "_ready")

    def __init__(self, indices: Sequence[int]) -> None:
        self._indices = indices
        self._at = 0
        self._ready: set[int] = set()
        self._ahead: set[int] = set()
        """Tasks at or after the cursor that do not wait."""

    def note(self, index: int, *, waits: bool) -> None:
        if self._at < len(self._indices) and index >= self._indices[self._at]:
            if waits:
                self._ahead.discard(index)
            else:
                self._ahead.add(index)
        elif waits:
            self._ready.add(index)
        else:
            self._ready.discard(index)

    def first(self, limit: int) -> list[int]:
        while len(self._ready) < limit and self._at < len(self._indices):
            index = self._indices[self._at]
            self._at += 1
            if index in self._ahead:
                self._ahead.discard(index)
            else:
                self._ready.add(index)
        return sorted(self._ready)[:limit]


class _Waiting:
    """The tasks of an array that wait without a target, found without walking the array."""

    __slots__ = ("_queue_of", "_queues")

    def __init__(self, tasks: Sequence[TaskSpec], by_kind: Kinds) -> None:
        self._queues = [_Queue(indices) for indices in by_kind.groups]
        self._queue_of: list[_Queue] | None = None
        if len(self._queues) > 1:
            self._queue_of = [self._queues[by_kind.of(task)] for task in tasks]

    def note(self, index: int, *, waits: bool) -> None:
        queue = self._queues[0] if self._queue_of is None else self._queue_of[index]
        queue.note(index, waits=waits)

    def first(self, limit: int) -> Iterable[int]:
        """The first waiting tasks, some of each kind, since there may be room for one kind only."""
        share = max(1, limit // len(self._queues))
        indices: dict[int, None] = {}
        for most in (share, limit):
            for queue in self._queues:
                if len(indices) < limit:
                    indices.update(dict.fromkeys(queue.first(most)))
        return sorted(list(indices)[:limit])


def _headed(run: TaskRun | None) -> bool:
    return run is not None and run.target is not None and run.state is RunState.WAITING


def _moves(run: TaskRun | None) -> bool:
    return run is not None and run.instance is not None and run.target != run.instance


def _rests(run: TaskRun | None) -> bool:
    """Whether a plan has suspended it, and it does not run (any more, or again)."""
    if run is None or run.extra:
        return False
    return run.suspension is not None and run.state not in (*_TERMINAL, RunState.RUNNING)
