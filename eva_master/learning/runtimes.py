"""How long tasks run, learned per owner from the jobs that have ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from operator import itemgetter

from eva_master.learning.run_times.dags import base_of
from eva_master.learning.run_times.past_values import NO_VALUES, PastValues
from eva_master.learning.run_times.posterior import Finished, Prior
from eva_master.model.arithmetic.fixed_point import log_ppm
from eva_master.model.planning.estimate import LONGEST_MS, Estimates
from eva_master.model.planning.plan import Json
from eva_master.model.resources import Resources
from eva_master.model.values import quick, replace
from eva_wire.values.ids import MILLION, MILLIS_PER_HOUR, Millis, Workload

VALUES_PER_OWNER = 512
"""Feature values of one owner. Names are the users', who may use a new one for every job."""
VALUES_KEPT = 4_096
"""Feature values of all owners together."""
OWNERS_KEPT = 1_024
"""Owners of whom anything is known."""
WORKLOADS_DOUBTED = 64
"""Workloads of one owner whose stated durations were contradicted last."""
CONTRADICTIONS = 3
"""After this many contradicting tasks in a row a stated run time is not believed."""
_CONTRADICTED_FROM_FACTOR = 2
"""A task contradicts a stated duration if it took more than this many times as long, or less than
the inverse part of it.
"""
_NEVER_CONTRADICTED_MS = 5_000
"""A smaller difference is no contradiction."""
_ENOUGH = 3
"""With fewer finished tasks the usual run time is unknown."""
_ALIKE = 250_000
"""Assumed variance over jobs of one workload or name: a spread of a factor of 1.65."""
_UNLIKE = MILLION
"""Assumed variance over jobs that share less: a factor of 2.7."""
ASSUMED_WITHIN = 62_500
"""Assumed variance within a job: a spread of a quarter."""
_ASSUMED_TASKS = 4
"""Number of tasks that the assumed variance within jobs counts for."""
_JOBS_AVERAGED = 16
"""A new job counts at least one part in this many, so that old ones fade."""
_JOBS_COUNTED = 64
"""Upper limit of the earlier jobs that count."""
_TASKS_COUNTED = 64
"""Upper limit of the tasks that count for the spread within jobs."""
_TASKS_KEPT = 1_000_000
_LEAST = 100
"""No variance is less: a spread of one per cent."""
_FIELDS = 8
_REMEMBERED = 4_096
_WEIGHT_UNIT = 10**24
UNKNOWN = Prior(log_ppm(MILLIS_PER_HOUR), 9 * MILLION, ASSUMED_WITHIN, _ASSUMED_TASKS)
"""Prior of a job without any history: an hour, give or take a factor of twenty."""


class JobFeature(StrEnum):
    """Properties that jobs may have in common, the most informative first."""

    WORKLOAD = "workload"
    NAME = "name"
    """The job's name without a counter at its end."""
    OWNER = "owner"
    """All jobs of the owner."""
    HOUR = "hour"
    """Of the submission, in UTC."""
    GPUS = "gpus"
    CPUS = "cpus"
    MEMORY = "memory"


_TELLING = frozenset({JobFeature.WORKLOAD, JobFeature.NAME})
Value = tuple[JobFeature, str]


