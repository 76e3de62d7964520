"""How much work jobs have left, by what users state, tasks report and the cluster has learned."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from operator import itemgetter
from typing import Literal

from eva_master.control.measure.estimates import Contradicted, JobEstimates, groups
from eva_master.control.measure.sizes import size_speed
from eva_master.control.measure.throughput import (
    family_speed,
    felt_company_ppm,
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
from eva_master.model.job import JobSpec, TaskSpec
from eva_master.model.planning.estimate import LONGEST_MS, Estimate, Evidence
from eva_master.model.planning.snapshot import PREVIEW, RemainingWork, RunTime
from eva_master.model.records import Job, TaskRun, rests
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
from eva_wire.values.ids import MILLION, Millis, RunId, run_id
from eva_wire.values.states import TERMINAL_JOB, TERMINAL_RUN, RunState

_FAR = 10
"""A policy's estimate stands while it is off by less than one part in this many."""
_SLACK_MS = 5_000
"""A smaller difference is no news either."""
_IN_ATTEMPT = frozenset({RunState.RUNNING, RunState.STOPPING, RunState.SUCCEEDED})
"""States in which the work of a task run is not lost yet."""


@dataclass(frozen=True, slots=True)
class _Measured:
    """Remaining work of task runs that progress together, as of a certain time.

    Attributes:
        estimate: Estimate of their whole run time.
        ran_ms: Standalone time for which they had run by then.
        since_ms: That time, `None` if they do not run.
        speed: Their speed by the families that they are on.
        company_ppm: Their speed against running alone there, in millionths.
        untold_ms: Standalone time of running since the last report of steps, until they began to
            stop. A stopping task run stores that work.
    """

    left: Left
    estimate: Estimate
    ran_ms: int = 0
    since_ms: Millis | None = None
    speed: Fraction = Fraction(1)
    company_ppm: int = MILLION
    untold_ms: int = 0

    def work(self) -> RemainingWork:
        """The remaining work as policies see it.

        Work measured by running time assumes no interference; its past effect is unknown.
        """
        pace = self._pace_ppm(self.company_ppm if self.left.by_steps else MILLION)
        estimated = self.left.estimated
        ran = self.ran_ms if estimated and not self.left.by_steps else 0
        return RemainingWork(self.left.ms, self.since_ms, pace, estimated, ran)

    def _pace_ppm(self, company_ppm: int) -> int:
        """Standalone time done per elapsed time, in millionths."""
        return self.speed.numerator * company_ppm // self.speed.denominator

    def longer(self, raised: Mapping[Estimate, Estimate]) -> _Measured:
        """A copy with raised estimates in place of earlier ones."""
        by_now = raised.get(self.estimate, self.estimate)
        if not self.left.estimated or by_now is self.estimate:
            return self
        work = self.work().longer(self.estimate.mean_ms, by_now.mean_ms)
        return replace(self, left=replace(self.left, ms=work.at_since_ms), estimate=by_now)

    def eta_ms(self, now: Millis) -> Millis | None:
        """When it is over at the present pace; `None` past the end of a stated time."""
        missing = self.work().standalone_ms(now)
        if missing == 0 and not self.left.by_steps:
            return None
        return self._over_ms(missing, now)

    def eta_range_ms(self, now: Millis) -> tuple[Millis, Millis] | None:
        """Interval of its end in two of three cases; `None` unless it is estimated."""
        if not self.left.estimated:
            return None
        missing, whole = self.work().standalone_ms(now), self.estimate.mean_ms
        if self.left.by_steps:
            part = Fraction(missing, whole)
            least = int(self.estimate.least_ms * part)
            most = int(self.estimate.most_ms * part)
        else:
            ran = self.ran_ms + self._done_ms(now)
            least, most = max(0, self.estimate.least_ms - ran), self.estimate.most_ms - ran
        ends = [self._over_ms(bound, now) for bound in (min(least, missing), max(most, missing))]
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
class PolicyEstimates:
    """Estimates for policies about a job.

    Attributes:
        works: Remaining work of each visible task run, by its id; `None` if unknown.
        estimate: Run time of a task, of several kinds the longest.
    """

    works: Mapping[RunId, RemainingWork | None]
    estimate: Estimate | None

    @property
    def longest_ms(self) -> int | None:
        """Remaining time of the longest task run; `None` if that of one is unknown."""
        times = [work.at_since_ms for work in self.works.values() if work is not None]
        return max(times) if times and len(times) == len(self.works) else None

    @property
    def usual_ms(self) -> int | None:
        """Median run time of the longest tasks; `None` as in `longest_ms`."""
        if self.longest_ms is None or self.estimate is None:
            return None
        return self.estimate.usual_ms


