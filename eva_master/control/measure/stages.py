"""Predictions of stages' run times from the other stages of their DAG."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from eva_master.control.state.derived.dags import Dag
from eva_master.control.state.finished import Kind, kind_of_all
from eva_master.control.state.records import Records
from eva_master.learning.run_times.dags import (
    ENOUGH_DAGS,
    OF_DAGS,
    Seen,
    StageTimes,
    Value,
    base_of,
    stage_keys,
)
from eva_master.learning.run_times.posterior import Finished
from eva_master.learning.runtimes import ASSUMED_WITHIN, Traits
from eva_master.model.arithmetic.fixed_point import exp_of_ppm, log_ppm
from eva_master.model.planning.estimate import LONGEST_MS, Estimates
from eva_master.model.records import Job
from eva_wire.values.ids import JobId

_ASSUMED_TASKS = 4
"""The assumed spread of the tasks of a stage counts as so many tasks."""
_NO_TIMES = StageTimes()
_AS_IT_IS = Fraction(1)
_FASTEST, _SLOWEST = Fraction(1, 1_000_000), Fraction(1_000_000)


@dataclass(frozen=True, slots=True)
class DagStage:
    """A job as a stage of its DAG.

    Attributes:
        state: Where it is looked up.
        job: The job, which has not ended.
        dag: Its DAG.
    """

    state: Records
    job: Job
    dag: Dag

    @property
    def value(self) -> Value | None:
        """Run time predicted from its DAG; `None` if too few such DAGs are known."""
        if self.state.estimates not in OF_DAGS:
            return None
        times = times_of(self.state, self.job, self.dag)
        if max(times.dags, default=0) < ENOUGH_DAGS:
            return None
        keys = keys_of(self.state, self.dag)
        own = keys.get(self.job.id, "")
        if not times.known(own):
            return None
        seen = seen_of(self.state, self.dag, keys)
        return times.given({key: observation for key, observation in seen.items() if key != own})[
            own
        ]

    @property
    def scaled_by(self) -> Fraction | None:
        """Factor by which its DAG's first stage exceeded 3Sigma's estimate of it.

        Returns:
            1 while that is unknown, and `None` for the first stage itself.
        """
        first = self.dag.first
        if first == self.job.id:
            return None
        stage = self.state.learned.dags.of(self.job.spec.owner).ended.get(first)
        if stage is not None:
            took = 0 if stage.log is None else exp_of_ppm(stage.log)
            return _ratio(took, stage.expected_ms)
        other = self.state.jobs.get(first)
        own = None if other is None else _together(self.state.finished_tasks.telling(other))
        if other is None or own is None:
            return _AS_IT_IS
        return _ratio(own.total_ms // own.tasks, expected_ms(self.state, other))


def _ratio(took_ms: int, expected_ms: int) -> Fraction:
    if not took_ms or not expected_ms:
        return _AS_IT_IS
    return min(_SLOWEST, max(_FASTEST, Fraction(took_ms, expected_ms)))


def times_of(state: Records, job: Job, dag: Dag) -> StageTimes:
    """Learned run times for the DAGs of a job's owner and label."""
    return state.learned.dags.of(job.spec.owner).labels.get(dag.label, _NO_TIMES)


def keys_of(state: Records, dag: Dag) -> dict[JobId, str]:
    """Keys of the stages of a DAG, ended ones included."""
    names = {job: base_of(state.jobs[job].spec.name) for job in dag.members}
    owner = state.jobs[dag.members[0]].spec.owner
    ended = state.learned.dags.of(owner).ended
    return stage_keys(names | {job: ended[job].name for job in dag.ended if job in ended})


def seen_of(state: Records, dag: Dag, keys: Mapping[JobId, str]) -> dict[str, Seen]:
    """Observations of the stages of a DAG from their own tasks.

    Args:
        state: The records.
        dag: The DAG.
        keys: Keys of its stages.
    """
    ended = state.learned.dags.of(state.jobs[dag.members[0]].spec.owner).ended
    observations: dict[str, Seen] = {}
    for name in dag.ended:
        if (stage := ended.get(name)) is not None and stage.log is not None:
            observations[keys[name]] = Seen(stage.log)
    for name in dag.members:
        own = _together(state.finished_tasks.telling(state.jobs[name]))
        if own is not None:
            freedom = own.tasks - 1 + _ASSUMED_TASKS
            within = (own.deviation + ASSUMED_WITHIN * _ASSUMED_TASKS) // freedom
            mean_ms = min(LONGEST_MS, max(1, own.total_ms // own.tasks))
            observations[keys[name]] = Seen(log_ppm(mean_ms), within // own.tasks)
    return observations


def _together(finished: Mapping[Kind, Finished]) -> Finished | None:
    """The finished tasks of a stage; `None` if there is none."""
    by_kind = list(finished.values())
    if not by_kind:
        return None
    sums = zip(
        *((kind.tasks, kind.total_ms, kind.logs, kind.squares) for kind in by_kind), strict=True
    )
    return Finished(*map(sum, sums))


def expected_ms(state: Records, job: Job) -> int:
    """3Sigma's estimate of a job's task by earlier jobs alone; 0 if unknown."""
    tasks = job.spec.tasks if job.is_gang else job.spec.tasks[:1]
    workload, demand = kind_of_all(tasks)
    traits = Traits(workload, job.spec.name, job.submitted_ms, demand)
    owner_times = state.learned.run_times.of(job.spec.owner)
    return owner_times.usual_ms(traits, Estimates.THREE_SIGMA) or 0
