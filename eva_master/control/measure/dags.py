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
from eva_master.model.ids import JobId
from eva_master.model.planning.estimate import LONGEST_MS, Estimates
from eva_master.model.planning.snapshot import DagView
from eva_master.model.records import Job
from eva_master.model.states import JobState
from eva_master.ports.reading import DagOutlook

_LOOKED_AT = 16
"""Of the stages that wait, so many are estimated; the others count as these do on average."""


class DagViews:
    """The views of DAGs while nothing changes; that of one is made once for all its stages."""

    def __init__(self, state: Records) -> None:
        self._state = state
        self._known: dict[int, DagView | None] = {}

    def of(self, job: Job) -> DagView | None:
        """What `of_job` says of a job, made once for all stages."""
        dag = self._state.dag(job) if job.spec.dag else None
        if dag is None:
            return None
        if id(dag) not in self._known:
            self._known[id(dag)] = of_job(self._state, job)
        return self._known[id(dag)]


def of_job(state: Records, job: Job) -> DagView | None:
    """What there is of a job's DAG beside it; `None` if it is no stage of one.

    What it takes does not depend on how many stages there are.
    """
    dag = state.dag(job) if job.spec.dag else None
    if dag is None:
        return None
    waiting = [name for name in dag.members if state.jobs[name].waits]
    known = state.learned.dags.of(job.spec.owner).ended
    over = [known[name] for name in dag.ended if name in known]
    expected_ms, likely_ms = _work_ms(state, dag, waiting)
    return DagView(
        label=dag.label,
        first=dag.first,
        submitted_ms=dag.submitted_ms,
        waiting=len(waiting),
        waiting_ms=expected_ms,
        likely_ms=likely_ms,
        ended=len(over),
        ended_ms=sum(it.had_ms for it in over),
    )


def outlook(state: Records, job: Job, tasks_left: Callable[[JobId], int]) -> DagOutlook | None:
    """What users are told of a job's DAG; `None` if it is no stage of one, or has ended.

    Args:
        state: Where it is looked up.
        job: The job.
        tasks_left: Tells how many tasks of a job have not ended.
    """
    view, dag = of_job(state, job), state.dag(job)
    if view is None or dag is None:
        return None
    there = [state.jobs[name] for name in dag.members if not state.jobs[name].waits]
    each = [(remaining.expected(state, stage), tasks_left(stage.id)) for stage in there]
    known = [found.mean_ms * left for found, left in each if found is not None]
    times = times_of(state, job, dag)
    enough = state.estimates in OF_DAGS and times.dags and max(times.dags) >= ENOUGH_DAGS
    return DagOutlook(
        label=view.label,
        stages=len(dag.members) + view.ended,
        ended=view.ended,
        waiting=view.waiting,
        left_ms=sum(known) + view.waiting_ms if len(known) == len(each) else None,
        earlier=max(times.dags) if enough else 0,
    )


def _work_ms(state: Records, dag: Dag, waiting: list[JobId]) -> tuple[int, int]:
    """The work of stages that wait: what is expected, and what is likely."""
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
            found = remaining.expected(state, record)
            mean_ms, median_ms = (0, 0) if found is None else (found.mean_ms, found.likely_ms)
        expected += mean_ms * record.spec.size
        likely += median_ms * record.spec.size
    share = len(waiting), len(looked_at)
    return expected * share[0] // share[1], likely * share[0] // share[1]


def ended(state: State, job: Job) -> EndedStage | None:
    """What is to be remembered of a job that has just ended, as a stage of its DAG.

    To be asked before anything is learned from its end.

    Returns:
        `None` if it was no stage of one, or if nothing is learned of run times.
    """
    if state.estimates is Estimates.OFF or state.dag(job) is None:
        return None
    tasks, total_ms = _took(state, job)
    log = log_ppm(min(LONGEST_MS, max(1, total_ms // tasks))) if tasks else None
    expected = expected_ms(state, job) if state.estimates is Estimates.SLEARN_DAG else 0
    return EndedStage(
        label=job.spec.dag,
        name=base_of(job.spec.name),
        log=log if job.state is JobState.SUCCEEDED else None,
        had_ms=total_ms,
        expected_ms=expected,
        after=job.spec.depends_on[:PREDECESSORS_KEPT],
    )


def _took(state: State, job: Job) -> tuple[int, int]:
    """How many tasks of a job have finished, and how long they took together."""
    if job.is_gang:
        took = [run.took_ms for run in state.members(job.id) if run.took_ms]
        return len(took), sum(took)
    known = state.finished(job).values()
    return sum(it.tasks for it in known), sum(it.total_ms for it in known)


def learned(state: State, job: Job, stage: EndedStage) -> DagTimes:
    """What is known of DAGs once a stage has ended, which has not been noted so far.

    Args:
        state: Where it is looked up.
        job: The stage's.
        stage: What is to be remembered of it.
    """
    known, owner, dag = state.learned.dags, job.spec.owner, state.dag(job)
    if dag is None:
        return known
    if len(dag.members) > 1:
        return known.ended(owner, job.id, stage)
    before = known.of(owner).ended
    stages = {name: before[name] for name in dag.ended if name in before}
    whole = dag.whole and len(stages) == len(dag.ended)
    return known.over(owner, {**stages, job.id: stage}, learns=whole and state.estimates in OF_DAGS)
