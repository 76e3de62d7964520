"""How long the tasks of a job will take, by what the cluster has learned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import isqrt

from eva_master.control.measure.stages import DagStage
from eva_master.control.state.finished import Kind, kind_of_all
from eva_master.control.state.records import Records
from eva_master.control.state.view_cache import ToldEstimates
from eva_master.learning.delays import two_digits
from eva_master.learning.run_times.posterior import NONE_FINISHED, Finished, Prior, estimated
from eva_master.learning.runtimes import UNKNOWN, OwnerTimes, Traits
from eva_master.model.arithmetic.fixed_point import exp_of_ppm, log_ppm
from eva_master.model.job import JobSpec, TaskSpec
from eva_master.model.planning.estimate import (
    LONGEST_MS,
    Estimate,
    Estimates,
    Evidence,
    Source,
)
from eva_master.model.records import Job
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import MILLION, Millis, Workload

_KINDS_LEARNED = 16
"""Kinds of tasks of one job that teach at most, those of its first tasks."""
_FREEDOM_LEAST = 3
_OF_ITSELF = (Estimates.PILOTS, Estimates.POSTERIOR, Estimates.SLEARN_DAG)
"""A job's own finished tasks count."""
_AS_IT_IS = Fraction(1)


@dataclass(frozen=True, slots=True)
class Contradicted:
    """A stated duration that is not believed.

    Attributes:
        workload: Workload of the tasks that contradicted it.
        stated_ms: The stated duration.
        took_ms: Run times of the last three tasks.
    """

    workload: Workload
    stated_ms: int
    took_ms: tuple[int, ...]


