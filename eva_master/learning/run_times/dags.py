"""How long the stages of DAGs take: one Gaussian for all DAGs of one owner and label.

A stage is a job of a DAG. Its value is the logarithm of the mean run time of its tasks. A label has
the means and covariances of its stages, so that a finished or partly finished stage predicts the
others. Logarithms, variances and covariances are integers, in millionths, so that all machines
compute equal results.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isqrt

from eva_master.model.arithmetic.fixed_point import log_ppm
from eva_master.model.planning.estimate import LONGEST_MS, Estimates, mean_ms, median_ms
from eva_master.model.planning.plan import Json
from eva_wire.values.ids import MILLION, JobId, job_order

STAGES_KEPT = 16
"""Stages of one label; those that come after them in a DAG are estimated by themselves."""
LABELS_PER_OWNER = 64
LABELS_KEPT = 512
ENDED_PER_OWNER = 256
"""Stages that have ended while others of their DAG have not."""
ENDED_KEPT = 1_024
ENOUGH_DAGS = 3
"""Of fewer earlier DAGs nothing is said about how their stages hang together."""
_DAGS_AVERAGED = 32
"""A new DAG counts at least one part in so many, so old ones fade."""
_DAGS_COUNTED = 64
_ASSUMED = 250_000
"""Assumed variance of one stage over DAGs: it counts as one DAG."""
_DOUBTED = 2
"""Stages are assumed to be less correlated than observed, as if this many DAGs had shown none."""
_LEAST = 100
"""No variance is less: a spread of one per cent."""
_LARGEST = log_ppm(LONGEST_MS)
PREDECESSORS_KEPT = 16
"""Number of predecessors kept for a stage; they identify the DAG that it belongs to."""
_TIMES = 2
OF_DAGS = (Estimates.POSTERIOR, Estimates.HISTORY)
"""Other kinds of estimates do not use the dependence between stages."""


def base_of(name: str) -> str:
    """A job's name without what is counted at its end."""
    return name.rstrip("0123456789._-") or name


def stage_keys(names: Mapping[JobId, str]) -> dict[JobId, str]:
    """Keys of a DAG's stages that are stable from one DAG of a label to the next.

    The keys are the stages' names. Stages of equal name are numbered in the order of their
    submission.

    Args:
        names: Names of the stages, without a counter at their end.
    """
    seen = Counter[str]()
    keys = {}
    for job in sorted(names, key=job_order):
        seen[names[job]] += 1
        number = seen[names[job]]
        keys[job] = names[job] if number == 1 else f"{names[job]}#{number}"
    return keys


@dataclass(frozen=True, slots=True)
class Seen:
    """Observation of a stage from its own tasks.

    Attributes:
        log: Logarithm of their mean run time.
        variance: Its variance as an observation of the stage's value; 0 for a finished stage.
    """

    log: int
    variance: int = 0


@dataclass(frozen=True, slots=True)
class Value:
    """Prediction for a stage: a Gaussian.

    Attributes:
        log: Its mean.
        variance: Its variance, at least `_LEAST`.
    """

    log: int
    variance: int

    @property
    def mean_ms(self) -> int:
        """Expected mean run time of its tasks."""
        return mean_ms(self.log, self.variance)

    @property
    def median_ms(self) -> int:
        """Median run time: half of all DAGs take less."""
        return median_ms(self.log)


