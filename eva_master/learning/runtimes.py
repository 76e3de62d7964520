"""How long tasks run, learned per owner from the jobs that have ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from operator import itemgetter

from eva_master.learning.run_times.dags import base_of
from eva_master.learning.run_times.past_values import NO_VALUES, PastValues
from eva_master.learning.run_times.posterior import Finished, Prior
from eva_master.model.arithmetic.fixed_point import log_ppm
from eva_master.model.ids import MILLION, MILLIS_PER_HOUR, Millis, Workload
from eva_master.model.planning.estimate import LONGEST_MS, Estimates
from eva_master.model.planning.plan import Json
from eva_master.model.resources import Resources

VALUES_PER_OWNER = 512
"""Feature values of one owner. Names are the users', who may use a new one for every job."""
VALUES_KEPT = 4_096
"""Feature values of all owners together."""
OWNERS_KEPT = 1_024
"""Owners of whom anything is known."""
WORKLOADS_DOUBTED = 64
"""Workloads of one owner whose stated durations were contradicted last."""
CONTRADICTIONS = 3
"""As many tasks in a row that contradict what is stated, and it is not believed."""
_CONTRADICTED_FROM_FACTOR = 2
"""A task contradicts a stated duration if it took more than so many times as long, or less than
that part of it."""
_NEVER_CONTRADICTED_MS = 5_000
"""Nor does it if it was off by less."""
_ENOUGH = 3
"""With fewer finished tasks nobody can say what is usual."""
_ALIKE = 250_000
"""Assumed variance over jobs of one workload or name: a spread of a factor of 1.65."""
_UNLIKE = MILLION
"""Assumed variance over jobs that share less: a factor of 2.7."""
ASSUMED_WITHIN = 62_500
"""Assumed variance within a job: a spread of a quarter."""
_ASSUMED_TASKS = 4
"""That assumption counts as so many tasks."""
_JOBS_AVERAGED = 16
"""A new job counts at least one part in so many, so old ones fade."""
_JOBS_COUNTED = 64
"""More earlier jobs make nothing surer."""
_TASKS_COUNTED = 64
"""Nor do more tasks make the spread within jobs surer."""
_TASKS_KEPT = 1_000_000
_LEAST = 100
"""No variance is less: a spread of one per cent."""
_FIELDS = 8
_WEIGHT_UNIT = 10**24
UNKNOWN = Prior(log_ppm(MILLIS_PER_HOUR), 9 * MILLION, ASSUMED_WITHIN, _ASSUMED_TASKS)
"""What is believed of a job of which nothing is known: an hour, give or take a factor of twenty."""


class Feature(StrEnum):
    """What jobs may have in common; those that say most stand first."""

    WORKLOAD = "workload"
    NAME = "name"
    """The job's name without what is counted at its end."""
    OWNER = "owner"
    """All jobs of the owner."""
    HOUR = "hour"
    """Of the submission, in UTC."""
    GPUS = "gpus"
    CPUS = "cpus"
    MEMORY = "memory"


_TELLING = frozenset({Feature.WORKLOAD, Feature.NAME})
Value = tuple[Feature, str]


