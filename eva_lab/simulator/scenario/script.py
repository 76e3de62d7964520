"""The script of a simulation: the jobs that arrive, with their true work and delays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import median_low
from typing import Protocol

from eva_lab.simulator.cluster.cloud import LifeStages
from eva_lab.simulator.cluster.delays import Accounting, Durations, MoveDelays, TaskDelays
from eva_lab.simulator.cluster.truth import stated_size_speed
from eva_lab.simulator.cluster.work import Work
from eva_lab.simulator.scenario.journal_replay import (
    Attempt,
    Past,
    PastJob,
    RecordedAttempt,
    starts_ms,
    stops_ms,
)
from eva_lab.simulator.scenario.submission import (
    STEPS_PER_S,
    alone_speeds,
    as_stated,
    spec_of,
    steps_per_s,
    stop_ms,
    total_steps,
    work_ms,
)
from eva_master.model.actions import TaskOrder
from eva_master.model.catalog import Catalog, Offering, base_family
from eva_master.model.fleet.forking import forkable
from eva_master.model.job import JobSpec
from eva_master.model.trace import Trace, TraceJob
from eva_master.packing.valuation.job_valuation import JobValuation
from eva_wire.values.ids import MILLION, Family, InstanceId, JobId, Millis, RunId, Workload, run_id

_START_MS, _STOP_MS = 5_000, 8_000
"""Delays assumed if nothing was ever started or stopped."""
Task = tuple[str, int]
"""A task, by the command that submitted its job and its number in the job."""
Arrival = tuple[int, str, JobSpec]
"""Virtual time, the submission's command, and the submitted job."""


class Script(Protocol):
    """Events that do not depend on the scheduler."""

    @property
    def start_ms(self) -> Millis:
        """The time at which the virtual clock begins."""
        ...

    def arrivals(self) -> Iterator[Arrival]:
        """The jobs in the order of their arrival."""
        ...

    def title(self, command: str) -> str:
        """The name of a job, for people, by the command that submits it."""
        ...

    def work_ms(self, task: Task) -> float:
        """How long a task takes alone where `speed` is 1."""
        ...

    def alone_ms(self, task: Task) -> float:
        """How long a task takes alone where its reservation price comes from."""
        ...

    def speed(self, task: Task, family: Family) -> float:
        """How fast a task really runs on a family."""
        ...

    def size_speed(self, command: str, members: int, *, apart: bool) -> float:
        """How fast so many members of a gang really are against one, on one instance or several."""
        ...

    def tells_steps(self, task: Task, /) -> bool:
        """Whether a task's program says how many iterations it has done."""
        ...

    def steps_per_s(self, task: Task, /) -> float:
        """How many iterations a task's program counts per second where `speed` is 1."""
        ...

    def delays(self, task_of: Callable[[RunId], Task]) -> Durations:
        """How long actions take on workers."""
        ...