@dataclass(frozen=True, slots=True)
class Traits:
    """Properties of tasks that are known before they run.

    Attributes:
        workload: The tasks' workload.
        name: The job's name.
        submitted_ms: When the job was submitted; `None` if unknown.
        demand: Demand of one task; for a gang, of all its members together.
    """

    workload: str
    name: str
    submitted_ms: Millis | None
    demand: Resources

    def values(self) -> tuple[Value, ...]:
        """Values of all features that are known."""
        hour: tuple[Value, ...] = ()
        if self.submitted_ms is not None:
            hour = ((JobFeature.HOUR, str(self.submitted_ms // MILLIS_PER_HOUR % 24)),)
        return (
            (JobFeature.WORKLOAD, self.workload),
            (JobFeature.NAME, base_of(self.name)),
            (JobFeature.OWNER, ""),
            *hour,
            (JobFeature.GPUS, str(self.demand.gpus)),
            (JobFeature.CPUS, str(self.demand.milli_cpus)),
            (JobFeature.MEMORY, str(self.demand.memory_mib)),
        )


@quick
@dataclass(frozen=True, slots=True)
class Spread:
    """Logarithms of run times, in millionths, and their variances; one job is one observation.

    Attributes:
        log: Mean over jobs of the means of their tasks' logarithms.
        between: Variance of these means.
        within: Variance of the tasks of one job around its mean.
        freedom: How many tasks `within` is known from, 0 if no job had several.
        error: Mean squared error of `log` as a prediction of the next job; 0 before the second.
        jobs: How many jobs there were, at most 64.
        tasks: How many tasks they had, at most a million.
        at_ms: When the last one ended.
        last: The logarithms of the means of the last jobs, if somebody wants them: see
            `past_values`.
    """

    log: int
    between: int
    within: int
    freedom: int
    error: int
    jobs: int
    tasks: int
    at_ms: Millis
    last: PastValues = NO_VALUES

    @staticmethod
    def of(finished: Finished, at: Millis, kept: int = 0) -> Spread:
        """The spread after one job of which at least one task has finished."""
        return Spread(0, 0, 0, 0, 0, 0, 0, at).plus(finished, at, kept)

    def plus(self, finished: Finished, at: Millis, kept: int = 0) -> Spread:
        """After one more job, of which at least one task has finished.

        Args:
            finished: Its finished tasks.
            at: When it ended.
            kept: Of how many jobs the values themselves are kept.
        """
        off = finished.log - self.log
        part = min(self.jobs + 1, _JOBS_AVERAGED)
        log = self.log + off // part
        between, error = self.between, self.error
        if self.jobs:
            between = (between * (part - 1) + off * (finished.log - log) // MILLION) // part
            seen = min(self.jobs, _JOBS_AVERAGED)
            error = (error * (seen - 1) + off * off // MILLION) // seen
        more = min(finished.tasks - 1, _TASKS_COUNTED)
        within, freedom = self.within, self.freedom
        if more:
            fresh = finished.deviation // (finished.tasks - 1)
            within = (within * freedom + fresh * more) // (freedom + more)
            freedom = min(freedom + more, _TASKS_COUNTED)
        return Spread(
            log,
            max(0, between),
            within,
            freedom,
            error,
            min(self.jobs + 1, _JOBS_COUNTED),
            min(self.tasks + finished.tasks, _TASKS_KEPT),
            at,
            self.last.plus(log_ppm(finished.total_ms // finished.tasks), kept),
        )

    def variance(self, assumed: int) -> int:
        """Expected squared error of `log` as a prediction, in millionths.

        Args:
            assumed: The squared error assumed before there is a second job; it always counts as one
                job.
        """
        seen = max(self.between, self.error) * (self.jobs - 1)
        return max(_LEAST, (seen + assumed) // self.jobs)

    def to_json(self) -> list[Json]:
        """The form in which the journal keeps it."""
        return [
            *(self.log, self.between, self.within, self.freedom),
            *(self.error, self.jobs, self.tasks, self.at_ms),
            *([list(self.last.logs)] if self.last.logs else ()),
        ]

    @staticmethod
    def from_json(data: Json) -> Spread:
        """Read what `to_json` wrote.

        Raises:
            ValueError: The data has another form.
        """
        if not isinstance(data, list) or not _FIELDS <= len(data) <= _FIELDS + 1:
            raise ValueError(f"not a spread of run times: {data!r}")
        last = PastValues.from_json(data[_FIELDS]) if len(data) > _FIELDS else NO_VALUES
        figures = [figure for figure in data[:_FIELDS] if type(figure) is int and figure >= 0]
        if len(figures) != _FIELDS or not all(figures[5:7]):
            raise ValueError(f"not a spread of run times: {data!r}")
        log, between, within, freedom, error, jobs, tasks, at = figures
        return Spread(log, between, within, freedom, error, jobs, tasks, Millis(at), last)


@dataclass(frozen=True, slots=True)
class OwnerTimes:
    """Learned run times of one owner's jobs.

    Attributes:
        spreads: By feature value; values seen longest ago come first.
        doubted: By workload: run times in milliseconds of the last tasks in a row that contradicted
            their stated run time; workloads contradicted longest ago come first.
    """

    spreads: Mapping[Value, Spread] = field(default_factory=dict)
    doubted: Mapping[Workload, tuple[int, ...]] = field(default_factory=dict)

    def prior(self, traits: Traits) -> Prior | None:
        """The prior of a job, `None` if no similar job is known.

        Each feature predicts from its value's history; features that were least wrong count most.
        """
        spreads = self._known(traits)
        return _prior(tuple(spreads)) if spreads else None

    def most_telling(self, traits: Traits) -> tuple[Spread, int] | None:
        """The value, among those of a job's features, that is expected to predict best.

        Returns:
            Its spread and its expected squared error; `None` if no value has a history.
        """
        feature = self.telling_feature(traits)
        if feature is None:
            return None
        spread = self.spreads[feature, dict(traits.values())[feature]]
        return spread, _variance(feature, spread)

    def telling_feature(self, traits: Traits) -> JobFeature | None:
        """The feature used by `most_telling`; `None` if no value has a history."""
        errors = [(_variance(name, spread), name) for name, spread in self._known(traits)]
        return min(errors, key=itemgetter(0))[1] if errors else None

    def usual_ms(self, traits: Traits, mode: Estimates) -> int | None:
        """Expected run time of a task by the last values of the best feature alone.

        Args:
            traits: Properties of the task.
            mode: See `PastValues.usual_ms`.

        Returns:
            Milliseconds; `None` if no values are known.
        """
        telling = self.most_telling(traits)
        if telling is None or not telling[0].last.packed:
            return None
        return min(LONGEST_MS, max(1, telling[0].last.usual_ms(mode)))

    def _known(self, traits: Traits) -> list[tuple[JobFeature, Spread]]:
        return [
            (feature, spread)
            for feature, value in traits.values()
            if (spread := self.spreads.get((feature, value))) is not None
            and spread.tasks >= _ENOUGH
        ]

    def plus(self, traits: Traits, finished: Finished, at: Millis, kept: int = 0) -> OwnerTimes:
        """After a job of which at least one task has finished; see `RunTimes.observe`."""
        spreads = dict(self.spreads)
        for value in traits.values():
            before = spreads.pop(value, None)
            if before is None:
                after = Spread.of(finished, at, kept)
            else:
                after = before.plus(finished, at, kept)
            spreads[value] = after
        while len(spreads) > VALUES_PER_OWNER:
            del spreads[next(iter(spreads))]
        return replace(self, spreads=spreads)

    def without_oldest(self) -> OwnerTimes:
        """Without the feature value that was seen longest ago; there is one."""
        spreads = dict(self.spreads)
        del spreads[next(iter(spreads))]
        return replace(self, spreads=spreads)

    def record(self, workload: Workload, stated_ms: int, took_ms: int) -> OwnerTimes:
        """Record a task that has finished and whose run time was stated."""
        before = self.doubted.get(workload)
        if not contradicts(stated_ms, took_ms):
            if before is None:
                return self
            kept = {name: times for name, times in self.doubted.items() if name != workload}
            return replace(self, doubted=kept)
        doubted = {name: times for name, times in self.doubted.items() if name != workload}
        doubted[workload] = (*(before or ()), took_ms)[-CONTRADICTIONS:]
        if len(doubted) > WORKLOADS_DOUBTED:
            del doubted[next(iter(doubted))]
        return replace(self, doubted=doubted)

    def disbelieved(self, workload: Workload, stated_ms: int) -> tuple[int, ...]:
        """Run times of a workload's tasks that contradict the stated one.

        Returns:
            Three run times in milliseconds, the latest last; empty if the statement is believed.
        """
        took = self.doubted.get(workload, ())
        enough = len(took) >= CONTRADICTIONS and all(
            contradicts(stated_ms, time_ms) for time_ms in took
        )
        return took if enough else ()


@lru_cache(maxsize=_REMEMBERED)
def _prior(spreads: tuple[tuple[JobFeature, Spread], ...]) -> Prior:
    """The prior by at least one feature; remembered, since many jobs share their features."""
    variances = [_variance(name, spread) for name, spread in spreads]
    weights = [max(1, _WEIGHT_UNIT // variance**2) for variance in variances]
    whole = sum(weights)
    logs = [spread.log for _, spread in spreads]
    log = (
        sum(weight * spread_log for weight, spread_log in zip(weights, logs, strict=True)) // whole
    )
    between = sum(
        weight * (variance + (spread_log - log) ** 2 // MILLION)
        for weight, variance, spread_log in zip(weights, variances, logs, strict=True)
    )
    between //= whole
    inner = next((spread for _, spread in spreads if spread.freedom), None)
    if inner is None:  # the spread over jobs of one task includes that of tasks
        within = min(ASSUMED_WITHIN, between // 2)
        return Prior(log, between - within, within, spreads[0][1].jobs + _ASSUMED_TASKS)
    freedom = inner.freedom + _ASSUMED_TASKS
    within = (inner.within * inner.freedom + ASSUMED_WITHIN * _ASSUMED_TASKS) // freedom
    return Prior(log, between, within, freedom)


def _variance(feature: JobFeature, spread: Spread) -> int:
    """How far off what is known of a feature's value is expected to be, squared, in millionths."""
    return spread.variance(_ALIKE if feature in _TELLING else _UNLIKE)


def contradicts(stated_ms: int, took_ms: int) -> bool:
    """Whether a run time is too far from what was stated to be chance."""
    low, high = sorted((stated_ms, took_ms))
    return high - low > _NEVER_CONTRADICTED_MS and high > _CONTRADICTED_FROM_FACTOR * low


_NOTHING = OwnerTimes()


@dataclass(frozen=True, slots=True)
class RunTimes:
    """Learned run times by owner: no owner's jobs affect another's.

    Attributes:
        owners: By name; owners whose last lesson is oldest come first.
    """

    owners: Mapping[str, OwnerTimes] = field(default_factory=dict)

    def of(self, owner: str) -> OwnerTimes:
        """Knowledge about an owner's jobs; the same object until it changes."""
        return self.owners.get(owner, _NOTHING)

    def observe(
        self, owner: str, traits: Traits, finished: Finished, at: Millis, kept: int = 0
    ) -> RunTimes:
        """Record a job that has ended.

        Args:
            owner: The job's owner.
            traits: Properties of its tasks.
            finished: Its finished tasks, at least one.
            at: When it ended.
            kept: Number of jobs per feature value of which the run times themselves are kept.
        """
        return self._with(owner, self.of(owner).plus(traits, finished, at, kept))

    def record(self, owner: str, workload: Workload, stated_ms: int, took_ms: int) -> RunTimes:
        """Record a finished task whose job states a run time."""
        before = self.of(owner)
        after = before.record(workload, stated_ms, took_ms)
        return self if after is before else self._with(owner, after)

    def _with(self, owner: str, known: OwnerTimes) -> RunTimes:
        owners = {name: times for name, times in self.owners.items() if name != owner}
        owners[owner] = known
        while len(owners) > OWNERS_KEPT:
            del owners[next(iter(owners))]
        excess = sum(len(times.spreads) for times in owners.values()) - VALUES_KEPT
        for _ in range(excess):  # too many are removed from the owner that has most
            largest = max(owners, key=lambda name: len(owners[name].spreads))
            owners[largest] = owners[largest].without_oldest()
        return RunTimes(owners)

    def to_json(self) -> Json:
        """The journal's form: a list of [owner, spreads, doubted], in their order."""
        return [
            [
                owner,
                [[feature.value, value, *spread.to_json()] for (feature, value), spread in spreads],
                [[workload, list(took)] for workload, took in doubted],
            ]
            for owner, spreads, doubted in (
                (owner, times.spreads.items(), times.doubted.items())
                for owner, times in self.owners.items()
            )
        ]

    @staticmethod
    def from_json(data: Json) -> RunTimes:
        """Read what `to_json` wrote.

        Raises:
            ValueError: The data has another form.
        """
        if not isinstance(data, list):
            raise ValueError("learned run times are a list")
        owners: dict[str, OwnerTimes] = {}
        for row in data:
            match row:
                case [str(owner), list(spreads), list(doubted)]:
                    owners[owner] = OwnerTimes(_spreads(spreads), _doubted(doubted))
                case _:
                    raise ValueError(f"not an owner's learned run times: {row!r}")
        return RunTimes(owners)


def _spreads(rows: Sequence[Json]) -> dict[Value, Spread]:
    spreads: dict[Value, Spread] = {}
    for row in rows:
        match row:
            case [str(feature), str(value), *figures]:
                spreads[JobFeature(feature), value] = Spread.from_json(figures)
            case _:
                raise ValueError(f"not a feature's learned run times: {row!r}")
    return spreads


def _doubted(rows: Sequence[Json]) -> dict[Workload, tuple[int, ...]]:
    doubted: dict[Workload, tuple[int, ...]] = {}
    for row in rows:
        match row:
            case [str(workload), list(times)] if all(
                type(time) is int and time > 0 for time in times
            ):
                doubted[Workload(workload)] = tuple(int(str(time)) for time in times)
            case _:
                raise ValueError(f"not contradicted run times: {row!r}")
    return doubted
