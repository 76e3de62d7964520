"""Turns a cluster's journal into a scenario: which jobs arrived, and how long everything took.

Every recorded delay is kept with its cause, so that a simulation in which the same things happen
takes exactly as long as the original. A delay that was not observed is taken from similar events in
the recording.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median_low

from eva_lab.simulator.cluster.cloud import LifeStages
from eva_lab.simulator.scenario.submission import STEPS_PER_S
from eva_master.control.state.store import State
from eva_master.learning.colocation import lookup
from eva_master.learning.delays import Delay
from eva_master.learning.voices.names import plain
from eva_master.learning.voices.resolution import by_name
from eva_master.model.catalog import base_family
from eva_master.model.changes import Round
from eva_master.model.job import JobSpec, TaskSpec
from eva_master.model.records import Instance, Job, TaskRun
from eva_master.model.trace import Trace, TraceJob, TraceTask
from eva_master.packing.reconfiguration.greedy_pass import planned_greedily
from eva_master.packing.valuation.job_valuation import Reservation
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import MILLION, Family, InstanceId, JobId, Millis, RunId, Workload
from eva_wire.values.states import InstanceState, RunState

Attempt = tuple[RunId, int]
Speeds = tuple[tuple[Family, int], ...]
"""Speeds of a task by family, in millionths."""
_OVER = (RunState.WAITING, RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELLED)


@dataclass(frozen=True, slots=True)
class RecordedAttempt:
    """A recorded attempt. Times are of the master's clock; `None` means not yet or never.

    Attributes:
        workload: Workload of its task.
        ordered_ms: When its start was journalled.
        runs_ms: When its program ran.
        stopped_ms: When its stop was journalled.
        over_ms: When its room was free.
    """

    run: RunId
    attempt: int
    workload: Workload
    instance: InstanceId
    ordered_ms: int
    runs_ms: int | None = None
    stopped_ms: int | None = None
    over_ms: int | None = None


@dataclass(frozen=True, slots=True)
class PastJob:
    """A job as submitted, and the work of each of its tasks in milliseconds alone.

    Attributes:
        spec: As its user submitted it. Rates and numbers of steps that it states are those of
            simulated tasks, which report `STEPS_PER_S`; what it does not state is not stated.
        arrived_ms: When it no longer waited for jobs that it depends on.
        speeds: How fast each task really is on each family, in millionths of where its reservation
            price comes from; policies do not see that.
    """

    id: JobId
    spec: JobSpec
    submitted_ms: int
    arrived_ms: int
    work_ms: tuple[float, ...]
    speeds: tuple[Speeds, ...]


@dataclass(frozen=True, slots=True)
class Past:
    """The recorded past of a cluster. Times are of the master's clock.

    Attributes:
        jobs: In order of submission. Jobs are left out that still waited for others, or ended so.
        unfinished: Number of jobs that had not ended. Their work is what they had done.
        until_ms: The last time in the records.
        charged: The bill at that time (see `eva_wire.values.ids.Exact`).
        truth: Interference between tasks, as far as it was measured.
        lives: Stages of the life of instances that are gone.
        kinds: Instance types of these instances.
        recorded_attempts: All recorded attempts.
        fetches_ms: How long the files of a moved attempt took to be ready.
        inits_ms: Time from the start of an attempt's last program to its first step.
        usual_inits_ms: The typical value of that by workload.
        rounds_ms: When each round was requested, and when its plan was adopted.
        greedy_rounds: Rounds of which the plan is that of the greedy pass alone, since the policy
            found none in time.
        start_ms: Time of the first round or of the first job, whichever is earlier.
    """

    jobs: tuple[PastJob, ...]
    unfinished: int
    until_ms: int
    charged: int
    truth: LearnedTruth
    lives: Mapping[InstanceId, LifeStages]
    kinds: Mapping[InstanceId, str]
    recorded_attempts: Mapping[Attempt, RecordedAttempt]
    fetches_ms: Mapping[Attempt, int]
    inits_ms: Mapping[Attempt, int]
    usual_inits_ms: Mapping[Workload, int]
    rounds_ms: Mapping[int, tuple[int, int]]
    greedy_rounds: frozenset[int]
    start_ms: Millis

    def trace(self) -> Trace:
        """The jobs as a trace without delays; each task of an array is a job."""
        jobs = [unit for job in self.jobs for unit in self._split(job)]
        return Trace("history", tuple(sorted(jobs, key=lambda job: (job.arrival_ms, job.id))))

    def _split(self, job: PastJob) -> Iterator[TraceJob]:
        tasks = list(zip(job.spec.tasks, job.work_ms, job.speeds, strict=True))
        gang = job.spec.kind is JobKind.GANG
        for index, unit in enumerate([tasks] if gang else [[task] for task in tasks]):
            yield TraceJob(
                f"{job.id}/{index}",
                unit[0][0].workload,
                job.arrived_ms - self.start_ms,
                max(1, round(max(work for _, work, _ in unit))),
                tuple(
                    TraceTask(None, task.demand, speed_by_family=_different(speeds))
                    for task, _, speeds in unit
                ),
            )


class LearnedTruth:
    """The learned interference, taken as the truth."""

    def __init__(self, state: State) -> None:
        self._table = by_name(state.learned.voices)

    def __call__(self, workload: Workload, others: tuple[Workload, ...]) -> float:
        """See `eva_lab.simulator.cluster.truth.Truth`."""
        return lookup(self._table, (workload, others)) / MILLION


def past(state: State, rounds: Iterable[Round], charged: int) -> Past:
    """Build the past from a master's records.

    Args:
        state: The state restored from its journal, with at least one job.
        rounds: All of its planning rounds.
        charged: Its bill at the last time in the records.
    """
    runs = state.runs.values()
    attempts = [
        recorded for run in runs for recorded in _recorded_attempts(run, state.task(run).workload)
    ]
    recorded_attempts = {(recorded.run, recorded.attempt): recorded for recorded in attempts}
    held = list(rounds)
    rounds_ms = {entry.number: (int(entry.at_ms), entry.at_ms + entry.planned_ms) for entry in held}
    planned = sorted(adopted for _, adopted in rounds_ms.values())
    inits = _inits(state, attempts)
    work = _Work(state, attempts, inits)
    jobs = tuple(work.of(job) for job in state.jobs.values() if not job.waits)
    lives = {
        instance.id: life
        for instance in state.instances.values()
        if (life := _life(instance)) is not None
    }
    return Past(
        jobs=jobs,
        unfinished=sum(not state.jobs[job].waits for job in state.active),
        until_ms=latest(state),
        charged=charged,
        truth=work.truth,
        lives=lives,
        kinds={name: state.instances[name].offering.type.name for name in lives},
        recorded_attempts=recorded_attempts,
        fetches_ms=_fetches(state, attempts, planned),
        inits_ms=work.inits_ms,
        usual_inits_ms=inits,
        rounds_ms=rounds_ms,
        greedy_rounds=frozenset(entry.number for entry in held if planned_greedily(entry.figures)),
        start_ms=Millis(
            min(
                [
                    *(job.submitted_ms for job in state.jobs.values()),
                    *(entry.at_ms for entry in held),
                ]
            )
        ),
    )


def latest(state: State) -> Millis:
    """The last time in any record."""
    records: list[Job | TaskRun | Instance] = [
        *state.jobs.values(),
        *state.runs.values(),
        *state.instances.values(),
    ]
    booked = [account.until_ms for account in state.instance_accounts.values()]
    return Millis(max([*(record.since_ms for record in records), *booked], default=0))


def _life(instance: Instance) -> LifeStages | None:
    """The stages of an instance's life. Stages that it did not reach come after its end."""
    entered = dict(instance.history)
    gone, ending = (
        entered.get(InstanceState.GONE.value),
        entered.get(InstanceState.TERMINATING.value),
    )
    up = entered.get(InstanceState.UP.value)
    if gone is None or ending is None or instance.gone_ms is None:
        return None
    if up is None or instance.up_ms is None:
        return LifeStages(gone - instance.requested_ms + 1, 0, gone - ending)
    return LifeStages(
        acquisition_ms=up - instance.requested_ms,
        setup_ms=(gone + 1 if instance.ready_ms is None else instance.ready_ms) - up,
        ending_ms=gone - ending,
        known_ms=up - instance.up_ms,
        unbilled_ms=gone - instance.gone_ms,
    )


