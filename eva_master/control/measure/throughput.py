"""How fast tasks run, measured in windows during which their company did not change."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial

from eva_master.control.measure.sizes import size_speed
from eva_master.control.state.derived.gang_places import GangParts
from eva_master.control.state.records import Records, placed
from eva_master.control.state.store import State
from eva_master.learning.colocation import Key, key
from eva_master.learning.speeds.batch_shares import at_share
from eva_master.learning.voices.names import Voice, marked, plain, voice_of
from eva_master.learning.windows import Mark, pace
from eva_master.model.catalog import base_family
from eva_master.model.progress import Progress
from eva_master.model.records import TaskRun
from eva_master.model.values import quick
from eva_master.packing.valuation.job_valuation import divided, slowest
from eva_master.packing.valuation.remaining_work import rate_of_ppm, standalone_rate_ppm
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import MILLION, Family, InstanceId, Millis, RunId, Workload
from eva_wire.values.states import RunState

_MARKS = 30
"""Marks in a window; reports that come more densely are taken together."""
_TELLING_STEPS = 10
"""From so many steps on, their pace tells more than what was measured of the workload."""
_STALLED = 10
"""After as many windows without a step a task's last rate is no longer said to be its rate."""


@quick
@dataclass(frozen=True, slots=True)
class RelativeSpeeds:
    """How fast task runs are in their company against running alone, in millionths.

    Attributes:
        expected_ppm: As measured, or as is expected of neighbours that were never seen together.
        measured_ppm: As measured; what nobody measured costs nothing.
    """

    expected_ppm: int
    measured_ppm: int


@dataclass(slots=True)
class Window:
    """A measurement under way.

    Attributes:
        marks: When steps were heard of, the first mark opened the window.
    """

    marks: list[Mark] = field(default_factory=list)


class Meters:
    """Open windows; not journalled, since after a restart they begin anew.

    Time before the first window is never measured: everything up to the first finished step of an
    attempt, and then its warm-up, half a window long.
    """

    def __init__(self, window_ms: int) -> None:
        self._window_ms = window_ms
        self._open: dict[RunId, Window] = {}
        self._warming: dict[RunId, Millis | None] = {}
        """Attempts that began a short while ago, with the time of their first step."""

    def began(self, run: RunId) -> None:
        """Follow an attempt from its beginning."""
        self._warming[run] = None

    def ended(self, run: RunId) -> None:
        """Forget an attempt that has ended."""
        self._warming.pop(run, None)
        self._open.pop(run, None)

    def restart(self, state: State, instance: InstanceId) -> None:
        """Restart the windows on an instance whose tasks have changed."""
        if self._open:
            for name in state.places.occupant_ids(instance):
                self._open.pop(name, None)
        if state.company.rated:
            for run in state.occupants(instance):
                if run.progress.rate:
                    state.put_progress(run, run.progress.at_rate(0.0))

    def sample(self, run: TaskRun, heard: Progress, now: Millis) -> tuple[Progress, bool]:
        """Process a report.

        A window opens and closes with a report of more steps than before, so that a task of slow
        steps is measured over whole ones.

        Args:
            run: The task run of the report.
            heard: Its cumulative figures; `Progress.rate` is ignored.
            now: When the report arrived.

        Returns:
            The figures with the rate of the last complete window, and whether this report
            completed one.
        """
        progress = heard.after(run.progress)
        window = self._open.get(run.id)
        if heard.steps < run.progress.steps:
            self._open.pop(run.id, None)
            return progress, False
        if heard.steps == run.progress.steps:
            return self._stalled(run, progress, now), False
        if window is None:
            if self._warm(run.id, now):
                self._open[run.id] = Window([(now, heard.steps)])
            return progress, False
        start, last = window.marks[0][0], window.marks[-1][0]
        if now - start < self._window_ms:
            if now - last >= self._window_ms // _MARKS:
                window.marks.append((now, heard.steps))
            return progress, False
        rate = pace([*window.marks, (now, heard.steps)])
        self._open[run.id] = Window([(now, heard.steps)])
        return (progress, False) if rate is None else (progress.at_rate(rate), True)

    def _warm(self, run: RunId, now: Millis) -> bool:
        """Whether an attempt that did a step has warmed up."""
        if run not in self._warming:
            return True
        first = self._warming[run]
        if first is None:
            first = self._warming[run] = now
        if now - first < self._window_ms // 2:
            return False
        del self._warming[run]
        return True

    def _stalled(self, run: TaskRun, progress: Progress, now: Millis) -> Progress:
        window = self._open.get(run.id)
        if window is None or now - window.marks[-1][0] < _STALLED * self._window_ms:
            return progress
        del self._open[run.id]
        return progress.at_rate(0.0)


