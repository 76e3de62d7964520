"""How well the work of whole DAGs was estimated, and how long DAGs took."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from eva_lab.simulator.results.metrics import JobFigures, quantile
from eva_lab.simulator.results.run_times import BEFOREHAND
from eva_lab.simulator.scenario.submission import work_ms
from eva_master.model.planning.estimate import Estimates
from eva_master.model.planning.job_view import JobView
from eva_master.model.planning.plan import PolicyMemory
from eva_master.model.planning.snapshot import Snapshot
from eva_master.model.trace import TraceJob
from eva_master.ports import Planned, Policy
from eva_wire.values.ids import JobId


@dataclass(frozen=True, slots=True)
class DagAccuracy:
    """How far off the estimates of whole DAGs were.

    Attributes:
        dags: Number of DAGs with several stages.
        estimated: Number of these with an estimate; all other figures are about these, and 0 if
            there is none.
        p50: Median of the error of a DAG's work, as a share of that.
        p90: The 90th percentile.
    """

    dags: int
    estimated: int
    p50: float
    p90: float


class WatchedDags:
    """Wraps a policy and notes what it was told of the work of whole DAGs.

    The estimate of a DAG is what its stages that have ended took, and the medians of what others
    are expected to, those that are there and those that wait.

    Args:
        policy: The one that decides.
        jobs: Of the trace.

    Attributes:
        at_first: By the first stage's name in the trace: the estimate, in milliseconds of one task,
            in the first snapshot that shows that stage.
        before_second: Estimates in the first snapshot in which that stage has ended.
    """

    def __init__(self, policy: Policy, jobs: Iterable[TraceJob]) -> None:
        self._policy = policy
        self.name = policy.name
        self._firsts = set(stages_of(jobs))
        self._seen: set[JobId] = set()
        self._noted: set[JobId] = set()
        self.at_first: dict[str, int] = {}
        self.before_second: dict[str, int] = {}

    def plan(self, snapshot: Snapshot, memory: PolicyMemory | None) -> Planned:
        """See `eva_master.ports.Policy.plan`."""
        for job in snapshot.jobs:
            if job.progress.dag is not None and job.progress.dag.first not in self._noted:
                self._look_at(job)
        return self._policy.plan(snapshot, memory)

    def decisive(self, mode: Estimates, *, stated: bool) -> Mapping[str, int]:
        """By DAG, the estimate before its second stage.

        Where finished tasks change nothing that is the one at its arrival.

        Args:
            mode: Source of estimates.
            stated: Whether jobs told how long they take.
        """
        return self.at_first if stated or mode in BEFOREHAND else self.before_second

    def _look_at(self, view: JobView) -> None:
        dag = view.progress.dag
        assert dag is not None
        name = dag.first.rpartition("-")[0]
        if name not in self._firsts:
            self._noted.add(dag.first)
            return
        if view.progress.estimate is None:
            return
        left_ms = view.progress.estimate.likely_ms * (view.array.size - view.progress.over)
        whole_ms = left_ms + view.progress.succeeded_ms + dag.likely_ms + dag.ended_ms
        if not dag.ended and dag.first not in self._seen:
            self._seen.add(dag.first)
            self.at_first[name] = whole_ms
        if dag.ended == 1:
            self._noted.add(dag.first)
            self.before_second[name] = whole_ms


def stages_of(jobs: Iterable[TraceJob]) -> dict[str, list[TraceJob]]:
    """The stages of each DAG of several, in their order, by the name of the first one."""
    first: dict[str, str] = {}
    dags: dict[str, list[TraceJob]] = {}
    for job in jobs:
        if job.dag:
            name = first[job.id] = first[job.after[0]] if job.after else job.id
            dags.setdefault(name, []).append(job)
    return {name: stages for name, stages in dags.items() if len(stages) > 1}


def accuracy_of_dags(estimates: Mapping[str, int], jobs: Iterable[TraceJob]) -> DagAccuracy:
    """Compare estimates with how much work DAGs really had.

    Args:
        estimates: Of DAGs, see `WatchedDags`.
        jobs: Of the trace.
    """
    dags, errors = stages_of(jobs), []
    for name, told_ms in estimates.items():
        true_ms = sum(work_ms(job, index) for job in dags[name] for index in range(len(job.tasks)))
        errors.append(abs(told_ms - true_ms) / true_ms)
    if not errors:
        return DagAccuracy(len(dags), 0, 0.0, 0.0)
    p50, p90 = (quantile(errors, share) for share in (0.5, 0.9))
    return DagAccuracy(len(dags), len(errors), p50, p90)


def completion_ms(record: Sequence[JobFigures], jobs: Iterable[TraceJob]) -> list[int]:
    """How long each DAG took, from its arrival to the end of its last stage.

    Args:
        record: Of the jobs of a run.
        jobs: Of the trace.
    """
    figures = {job.name: job for job in record}
    return [
        max(figures[job.id].finished_ms for job in stages)
        - min(figures[job.id].submitted_ms for job in stages)
        for stages in stages_of(jobs).values()
    ]
