"""The DAGs of jobs as policies see them, and what they teach."""

from __future__ import annotations

from collections.abc import Callable

from eva_master.control.measure import remaining
from eva_master.control.measure.stages import expected_ms, keys_of, seen_of, times_of
from eva_master.control.state.derived.dags import Dag
from eva_master.control.state.records import Records
from eva_master.control.state.store import State
from eva_master.learning.run_times.dags import (
    ENOUGH_DAGS,
    OF_DAGS,
    PREDECESSORS_KEPT,
    DagTimes,
    EndedStage,
    Value,
    base_of,
)
from eva_master.model.arithmetic.fixed_point import log_ppm
from eva_master.model.planning.estimate import LONGEST_MS, Estimates
from eva_master.model.planning.job_view import DagView
from eva_master.model.records import Job
from eva_master.ports.reading import DagOutlook
from eva_wire.values.ids import JobId
from eva_wire.values.states import JobState

_LOOKED_AT = 16
"""Of the stages that wait, so many are estimated; the others count as these do on average."""


class DagViews:
    """The views of DAGs while nothing changes; that of one is made once for all its stages."""

    def __init__(self, state: Records) -> None:
        self._state = state
        self._known: dict[int, DagView | None] = {}

    def of(self, job: Job) -> DagView | None:
        """The result of `of_job`, made once for all stages of a DAG."""
        dag = self._state.dags.of(job) if job.spec.stage.dag else None
        if dag is None:
            return None
        if id(dag) not in self._known:
            self._known[id(dag)] = of_job(self._state, job)
        return self._known[id(dag)]


def of_job(state: Records, job: Job) -> DagView | None:
    """View of a job's DAG beside the job itself; `None` if it is no stage of one.

    The cost of this does not depend on the number of stages.
    """
    dag = state.dags.of(job) if job.spec.stage.dag else None
    if dag is None:
        return None
    waiting = [name for name in dag.members if state.jobs[name].waits]
    ended_stages = state.learned.dags.of(job.spec.owner).ended
    over = [ended_stages[name] for name in dag.ended if name in ended_stages]
    expected_ms, likely_ms = _work_ms(state, dag, waiting)
    return DagView(
        label=dag.label,
        first=dag.first,
        submitted_ms=dag.submitted_ms,
        waiting=len(waiting),
        waiting_ms=expected_ms,
        likely_ms=likely_ms,
        ended=len(over),
        ended_ms=sum(stage.had_ms for stage in over),
    )


def outlook(state: Records, job: Job, tasks_left: Callable[[JobId], int]) -> DagOutlook | None:
    """View of a job's DAG for users; `None` if it is no stage of one, or has ended.

    Args:
        state: The records.
        job: The job.
        tasks_left: Function that gives the number of a job's tasks that have not ended.
    """
    view, dag = of_job(state, job), state.dags.of(job)
    if view is None or dag is None:
        return None
    present = [state.jobs[name] for name in dag.members if not state.jobs[name].waits]
    each = [(remaining.expected(state, stage), tasks_left(stage.id)) for stage in present]
    known_ms = [estimate.mean_ms * tasks for estimate, tasks in each if estimate is not None]
    times = times_of(state, job, dag)
    enough = state.estimates in OF_DAGS and times.dags and max(times.dags) >= ENOUGH_DAGS
    return DagOutlook(
        label=view.label,
        stages=len(dag.members) + view.ended,
        ended=view.ended,
        waiting=view.waiting,
        left_ms=sum(known_ms) + view.waiting_ms if len(known_ms) == len(each) else None,
        earlier=max(times.dags) if enough else 0,
    )


def _work_ms(state: Records, dag: Dag, waiting: list[JobId]) -> tuple[int, int]:
    """Work of waiting stages: the expected one, and the likely one."""
    if not waiting:
        return 0, 0
    job = state.jobs[waiting[0]]
    times, values, keys = times_of(state, job, dag), dict[str, Value](), dict[JobId, str]()
    if times.stages and state.estimates in OF_DAGS:
        keys = keys_of(state, dag)
        values = times.given(seen_of(state, dag, keys))
    looked_at = waiting[:_LOOKED_AT]
    expected = likely = 0
    for name in looked_at:
        record, key = state.jobs[name], keys.get(name, "")
        stated = record.spec.duration_ms or record.spec.total_steps
        if times.known(key) and not stated:
            mean_ms, median_ms = values[key].mean_ms, values[key].median_ms
        else:
            estimate = remaining.expected(state, record)
            mean_ms, median_ms = (
                (0, 0) if estimate is None else (estimate.mean_ms, estimate.likely_ms)
            )
        expected += mean_ms * record.spec.size
        likely += median_ms * record.spec.size
    share = len(waiting), len(looked_at)
    return expected * share[0] // share[1], likely * share[0] // share[1]


def ended(state: State, job: Job) -> EndedStage | None:
    """Record of a job that has just ended, as a stage of its DAG.

    The function must be called before anything is learned from the job's end.

    Returns:
        The record; `None` if the job was no stage, or if run times are not learned.
    """
    if state.estimates is Estimates.OFF or state.dags.of(job) is None:
        return None
    tasks, total_ms = _took(state, job)
    log = log_ppm(min(LONGEST_MS, max(1, total_ms // tasks))) if tasks else None
    expected = expected_ms(state, job) if state.estimates is Estimates.SLEARN_DAG else 0
    return EndedStage(
        label=job.spec.stage.dag,
        name=base_of(job.spec.name),
        log=log if job.state is JobState.SUCCEEDED else None,
        had_ms=total_ms,
        expected_ms=expected,
        after=job.spec.stage.depends_on[:PREDECESSORS_KEPT],
    )


def _took(state: State, job: Job) -> tuple[int, int]:
    """Number of finished tasks of a job, and their summed run time."""
    if job.is_gang:
        took = [run.took_ms for run in state.members(job.id) if run.took_ms]
        return len(took), sum(took)
    by_kind = state.finished_tasks.of(job).values()
    return sum(finished.tasks for finished in by_kind), sum(
        finished.total_ms for finished in by_kind
    )


def learned(state: State, job: Job, stage: EndedStage) -> DagTimes:
    """Knowledge about DAGs after the end of a stage, which is not noted in it yet.

    Args:
        state: The records.
        job: The stage's job.
        stage: The record of the stage.
    """
    dag_times, owner, dag = state.learned.dags, job.spec.owner, state.dags.of(job)
    if dag is None:
        return dag_times
    if len(dag.members) > 1:
        return dag_times.ended(owner, job.id, stage)
    before = dag_times.of(owner).ended
    stages = {name: before[name] for name in dag.ended if name in before}
    whole = dag.whole and len(stages) == len(dag.ended)
    return dag_times.over(
        owner, {**stages, job.id: stage}, learns=whole and state.estimates in OF_DAGS
    )