def _recorded_attempts(run: TaskRun, workload: Workload) -> Iterator[RecordedAttempt]:
    """The recorded attempts of a task run whose instances are known.

    Histories are bounded; attempts that are no longer in them are left out.
    """
    starts = [n for n, (name, _) in enumerate(run.history) if name == RunState.STARTING.value]
    for (attempt, place), index in zip(reversed(run.places), reversed(starts), strict=False):
        times: dict[str, int] = {}
        for name, at in run.history[index + 1 :]:
            if name == RunState.STARTING.value:
                break
            times.setdefault(name, at)
        yield RecordedAttempt(
            run.id,
            attempt,
            workload,
            place,
            ordered_ms=run.history[index][1],
            runs_ms=times.get(RunState.RUNNING.value),
            stopped_ms=times.get(RunState.STOPPING.value),
            over_ms=min(
                (times[state.value] for state in _OVER if state.value in times), default=None
            ),
        )


def _fetches(
    state: State, recorded_attempts: Iterable[RecordedAttempt], plans: Sequence[int]
) -> dict[Attempt, int]:
    """How long files took before moves, from the plan or the target's start to the stop."""
    fetches: dict[Attempt, int] = {}
    by_run: defaultdict[RunId, list[RecordedAttempt]] = defaultdict(list)
    for recorded in recorded_attempts:
        by_run[recorded.run].append(recorded)
    for own in by_run.values():
        for before, after in pairwise(sorted(own, key=lambda recorded: recorded.attempt)):
            if before.stopped_ms is not None and before.instance != after.instance:
                ready = state.instances[after.instance].ready_ms or 0
                planned = max((at for at in plans if at <= before.stopped_ms), default=0)
                wait = before.stopped_ms - max(ready, planned)
                fetches[after.run, after.attempt] = max(0, wait)
    return fetches


