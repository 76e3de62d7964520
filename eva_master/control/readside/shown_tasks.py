"""Which tasks of a large job readers look at: those that matter, found without walking the job."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from eva_master.control.readside.persistent_map import PersistentMap
from eva_master.control.state.derived.task_counts import TaskCounts
from eva_master.control.state.runs import Runs
from eva_master.model.records import Job, TaskRun, untouched
from eva_master.ports.reading import SMALL_JOB, TaskPage
from eva_wire.values.ids import JobId, RunId, job_order
from eva_wire.values.states import HOLDING, TERMINAL_RUN, RunState, of_task

Place = tuple[int, str, int, int, int]
"""Sort key of a task run: place of its job in the order of submissions, job, `_rank`, index of its
task, number among the runs of the task.
"""
Index = PersistentMap[Place, RunId]
"""The task runs with a rank."""

_FAILED, _HOLDING, _SUSPENDED, _RETRIED, _TARGETED, _BEYOND = range(6)
_SOME = 20
"""Most failed, most suspended and most retried tasks of a large job that are shown."""
_TELLING = 100
"""So many tasks with a place tell how long a large job still takes: those of the highest indices,
which began last."""
_BEGAN_FIRST = 20
"""So many of the lowest ones do so as well: they may have run for longer than was expected."""
_KINDS = 100
"""So many kinds of waiting tasks do so as well."""


def empty_index() -> Index:
    """An index of no tasks."""
    return PersistentMap(_itself)


def followed(
    index: Index,
    changed: Mapping[RunId, None],
    before: Mapping[RunId, TaskRun],
    after: Mapping[RunId, TaskRun],
) -> Index:
    """The index after changes to some task runs, in time proportional to their number."""
    put: dict[Place, RunId] = {}
    drop: list[Place] = []
    for name in changed:
        old, new = before.get(name), after.get(name)
        old_rank, rank = _rank(old), _rank(new)
        if old_rank == rank:
            continue
        if old is not None and old_rank is not None:
            drop.append(_place(old.job, old_rank, old.index, old.replica))
        if new is not None and rank is not None:
            put[_place(new.job, rank, new.index, new.replica)] = name
    return index.updated(put, drop) if put or drop else index


def of_page(
    job: Job, runs: Runs, index: Index, counts: TaskCounts, page: TaskPage
) -> list[TaskRun]:
    """The task runs of one page, by index where the page has an order; all runs of each task."""
    return list(_with_others(job, runs, _of_page(job, runs, index, counts, page)))


def _with_others(job: Job, runs: Runs, some: Iterable[TaskRun]) -> Iterator[TaskRun]:
    """All runs of the tasks that some task runs are of, in their order."""
    seen: set[int] = set()
    for run in some:
        if run.index not in seen:
            seen.add(run.index)
            own = runs.at(job, run.index) if run.extra else run
            yield own
            yield from runs.extras(own)


def _of_page(
    job: Job, runs: Runs, index: Index, counts: TaskCounts, page: TaskPage
) -> Iterable[TaskRun]:
    if page.failed and job.is_gang:  # All may have failed without a record.
        failed = (run for run in runs.of(job) if run.state is RunState.FAILED)
        return islice((run for run in failed if run.index >= (page.first or 0)), page.most)
    if page.failed:
        return _failed(job, runs, index, page.first or 0, page.most)
    if page.first is not None:
        indices = job.spec.indices
        at = bisect_left(indices, page.first)
        last = bisect_left(indices, page.first + page.most)
        return [runs.at(job, number) for number in indices[at:last]]
    if job.spec.size <= SMALL_JOB:
        return runs.of(job)
    return _that_matter(job, runs, index, counts)


def _failed(job: Job, runs: Runs, index: Index, first: int, most: int) -> list[TaskRun]:
    """One run of each failed task of an array, by index."""
    bounds = _place(job.id, _FAILED, first), _place(job.id, _HOLDING, 0)
    failed: dict[int, TaskRun] = {}
    for _, name in index.ascending(*bounds):
        run = runs.touched[name]
        own = runs.at(job, run.index)
        if of_task([replica.state for replica in (own, *runs.extras(own))]) is RunState.FAILED:
            failed.setdefault(run.index, run)
            if len(failed) == most:
                break
    return list(failed.values())


def _that_matter(job: Job, runs: Runs, index: Index, counts: TaskCounts) -> Iterator[TaskRun]:
    """Tasks that failed, that have a place, that wait though they began, and that ended last."""
    seen: set[int] = set()

    def fresh(some: list[TaskRun]) -> Iterator[TaskRun]:
        for run in some:
            if run.index not in seen:
                seen.add(run.index)
                yield run

    bounds = [_place(job.id, rank, 0) for rank in range(_BEYOND + 1)]
    yield from fresh(_failed(job, runs, index, 0, _SOME))
    ended = [runs.at(job, number) for number in counts.ended]
    yield from fresh([run for run in ended if run.state in TERMINAL_RUN])
    for rank in (_SUSPENDED, _RETRIED):
        yield from fresh(_some(runs, index, bounds[rank], bounds[rank + 1], _SOME))
    room = max(0, SMALL_JOB - len(seen))
    yield from fresh(_some(runs, index, bounds[_HOLDING], bounds[_SUSPENDED], room))
    room = max(0, SMALL_JOB - len(seen))
    yield from fresh(_some(runs, index, bounds[_TARGETED], bounds[_BEYOND], room))


def telling(job: Job, runs: Runs, index: Index, counts: TaskCounts) -> list[TaskRun]:
    """The task runs from which the remaining time of a job is estimated.

    For a gang or a small job, all of them. For a large array, a limited number of the runs with a
    place, and one waiting run of each kind: the others of a kind need as long.
    """
    if job.is_gang or job.spec.size <= SMALL_JOB:
        return list(runs.of(job))
    runs_found = _last(runs, index, job, _HOLDING, _TELLING)
    bounds = _place(job.id, _HOLDING, 0), _place(job.id, _SUSPENDED, 0)
    last = {run.id for run in runs_found}
    runs_found += [run for run in _some(runs, index, *bounds, _BEGAN_FIRST) if run.id not in last]
    for rank in (_SUSPENDED, _RETRIED, _TARGETED):
        runs_found += _last(runs, index, job, rank, _SOME)
    if counts.states.get(RunState.WAITING):
        groups = islice(counts.kinds.groups, _KINDS)
        runs_found += [untouched(job, group[0]) for group in groups]
    return runs_found


def reasons(job: Job, counts: TaskCounts) -> tuple[TaskRun, ...]:
    """One task run for each reason for which tasks without any earlier place wait."""
    if job.is_gang or not counts.states.get(RunState.WAITING):
        return ()
    groups = counts.kinds.groups
    examples: dict[str, TaskRun] = {}
    for number in sorted(counts.reasons):
        why = counts.reasons[number]
        if why not in examples:
            first = groups[number][0]
            examples[why] = untouched(job, first, why)
    return tuple(examples.values())


def suspended(job: Job, runs: Runs, index: Index, counts: TaskCounts) -> TaskRun | None:
    """The first task of a job if plans have suspended all tasks that are not over."""
    if not counts.suspended or counts.suspended < counts.left:
        return None
    for rank in (_SUSPENDED, _HOLDING):
        bounds = (_place(job.id, rank, 0), _place(job.id, rank + 1, 0))
        if first := _some(runs, index, *bounds, 1):
            return first[0]
    return None


def in_hand(job: JobId, runs: Runs, index: Index) -> tuple[TaskRun, ...]:
    """The task runs of a job that have an instance or a target, by index."""
    first, beyond = _place(job, _HOLDING, 0), _place(job, _BEYOND, 0)
    names = _some(runs, index, first, beyond, None)
    held = (run for run in names if run.instance is not None or run.target is not None)
    return tuple(sorted(held, key=lambda run: (run.index, run.replica)))


def _rank(run: TaskRun | None) -> int | None:
    """The group in which a task run is shown; `None` if it is of no interest."""
    if run is None:
        return None
    state = run.state
    if state in TERMINAL_RUN:
        return _FAILED if state is RunState.FAILED else None
    if state in HOLDING:
        return _HOLDING
    if run.suspension is not None:
        return _SUSPENDED
    if run.failures:
        return _RETRIED
    return None if run.target is None else _TARGETED


def _place(job: JobId, rank: int, index: int, replica: int = 0) -> Place:
    return (*job_order(job), rank, index, replica)


def _some(runs: Runs, index: Index, start: Place, end: Place, most: int | None) -> list[TaskRun]:
    """The task runs between two places, the first one included."""
    names = (name for at, name in index.ascending(start, end))
    return [runs.touched[name] for name in islice(names, most)]


def _last(runs: Runs, index: Index, job: Job, rank: int, most: int) -> list[TaskRun]:
    """The last task runs of a rank."""
    start, end = _place(job.id, rank, 0), _place(job.id, rank + 1, 0)
    runs_found: list[TaskRun] = []
    for at in index.descending(end):
        if at < start or len(runs_found) == most:
            break
        runs_found.append(runs.touched[index[at]])
    return runs_found


def _itself(place: Place) -> Place:
    return place
