"""How much work jobs have left, by what users state, tasks report and the cluster has learned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from eva_master.control.measure.throughput import (
    accompanied,
    company_ppm,
    family_speed,
    placed_with,
)
from eva_master.control.state.records import Records
from eva_master.control.state.store import State
from eva_master.model.ids import MILLION, Millis, RunId
from eva_master.model.job import JobKind, JobSpec, TaskSpec
from eva_master.model.planning.snapshot import RemainingWork
from eva_master.model.records import Job, TaskRun
from eva_master.model.states import TERMINAL_JOB, TERMINAL_RUN, RunState
from eva_master.packing.valuation.job_valuation import Reservation
from eva_master.packing.valuation.remaining_work import (
    LONGEST_MS,
    Extent,
    Left,
    left,
    standalone_rate_ppm,
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
        since_ms: That time, `None` if they do not run.
        speed: How fast the families that they are on let them run.
        company_ppm: How fast they are against running alone there.
    """

    left: Left
    since_ms: Millis | None = None
    speed: Fraction = Fraction(1)
    company_ppm: int = MILLION

    def work(self) -> RemainingWork:
        """The same for policies.

        What is known by running time runs down as if there were no company, since nothing tells
        what company has cost so far.
        """
        pace = self._pace_ppm(self.company_ppm if self.left.by_steps else MILLION)
        return RemainingWork(self.left.ms, self.since_ms, pace, self.left.estimated)

    def _pace_ppm(self, company_ppm: int) -> int:
        """Standalone time that is done in the time that passes, in millionths."""
        return self.speed.numerator * company_ppm // self.speed.denominator

    def eta_ms(self, now: Millis) -> Millis | None:
        """When it is over at the present pace; `None` past the end of a stated time."""
        missing = self.work().left_ms(now)
        if self.since_ms is None or missing is None:
            return None
        if missing == 0 and not self.left.by_steps:
            return None
        pace = self._pace_ppm(self.company_ppm)
        passes = missing * MILLION // pace if pace > 0 else LONGEST_MS + 1
        return Millis(now + passes) if passes <= LONGEST_MS else None


def of_job(state: Records, job: Job) -> dict[RunId, RemainingWork | None]:
    """What policies are told of each task run of a job that they can see."""
    members = list(state.members(job.id))
    if job.is_gang:
        return dict.fromkeys((run.id for run in members), _work(_measured(state, members)))
    return {
        run.id: _work(_measured(state, [run])) for run in members if run.state not in TERMINAL_RUN
    }


def of_spec(state: Records, spec: JobSpec) -> list[RemainingWork | None]:
    """What policies would be told of each task of a job if it were submitted now."""
    reservations = state.reservations_of(spec)
    numbers = range(len(spec.tasks))
    works: list[RemainingWork | None] = [None] * len(spec.tasks)
    for group in [numbers] if spec.kind is JobKind.GANG else [[number] for number in numbers]:
        tasks = [spec.tasks[number] for number in group]
        rate = _rate_ppm(state, tasks, [reservations[number] for number in group])
        usual = _usual_ms(state, spec, tasks)
        found = left(Extent(spec.duration_ms, spec.total_steps, rate, usual))
        for number in group:
            works[number] = None if found is None else _Measured(found).work()
    return works


def outlooks(
    state: Records, job: Job, runs: Sequence[TaskRun], now: Millis
) -> tuple[Outlook, list[Outlook]]:
    """What users are told of a job, and of each of its task runs.

    Args:
        state: Where it is looked up.
        job: The job.
        runs: All of its task runs, by index.
        now: The time.
    """
    if job.state in TERMINAL_JOB:
        return Outlook(), [Outlook()] * len(runs)
    shared = _measured(state, runs) if job.is_gang else None
    told = [
        _outlook(state, run, shared if job.is_gang else _measured(state, [run]), now)
        for run in runs
    ]
    return _of_all(
        [it for run, it in zip(runs, told, strict=True) if run.state not in TERMINAL_RUN]
    ), told


def _outlook(state: Records, run: TaskRun, measured: _Measured | None, now: Millis) -> Outlook:
    if run.state in TERMINAL_RUN or measured is None:
        return Outlook()
    if run.state is RunState.RUNNING and not measured.left.by_steps:
        company = _company(state, run, placed_with(state, run))
        measured = replace(measured, company_ppm=MILLION if company is None else company)
    eta = measured.eta_ms(now) if run.state is RunState.RUNNING else None
    missing = measured.work().left_ms(now)
    return Outlook(missing, measured.left.estimated and missing is not None, eta)


def _of_all(parts: Sequence[Outlook]) -> Outlook:
    """What users are told of a job, by what they are told of its task runs that are not over.

    It needs as long as the one that needs longest, and is unknown if that of one is.
    """
    needed = [part.left_ms for part in parts if part.left_ms is not None]
    etas = [part.eta_ms for part in parts if part.eta_ms is not None]
    known = bool(needed) and len(needed) == len(parts)
    return Outlook(
        left_ms=max(needed) if known else None,
        estimated=known and any(part.estimated for part in parts),
        eta_ms=max(etas) if etas and len(etas) == len(parts) else None,
    )