def standalone_rate(state: Records, run: TaskRun) -> float | None:
    """Iterations per second of a run's task alone on its present family, `None` if unknown.

    For an elastic gang's member the rate is with the present number of members; for one that does
    its own share of each batch, with this share.

    A stated rate takes precedence over a measured one.
    """
    family = _family(state, run)
    if family is None:
        return None
    task = state.task(run)
    stated = task.throughput_on(family)
    spec = state.jobs[run.job].spec
    measured = state.learned.of(voice_of(spec)).standalone
    rate = stated if stated is not None else measured.lookup(plain(task.workload), family)
    if rate is None or (spec.elastic.least is None and not run.batch_ppm):
        return rate
    if spec.elastic.least is not None:
        rate *= float(size_speed(state, placed_with(state, run)))
    return rate * float(at_share(Fraction(1), run.batch_ppm, state.jobs[run.job].members))


def _family(state: Records, run: TaskRun) -> Family | None:
    """Of the instance that a task run is on."""
    if run.instance is None:
        return None
    return base_family(state.instances[run.instance].offering.type.family)


def placed_with(state: Records, run: TaskRun) -> list[TaskRun]:
    """The members of a task run's gang that have an instance, or the task run itself if it has."""
    if state.jobs[run.job].spec.kind is JobKind.GANG:
        return placed(state, run.job)
    return [run] if run.instance is not None else []


def normalised(state: Records, run: TaskRun) -> float | None:
    """Last measured rate over standalone rate, `None` while either is unknown."""
    if run.progress.rate <= 0 or run.state is not RunState.RUNNING:
        return None
    own = _rate_alone(state, run)
    return run.progress.rate / own if own else None


def _rate_alone(state: Records, run: TaskRun) -> float | None:
    """See `standalone_rate`; of a gang that of its slowest member, on the families they are on."""
    own = standalone_rate(state, run)
    if not own or not state.jobs[run.job].spec.has_mates:
        return own
    rates = [standalone_rate(state, mate) for mate, _ in _parts(state, run).alike]
    return min([own, *(rate for rate in rates if rate)])


def family_speed(state: Records, placed: Iterable[TaskRun]) -> Fraction:
    """Speed of placed task runs that wait for each other, by the families that they are on.

    See `Reservation.speed_on`; 1 if there are none.
    """
    with_place = [run for run in placed if run.instance is not None]
    speeds = [_speed_where(state, run, run.instance) for run in with_place if run.instance]
    spec = state.jobs[with_place[0].job].spec if with_place else None
    if spec is not None and spec.training.split_batch:
        return divided(speeds, len(spec.tasks) if spec.elastic.least is not None else len(speeds))
    return speeds[0] if len(speeds) == 1 else slowest(speeds)


def _speed_where(state: Records, run: TaskRun, place: InstanceId) -> Fraction:
    """Speed of a task run on an instance by its family alone."""
    return state.reservation(run).speed_on(state.instances[place].offering.type.family)


def company_ppm(state: Records, run: TaskRun, placed: Sequence[TaskRun]) -> int:
    """Speed of a task run against running alone on the same family, in millionths.

    A job that shares no instance runs alone, however much its throughput varies by itself. Beside
    neighbours the speed is as measured, or as expected until a window is complete.

    Args:
        state: The records, with measurements.
        run: The task run.
        placed: See `placed_with`.
    """
    return _company_ppm(state, run, placed, state.figures.expected_ppm)