def starts_ms(recorded_attempts: Iterable[RecordedAttempt]) -> dict[Workload, int]:
    """The typical duration of starts by workload."""
    return _usual(
        (recorded_attempt.workload, recorded_attempt.runs_ms - recorded_attempt.ordered_ms)
        for recorded_attempt in recorded_attempts
        if recorded_attempt.runs_ms is not None
    )


def stops_ms(recorded_attempts: Iterable[RecordedAttempt]) -> dict[Workload, int]:
    """The typical duration of stops by workload."""
    return _usual(
        (recorded_attempt.workload, recorded_attempt.over_ms - recorded_attempt.stopped_ms)
        for recorded_attempt in recorded_attempts
        if recorded_attempt.stopped_ms is not None and recorded_attempt.over_ms is not None
    )


def _usual(measured: Iterable[tuple[Workload, int]]) -> dict[Workload, int]:
    by_workload: defaultdict[Workload, list[int]] = defaultdict(list)
    for workload, took in measured:
        by_workload[workload].append(took)
    return {workload: median_low(values) for workload, values in by_workload.items()}


def _inits(state: State, recorded_attempts: Iterable[RecordedAttempt]) -> dict[Workload, int]:
    """The learned time from program start to first step, by workload."""
    starts = {
        workload: [
            lessons.delays.known[key].value
            for lessons in state.learned.voices.values()
            if (key := (Delay.START, plain(workload))) in lessons.delays.known
        ]
        for workload in starts_ms(recorded_attempts)
    }
    return {
        workload: max(0, median_low(starts[workload]) - start)
        for workload, start in starts_ms(recorded_attempts).items()
        if starts[workload]
    }