def follow(state: State, run: TaskRun, now: Millis) -> None:
    """Have policies told anew of a task run whose progress is not what they were told to expect.

    To be called for its first step and with each complete window: what is told runs down by itself
    meanwhile.
    """
    view, job = state.view_cache.runs.get(run.id), state.jobs[run.job]
    if view is None or not (run.progress.total_steps or job.spec.total_steps):
        return
    fresh = _work(_measured(state, list(state.members(job.id)) if job.is_gang else [run]))
    if not _as_expected(view.remaining, fresh, now):
        state.view_cache.job_changed(run.job)


def _as_expected(told: RemainingWork | None, fresh: RemainingWork | None, now: Millis) -> bool:
    expected = None if told is None else told.left_ms(now)
    present = None if fresh is None else fresh.left_ms(now)
    if expected is None or present is None:
        return expected is present
    return abs(expected - present) <= max(_SLACK_MS, present // _FAR)


def worked_ms(state: Records, run: TaskRun, now: Millis) -> int:
    """Standalone time for which a running task run has run since it began to."""
    speed = family_speed(state, placed_with(state, run))
    return max(0, now - run.history[-1][1]) * speed.numerator // speed.denominator


def _work(measured: _Measured | None) -> RemainingWork | None:
    return None if measured is None else measured.work()


def _measured(state: Records, group: Sequence[TaskRun]) -> _Measured | None:
    """What task runs that progress together have left: a gang's members, or one task run alone."""
    spec = state.jobs[group[0].job].spec
    kept = any(run.generation for run in group)
    teller = group[0]
    if len(group) > 1:
        teller = max(group, key=lambda run: _missing(spec, run, _steps(run, kept=kept)))
    total = teller.progress.total_steps or spec.total_steps
    tasks = [spec.tasks[run.index] for run in group]
    usual = _usual_ms(state, spec, tasks)
    if spec.duration_ms is None and not total and usual is None:
        return None
    running = [run for run in group if run.state is RunState.RUNNING]
    placed = placed_with(state, group[0]) if running else []
    speed = family_speed(state, placed)
    company, rate = None, 0
    if total:
        company = _company(state, teller, placed)
        own = teller.progress.rate if teller.state is RunState.RUNNING else 0.0
        known = _rate_ppm(state, tasks, [state.reservation(run) for run in group])
        rate = standalone_rate_ppm(known, own, speed, company)
    ran = sum(run.work_ms for run in group if kept or run.state in _IN_ATTEMPT) // len(group)
    extent = Extent(spec.duration_ms, total, rate, usual)
    found = left(extent, _steps(teller, kept=kept), ran)
    if found is None:
        return None
    since = _since(teller, running, by_steps=found.by_steps)
    return _Measured(found, since, speed, MILLION if company is None else company)


def _company(state: Records, run: TaskRun, placed: Sequence[TaskRun]) -> int | None:
    """How fast task runs that progress together are in company; `None` if they run alone."""
    if not any(accompanied(state, member) for member in placed):
        return None
    return company_ppm(state, run if run.instance is not None else placed[0], placed)


def _steps(run: TaskRun, *, kept: bool) -> int:
    """Iterations that a task run has done, as far as they are not lost."""
    return run.progress.steps if kept or run.state in _IN_ATTEMPT else 0


def _missing(spec: JobSpec, run: TaskRun, steps: int) -> int:
    """Iterations that a member has still to do; nothing is known of one that reports none."""
    return (run.progress.total_steps or spec.total_steps or 0) - steps if steps else -(MILLION**4)


def _since(teller: TaskRun, running: Sequence[TaskRun], *, by_steps: bool) -> Millis | None:
    """From when on less is left than is known; `None` if it is no less by now."""
    if not running:
        return None
    if by_steps:
        return teller.progress.at_ms if teller.state is RunState.RUNNING else None
    return Millis(sum(run.history[-1][1] for run in running) // len(running))


def _usual_ms(state: Records, spec: JobSpec, tasks: Sequence[TaskSpec]) -> int | None:
    """How long such tasks usually take, `None` if that is unknown or does not matter."""
    if spec.duration_ms is not None:
        return None
    known = map(state.learned.run_times.usual_ms, {task.workload for task in tasks})
    return max((it for it in known if it is not None), default=None)


def _rate_ppm(
    state: Records, tasks: Sequence[TaskSpec], reservations: Sequence[Reservation]
) -> int:
    """Standalone rate of the slowest task, each on the family that sets its reservation price.

    Returns:
        Millionths of iterations per second; 0 if that of none is known.
    """
    rates = (
        dict(state.standalone_rates(task)).get(reserved.offering.type.family, 0)
        for task, reserved in zip(tasks, reservations, strict=True)
        if reserved.offering is not None
    )
    return min(filter(None, rates), default=0)