def conditioned(
    logs: Sequence[int], covariances: Sequence[Sequence[int]], seen: Mapping[int, Seen]
) -> tuple[list[int], list[list[int]]]:
    """A Gaussian, given observations of some of its variables.

    Conditioning on the observations one by one gives the same result as on all at once.

    Args:
        logs: The means.
        covariances: The covariance matrix, row by row.
        seen: The observations, by place.

    Returns:
        The means and the covariances of all variables, observed ones included.
    """
    means, matrix = list(logs), [list(row) for row in covariances]
    for place, observation in seen.items():
        column = [row[place] for row in matrix]
        if column[place] <= 0:  # fully determined by the others
            continue
        whole = max(_LEAST, column[place]) + observation.variance
        off = observation.log - means[place]
        means = [mean + entry * off // whole for mean, entry in zip(means, column, strict=True)]
        matrix = [
            [
                covariance - gain * other // whole
                for covariance, other in zip(row, column, strict=True)
            ]
            for row, gain in zip(matrix, column, strict=True)
        ]
    return means, matrix


@dataclass(frozen=True, slots=True)
class StageTimes:
    """The Gaussian of the DAGs of one label.

    Attributes:
        stages: Keys of the stages, see `stage_keys`.
        dags: For each stage, how many DAGs had it; at most 64.
        logs: The stages' means.
        covariances: For each stage, covariances with those before it and with itself.
    """

    stages: tuple[str, ...] = ()
    dags: tuple[int, ...] = ()
    logs: tuple[int, ...] = ()
    covariances: tuple[int, ...] = ()

    def plus(self, seen: Mapping[str, int]) -> StageTimes:
        """Add one more DAG.

        Args:
            seen: The values of its stages. Other stages are unaffected, but are forgotten if there
                are too many. Stages beyond `STAGES_KEPT` are left out.
        """
        if len({*self.stages, *seen}) > STAGES_KEPT and not seen.keys() >= set(self.stages):
            return self._without([name for name in self.stages if name not in seen]).plus(seen)
        fresh = [name for name in seen if name not in self.stages][: STAGES_KEPT - len(self.stages)]
        stages = (*self.stages, *fresh)
        dags = [*self.dags, *(0 for _ in fresh)]
        logs = [*self.logs, *(seen[name] for name in fresh)]
        parts = [min(count + 1, _DAGS_AVERAGED) for count in dags]
        off = [
            seen[name] - log if name in seen else None
            for name, log in zip(stages, logs, strict=True)
        ]
        rows = [[*row, *(0 for _ in range(at + 1 - len(row)))] for at, row in self._rows(stages)]
        for at, change in enumerate(off):
            for before, other in enumerate(off[: at + 1]):
                if change is not None and other is not None:
                    part = min(parts[at], parts[before])
                    more = change * other // (part * MILLION)
                    rows[at][before] = (rows[at][before] + more) * (part - 1) // part
        return StageTimes(
            stages,
            tuple(
                count if change is None else min(count + 1, _DAGS_COUNTED)
                for count, change in zip(dags, off, strict=True)
            ),
            tuple(
                log if change is None else log + change // part
                for log, change, part in zip(logs, off, parts, strict=True)
            ),
            tuple(covariance for row in rows for covariance in row),
        )

    def _without(self, stages: Collection[str]) -> StageTimes:
        rows = self._rows(self.stages)
        kept = [at for at, name in enumerate(self.stages) if name not in stages]
        return StageTimes(
            tuple(self.stages[at] for at in kept),
            tuple(self.dags[at] for at in kept),
            tuple(self.logs[at] for at in kept),
            tuple(rows[at][1][before] for at in kept for before in kept if before <= at),
        )

    def given(self, seen: Mapping[str, Seen]) -> dict[str, Value]:
        """Predictions for all stages, observed ones included.

        Args:
            seen: Observations of some stages.
        """
        places = ((at, seen[name]) for at, name in enumerate(self.stages) if name in seen)
        logs, matrix = conditioned(self.logs, self._matrix(), dict(places))
        return {
            stage: Value(min(_LARGEST, max(0, logs[at])), max(_LEAST, matrix[at][at]))
            for at, stage in enumerate(self.stages)
        }

    def known(self, stage: str) -> bool:
        """Whether enough DAGs had a stage."""
        return stage in self.stages and self.dags[self.stages.index(stage)] >= ENOUGH_DAGS

    def _rows(self, stages: Sequence[str]) -> list[tuple[int, Sequence[int]]]:
        """The rows of the covariances, empty for stages that are new."""
        rows: list[tuple[int, Sequence[int]]] = []
        for at in range(len(stages)):
            start = at * (at + 1) // 2
            rows.append((at, self.covariances[start : start + at + 1]))
        return rows

    def _matrix(self) -> list[list[int]]:
        """The covariances as they are relied on: that of few DAGs may be chance."""
        rows = [row for _, row in self._rows(self.stages)]
        size = len(rows)
        variances = []
        for at, count in enumerate(self.dags):
            spread = (rows[at][at] * count + _ASSUMED) // max(1, count)
            variances.append(max(_LEAST, spread * (count + 1) // max(1, count)))
        matrix = [[0] * size for _ in range(size)]
        for at in range(size):
            matrix[at][at] = variances[at]
            for before in range(at):
                count = min(self.dags[at], self.dags[before])
                shown = rows[at][before] * count // (count + _DOUBTED)
                most = isqrt(variances[at] * variances[before])
                matrix[at][before] = matrix[before][at] = max(-most, min(most, shown))
        return matrix

    def to_json(self) -> list[Json]:
        """The form in which the journal keeps it."""
        parts = self.stages, self.dags, self.logs, self.covariances
        return [list(part) for part in parts]

    @staticmethod
    def from_json(data: Json) -> StageTimes:
        """Read what `to_json` wrote.

        Raises:
            ValueError: The data has another form.
        """
        match data:
            case [list(stages), list(dags), list(logs), list(covariances)]:
                pass
            case _:
                raise ValueError(f"not run times of stages: {data!r}")
        count = len(stages)
        names = tuple(name for name in stages if isinstance(name, str))
        right = len(set(names)) == count == len(dags) == len(logs) and count <= STAGES_KEPT
        right = right and len(covariances) == count * (count + 1) // 2
        counts, means = _integers(dags), _integers(logs)
        right = right and all(1 <= count <= _DAGS_COUNTED for count in counts)
        if not right or not all(0 <= mean <= _LARGEST for mean in means):
            raise ValueError(f"not run times of stages: {data!r}")
        return StageTimes(names, counts, means, _integers(covariances))


@dataclass(frozen=True, slots=True)
class EndedStage:
    """A stage that has ended while others of its DAG have not.

    Attributes:
        label: Label of its DAG.
        name: The job's name without a counter at its end.
        log: The logarithm of the mean run time of its tasks; `None` if it did not succeed.
        had_ms: The summed run time of its tasks.
        expected_ms: Run time of one of its tasks as 3Sigma expected it; 0 if it was not computed.
        after: The first of the jobs that it waited for.
    """

    label: str
    name: str
    log: int | None
    had_ms: int
    expected_ms: int = 0
    after: tuple[JobId, ...] = ()

    def to_json(self) -> list[Json]:
        """The form in which the journal keeps it."""
        figures = (self.log, self.had_ms, self.expected_ms)
        return [self.label, self.name, *figures, list(self.after)]

    @staticmethod
    def from_json(data: Json) -> EndedStage:
        """Read what `to_json` wrote.

        Raises:
            ValueError: The data has another form.
        """
        match data:
            case [str(label), str(name), log, *figures, list(after)]:
                logs = () if log is None else _integers([log])
                times = _integers(figures)
            case _:
                raise ValueError(f"not a stage that has ended: {data!r}")
        if (
            len(times) != _TIMES
            or not all(0 <= log_ms <= _LARGEST for log_ms in logs)
            or min(times) < 0
        ):
            raise ValueError(f"not a stage that has ended: {data!r}")
        before = tuple(JobId(name_before) for name_before in after if isinstance(name_before, str))
        return EndedStage(label, name, logs[0] if logs else None, times[0], times[1], before)


@dataclass(frozen=True, slots=True)
class OwnerDags:
    """Knowledge about the DAGs of one owner.

    Attributes:
        labels: Learned run times by label; labels whose last lesson is oldest come first.
        ended: Ended stages of DAGs that are not over, in the order of their ends.
    """

    labels: Mapping[str, StageTimes] = field(default_factory=dict)
    ended: Mapping[JobId, EndedStage] = field(default_factory=dict)


_NOTHING = OwnerDags()
_NO_TIMES = StageTimes()


@dataclass(frozen=True, slots=True)
class DagTimes:
    """Learned run times of DAGs, by owner: no owner's DAGs affect another's.

    Attributes:
        owners: By name; owners whose last lesson is oldest come first.
    """

    owners: Mapping[str, OwnerDags] = field(default_factory=dict)

    def of(self, owner: str) -> OwnerDags:
        """Knowledge about an owner's DAGs; the same object until it changes."""
        return self.owners.get(owner, _NOTHING)

    def ended(self, owner: str, job: JobId, stage: EndedStage) -> DagTimes:
        """Record the end of a stage of a DAG that has other stages to come."""
        dags = self.of(owner)
        ended = {**dags.ended, job: stage}
        if len(ended) > ENDED_PER_OWNER:
            del ended[next(iter(ended))]
        return self._with(owner, replace(dags, ended=ended))

    def over(
        self, owner: str, stages: Mapping[JobId, EndedStage], *, learns: bool = True
    ) -> DagTimes:
        """Record the end of a DAG.

        Args:
            owner: Its owner.
            stages: All of its stages; nothing is learned unless all of them succeeded.
            learns: Whether to learn anything at all.
        """
        dags = self.of(owner)
        ended = {job: stage for job, stage in dags.ended.items() if job not in stages}
        labels = dict(dags.labels)
        keys = stage_keys({job: stage.name for job, stage in stages.items()})
        logs = ((key, stages[job].log) for job, key in keys.items())
        values = {key: log for key, log in logs if log is not None}
        if learns and values and len(values) == len(stages):
            label = next(iter(stages.values())).label
            labels[label] = labels.pop(label, _NO_TIMES).plus(values)
            if len(labels) > LABELS_PER_OWNER:
                del labels[next(iter(labels))]
        return self._with(owner, OwnerDags(labels, ended))

    def without(self, jobs: Iterable[tuple[str, JobId]]) -> DagTimes:
        """Without some stages that have ended, each given with its owner."""
        times = self
        for owner, job in jobs:
            dags = times.of(owner)
            ended = {name: stage for name, stage in dags.ended.items() if name != job}
            times = times._with(owner, replace(dags, ended=ended))
        return times

    def _with(self, owner: str, known: OwnerDags) -> DagTimes:
        owners = {name: dags for name, dags in self.owners.items() if name != owner}
        if known.labels or known.ended:
            owners[owner] = known
        # Too many entries are removed from the owner that has most.
        for _ in range(sum(len(dags.labels) for dags in owners.values()) - LABELS_KEPT):
            most = max(owners, key=lambda name: len(owners[name].labels))
            labels = dict(owners[most].labels)
            del labels[next(iter(labels))]
            owners[most] = replace(owners[most], labels=labels)
        for _ in range(sum(len(dags.ended) for dags in owners.values()) - ENDED_KEPT):
            most = max(owners, key=lambda name: len(owners[name].ended))
            ended = dict(owners[most].ended)
            del ended[next(iter(ended))]
            owners[most] = replace(owners[most], ended=ended)
        return DagTimes({name: dags for name, dags in owners.items() if dags.labels or dags.ended})

    def to_json(self) -> Json:
        """The journal's form: a list of [owner, labels, stages that have ended], in order."""
        return [
            [
                owner,
                [[label, *times.to_json()] for label, times in dags.labels.items()],
                [[job, *stage.to_json()] for job, stage in dags.ended.items()],
            ]
            for owner, dags in self.owners.items()
        ]

    @staticmethod
    def from_json(data: Json) -> DagTimes:
        """Read what `to_json` wrote.

        Raises:
            ValueError: The data has another form.
        """
        if not isinstance(data, list):
            raise ValueError("learned run times of DAGs are a list")
        owners: dict[str, OwnerDags] = {}
        for row in data:
            match row:
                case [str(owner), list(labels), list(ended)]:
                    owners[owner] = OwnerDags(
                        {label: StageTimes.from_json(rest) for label, rest in _named(labels)},
                        {JobId(job): EndedStage.from_json(rest) for job, rest in _named(ended)},
                    )
                case _:
                    raise ValueError(f"not an owner's learned run times of DAGs: {row!r}")
        return DagTimes(owners)


def _named(rows: Sequence[Json]) -> list[tuple[str, Json]]:
    entries: list[tuple[str, Json]] = []
    for row in rows:
        match row:
            case [str(name), *rest]:
                entries.append((name, rest))
            case _:
                raise ValueError(f"not learned run times of a DAG: {row!r}")
    return entries


def _integers(data: Sequence[Json]) -> tuple[int, ...]:
    numbers = tuple(number for number in data if type(number) is int)
    if len(numbers) != len(data):
        raise ValueError(f"not integers: {data!r}")
    return numbers