def of_job(
    state: Records, job: Job, runs: Sequence[TaskRun], before: ToldEstimates | None = None
) -> PolicyEstimates:
    """Estimates for policies about a job.

    Args:
        state: The records.
        job: The job.
        runs: All members of a gang; of an array those that policies can see.
        before: The last estimates given, which stand while they are off by little.
    """
    estimates = JobEstimates.of_job(state, job, before)
    if job.is_gang:
        whole, names = _measured(state, runs, estimates), (run.id for run in runs)
        return PolicyEstimates(dict.fromkeys(names, _work(whole)), _longest([whole]))
    works: dict[RunId, RemainingWork | None] = {}
    parts = []
    alike: dict[object, RemainingWork | None] = {}
    """Remaining work of task runs that differ at most in the time since when they run."""
    for run in runs:
        key = _key(state, job.spec, run)
        if key is None or key not in alike:
            part = _measured(state, [run], estimates)
            parts.append(part)
            works[run.id] = work = _work(part)
            if key is not None:
                alike[key] = work
            continue
        work = alike[key]
        if work is not None and run.state is RunState.RUNNING:
            work = work.since(run.since_ms)
        works[run.id] = work
    return PolicyEstimates(works, _longest(parts))


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
    estimates = (part.estimate for part in measured if part is not None)
    return max(estimates, key=lambda it: it.mean_ms, default=None)


def of_spec(
    state: Records,
    spec: JobSpec,
    now: Millis,
    finished: Mapping[Kind, Finished] | None = None,
) -> PolicyEstimates:
    """Estimates for policies about a job if it were submitted now, as `PREVIEW`.

    Args:
        state: The records.
        spec: The job.
        now: The time.
        finished: Tasks of it that count as finished, by kind.
    """
    reservations = state.prices.of(spec)
    estimates = JobEstimates.of_spec(state, spec, now, finished)
    works: dict[RunId, RemainingWork | None] = {}
    measured: list[_Measured | None] = []
    for group in groups(spec):
        tasks = [spec.tasks[number] for number in group]
        rate = _rate_ppm(state, spec, tasks, [reservations[number] for number in group])
        extent = _extent(estimates, tasks, spec.total_steps, rate)
        rest = left(extent)
        part = None if rest is None else _Measured(rest, _estimate(estimates, tasks, extent))
        measured.append(part)
        works.update(dict.fromkeys((run_id(PREVIEW, at) for at in group), _work(part)))
    return PolicyEstimates(works, _longest(measured))


def expected(state: Records, job: Job) -> Estimate | None:
    """Run time of a task of a job alone, of several kinds the longest.

    Returns:
        The estimate; `None` if unknown.
    """
    spec = job.spec if job.is_gang else job.spec.of_tasks(state.tasks.kinds(job.id))
    estimates = JobEstimates.of_job(state, job)
    reservations = state.prices.of(spec) if spec.total_steps else ()
    estimates_of = []
    for group in groups(spec):
        tasks, rate = [spec.tasks[number] for number in group], 0
        if reservations:
            rate = _rate_ppm(state, spec, tasks, [reservations[number] for number in group])
        extent = _extent(estimates, tasks, spec.total_steps, rate)
        if left(extent) is not None:
            estimates_of.append(_estimate(estimates, tasks, extent))
    return max(estimates_of, key=lambda it: it.mean_ms, default=None)


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


def _of_kinds(state: Records, job: Job) -> PolicyEstimates:
    """Estimates for policies about an array with one task of each kind."""
    different = job.spec.of_tasks(state.tasks.kinds(job.id))
    return of_spec(state, different, job.submitted_ms, state.finished_tasks.telling(job))


def left_ms(state: Records, run: TaskRun, now: Millis, *, alone: bool = False) -> int | None:
    """Remaining time of a task run, beside its neighbours or alone; `None` if unknown."""
    job = state.jobs[run.job]
    group = list(crew(state, job.id)) if job.is_gang else [run]
    measured = _measured(state, group, JobEstimates.of_job(state, job))
    shown = _outlook(state, run, placed_with(state, run), measured, now)
    return shown.left_ms if alone or shown.eta_ms is None else max(0, shown.eta_ms - now)