class TraceScript:
    """A script from a recorded or generated trace.

    Args:
        trace: The jobs that arrive.
        catalog: The offerings on sale.
        accounting: When files and images are fetched for a move.
        durations: Whether jobs state how long they take alone.
        forks: Whether all that are one task, and state that, may be forked.
    """

    start_ms = Millis(0)

    def __init__(
        self,
        trace: Trace,
        catalog: Catalog,
        accounting: Accounting,
        *,
        durations: bool,
        forks: bool = False,
    ) -> None:
        self._trace = trace
        self._families = sorted({offering.type.family for offering in catalog})
        self._valuation = JobValuation(catalog)
        self._accounting = accounting
        self._durations = durations
        self._forks = forks
        self._jobs: Mapping[str, TraceJob] = {_command(job.id): job for job in trace.jobs}
        self._alone: dict[str, tuple[float, ...]] = {}
        """Speeds of jobs that run faster on some families than on others."""

    def arrivals(self) -> Iterator[Arrival]:
        """See `Script.arrivals`."""
        # As they will be: the simulated master counts from 1 on.
        ids = {job.id: JobId(f"{job.id}-{n}") for n, job in enumerate(self._trace.jobs, 1)}
        for job in self._trace.jobs:
            after = tuple(ids[name] for name in job.after)
            spec = spec_of(job, self._families, after)
            if self._durations and job.states_rates:
                stated = round(job.duration_ms / min(self._alone_speeds(job)))
                spec = replace(spec, duration_ms=stated)
            elif self._durations:
                spec = replace(spec, total_steps=total_steps(job))
            if self._durations and self._forks and not job.is_array:
                spec = forkable(replace(spec, total_steps=total_steps(job)))
            yield job.arrival_ms, _command(job.id), as_stated(spec, job.told_ppm)

    def title(self, command: str) -> str:
        """See `Script.title`."""
        return self._jobs[command].id

    def work_ms(self, task: Task) -> float:
        """See `Script.work_ms`."""
        return work_ms(self._jobs[task[0]], task[1])

    def alone_ms(self, task: Task) -> float:
        """See `Script.alone_ms`."""
        job, index = self._jobs[task[0]], task[1]
        speeds = self._alone_speeds(job)
        return work_ms(job, index) / speeds[index % len(speeds)]

    def speed(self, task: Task, family: Family) -> float:
        """See `Script.speed`."""
        return self._jobs[task[0]].tasks[task[1]].speed_on(family) / MILLION

    def size_speed(self, command: str, members: int, *, apart: bool) -> float:
        """See `Script.size_speed`."""
        return self._jobs[command].size_ppm(members, apart=apart) / MILLION

    def tells_steps(self, task: Task) -> bool:
        """See `Script.tells_steps`; programs of arrays of traces do not."""
        return not self._jobs[task[0]].is_array

    def steps_per_s(self, task: Task) -> float:
        """See `Script.steps_per_s`."""
        return steps_per_s(self._jobs[task[0]])

    def _alone_speeds(self, job: TraceJob) -> tuple[float, ...]:
        """The speed of each task at home; a single one if they all run at the trace's speed."""
        speeds = self._alone.get(job.id)
        if speeds is None:
            speeds = (1.0,)
            if any(task.speed_by_family for task in job.tasks):
                spec = spec_of(replace(job, states_rates=True), self._families)
                speeds = alone_speeds(job, self._valuation.of(spec))
            self._alone[job.id] = speeds
        return speeds

    def delays(self, task_of: Callable[[RunId], Task]) -> Durations:
        """See `Script.delays`."""

        def move_delays_of(run: RunId) -> MoveDelays:
            command, index = task_of(run)
            job = self._jobs[command]
            task = job.tasks[index]
            return MoveDelays(task.image, task.fetch_ms, task.build_ms, job.init_ms, stop_ms(task))

        return TaskDelays(move_delays_of, self._accounting)


class PastScript:
    """A script from the recorded past of a cluster.

    Args:
        past: The recorded past.
        durations: Whether jobs state how long they take alone, as submitted or else by their work.
    """

    def __init__(self, past: Past, *, durations: bool) -> None:
        self._past = past
        self._durations = durations
        self._jobs = {_command(str(n)): job for n, job in enumerate(past.jobs)}

    @property
    def start_ms(self) -> Millis:
        """See `Script.start_ms`."""
        return self._past.start_ms

    def arrivals(self) -> Iterator[Arrival]:
        """See `Script.arrivals`."""
        ids: dict[JobId, JobId] = {}  # as they will be: the simulated master counts from 1 on
        for (command, job), name in zip(self._jobs.items(), _names(self._past.jobs), strict=True):
            ids[job.id] = JobId(f"{name}-{len(ids) + 1}")
            stated = job.spec.duration_ms or round(max(job.work_ms))
            depends_on = tuple(ids[other] for other in job.spec.stage.depends_on if other in ids)
            spec = replace(
                job.spec,
                name=name,
                stage=replace(job.spec.stage, depends_on=depends_on),
                duration_ms=stated if self._durations else None,
            )
            yield job.submitted_ms, command, spec

    def title(self, command: str) -> str:
        """See `Script.title`."""
        return self._jobs[command].id

    def work_ms(self, task: Task) -> float:
        """See `Script.work_ms`."""
        return self._jobs[task[0]].work_ms[task[1]]

    def alone_ms(self, task: Task) -> float:
        """See `Script.alone_ms`; the work of the past is counted there."""
        return self.work_ms(task)

    def speed(self, task: Task, family: Family) -> float:
        """See `Script.speed`."""
        job, base = self._jobs[task[0]], base_family(family)
        speeds = {base_family(name): speed for name, speed in job.speeds[task[1]]}
        return speeds.get(base, MILLION) / MILLION

    def size_speed(self, command: str, members: int, *, apart: bool) -> float:
        """See `Script.size_speed`: as their users stated, or else as is usual."""
        return stated_size_speed(self._jobs[command].spec, members, apart=apart)

    def tells_steps(self, _task: Task) -> bool:
        """See `Script.tells_steps`."""
        return True

    def steps_per_s(self, _task: Task) -> float:
        """See `Script.steps_per_s`."""
        return STEPS_PER_S

    def delays(self, task_of: Callable[[RunId], Task]) -> Durations:
        """See `Script.delays`."""

        def recorded(run: RunId) -> RunId:
            command, index = task_of(run)
            return run_id(self._jobs[command].id, index)

        return PastDelays(self._past, recorded)

    def life_of(self, instance: InstanceId, offering: Offering) -> LifeStages:
        """How long the stages of a machine take: as recorded, or as for similar machines."""
        past, kind = self._past, offering.type.name
        if past.kinds.get(instance) == kind:
            return past.lives[instance]
        alike = [past.lives[name] for name, type_name in past.kinds.items() if type_name == kind]
        everyone = alike or list(past.lives.values())
        listed = LifeStages(offering.type.acquisition_ms, offering.type.setup_ms, 1_000)
        if not everyone:
            return listed
        return LifeStages(
            _median(alike, "acquisition_ms", listed.acquisition_ms),
            _median(alike, "setup_ms", listed.setup_ms),
            _median(everyone, "ending_ms", listed.ending_ms),
            _median(everyone, "known_ms", 0),
            _median(everyone, "unbilled_ms", 0),
        )


