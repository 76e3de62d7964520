"""How much work jobs have left, by what users state, tasks report and the cluster has learned."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from operator import itemgetter
from typing import Literal

from eva_master.control.measure.estimates import (
    Contradicted,
    JobEstimates,
    groups,
)
from eva_master.control.measure.sizes import size_speed
from eva_master.control.measure.throughput import (
    family_speed,
    measured_company_ppm,
    own_rate,
    placed_with,
    rate_so_far_ppm,
    shared_company_ppm,
)
from eva_master.control.state.finished import Kind, kind_of
from eva_master.control.state.records import PlanningRecords, Records, crew
from eva_master.control.state.store import State
from eva_master.control.state.view_cache import ToldEstimates
from eva_master.learning.run_times.posterior import Finished
from eva_master.model.ids import MILLION, Millis, RunId, run_id
from eva_master.model.job import JobSpec, TaskSpec
from eva_master.model.planning.estimate import LONGEST_MS, Estimate, Evidence
from eva_master.model.planning.snapshot import PREVIEW, RemainingWork, RunTime
from eva_master.model.records import Job, TaskRun, rests
from eva_master.model.states import TERMINAL_JOB, TERMINAL_RUN, RunState
from eva_master.model.values import replace
from eva_master.packing.valuation.job_valuation import Reservation, pace_of
from eva_master.packing.valuation.remaining_work import (
    Extent,
    Left,
    left,
    standalone_rate_ppm,
    whole_ms,
)
from eva_master.ports.reading import Outlook

_FAR = 10
"""What a policy was told stands while it is off by less than one part in so many."""
_SLACK_MS = 5_000
"""Nor is it news if it is off by less than this."""
_IN_ATTEMPT = frozenset({RunState.RUNNING, RunState.STOPPING, RunState.SUCCEEDED})
"""What a task run in one of these states has done is not lost yet."""


@dataclass(frozen=True, slots=True)
class _Measured:
    """What is left of task runs that progress together, as of a certain time.

    Attributes:
        estimate: How long they take in all.
        ran_ms: Standalone time for which they had run by then.
        since_ms: That time, `None` if they do not run.
        speed: How fast the families that they are on let them run.
        company_ppm: How fast they are against running alone there.
        untold_ms: Standalone time for which they ran on, before they began to stop, since steps
            were told. Who stops stores it.
    """

    left: Left
    estimate: Estimate
    ran_ms: int = 0
    since_ms: Millis | None = None
    speed: Fraction = Fraction(1)
    company_ppm: int = MILLION
    untold_ms: int = 0

    def work(self) -> RemainingWork:
        """The same for policies.

        What is known by running time runs down as if there were no company, since nothing tells
        what company has cost so far.
        """
        pace = self._pace_ppm(self.company_ppm if self.left.by_steps else MILLION)
        estimated = self.left.estimated
        ran = self.ran_ms if estimated and not self.left.by_steps else 0
        return RemainingWork(self.left.ms, self.since_ms, pace, estimated, ran)

    def _pace_ppm(self, company_ppm: int) -> int:
        """Standalone time that is done in the time that passes, in millionths."""
        return self.speed.numerator * company_ppm // self.speed.denominator

    def longer(self, raised: Mapping[Estimate, Estimate]) -> _Measured:
        """The same by estimates that were raised, each by what it was before."""
        by_now = raised.get(self.estimate, self.estimate)
        if not self.left.estimated or by_now is self.estimate:
            return self
        work = self.work().longer(self.estimate.mean_ms, by_now.mean_ms)
        return replace(self, left=replace(self.left, ms=work.at_since_ms), estimate=by_now)

    def eta_ms(self, now: Millis) -> Millis | None:
        """When it is over at the present pace; `None` past the end of a stated time."""
        missing = self.work().left_ms(now)
        if missing == 0 and not self.left.by_steps:
            return None
        return self._over_ms(missing, now)

    def eta_range_ms(self, now: Millis) -> tuple[Millis, Millis] | None:
        """Between which times it is over in two of three cases; `None` unless it is estimated."""
        if not self.left.estimated:
            return None
        missing, whole = self.work().left_ms(now), self.estimate.mean_ms
        if self.left.by_steps:
            part = Fraction(missing, whole)
            least = int(self.estimate.least_ms * part)
            most = int(self.estimate.most_ms * part)
        else:
            ran = self.ran_ms + self._done_ms(now)
            least, most = max(0, self.estimate.least_ms - ran), self.estimate.most_ms - ran
        ends = [self._over_ms(it, now) for it in (min(least, missing), max(most, missing))]
        return (ends[0], ends[1]) if ends[0] is not None and ends[1] is not None else None

    def _done_ms(self, now: Millis) -> int:
        since = now if self.since_ms is None else self.since_ms
        return max(0, now - since) * self._pace_ppm(MILLION) // MILLION

    def _over_ms(self, missing: int, now: Millis) -> Millis | None:
        """When so much is done at the present pace."""
        if self.since_ms is None:
            return None
        pace = self._pace_ppm(self.company_ppm)
        passes = missing * MILLION // pace if pace > 0 else LONGEST_MS + 1
        return Millis(now + passes) if passes <= LONGEST_MS else None


@dataclass(frozen=True, slots=True)
class Told:
    """What policies are told of a job.

    Attributes:
        works: What is left of each task run that they can see, by its id; `None` if unknown.
        estimate: How long a task takes, of several kinds the one that takes longest.
    """

    works: Mapping[RunId, RemainingWork | None]
    estimate: Estimate | None

    @property
    def longest_ms(self) -> int | None:
        """How long the task run takes that takes longest; `None` if that of one is unknown."""
        known = [work.at_since_ms for work in self.works.values() if work is not None]
        return max(known) if known and len(known) == len(self.works) else None

    @property
    def usual_ms(self) -> int | None:
        """How long half of the tasks take at most that take longest; `None` as in `longest_ms`."""
        if self.longest_ms is None or self.estimate is None:
            return None
        return self.estimate.usual_ms


def of_job(
    state: Records, job: Job, runs: Sequence[TaskRun], before: ToldEstimates | None = None
) -> Told:
    """What policies are told of a job.

    Args:
        state: Where it is looked up.
        job: The job.
        runs: All members of a gang; of an array those that policies can see.
        before: What they were told of it before, which stands where it is off by little.
    """
    estimates = JobEstimates.of_job(state, job, before)
    if job.is_gang:
        whole = _measured(state, runs, estimates)
        return Told(dict.fromkeys((run.id for run in runs), _work(whole)), _longest([whole]))
    works: dict[RunId, RemainingWork | None] = {}
    found = []
    alike: dict[object, RemainingWork | None] = {}
    """What is left of those that differ at most in the time since when they have been running."""
    for run in runs:
        key = _key(state, job.spec, run)
        if key is None or key not in alike:
            one = _measured(state, [run], estimates)
            found.append(one)
            works[run.id] = work = _work(one)
            if key is not None:
                alike[key] = work
            continue
        work = alike[key]
        if work is not None and run.state is RunState.RUNNING:
            work = work.since(Millis(run.history[-1][1]))
        works[run.id] = work
    return Told(works, _longest(found))


def _key(state: Records, spec: JobSpec, run: TaskRun) -> object:
    """Task runs of an array with the same key have as much left; `None` if steps tell of one."""
    task = id(spec.tasks[run.index])
    if not run.attempt:
        return task
    if run.progress.total_steps or spec.total_steps:
        return None
    ran = run.work_ms if run.generation or run.state in _IN_ATTEMPT else 0
    if run.state is not RunState.RUNNING or run.instance is None:
        return task, ran
    return task, ran, state.instances[run.instance].offering.type.family


def _longest(measured: Iterable[_Measured | None]) -> Estimate | None:
    found = (it.estimate for it in measured if it is not None)
    return max(found, key=lambda it: it.mean_ms, default=None)


def of_spec(
    state: Records,
    spec: JobSpec,
    now: Millis,
    finished: Mapping[Kind, Finished] | None = None,
) -> Told:
    """What policies would be told of a job if it were submitted now, as `PREVIEW`.

    Args:
        state: Where it is looked up.
        spec: The job.
        now: The time.
        finished: Tasks of it that have finished nevertheless, by kind.
    """
    reservations = state.reservations_of(spec)
    estimates = JobEstimates.of_spec(state, spec, now, finished)
    works: dict[RunId, RemainingWork | None] = {}
    measured: list[_Measured | None] = []
    for group in groups(spec):
        tasks = [spec.tasks[number] for number in group]
        rate = _rate_ppm(state, spec, tasks, [reservations[number] for number in group])
        extent = _extent(estimates, tasks, spec.total_steps, rate)
        found = left(extent)
        one = None if found is None else _Measured(found, _estimate(estimates, tasks, extent))
        measured.append(one)
        works.update(dict.fromkeys((run_id(PREVIEW, it) for it in group), _work(one)))
    return Told(works, _longest(measured))


def expected(state: Records, job: Job) -> Estimate | None:
    """How long a task of a job takes alone, of several kinds the one that takes longest.

    Returns:
        `None` if nothing is known.
    """
    spec = job.spec if job.is_gang else job.spec.of_tasks(state.kinds(job.id))
    estimates = JobEstimates.of_job(state, job)
    reservations = state.reservations_of(spec) if spec.total_steps else ()
    found = []
    for group in groups(spec):
        tasks, rate = [spec.tasks[number] for number in group], 0
        if reservations:
            rate = _rate_ppm(state, spec, tasks, [reservations[number] for number in group])
        extent = _extent(estimates, tasks, spec.total_steps, rate)
        if left(extent) is not None:
            found.append(_estimate(estimates, tasks, extent))
    return max(found, key=lambda it: it.mean_ms, default=None)


def longest_ms(state: Records, job: Job) -> int | None:
    """How long a task of an array takes alone, of those that differ the one that takes longest.

    Returns:
        `None` if that of one is not known.
    """
    return _of_kinds(state, job).longest_ms


def usual_ms(state: Records, job: Job) -> int | None:
    """How long half of the tasks of an array take at most, of those that differ the longest.

    Returns:
        `None` if that of one is not known.
    """
    return _of_kinds(state, job).usual_ms


def _of_kinds(state: Records, job: Job) -> Told:
    """What policies would be told of an array that had one task of each kind."""
    different = job.spec.of_tasks(state.kinds(job.id))
    return of_spec(state, different, job.submitted_ms, state.telling(job))


def left_ms(state: Records, run: TaskRun, now: Millis, *, alone: bool = False) -> int | None:
    """How long a task run goes on, in its present company or alone; `None` if that is not known."""
    job = state.jobs[run.job]
    group = list(crew(state, job.id)) if job.is_gang else [run]
    measured = _measured(state, group, JobEstimates.of_job(state, job))
    told = _outlook(state, run, placed_with(state, run), measured, now)
    return told.left_ms if alone or told.eta_ms is None else max(0, told.eta_ms - now)


def contradicted(state: Records, job: Job) -> Contradicted | None:
    """Why a job's stated duration is not believed; `None` if it is, or if there is none."""
    if job.spec.duration_ms is None or job.state in TERMINAL_JOB:
        return None
    estimates = JobEstimates.of_job(state, job)
    if not estimates.known.doubted:
        return None
    kinds = {kind_of(job.spec.tasks[group[0]]): group for group in groups(job.spec)}
    found = (estimates.contradicted([job.spec.tasks[it] for it in one]) for one in kinds.values())
    return next((it for it in found if it is not None), None)


