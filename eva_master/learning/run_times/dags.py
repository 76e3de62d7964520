"""How long the stages of DAGs take: one Gaussian for all DAGs of one owner and label.

A stage is a job of a DAG. Its value is the logarithm of the mean run time of its tasks. Of a label
the means and the covariances of its stages are known, so that a stage that is done, or of which
some tasks have finished, tells how long the others will take. Logarithms, variances and covariances
are integers, in millionths, so that every machine comes to the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isqrt

from eva_master.model.arithmetic.fixed_point import log_ppm
from eva_master.model.ids import MILLION, JobId, job_order
from eva_master.model.planning.estimate import LONGEST_MS, Estimates, mean_ms, median_ms
from eva_master.model.planning.plan import Json

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
"""Stages are held to hang together less than they seem to, as if so many DAGs had shown nothing."""
_LEAST = 100
"""No variance is less: a spread of one per cent."""
_LARGEST = log_ppm(LONGEST_MS)
PREDECESSORS_KEPT = 16
"""Of a stage: others of its DAG that it waited for are found by the first ones."""
_TIMES = 2
OF_DAGS = (Estimates.POSTERIOR, Estimates.HISTORY)
"""Where estimates are of another kind, nobody asks how stages hang together."""


def base_of(name: str) -> str:
    """A job's name without what is counted at its end."""
    return name.rstrip("0123456789._-") or name


def stage_keys(names: Mapping[JobId, str]) -> dict[JobId, str]:
    """What the stages of a DAG are known by from one DAG of a label to the next.

    That is their names, without what is counted at the end. Stages that then have one name are
    numbered in the order of their submission.

    Args:
        names: Those of the stages, without what is counted at their end.
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
    """What is known of a stage from its own tasks.

    Attributes:
        log: Logarithm of their mean run time.
        variance: How far off that may be as the value of the stage; 0 of one that is done.
    """

    log: int
    variance: int = 0


@dataclass(frozen=True, slots=True)
class Value:
    """What is expected of a stage: a Gaussian.

    Attributes:
        log: Its mean.
        variance: Its variance, at least `_LEAST`.
    """

    log: int
    variance: int

    @property
    def mean_ms(self) -> int:
        """The mean run time of its tasks that is expected."""
        return mean_ms(self.log, self.variance)

    @property
    def median_ms(self) -> int:
        """Half of all DAGs take less."""
        return median_ms(self.log)


def conditioned(
    logs: Sequence[int], covariances: Sequence[Sequence[int]], seen: Mapping[int, Seen]
) -> tuple[list[int], list[list[int]]]:
    """A Gaussian, given what some of its variables were seen to be.

    It is conditioned on one after the other, which comes to the same as on all at once.

    Args:
        logs: Its means.
        covariances: All of them, row by row.
        seen: By place.

    Returns:
        The means and the covariances of all variables, those that were seen among them.
    """
    means, matrix = list(logs), [list(row) for row in covariances]
    for place, told in seen.items():
        column = [row[place] for row in matrix]
        if column[place] <= 0:  # others have told all there is to know
            continue
        whole = max(_LEAST, column[place]) + told.variance
        off = told.log - means[place]
        means = [mean + it * off // whole for mean, it in zip(means, column, strict=True)]
        matrix = [
            [known - one * other // whole for known, other in zip(row, column, strict=True)]
            for row, one in zip(matrix, column, strict=True)
        ]
    return means, matrix


@dataclass(frozen=True, slots=True)
class StageTimes:
    """The Gaussian of the DAGs of one label.

    Attributes:
        stages: What the stages are known by.
        dags: Of each, how many DAGs had it; at most 64.
        logs: Their means.
        covariances: Of each stage with those before it and with itself, one stage after the other.
    """

    stages: tuple[str, ...] = ()
    dags: tuple[int, ...] = ()
    logs: tuple[int, ...] = ()
    covariances: tuple[int, ...] = ()

    def plus(self, seen: Mapping[str, int]) -> StageTimes:
        """After one more DAG.

        Args:
            seen: The values of its stages. Of others nothing is learned; if there are too many of
                them they are forgotten. Stages beyond `STAGES_KEPT` are left out.
        """
        if len({*self.stages, *seen}) > STAGES_KEPT and not seen.keys() >= set(self.stages):
            return self._without([it for it in self.stages if it not in seen]).plus(seen)
        fresh = [it for it in seen if it not in self.stages][: STAGES_KEPT - len(self.stages)]
        stages = (*self.stages, *fresh)
        dags = [*self.dags, *(0 for _ in fresh)]
        logs = [*self.logs, *(seen[it] for it in fresh)]
        parts = [min(it + 1, _DAGS_AVERAGED) for it in dags]
        off = [seen[it] - log if it in seen else None for it, log in zip(stages, logs, strict=True)]
        rows = [[*row, *(0 for _ in range(at + 1 - len(row)))] for at, row in self._rows(stages)]
        for at, one in enumerate(off):
            for before, other in enumerate(off[: at + 1]):
                if one is not None and other is not None:
                    part = min(parts[at], parts[before])
                    more = one * other // (part * MILLION)
                    rows[at][before] = (rows[at][before] + more) * (part - 1) // part
        return StageTimes(
            stages,
            tuple(
                it if one is None else min(it + 1, _DAGS_COUNTED)
                for it, one in zip(dags, off, strict=True)
            ),
            tuple(
                log if one is None else log + one // part
                for log, one, part in zip(logs, off, parts, strict=True)
            ),
            tuple(it for row in rows for it in row),
        )

    def _without(self, stages: Collection[str]) -> StageTimes:
        rows = self._rows(self.stages)
        kept = [at for at, it in enumerate(self.stages) if it not in stages]
        return StageTimes(
            tuple(self.stages[at] for at in kept),
            tuple(self.dags[at] for at in kept),
            tuple(self.logs[at] for at in kept),
            tuple(rows[at][1][before] for at in kept for before in kept if before <= at),
        )

    def given(self, seen: Mapping[str, Seen]) -> dict[str, Value]:
        """What is expected of all stages, those that were seen among them.

        Args:
            seen: What is known of some stages.
        """
        places = ((at, seen[it]) for at, it in enumerate(self.stages) if it in seen)
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
        names = tuple(it for it in stages if isinstance(it, str))
        right = len(set(names)) == count == len(dags) == len(logs) and count <= STAGES_KEPT
        right = right and len(covariances) == count * (count + 1) // 2
        counts, means = _integers(dags), _integers(logs)
        right = right and all(1 <= it <= _DAGS_COUNTED for it in counts)
        if not right or not all(0 <= it <= _LARGEST for it in means):
            raise ValueError(f"not run times of stages: {data!r}")
        return StageTimes(names, counts, means, _integers(covariances))


@dataclass(frozen=True, slots=True)
class EndedStage:
    """A stage that has ended while others of its DAG have not.

    Attributes:
        label: Of its DAG.
        name: What it is known by: the job's name without what is counted at its end.
        log: The logarithm of the mean run time of its tasks; `None` if it did not succeed.
        had_ms: How long they took together.
        expected_ms: What 3Sigma expected of one of them; 0 if that was not asked.
        after: Jobs that it waited for, the first ones.
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
        if len(times) != _TIMES or not all(0 <= it <= _LARGEST for it in logs) or min(times) < 0:
            raise ValueError(f"not a stage that has ended: {data!r}")
        before = tuple(JobId(it) for it in after if isinstance(it, str))
        return EndedStage(label, name, logs[0] if logs else None, times[0], times[1], before)