class PastDelays:
    """The recorded delays of each attempt, or else those of its workload.

    Implements `Durations`.

    Args:
        past: The recorded past.
        recorded: Returns the recorded task run for a simulated one.
    """

    report_ms = 60_000

    def __init__(self, past: Past, recorded: Callable[[RunId], RunId]) -> None:
        self._past = past
        self._recorded = recorded
        self._starts = starts_ms(past.recorded_attempts.values())
        self._stops = stops_ms(past.recorded_attempts.values())
        self._fetch = median_low(past.fetches_ms.values()) if past.fetches_ms else 0

    def fetch(self, order: TaskOrder, _on: InstanceId, _now: Millis) -> int:
        """See `Durations.fetch`."""
        return self._past.fetches_ms.get(self._attempt(order), self._fetch)

    def start(self, order: TaskOrder, _on: InstanceId, _now: Millis) -> int:
        """See `Durations.start`."""
        recorded = self._known(order)
        if recorded is not None and recorded.runs_ms is not None:
            return recorded.runs_ms - recorded.ordered_ms
        return _of(self._starts, Workload(order.workload), _START_MS)

    def image(self, _order: TaskOrder, _on: InstanceId) -> int | None:
        """Return `None`: no journal tells."""
        return None

    def init(self, order: TaskOrder) -> int:
        """See `Durations.init`."""
        init_ms = self._past.inits_ms.get(self._attempt(order))
        usual = self._past.usual_inits_ms.get(Workload(order.workload), 0)
        return usual if init_ms is None else init_ms

    def stop(self, order: TaskOrder) -> int:
        """See `Durations.stop`."""
        recorded = self._known(order)
        if (
            recorded is not None
            and recorded.stopped_ms is not None
            and recorded.over_ms is not None
        ):
            return recorded.over_ms - recorded.stopped_ms
        return _of(self._stops, Workload(order.workload), _STOP_MS)

    def lost(self, _instance: InstanceId) -> None:
        """See `Durations.lost`."""

    def _known(self, order: TaskOrder) -> RecordedAttempt | None:
        return self._past.recorded_attempts.get(self._attempt(order))

    def _attempt(self, order: TaskOrder) -> Attempt:
        return self._recorded(order.run), order.attempt


_FORKS_END = 1_000
"""So many times its job's work a simulated fork would do, were it not told when to stop."""


def work_of(script: Script, task: Task, saves_every_ms: int, *, forked: bool = False) -> Work:
    """The work of a simulated task.

    All that is told of its length is the duration that its job states: where jobs are to hide how
    long they take, their programs must not tell it either.
    """
    return Work(
        script.work_ms(task) * (_FORKS_END if forked else 1),
        steps_per_s=script.steps_per_s(task),
        saves_every_ms=saves_every_ms,
        tells_total=False,
        tells_steps=script.tells_steps(task),
    )


def _names(jobs: Sequence[PastJob]) -> Iterator[str]:
    """The jobs' names, of which no two of an owner are the same.

    Two jobs that have a name one after the other in the past may be active at once when that is
    simulated.
    """
    taken = {(job.spec.owner, job.spec.name) for job in jobs}
    seen: set[tuple[str, str]] = set()
    for job in jobs:
        owner, name = job.spec.owner, job.spec.name
        if (owner, name) in seen:
            name = str(job.id)
            while (owner, name) in taken:
                name += "~"
            taken.add((owner, name))
        seen.add((owner, name))
        yield name


def _of(usual: Mapping[Workload, int], workload: Workload, default: int) -> int:
    """The typical value for a workload, or else for all workloads."""
    value = usual.get(workload)
    if value is not None:
        return value
    return median_low(usual.values()) if usual else default


def _median(lives: list[LifeStages], stage: str, default: int) -> int:
    return median_low(getattr(life, stage) for life in lives) if lives else default


def _command(name: str) -> str:
    return f"submit-{name}"