class _Work:
    """Computes the work that tasks have done, from when and beside which tasks they ran.

    The model is that of `simulation.cluster.progress_model`: a job progresses from when all its
    tasks run, each until it is stopped or done, at the speed of the slowest.
    """

    def __init__(
        self,
        state: State,
        recorded_attempts: Sequence[RecordedAttempt],
        inits: Mapping[Workload, int],
    ) -> None:
        self.truth = LearnedTruth(state)
        self._state = state
        self.inits_ms: dict[Attempt, int] = {}
        self._inits = inits
        self._reservations: dict[JobId, tuple[Reservation, ...]] = {}
        self._until = latest(state)
        self._residents: defaultdict[InstanceId, list[RecordedAttempt]] = defaultdict(list)
        self._of: defaultdict[RunId, list[RecordedAttempt]] = defaultdict(list)
        for recorded in recorded_attempts:
            self._residents[recorded.instance].append(recorded)
            self._of[recorded.run].append(recorded)

    def of(self, job: Job) -> PastJob:
        """A job with the work that each of its tasks did."""
        members = list(self._state.members(job.id))
        work = tuple(self._done(job, run, members) for run in members)
        reservations = self._state.prices.of(job.spec)
        speeds = tuple(map(_speeds, job.spec.tasks, reservations))
        tasks = tuple(map(_in_steps, job.spec.tasks, speeds))
        total = None
        if job.is_gang and job.spec.total_steps:
            total = max(1, round(max(work) * STEPS_PER_S / 1000))
        spec = replace(job.spec, tasks=tasks, total_steps=total)
        return PastJob(job.id, spec, job.submitted_ms, job.arrived_ms, work, speeds)

    def _done(self, job: Job, run: TaskRun, members: Sequence[TaskRun]) -> float:
        own = self._of[run.id]
        if run.history[0][1] != job.submitted_ms:  # its first attempts are no longer recorded
            return max(1.0, self._booked(job))
        crews = (self._crew(recorded, job, members) for recorded in own)
        return max(1.0, sum(map(self._moved, own, crews)))

    def _crew(
        self, recorded: RecordedAttempt, job: Job, members: Sequence[TaskRun]
    ) -> list[RecordedAttempt]:
        if job.spec.kind is not JobKind.GANG:
            return [recorded]
        return [
            attempt
            for run in members
            for attempt in self._of[run.id]
            if attempt.attempt == recorded.attempt
        ]

    def _moved(self, recorded: RecordedAttempt, crew: Sequence[RecordedAttempt]) -> float:
        """The work that an attempt did."""
        if any(member.runs_ms is None for member in crew):
            return 0.0
        together = max(member.runs_ms or 0 for member in crew)
        # The typical time may be longer than this attempt, which may still have ended the job.
        longest = max(0, min(map(self._halt, crew)) - together) // 2
        init = min(longest, max(self._inits.get(member.workload, 0) for member in crew))
        self.inits_ms[recorded.run, recorded.attempt] = init
        begin, end = together + init, self._halt(recorded)
        times = {begin, end}
        for member in crew:
            times.add(self._halt(member))
            for other in self._residents[member.instance]:
                times.update(at for at in (other.runs_ms, other.over_ms) if at is not None)
        moments = sorted(at for at in times if begin <= at <= end)
        return sum((later - at) * self._pace(crew, at) for at, later in pairwise(moments))

    def _pace(self, crew: Sequence[RecordedAttempt], at: int) -> float:
        return min(
            self._speed(member) * self.truth(member.workload, self._company(member, at))
            for member in crew
            if self._halt(member) > at
        )

    def _speed(self, recorded: RecordedAttempt) -> float:
        """How fast an attempt's family let it run, against where its reservation price is from."""
        run = self._state.runs[recorded.run]
        if run.job not in self._reservations:
            spec = self._state.jobs[run.job].spec
            self._reservations[run.job] = self._state.prices.of(spec)
        reservation = self._reservations[run.job][run.index]
        machine = self._state.instances[recorded.instance].offering.type
        return float(reservation.speed_on(machine.family))

    def _company(self, recorded: RecordedAttempt, at: int) -> tuple[Workload, ...]:
        others = (
            resident for resident in self._residents[recorded.instance] if resident is not recorded
        )
        return tuple(
            sorted(
                other.workload
                for other in others
                if other.runs_ms is not None
                and other.runs_ms <= at < (self._until if other.over_ms is None else other.over_ms)
            )
        )

    def _halt(self, recorded: RecordedAttempt) -> int:
        """When an attempt stopped making progress."""
        ends = [at for at in (recorded.stopped_ms, recorded.over_ms) if at is not None]
        return min(ends, default=self._until)

    def _booked(self, job: Job) -> float:
        """The ledger's record of it: its running time, scaled by its speed."""
        account = self._state.job_accounts.get(job.id)
        prices = sum(reservation.price for reservation in self._state.prices.of(job.spec))
        return account.alone / prices if account is not None and prices else 0.0


def _speeds(task: TaskSpec, reservation: Reservation) -> Speeds:
    """How fast a task is on each family, against where its reservation price comes from."""
    return tuple(
        (family, max(1, round(MILLION * reservation.speed_on(family)))) for family, _ in task.demand
    )


def _in_steps(task: TaskSpec, speeds: Speeds) -> TaskSpec:
    """A task whose rates, if its user states any, are those of a simulated one."""
    if not task.throughput:
        return task
    return replace(task, throughput=tuple((name, STEPS_PER_S * speed) for name, speed in speeds))


def _different(speeds: Speeds) -> Speeds:
    """The speeds of a task for a trace; empty if they are all the same."""
    pairs = tuple((base_family(family), speed) for family, speed in speeds)
    return tuple(sorted(set(pairs))) if any(speed != MILLION for _, speed in pairs) else ()