def shared_company_ppm(state: Records, run: TaskRun, placed: Sequence[TaskRun]) -> int | None:
    """Like `company_ppm` for task runs that progress together; `None` if they run alone."""
    if not any_accompanied(state, run, placed):
        return None
    return company_ppm(state, run if run.instance is not None else placed[0], placed)


def felt_company_ppm(state: Records, run: TaskRun, company: int) -> int:
    """The speed of a task run among its neighbours, by its own steps where no window is complete.

    Neighbours that were never seen together may cost more than is expected of them, and the first
    window takes longer than many tasks. Steps since the first report say so sooner. They may be of
    other company, which is why they only slow a forecast.

    Args:
        state: The records.
        run: A task run that runs.
        company: Its speed against running alone, in millionths, as expected.

    Returns:
        In millionths, at most `company`.
    """
    progress = run.progress
    if company == MILLION or progress.rate or progress.new_steps < _TELLING_STEPS:
        return company
    own = _rate_alone(state, run)
    return min(company, round(progress.rate_so_far * MILLION / own)) if own else company


def measured_company_ppm(state: Records, run: TaskRun, placed: Sequence[TaskRun]) -> int:
    """Like `company_ppm`, by measurements alone: neighbours never seen together cost nothing."""
    return _company_ppm(state, run, placed, state.figures.observed_ppm)


def _company_ppm(
    state: Records, run: TaskRun, placed: Sequence[TaskRun], look_up: Callable[[Voice, Key], int]
) -> int:
    if not any_accompanied(state, run, placed):
        return MILLION
    measured = _measured_ppm(state, run)
    if measured is not None:
        return measured
    job = state.jobs[run.job]
    voice = voice_of(job.spec)
    if job.spec.has_mates:
        return min(look_up(voice, entry) for entry in _parts(state, run).keys)
    return min(look_up(voice, company(state, member)) for member in placed)


def _measured_ppm(state: Records, run: TaskRun) -> int | None:
    speed = normalised(state, run)
    return None if speed is None else min(MILLION, round(speed * MILLION))


def paces(state: Records, instance: InstanceId) -> Iterator[tuple[TaskRun, int, RelativeSpeeds]]:
    """How fast each group of task runs that run on an instance is in its company.

    All of one workload have the same company, so the table is read once for them.

    Returns:
        One task run of each group, how many are in it, and its pace.
    """
    groups = state.company.groups(instance)
    together = len(groups) > 1 or (bool(groups) and groups[0][1] > 1)
    by_workload: dict[tuple[Voice, Workload], RelativeSpeeds] = {}
    for run, count in groups:
        if state.jobs[run.job].spec.has_mates:
            yield run, count, _gang_pace(state, run)
            continue
        ppm = _measured_ppm(state, run) if together else MILLION
        if ppm is not None:
            yield run, count, RelativeSpeeds(ppm, ppm)
            continue
        voice, workload = voice_of(state.jobs[run.job].spec), state.task(run).workload
        pace_beside = by_workload.get((voice, workload))
        if pace_beside is None:
            entry = company(state, run)
            pace_beside = RelativeSpeeds(
                state.figures.expected_ppm(voice, entry), state.figures.observed_ppm(voice, entry)
            )
            by_workload[voice, workload] = pace_beside
        yield run, count, pace_beside


def _gang_pace(state: Records, run: TaskRun) -> RelativeSpeeds:
    """How fast a member of a gang is in the company of all of them; see `company_ppm`."""
    parts = _parts(state, run)
    if not parts.accompanied:
        return RelativeSpeeds(MILLION, MILLION)
    measured = _measured_ppm(state, run)
    if measured is not None:
        return RelativeSpeeds(measured, measured)
    voice = voice_of(state.jobs[run.job].spec)
    return RelativeSpeeds(
        min(state.figures.expected_ppm(voice, entry) for entry in parts.keys),
        min(state.figures.observed_ppm(voice, entry) for entry in parts.keys),
    )