@dataclass(frozen=True, slots=True)
class OwnerDags:
    """What is known of the DAGs of one owner.

    Attributes:
        labels: What was learned of the DAGs of each label; those learned of longest ago first.
        ended: Stages of DAGs that have not ended, in the order in which these stages did.
    """

    labels: Mapping[str, StageTimes] = field(default_factory=dict)
    ended: Mapping[JobId, EndedStage] = field(default_factory=dict)


_NOTHING = OwnerDags()
_NO_TIMES = StageTimes()


@dataclass(frozen=True, slots=True)
class DagTimes:
    """What was learned of DAGs, per owner: nobody's say anything of those of others.

    Attributes:
        owners: By name; those of whom something was learned longest ago stand first.
    """

    owners: Mapping[str, OwnerDags] = field(default_factory=dict)

    def of(self, owner: str) -> OwnerDags:
        """What is known of an owner's DAGs; the same object until there is news."""
        return self.owners.get(owner, _NOTHING)

    def ended(self, owner: str, job: JobId, stage: EndedStage) -> DagTimes:
        """After the end of a stage; others of its DAG have not ended."""
        known = self.of(owner)
        ended = {**known.ended, job: stage}
        if len(ended) > ENDED_PER_OWNER:
            del ended[next(iter(ended))]
        return self._with(owner, replace(known, ended=ended))

    def over(
        self, owner: str, stages: Mapping[JobId, EndedStage], *, learns: bool = True
    ) -> DagTimes:
        """After the end of a DAG.

        Args:
            owner: Whose.
            stages: All of its stages; nothing is learned unless all of them succeeded.
            learns: Whether anything is learned at all.
        """
        known = self.of(owner)
        ended = {job: it for job, it in known.ended.items() if job not in stages}
        labels = dict(known.labels)
        keys = stage_keys({job: it.name for job, it in stages.items()})
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
        found = self
        for owner, job in jobs:
            known = found.of(owner)
            ended = {name: it for name, it in known.ended.items() if name != job}
            found = found._with(owner, replace(known, ended=ended))
        return found

    def _with(self, owner: str, known: OwnerDags) -> DagTimes:
        owners = {name: it for name, it in self.owners.items() if name != owner}
        if known.labels or known.ended:
            owners[owner] = known
        # A flood goes at the cost of whoever has most.
        for _ in range(sum(len(it.labels) for it in owners.values()) - LABELS_KEPT):
            most = max(owners, key=lambda name: len(owners[name].labels))
            labels = dict(owners[most].labels)
            del labels[next(iter(labels))]
            owners[most] = replace(owners[most], labels=labels)
        for _ in range(sum(len(it.ended) for it in owners.values()) - ENDED_KEPT):
            most = max(owners, key=lambda name: len(owners[name].ended))
            ended = dict(owners[most].ended)
            del ended[next(iter(ended))]
            owners[most] = replace(owners[most], ended=ended)
        return DagTimes({name: it for name, it in owners.items() if it.labels or it.ended})

    def to_json(self) -> Json:
        """The journal's form: a list of [owner, labels, stages that have ended], in order."""
        return [
            [
                owner,
                [[label, *it.to_json()] for label, it in known.labels.items()],
                [[job, *it.to_json()] for job, it in known.ended.items()],
            ]
            for owner, known in self.owners.items()
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
    found: list[tuple[str, Json]] = []
    for row in rows:
        match row:
            case [str(name), *rest]:
                found.append((name, rest))
            case _:
                raise ValueError(f"not learned run times of a DAG: {row!r}")
    return found


def _integers(data: Sequence[Json]) -> tuple[int, ...]:
    found = tuple(it for it in data if type(it) is int)
    if len(found) != len(data):
        raise ValueError(f"not integers: {data!r}")
    return found