def evidence(state: Records, job: Job) -> Evidence | None:
    """What a job's run time is estimated from where nothing is stated; `None` if it cannot be.

    Of tasks that differ it is that of those that are expected to take longest.
    """
    if job.state in TERMINAL_JOB:
        return None
    estimates, spec = JobEstimates.of_job(state, job), job.spec
    kinds = {kind_of(spec.tasks[group[0]]): group for group in groups(spec)}
    alike = [[spec.tasks[number] for number in group] for group in kinds.values()]
    known = [(it.mean_ms, tasks) for tasks in alike if (it := estimates.of(tasks)) is not None]
    if not known:
        return None
    return estimates.evidence(max(known, key=itemgetter(0))[1])


def outlooks(
    state: Records, job: Job, runs: Sequence[TaskRun], telling: Sequence[TaskRun], now: Millis
) -> tuple[Outlook, list[Outlook]]:
    """What users are told of a job, and of some of its task runs.

    Args:
        state: Where it is looked up.
        job: The job.
        runs: The task runs that are shown.
        telling: Those by which the job is told of: all members of a gang, of an array all or enough
            of those that are not over.
        now: The time.
    """
    if job.state in TERMINAL_JOB:
        return Outlook(), [Outlook()] * len(runs)
    estimates = JobEstimates.of_job(state, job)
    shared = _measured(state, telling, estimates) if job.is_gang else None
    measured = {
        id(run): shared if job.is_gang else _measured(state, [run], estimates)
        for run in (*telling, *runs)
    }
    raised = _raised(state, job, telling, measured, now)
    told: dict[int, Outlook] = {}
    gang = placed_with(state, telling[0]) if job.is_gang and telling else None
    for run in (*telling, *runs):
        if id(run) not in told:
            known = measured[id(run)]
            placed = gang if gang is not None else placed_with(state, run)
            known = known and known.longer(raised)
            told[id(run)] = _shown(_outlook(state, run, placed, known, now))
    parts = [told[id(it)] for it in telling if it.state not in TERMINAL_RUN and not rests(job, it)]
    return _of_all(parts), [told[id(run)] for run in runs]