def contradicted(state: Records, job: Job) -> Contradicted | None:
    """Why a job's stated duration is not believed; `None` if it is, or if there is none."""
    if job.spec.duration_ms is None or job.state in TERMINAL_JOB:
        return None
    estimates = JobEstimates.of_job(state, job)
    if not estimates.known.doubted:
        return None
    kinds = {kind_of(job.spec.tasks[group[0]]): group for group in groups(job.spec)}
    conflicts = (
        estimates.contradicted([job.spec.tasks[at] for at in group]) for group in kinds.values()
    )
    return next((conflict for conflict in conflicts if conflict is not None), None)


def evidence(state: Records, job: Job) -> Evidence | None:
    """Evidence behind a job's run-time estimate where none is stated; `None` if there is none.

    If tasks differ, the evidence is for those expected to take longest.
    """
    if job.state in TERMINAL_JOB:
        return None
    estimates, spec = JobEstimates.of_job(state, job), job.spec
    kinds = {kind_of(spec.tasks[group[0]]): group for group in groups(spec)}
    alike = [[spec.tasks[number] for number in group] for group in kinds.values()]
    estimated = [(of.mean_ms, tasks) for tasks in alike if (of := estimates.of(tasks)) is not None]
    if not estimated:
        return None
    return estimates.evidence(max(estimated, key=itemgetter(0))[1])