@dataclass(slots=True)
class JobEstimates:
    """Run-time estimates of one job's tasks, computed once for each kind.

    Attributes:
        spec: The job.
        submitted_ms: When it was submitted, or would be.
        mode: Source of the estimates.
        known: Knowledge from its owner's earlier jobs.
        finished: Its own finished tasks, by kind.
        told: The last estimates given to policies. A change of less than a twentieth is ignored:
            policies then get the last estimates again.
        stage: Estimates by its DAG; `None` if it is no stage of one.
    """

    spec: JobSpec
    submitted_ms: Millis
    mode: Estimates
    known: OwnerTimes
    finished: Mapping[Kind, Finished]
    told: ToldEstimates | None = None
    stage: DagStage | None = None
    _made: dict[Kind, Estimate | None] = field(default_factory=dict)
    _stated: dict[int, Estimate] = field(default_factory=dict)

    @staticmethod
    def of_job(state: Records, job: Job, told: ToldEstimates | None = None) -> JobEstimates:
        """Estimates of a job that has not ended; with `told`, those for policies."""
        owner_times = state.learned.run_times.of(job.spec.owner)
        finished = state.finished_tasks.telling(job)
        estimates = JobEstimates(
            job.spec, job.submitted_ms, state.estimates, owner_times, finished, told
        )
        if job.spec.stage.dag and (dag := state.dags.of(job)) is not None:
            estimates.stage = DagStage(state, job, dag)
        return estimates

    @staticmethod
    def of_spec(
        state: Records,
        spec: JobSpec,
        now: Millis,
        finished: Mapping[Kind, Finished] | None = None,
    ) -> JobEstimates:
        """Estimates of a job that is, or would be, submitted at a given time."""
        owner_times = state.learned.run_times.of(spec.owner)
        return JobEstimates(spec, now, state.estimates, owner_times, finished or {})

    def of(self, tasks: Sequence[TaskSpec]) -> Estimate | None:
        """The estimate of tasks that progress together; `None` if unknown."""
        kind = kind_of_all(tasks)
        if kind not in self._made:
            fresh = self._of(kind)
            self._made[kind] = fresh if self.told is None else self.told.settled(kind, fresh)
        return self._made[kind]

    def expected_ms(self, tasks: Sequence[TaskSpec]) -> int | None:
        """How long tasks are expected to take that progress together, to two digits."""
        estimate = self.of(tasks)
        if estimate is None:
            return None
        if self.told is None:
            return two_digits(estimate.mean_ms)
        return self.told.settled_ms(kind_of_all(tasks), estimate.mean_ms)

    def stated(self, whole_ms: int) -> Estimate:
        """A run time that is stated, in the form of an estimate."""
        if whole_ms not in self._stated:
            self._stated[whole_ms] = Estimate.stated(whole_ms)
        return self._stated[whole_ms]

    def believed_ms(self, tasks: Sequence[TaskSpec]) -> int | None:
        """The duration that the job states of tasks, unless others contradict it."""
        return None if self.contradicted(tasks) else self.spec.duration_ms

    def contradicted(self, tasks: Sequence[TaskSpec]) -> Contradicted | None:
        """Why the stated duration is not believed; `None` if it is, or if there is none.

        A statement is believed while there is no other estimate.
        """
        stated, workload = self.spec.duration_ms, tasks[0].workload
        if stated is None or not self.known.doubted or self.mode is Estimates.OFF:
            return None
        took = self.known.disbelieved(workload, stated)
        if not took or self.of(tasks) is None:
            return None
        return Contradicted(workload, stated, took)

    def evidence(self, tasks: Sequence[TaskSpec]) -> Evidence:
        """Evidence behind the estimate of tasks that progress together."""
        kind, mode = kind_of_all(tasks), self.mode
        found_evidence = Evidence()
        own = self.finished.get(kind, NONE_FINISHED)
        if own.tasks and mode in _OF_ITSELF:
            found_evidence = Evidence(own.tasks, own.total_ms // own.tasks)
        workload, demand = kind
        traits = Traits(workload, self.spec.name, self.submitted_ms, demand)
        feature, best = self.known.telling_feature(traits), self.known.most_telling(traits)
        if feature is None or best is None or mode in (Estimates.PILOTS, Estimates.OFF):
            return found_evidence
        spread, variance = best
        return replace(
            found_evidence,
            feature=feature.value,
            value=dict(traits.values())[feature],
            jobs=spread.jobs,
            jobs_ms=exp_of_ppm(spread.log),
            spread_ppm=isqrt(variance * MILLION),
        )

    def _of(self, kind: Kind) -> Estimate | None:
        mode = self.mode
        if mode is Estimates.OFF:
            return None
        workload, demand = kind
        traits = Traits(workload, self.spec.name, self.submitted_ms, demand)
        if mode in (Estimates.THREE_SIGMA, Estimates.POINT):
            return self._of_values(traits)
        later = None if self.stage is None else self.stage.scaled_by
        if mode is Estimates.SLEARN_DAG and later is not None:
            return self._of_values(traits, later)
        of_itself = mode in (Estimates.PILOTS, Estimates.SLEARN_DAG)
        prior = None if of_itself else self._prior(traits)
        own = NONE_FINISHED if mode is Estimates.HISTORY else self.finished.get(kind, NONE_FINISHED)
        if own.tasks == 0 and prior is None:
            return None
        source = Source.POSTERIOR if prior is not None else Source.PILOTS
        if own.tasks == 0:
            source = Source.HISTORY
        return estimated(prior or UNKNOWN, own, source)

    def _prior(self, traits: Traits) -> Prior | None:
        """Prior of a kind of tasks, by earlier jobs and other stages of the DAG."""
        own = self.known.prior(traits)
        value = None if self.stage is None else self.stage.value
        if value is None:
            return own
        within = (own or UNKNOWN).within
        # The value of a stage is about a mean run time, and a prior about the mean of logarithms.
        return replace(own or UNKNOWN, log=max(0, value.log - within // 2), between=value.variance)

    def _of_values(self, traits: Traits, factor: Fraction = _AS_IT_IS) -> Estimate | None:
        """Estimate by the last values of the best feature alone, times a factor."""
        best, usual = self.known.most_telling(traits), self.known.usual_ms(traits, self.mode)
        if best is None or usual is None:
            return None
        spread, variance = best
        usual = min(LONGEST_MS, max(1, int(usual * factor)))
        freedom = spread.jobs + _FREEDOM_LEAST
        return Estimate(usual, log_ppm(usual), variance, freedom, Source.HISTORY)


def lessons(state: Records, job: Job) -> list[tuple[Traits, Finished]]:
    """Lessons of a job that ends: its finished tasks by kind, a gang as if it were one task."""
    spec = job.spec
    if state.estimates is Estimates.OFF:
        return []
    if job.is_gang:
        took = [run.took_ms for run in state.members(job.id)]
        took = took if spec.elastic.least is None else [time_ms for time_ms in took if time_ms]
        if not took or not all(took):
            return []
        whole = NONE_FINISHED.plus(sum(took) // len(took))
        return [(_traits(job, kind_of_all(spec.tasks)), whole)]
    by_kind = list(state.finished_tasks.of(job).items())[:_KINDS_LEARNED]
    return [(_traits(job, kind), finished) for kind, finished in by_kind]


def _traits(job: Job, kind: Kind) -> Traits:
    return Traits(kind[0], job.spec.name, job.submitted_ms, kind[1])


def groups(spec: JobSpec) -> list[range]:
    """The tasks of a job that progress together, by their numbers."""
    if spec.kind is JobKind.GANG:
        return [range(len(spec.tasks))]
    return [range(number, number + 1) for number in spec.indices]