def _raised(
    state: Records,
    job: Job,
    telling: Sequence[TaskRun],
    measured: Mapping[int, _Measured | None],
    now: Millis,
) -> dict[Estimate, Estimate]:
    """The estimates that tasks raise which run for longer, by what they were before."""
    ages: dict[Estimate, list[int]] = {}
    finished: dict[Estimate, int] = {}
    known = {} if job.is_gang else state.finished(job)
    for run in telling:
        one = measured[id(run)]
        if run.state is not RunState.RUNNING or one is None or not one.left.estimated:
            continue
        if one.estimate in ages and job.is_gang:
            continue  # its members take equally long
        ages.setdefault(one.estimate, []).append(one.work().ran_by_ms(now))
        if (it := known.get(kind_of(job.spec.tasks[run.index]))) is not None:
            finished[one.estimate] = it.tasks
    return {told: told.raised(finished.get(told, 0), those) for told, those in ages.items()}


def _outlook(
    state: Records, run: TaskRun, placed: Sequence[TaskRun], measured: _Measured | None, now: Millis
) -> Outlook:
    if run.state in TERMINAL_RUN or measured is None:
        return Outlook()
    if run.state is RunState.RUNNING and not measured.left.by_steps:
        company = shared_company_ppm(state, run, placed)
        measured = replace(measured, company_ppm=MILLION if company is None else company)
    running = run.state is RunState.RUNNING
    between = measured.eta_range_ms(now) if running else None
    return Outlook(
        left_ms=max(0, measured.work().left_ms(now) - measured.untold_ms),
        estimated=measured.left.estimated,
        eta_ms=measured.eta_ms(now) if running else None,
        earliest_ms=None if between is None else between[0],
        latest_ms=None if between is None else between[1],
        estimate=measured.estimate,
    )