def outlooks(
    state: Records, job: Job, runs: Sequence[TaskRun], telling: Sequence[TaskRun], now: Millis
) -> tuple[Outlook, list[Outlook]]:
    """Outlooks for users of a job, and of some of its task runs.

    Args:
        state: The records.
        job: The job.
        runs: The task runs that are shown.
        telling: Task runs behind the job's outlook: all members of a gang, of an array all or
            enough of those that are not over.
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
    shown: dict[int, Outlook] = {}
    gang = placed_with(state, telling[0]) if job.is_gang and telling else None
    for run in (*telling, *runs):
        if id(run) not in shown:
            part = measured[id(run)]
            placed = gang if gang is not None else placed_with(state, run)
            part = part and part.longer(raised)
            shown[id(run)] = _shown(_outlook(state, run, placed, part, now))
    parts = [
        shown[id(run)] for run in telling if run.state not in TERMINAL_RUN and not rests(job, run)
    ]
    return _of_all(parts), [shown[id(run)] for run in runs]


def _raised(
    state: Records,
    job: Job,
    telling: Sequence[TaskRun],
    measured: Mapping[int, _Measured | None],
    now: Millis,
) -> dict[Estimate, Estimate]:
    """Estimates raised by task runs that outlast them, by their earlier value."""
    ages: dict[Estimate, list[int]] = {}
    finished: dict[Estimate, int] = {}
    by_kind = {} if job.is_gang else state.finished_tasks.of(job)
    for run in telling:
        part = measured[id(run)]
        if run.state is not RunState.RUNNING or part is None or not part.left.estimated:
            continue
        if part.estimate in ages and job.is_gang:
            continue  # its members take equally long
        ages.setdefault(part.estimate, []).append(part.work().ran_by_ms(now))
        if (same := by_kind.get(kind_of(job.spec.tasks[run.index]))) is not None:
            finished[part.estimate] = same.tasks
    return {mean: mean.raised(finished.get(mean, 0), those) for mean, those in ages.items()}


def _outlook(
    state: Records, run: TaskRun, placed: Sequence[TaskRun], measured: _Measured | None, now: Millis
) -> Outlook:
    if run.state in TERMINAL_RUN or measured is None:
        return Outlook()
    running = run.state is RunState.RUNNING
    if running:
        company = measured.company_ppm
        if not measured.left.by_steps:
            company = shared_company_ppm(state, run, placed) or MILLION
        measured = replace(measured, company_ppm=felt_company_ppm(state, run, company))
    between = measured.eta_range_ms(now) if running else None
    return Outlook(
        left_ms=max(0, measured.work().standalone_ms(now) - measured.untold_ms),
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
    """Outlook of a job for users, from the outlooks of its task runs that are not over.

    The job needs as long as its longest task run, and is unknown if one of them is.
    """
    needed = [part.left_ms for part in parts if part.left_ms is not None]
    etas = [part.eta_ms for part in parts if part.eta_ms is not None]
    complete = bool(needed) and len(needed) == len(parts)
    ends = bool(etas) and len(etas) == len(parts)
    estimated = complete and any(part.estimated for part in parts)
    estimates = [part.estimate for part in parts if part.estimate is not None]
    return Outlook(
        left_ms=max(needed) if complete else None,
        estimated=estimated,
        eta_ms=max(etas) if ends else None,
        earliest_ms=_last(parts, "earliest_ms") if ends and estimated else None,
        latest_ms=_last(parts, "latest_ms") if ends and estimated else None,
        estimate=max(estimates, key=lambda it: it.mean_ms, default=None),
    )


def _last(parts: Sequence[Outlook], bound: Literal["earliest_ms", "latest_ms"]) -> Millis | None:
    """The last of the bounds; a stated end is its own bound."""
    bounds = (getattr(part, bound) or part.eta_ms for part in parts)
    return max((bound for bound in bounds if bound is not None), default=None)


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
    expected = None if told is None else told.standalone_ms(now)
    present = None if fresh is None else fresh.standalone_ms(now)
    if expected is None or present is None:
        return expected is present
    return abs(expected - present) <= max(_SLACK_MS, present // _FAR)


def run_times(state: PlanningRecords, job: Job, runs: Iterable[TaskRun]) -> dict[RunId, RunTime]:
    """Running times so far of an array's task runs, with the expected run times.

    Times are corrected for measured interference, like run times of finished tasks.
    """
    estimates = JobEstimates.of_job(state, job)
    times = {}
    for run in runs:
        tasks = [job.spec.tasks[run.index]]
        stated = estimates.believed_ms(tasks)
        expected = estimates.of(tasks) if stated is None else estimates.stated(stated)
        placed = placed_with(state, run)
        company = state.company.ppm(run.id) or measured_company_ppm(state, run, placed)
        speed = family_speed(state, placed)
        pace = speed.numerator * company // speed.denominator
        ran = run.work_ms * company // MILLION
        times[run.id] = RunTime(ran, run.since_ms, pace, expected)
    return times


def _work(measured: _Measured | None) -> RemainingWork | None:
    return None if measured is None else measured.work()


def _measured(
    state: Records, group: Sequence[TaskRun], estimates: JobEstimates
) -> _Measured | None:
    """Remaining work of task runs that progress together: a gang's members, or a single one."""
    spec = state.jobs[group[0].job].spec
    if spec.elastic.least is not None:
        # Members that rested in the last attempt are not up to date.
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
        known_rate = _rate_ppm(state, spec, tasks, [state.reservation(run) for run in group])
        rate = standalone_rate_ppm(known_rate, own_rate(state, teller), speed, company)
        if not rate and done and merging is None:
            rate = rate_so_far_ppm(state, teller, speed, company)
    ran = sum(run.work_ms for run in group if kept or run.state in _IN_ATTEMPT) // len(group)
    extent = _extent(estimates, tasks, total, rate)
    rest = left(extent, done, ran)
    if rest is None:
        return None
    since = _since(teller, running, by_steps=rest.by_steps)
    return _Measured(
        rest,
        _estimate(estimates, tasks, extent),
        ran,
        since,
        speed,
        MILLION if company is None else company,
        _untold_ms(state, teller) if rest.by_steps else 0,
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
    """Known extent of all the work of tasks that progress together."""
    stated = estimates.believed_ms(tasks)
    expected = None if stated is not None or (total and rate) else estimates.expected_ms(tasks)
    return Extent(stated, total, rate, expected)


def _estimate(estimates: JobEstimates, tasks: Sequence[TaskSpec], extent: Extent) -> Estimate:
    """Run time of tasks of known extent."""
    whole = whole_ms(extent)
    assert whole is not None
    ms, estimated = whole
    estimate = estimates.of(tasks) if estimated else None
    return estimates.stated(ms) if estimate is None else estimate


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
        return None if told_ms is None else max(told_ms, teller.since_ms)
    return Millis(sum(run.since_ms for run in running) // len(running))


def _rate_ppm(
    state: Records,
    spec: JobSpec,
    tasks: Sequence[TaskSpec],
    reservations: Sequence[Reservation],
) -> int:
    """Standalone rate of the slowest task, each on the family that sets its reservation price.

    For a gang that divides batches by speed it is the mean of its tasks' rates.

    Returns:
        Millionths of iterations per second; 0 if none is known.
    """
    rates = [
        dict(state.prices.rates(spec, task)).get(reserved.offering.type.family, 0)
        for task, reserved in zip(tasks, reservations, strict=True)
        if reserved.offering is not None
    ]
    return pace_of(rates, split=spec.training.split_batch)