@dataclass(frozen=True, slots=True)
class Traits:
    """What is known of tasks before they run.

    Attributes:
        workload: Theirs.
        name: The job's.
        submitted_ms: When the job was submitted; `None` if nobody knows.
        demand: What one of them needs, a gang all together.
    """

    workload: str
    name: str
    submitted_ms: Millis | None
    demand: Resources

    def values(self) -> tuple[Value, ...]:
        """Their values of all features that are known."""
        hour: tuple[Value, ...] = ()
        if self.submitted_ms is not None:
            hour = ((Feature.HOUR, str(self.submitted_ms // MILLIS_PER_HOUR % 24)),)
        return (
            (Feature.WORKLOAD, self.workload),
            (Feature.NAME, base_of(self.name)),
            (Feature.OWNER, ""),
            *hour,
            (Feature.GPUS, str(self.demand.gpus)),
            (Feature.CPUS, str(self.demand.milli_cpus)),
            (Feature.MEMORY, str(self.demand.memory_mib)),
        )


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
        """What one job tells, of which at least one task has finished."""
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
        """How far off `log` is expected to be as a prediction, squared, in millionths.

        Args:
            assumed: The same before there is a second job; it counts as one job ever after.
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
        figures = [it for it in data[:_FIELDS] if type(it) is int and it >= 0]
        if len(figures) != _FIELDS or not all(figures[5:7]):
            raise ValueError(f"not a spread of run times: {data!r}")
        log, between, within, freedom, error, jobs, tasks, at = figures
        return Spread(log, between, within, freedom, error, jobs, tasks, Millis(at), last)


@dataclass(frozen=True, slots=True)
class OwnerTimes:
    """What was learned of one owner's jobs.

    Attributes:
        spreads: By feature value; those seen longest ago stand first.
        doubted: By workload: the last tasks in a row that contradicted what was stated of them,
            with the milliseconds that each took; those that were contradicted longest ago first.
    """

    spreads: Mapping[Value, Spread] = field(default_factory=dict)
    doubted: Mapping[Workload, tuple[int, ...]] = field(default_factory=dict)

    def prior(self, traits: Traits) -> Prior | None:
        """What is believed of a job, `None` if nothing is known of its like.

        Each feature predicts what its value took so far; those that were off least count most.
        """
        known = self._known(traits)
        if not known:
            return None
        variances = [_variance(name, it) for name, it in known]
        weights = [max(1, _WEIGHT_UNIT // variance**2) for variance in variances]
        whole = sum(weights)
        logs = [spread.log for _, spread in known]
        log = sum(weight * it for weight, it in zip(weights, logs, strict=True)) // whole
        between = sum(
            weight * (variance + (it - log) ** 2 // MILLION)
            for weight, variance, it in zip(weights, variances, logs, strict=True)
        )
        between //= whole
        inner = next((it for _, it in known if it.freedom), None)
        if inner is None:  # what jobs of one task are apart is what their tasks are
            within = min(ASSUMED_WITHIN, between // 2)
            return Prior(log, between - within, within, known[0][1].jobs + _ASSUMED_TASKS)
        freedom = inner.freedom + _ASSUMED_TASKS
        within = (inner.within * inner.freedom + ASSUMED_WITHIN * _ASSUMED_TASKS) // freedom
        return Prior(log, between, within, freedom)

    def most_telling(self, traits: Traits) -> tuple[Spread, int] | None:
        """Of the features of a job the one whose value is expected to be off least.

        Returns:
            What is known of its value, and how far off that is expected to be, squared; `None` if
            nothing is known of any.
        """
        feature = self.telling_feature(traits)
        if feature is None:
            return None
        spread = self.spreads[feature, dict(traits.values())[feature]]
        return spread, _variance(feature, spread)

    def telling_feature(self, traits: Traits) -> Feature | None:
        """Which feature `most_telling` goes by; `None` if nothing is known."""
        found = [(_variance(name, it), name) for name, it in self._known(traits)]
        return min(found, key=itemgetter(0))[1] if found else None

    def usual_ms(self, traits: Traits, mode: Estimates) -> int | None:
        """What to expect of a task by the last values of the most telling feature alone.

        Args:
            traits: The task's.
            mode: See `PastValues.usual_ms`.

        Returns:
            Milliseconds; `None` if no values are known.
        """
        found = self.most_telling(traits)
        if found is None or not found[0].last.packed:
            return None
        return min(LONGEST_MS, max(1, found[0].last.usual_ms(mode)))

    def _known(self, traits: Traits) -> list[tuple[Feature, Spread]]:
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

    def told(self, workload: Workload, stated_ms: int, took_ms: int) -> OwnerTimes:
        """After a task of which it was stated how long it takes."""
        before = self.doubted.get(workload)
        if not contradicts(stated_ms, took_ms):
            if before is None:
                return self
            kept = {name: it for name, it in self.doubted.items() if name != workload}
            return replace(self, doubted=kept)
        doubted = {name: it for name, it in self.doubted.items() if name != workload}
        doubted[workload] = (*(before or ()), took_ms)[-CONTRADICTIONS:]
        if len(doubted) > WORKLOADS_DOUBTED:
            del doubted[next(iter(doubted))]
        return replace(self, doubted=doubted)

    def disbelieved(self, workload: Workload, stated_ms: int) -> tuple[int, ...]:
        """How long the tasks of a workload took that contradict what is stated.

        Returns:
            Three run times in milliseconds, the last one last; none if what is stated is believed.
        """
        took = self.doubted.get(workload, ())
        enough = len(took) >= CONTRADICTIONS and all(contradicts(stated_ms, it) for it in took)
        return took if enough else ()


def _variance(feature: Feature, spread: Spread) -> int:
    """How far off what is known of a feature's value is expected to be, squared, in millionths."""
    return spread.variance(_ALIKE if feature in _TELLING else _UNLIKE)


def contradicts(stated_ms: int, took_ms: int) -> bool:
    """Whether a run time is too far from what was stated to be chance."""
    low, high = sorted((stated_ms, took_ms))
    return high - low > _NEVER_CONTRADICTED_MS and high > _CONTRADICTED_FROM_FACTOR * low


_NOTHING = OwnerTimes()


@dataclass(frozen=True, slots=True)
class RunTimes:
    """What was learned, per owner: nobody's jobs say anything of those of others.

    Attributes:
        owners: By name; those of whom something was learned longest ago stand first.
    """

    owners: Mapping[str, OwnerTimes] = field(default_factory=dict)

    def of(self, owner: str) -> OwnerTimes:
        """What is known of an owner's jobs; the same object until there is news."""
        return self.owners.get(owner, _NOTHING)

    def observe(
        self, owner: str, traits: Traits, finished: Finished, at: Millis, kept: int = 0
    ) -> RunTimes:
        """Take in a job that has ended.

        Args:
            owner: The job's.
            traits: Its tasks'.
            finished: Those that have finished, at least one.
            at: When it ended.
            kept: Of how many jobs of each feature value the run times themselves are kept.
        """
        return self._with(owner, self.of(owner).plus(traits, finished, at, kept))

    def told(self, owner: str, workload: Workload, stated_ms: int, took_ms: int) -> RunTimes:
        """Take in a finished task whose job states how long it takes."""
        before = self.of(owner)
        after = before.told(workload, stated_ms, took_ms)
        return self if after is before else self._with(owner, after)

    def _with(self, owner: str, known: OwnerTimes) -> RunTimes:
        owners = {name: it for name, it in self.owners.items() if name != owner}
        owners[owner] = known
        while len(owners) > OWNERS_KEPT:
            del owners[next(iter(owners))]
        excess = sum(len(it.spreads) for it in owners.values()) - VALUES_KEPT
        for _ in range(excess):  # a flood goes at the cost of whoever has most
            largest = max(owners, key=lambda name: len(owners[name].spreads))
            owners[largest] = owners[largest].without_oldest()
        return RunTimes(owners)

    def to_json(self) -> Json:
        """The journal's form: a list of [owner, spreads, doubted], in their order."""
        return [
            [
                owner,
                [[feature.value, value, *it.to_json()] for (feature, value), it in known],
                [[workload, list(took)] for workload, took in doubted],
            ]
            for owner, known, doubted in (
                (owner, it.spreads.items(), it.doubted.items()) for owner, it in self.owners.items()
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
                spreads[Feature(feature), value] = Spread.from_json(figures)
            case _:
                raise ValueError(f"not a feature's learned run times: {row!r}")
    return spreads


def _doubted(rows: Sequence[Json]) -> dict[Workload, tuple[int, ...]]:
    doubted: dict[Workload, tuple[int, ...]] = {}
    for row in rows:
        match row:
            case [str(workload), list(times)] if all(type(it) is int and it > 0 for it in times):
                doubted[Workload(workload)] = tuple(int(str(it)) for it in times)
            case _:
                raise ValueError(f"not contradicted run times: {row!r}")
    return doubted