def _shown(outlook: Outlook) -> Outlook:
    """Outlook for users: no figures that are but a guess by jobs that differ widely."""
    if outlook.estimated and outlook.estimate is not None and outlook.estimate.vague:
        return Outlook(estimate=outlook.estimate)
    return outlook


def _of_all(parts: Sequence[Outlook]) -> Outlook:
    """What users are told of a job, by what they are told of its task runs that are not over.

    It needs as long as the one that needs longest, and is unknown if that of one is.
    """
    needed = [part.left_ms for part in parts if part.left_ms is not None]
    etas = [part.eta_ms for part in parts if part.eta_ms is not None]
    known = bool(needed) and len(needed) == len(parts)
    ends = bool(etas) and len(etas) == len(parts)
    estimated = known and any(part.estimated for part in parts)
    found = [part.estimate for part in parts if part.estimate is not None]
    return Outlook(
        left_ms=max(needed) if known else None,
        estimated=estimated,
        eta_ms=max(etas) if ends else None,
        earliest_ms=_last(parts, "earliest_ms") if ends and estimated else None,
        latest_ms=_last(parts, "latest_ms") if ends and estimated else None,
        estimate=max(found, key=lambda it: it.mean_ms, default=None),
    )


def _last(parts: Sequence[Outlook], bound: Literal["earliest_ms", "latest_ms"]) -> Millis | None:
    """The last of the bounds; an end that is stated has none but itself."""
    bounds = (getattr(part, bound) or part.eta_ms for part in parts)
    return max((it for it in bounds if it is not None), default=None)