def _parts(state: Records, run: TaskRun) -> GangParts:
    """Members of a task run's gang that have an instance."""
    return state.gangs.parts(run.job, partial(company, state))


def own_family_speed(state: Records, run: TaskRun) -> Fraction:
    """How fast a placed task run is, with its gang if it is in one; see `family_speed`."""
    job = state.jobs[run.job]
    if run.instance is not None and not job.spec.has_mates:
        return _speed_where(state, run, run.instance)
    if job.spec.training.split_batch or not job.spec.has_mates:
        return family_speed(state, placed_with(state, run))
    return family_speed(state, [mate for mate, _ in _parts(state, run).alike])


def tells_more(before: Progress, after: Progress) -> bool:
    """Whether a report says clearly more of a task's rate than the one before, short of a window.

    That is its first step, and twice as many steps of its attempt each time.
    """
    if not before.steps:
        return after.steps > 0
    return not after.rate and after.new_steps.bit_length() > before.new_steps.bit_length()


def worked_ms(state: Records, run: TaskRun, now: Millis) -> int:
    """Standalone time for which a running task run has run since it began to."""
    speed = own_family_speed(state, run)
    if state.jobs[run.job].spec.elastic.least is not None:
        speed *= size_speed(state, placed_with(state, run))
    return max(0, now - run.since_ms) * speed.numerator // speed.denominator


def own_rate(state: Records, run: TaskRun) -> float:
    """Iterations per second that were measured of a task run where it is; 0 if none were.

    Until its first window is complete, its steps so far count. A few of them tell less than what
    was measured of its workload, and all of them less than what its user states.
    """
    if run.state is not RunState.RUNNING:
        return 0.0
    progress = run.progress
    if progress.rate or progress.new_steps < _TELLING_STEPS or state.task(run).throughput:
        return progress.rate
    return progress.rate_so_far


def rate_so_far_ppm(state: Records, run: TaskRun, speed: Fraction, company: int | None) -> int:
    """The standalone rate of a task run of whose workload nothing is known; 0 if unknown.

    By its steps since the first of its attempt, which leaves out its start; where there is but one
    report, by all that it has done in all the time for which it has run.
    """
    progress, ran_ms = run.progress, run.work_ms
    if run.state is RunState.RUNNING:
        if progress.rate_so_far:
            return standalone_rate_ppm(0, progress.rate_so_far, speed, company)
        ran_ms += worked_ms(state, run, progress.at_ms or Millis(0))
    return rate_of_ppm(progress.steps, ran_ms)


def accompanied(state: Records, run: TaskRun) -> bool:
    """Whether another task run runs on the instance that a task run is on."""
    assert run.instance is not None
    running = sum(count for _, count in state.company.groups(run.instance))
    return running > state.company.runs_on(run.id, run.instance)


def any_accompanied(state: Records, run: TaskRun, placed: Sequence[TaskRun]) -> bool:
    """Whether another task run runs where one of those runs that `placed_with` a task run."""
    if state.jobs[run.job].spec.has_mates:
        return bool(placed) and _parts(state, run).accompanied
    return any(accompanied(state, member) for member in placed)


def company(state: Records, run: TaskRun) -> Key:
    """The workload of a task run that is on an instance, and those of the others that run there.

    Neighbours of other voices are marked: lessons of one say nothing of another owner's that
    has the same name.
    """
    assert run.instance is not None
    own, voice = plain(state.task(run).workload), voice_of(state.jobs[run.job].spec)
    running: list[Workload] = []
    for other, count in state.company.groups(run.instance):
        workload, whose = state.task(other).workload, voice_of(state.jobs[other.job].spec)
        running += [plain(workload) if whose == voice else marked(workload, whose)] * count
    if state.company.runs_on(run.id, run.instance):
        running.remove(own)
    return key(own, running)