def follow(state: State, run: TaskRun, now: Millis) -> None:
    """Have policies told anew of a task run that is not as far as they were told to expect."""
    view, job = state.view_cache.runs.get(run.id), state.jobs[run.job]
    if view is None or not (run.progress.total_steps or job.spec.total_steps):
        return
    if job.is_gang and not state.view_cache.follows(job.id, job.members, now):
        return
    group = list(crew(state, job.id)) if job.is_gang else [run]
    fresh = _work(_measured(state, group, JobEstimates.of_job(state, job)))
    if not _as_expected(view.remaining, fresh, now):
        state.view_cache.job_changed(run.job)


def _as_expected(told: RemainingWork | None, fresh: RemainingWork | None, now: Millis) -> bool:
    expected = None if told is None else told.left_ms(now)
    present = None if fresh is None else fresh.left_ms(now)
    if expected is None or present is None:
        return expected is present
    return abs(expected - present) <= max(_SLACK_MS, present // _FAR)


def run_times(state: PlanningRecords, job: Job, runs: Iterable[TaskRun]) -> dict[RunId, RunTime]:
    """For how long task runs of an array that run have run, and how long such tasks run.

    Their time is without what company was measured to cost them, as is what finished tasks have
    taken.
    """
    estimates = JobEstimates.of_job(state, job)
    found = {}
    for run in runs:
        tasks = [job.spec.tasks[run.index]]
        stated = estimates.believed_ms(tasks)
        expected = estimates.of(tasks) if stated is None else estimates.stated(stated)
        placed = placed_with(state, run)
        company = state.pace(run.id) or measured_company_ppm(state, run, placed)
        speed = family_speed(state, placed)
        pace = speed.numerator * company // speed.denominator
        ran = run.work_ms * company // MILLION
        found[run.id] = RunTime(ran, Millis(run.history[-1][1]), pace, expected)
    return found


def _work(measured: _Measured | None) -> RemainingWork | None:
    return None if measured is None else measured.work()


def _measured(
    state: Records, group: Sequence[TaskRun], estimates: JobEstimates
) -> _Measured | None:
    """What task runs that progress together have left: a gang's members, or one task run alone."""
    spec = state.jobs[group[0].job].spec
    if spec.least is not None:
        # Who rested in the last attempt is not up to date.
        latest = max(run.attempt for run in group)
        group = [run for run in group if run.attempt == latest]
    kept = any(run.generation for run in group)
    teller = group[0]
    if len(group) > 1:
        teller = max(group, key=lambda run: _missing(spec, run, _steps(run, kept=kept)))
    total = teller.progress.total_steps or spec.total_steps
    done = _steps(teller, kept=kept)
    merging = state.jobs[teller.job].merging
    if merging is not None and spec.total_steps is not None:
        total, done = spec.total_steps, merging.done(spec.total_steps, done)
    tasks = [spec.tasks[run.index] for run in group]
    if spec.duration_ms is None and not total and estimates.of(tasks) is None:
        return None
    running = [run for run in group if run.state is RunState.RUNNING]
    placed = placed_with(state, group[0]) if running else []
    speed = family_speed(state, placed) * size_speed(state, placed)
    company, rate = None, 0
    if total:
        company = shared_company_ppm(state, teller, placed)
        known = _rate_ppm(state, spec, tasks, [state.reservation(run) for run in group])
        rate = standalone_rate_ppm(known, own_rate(state, teller), speed, company)
        if not rate and done and merging is None:
            rate = rate_so_far_ppm(state, teller, speed, company)
    ran = sum(run.work_ms for run in group if kept or run.state in _IN_ATTEMPT) // len(group)
    extent = _extent(estimates, tasks, total, rate)
    found = left(extent, done, ran)
    if found is None:
        return None
    since = _since(teller, running, by_steps=found.by_steps)
    return _Measured(
        found,
        _estimate(estimates, tasks, extent),
        ran,
        since,
        speed,
        MILLION if company is None else company,
        _untold_ms(state, teller) if found.by_steps else 0,
    )


def _untold_ms(state: Records, teller: TaskRun) -> int:
    """See `_Measured`; 0 for who does not stop, or stops before it ran."""
    if teller.state is not RunState.STOPPING:
        return 0
    (before, began), (_, stops) = teller.history[-2:]
    if before != RunState.RUNNING:
        return 0
    placed = placed_with(state, teller)
    company = shared_company_ppm(state, teller, placed)
    pace = family_speed(state, placed) * size_speed(state, placed) * (company or MILLION) / MILLION
    return int(max(0, stops - max(began, teller.progress.at_ms or 0)) * pace)


def _extent(
    estimates: JobEstimates, tasks: Sequence[TaskSpec], total: int | None, rate: int
) -> Extent:
    """What is known of all the work of tasks that progress together."""
    stated = estimates.believed_ms(tasks)
    expected = None if stated is not None or (total and rate) else estimates.expected_ms(tasks)
    return Extent(stated, total, rate, expected)


def _estimate(estimates: JobEstimates, tasks: Sequence[TaskSpec], extent: Extent) -> Estimate:
    """How long tasks take of which something is known."""
    whole = whole_ms(extent)
    assert whole is not None
    ms, estimated = whole
    found = estimates.of(tasks) if estimated else None
    return estimates.stated(ms) if found is None else found


def _steps(run: TaskRun, *, kept: bool) -> int:
    """Iterations that a task run has done, as far as they are not lost."""
    return run.progress.steps if kept or run.state in _IN_ATTEMPT else 0


def _missing(spec: JobSpec, run: TaskRun, steps: int) -> int:
    """Iterations that a member has still to do; nothing is known of one that reports none."""
    return (run.progress.total_steps or spec.total_steps or 0) - steps if steps else -(MILLION**4)


def _since(teller: TaskRun, running: Sequence[TaskRun], *, by_steps: bool) -> Millis | None:
    """From when on less is left than is known, in this attempt; `None` if it is no less by now."""
    if not running:
        return None
    if by_steps:
        told_ms = teller.progress.at_ms if teller.state is RunState.RUNNING else None
        return None if told_ms is None else max(told_ms, Millis(teller.history[-1][1]))
    return Millis(sum(run.history[-1][1] for run in running) // len(running))


def _rate_ppm(
    state: Records,
    spec: JobSpec,
    tasks: Sequence[TaskSpec],
    reservations: Sequence[Reservation],
) -> int:
    """Standalone rate of the slowest task, each on the family that sets its reservation price.

    Of a gang that divides batches by speed it is the mean of its tasks' rates.

    Returns:
        Millionths of iterations per second; 0 if that of none is known.
    """
    rates = [
        dict(state.standalone_rates(spec, task)).get(reserved.offering.type.family, 0)
        for task, reserved in zip(tasks, reservations, strict=True)
        if reserved.offering is not None
    ]
    return pace_of(rates, split=spec.split_batch)
