"""DAGs under the production loop: what policies are told of them, and how right that is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from benchmarks.run_times import simulated
from eva_lab.experiments.fixed import ClusterSection
from eva_lab.simulator.cluster.work import Work
from eva_lab.simulator.run import Setup, Simulation
from eva_lab.simulator.scenario.earlier import taught
from eva_lab.simulator.scenario.fixed_cluster import FixedCluster
from eva_lab.simulator.scenario.submission import spec_of
from eva_lab.simulator.simulated_cluster import SimulatedCluster
from eva_lab.traces.dags import recurring_dags
from eva_lab.traces.recurrent import FLAVOURS
from eva_master.adapters.rpc.server.explain import Subject, find
from eva_master.app.policy_registry import policies
from eva_master.control.planning.snapshot_builder import snapshot
from eva_master.control.readside.publisher import Publisher
from eva_master.control.settings import Settings
from eva_master.control.state.store import State
from eva_master.learning.knowledge import Knowledge
from eva_master.learning.run_times.dags import DagTimes, EndedStage
from eva_master.model.changes import Changes
from eva_master.model.events import CancelRequested
from eva_master.model.planning.estimate import Estimates
from eva_master.model.planning.job_view import DagView, JobView
from eva_master.model.planning.plan import Plan, PolicyMemory
from eva_master.model.planning.snapshot import Snapshot
from eva_master.model.trace import SLOT, EarlierJob, Trace, TraceJob, TraceTask
from eva_master.testing.job_views import with_values
from eva_wire.values.bounds import JobKind
from eva_wire.values.errors import InvalidTrace
from eva_wire.values.ids import JobId, Millis, RunId, Workload
from tests.fakes.jobs import CATALOG, CPU

SECOND = 1_000
USUAL_S = {"a": 10, "b": 60, "c": 5}
PAST = tuple(
    EarlierJob(
        "ana",
        f"{stage}-{number}",
        Workload(stage),
        SLOT,
        usual * factor * SECOND,
        dag="etl",
        dag_number=number,
    )
    for number, factor in enumerate((1, 2, 4, 8) * 5, 1)
    for stage, usual in USUAL_S.items()
)


def dag(factor: float, number: int = 100, tasks: int = 3, **fields: object) -> list[TraceJob]:
    """Stages one after the other that take so many times as long as usual."""
    jobs: list[TraceJob] = []
    for stage, usual in USUAL_S.items():
        took = round(usual * factor * SECOND)
        made = TraceJob(
            f"{stage}-{number}",
            Workload(stage),
            arrival_ms=0,
            duration_ms=took,
            tasks=(TraceTask(SLOT, duration_ms=took),) * tasks,
            owner="ana",
            kind=JobKind.ARRAY,
            dag="etl",
            after=(jobs[-1].id,) if jobs else (),
        )
        jobs.append(replace(made, **fields))  # type: ignore[arg-type]
    return jobs


class Watched:
    """Has another policy decide, and keeps what it is shown of each job."""

    name = "slearn"

    def __init__(self, preset: str = "") -> None:
        kind = policies()["slearn"]
        self._inner = kind.build(kind.config(**(kind.presets[preset] if preset else {})))
        self.seen: dict[str, list[JobView]] = {}

    def plan(
        self, snapshot: Snapshot, memory: PolicyMemory | None
    ) -> tuple[Plan, PolicyMemory | None]:
        for job in snapshot.jobs:
            self.seen.setdefault(job.id[0], []).append(job)
        return self._inner.plan(snapshot, memory)

    def first(self, stage: str) -> tuple[JobView, DagView]:
        view = self.seen[stage][0]
        assert view.progress.dag is not None
        return view, view.progress.dag


def run(jobs: Sequence[TraceJob], *, past: Sequence[EarlierJob] = PAST, **more: object) -> Watched:
    policy = Watched(str(more.pop("preset", "")))
    nodes = FixedCluster(servers=6, short=0).nodes
    trace = Trace("t", tuple(jobs), tuple(past))
    setup = Setup(trace, (), policy, nodes=nodes, durations=False, **more)  # type: ignore[arg-type]
    Simulation(setup).run()
    return policy


def test_what_waits_is_told_with_its_work_and_what_is_done_tells_of_it() -> None:
    seen = run(dag(8))
    _, dag_ = seen.first("a")
    assert (dag_.label, dag_.first, dag_.waiting, dag_.ended) == ("etl", "a-100-1", 2, 0)
    usual_ms = 3 * (60 + 5) * 3.75 * SECOND
    assert dag_.waiting_ms == pytest.approx(usual_ms, rel=0.25)
    second, dag_ = seen.first("b")
    assert (dag_.first, dag_.waiting, dag_.ended) == ("a-100-1", 1, 1)
    assert dag_.ended_ms == 3 * 80 * SECOND
    assert dag_.waiting_ms == pytest.approx(3 * 40 * SECOND, rel=0.4)
    assert second.progress.estimate is not None
    assert second.progress.estimate.tasks == 0
    assert second.progress.estimate.mean_ms == pytest.approx(480 * SECOND, rel=0.4)
    third, dag_ = seen.first("c")
    assert (dag_.waiting, dag_.waiting_ms, dag_.ended) == (0, 0, 2)
    assert third.progress.estimate is not None
    assert third.progress.estimate.spread_ppm < second.progress.estimate.spread_ppm


def test_pilots_of_the_first_stage_tell_before_it_is_done() -> None:
    views = [it for it in run(dag(8, tasks=12)).seen["a"] if it.progress.dag is not None]
    before = next(it for it in views if it.progress.succeeded == 0)
    after = next(it for it in views if it.progress.succeeded)
    assert after.progress.dag.likely_ms > 2 * before.progress.dag.likely_ms
    assert after.progress.dag.waiting_ms > 1.5 * before.progress.dag.waiting_ms


def test_with_little_history_each_stage_is_estimated_by_itself() -> None:
    few = [it for it in PAST if it.dag_number <= 2]
    alone = [replace(it, dag="") for it in few]
    found = [run(dag(8), past=past).first("b")[0].progress.estimate for past in (few, alone)]
    assert found[0] == found[1] is not None


def test_slearn_dag_scales_what_3sigma_says_by_how_much_longer_the_first_stage_took() -> None:
    by_itself, _ = run(dag(8), preset="3sigma-dag", estimates=Estimates.THREE_SIGMA).first("b")
    seen = run(dag(8), preset="slearn-dag", estimates=Estimates.SLEARN_DAG)
    first, dag_ = seen.first("a")
    assert first.progress.estimate is None, "it has pilots"
    scaled, _ = seen.first("b")
    assert by_itself.progress.estimate is not None
    assert scaled.progress.estimate is not None
    # 3Sigma expects 1.735 of the usual time of each stage, by the mean of 1/t^2 of all DAGs.
    factor = 8 / (0.33203125**-0.5)
    expected_ms = by_itself.progress.estimate.mean_ms * factor
    assert scaled.progress.estimate.mean_ms == pytest.approx(expected_ms, rel=1e-3)
    assert dag_.waiting_ms == pytest.approx(3 * 65 * 0.33203125**-0.5 * SECOND, rel=1e-3)
    assert not [it for it in seen.seen["b"] if it.progress.pilots_left is not None], (
        "later ones have none"
    )


def cluster_of(*dags: Sequence[TraceJob], early: str = "") -> SimulatedCluster:
    """A cluster in the cloud that has learned of the past and to which these are submitted.

    Args:
        dags: What is submitted.
        early: A job whose first task takes half of the time.
    """
    ids: dict[str, JobId] = {}
    took: dict[str, int] = {}

    def work_of(run: RunId) -> Work:
        job, _, index = run.rpartition("/")
        part = 2 if job.startswith(early or "nobody") and index == "0" else 1
        return Work(took[job] / part, tells_total=False)

    cluster = SimulatedCluster(
        CATALOG,
        Watched(),
        settings=Settings(),
        work_of=work_of,
    )
    state = cluster.state
    state.set_learned(taught(state.learned, PAST, Millis(0), Estimates.POSTERIOR))
    state.write_learned()
    for one in (job for jobs in dags for job in jobs):
        ids[one.id] = JobId(f"{one.id}-{len(ids) + 1}")
        took[ids[one.id]] = one.duration_ms
        after = tuple(ids[name] for name in one.after)
        cluster.submit(with_values(spec_of(one, [CPU]), {"depends_on": after}))
    return cluster


def test_a_dag_teaches_once_it_is_over_and_a_restart_changes_nothing() -> None:
    cluster, settings = cluster_of(dag(8), dag(3, number=200)), Settings()
    names = [JobId(f"{stage}-100-{number}") for number, stage in enumerate("abc", 1)]
    assert cluster.run(lambda: JobId("c-200-6") in cluster.state.jobs)
    assert cluster.run(lambda: not cluster.state.jobs[names[1]].waits)
    assert cluster.run(lambda: cluster.idle or not cluster.state.unplaced)
    state, now = cluster.state, cluster.timeline.now()
    before = snapshot(state, now, settings).jobs
    made = state.view_cache.made
    assert snapshot(state, now, settings).jobs == before
    assert state.view_cache.made == made, "a quiet round makes no view anew"
    assert names[0] in state.learned.dags.of("ana").ended
    told = [state.dags.of(state.jobs[name]) for name in names[1:]]
    model = Publisher(state, settings).publish(now)
    outlook = model.dag_outlook(state.jobs[names[1]])
    assert outlook is not None
    assert (outlook.stages, outlook.ended, outlook.waiting, outlook.earlier) == (3, 1, 1, 20)
    assert outlook.left_ms is not None
    assert outlook.left_ms > 3 * 300 * SECOND
    shown = find(model, None, "ana", names[1], now)  # type: ignore[arg-type]
    assert isinstance(shown, Subject)
    told_dag = shown.message.dag
    assert (told_dag.label, told_dag.left_ms) == ("etl", outlook.left_ms)
    cluster.restart()
    again = cluster.state
    assert [again.dags.of(again.jobs[name]) for name in names[1:]] == told
    after = snapshot(again, now, settings).jobs
    assert [(it.id, it.progress.estimate, it.progress.dag) for it in after] == [
        (it.id, it.progress.estimate, it.progress.dag) for it in before
    ]
    assert cluster.run(cluster.quiet)
    times = cluster.state.learned.dags.of("ana")
    assert not times.ended
    assert times.labels["etl"].dags == (22, 22, 22)


def test_a_stage_tells_of_one_that_runs_beside_it() -> None:
    first, second, third = dag(8)
    cluster = cluster_of([first, second, replace(third, after=(first.id,))], early="c")
    running, beside = JobId("b-100-2"), JobId("c-100-3")
    assert cluster.run(lambda: beside in cluster.state.jobs)

    def done() -> bool:
        if cluster.state.tasks.succeeded(beside):
            return True
        snapshot(cluster.state, cluster.timeline.now(), Settings())  # what is news by then is told
        return False

    assert cluster.run(done)
    state, now = cluster.state, cluster.timeline.now()
    told = {it.id: it for it in snapshot(state, now, Settings()).jobs}
    assert {running, beside} == told.keys()
    state.view_cache.job_changed(running)
    assert told[running] in snapshot(state, now, Settings()).jobs, "it was up to date"


def test_what_a_master_left_behind_of_a_dag_that_is_over_is_dropped_at_a_start() -> None:
    left = DagTimes().ended("ana", JobId("z-9"), EndedStage("etl", "z", 5, 5))
    documents = {"learned": Knowledge(dags=left).to_json()}
    assert State.restored(CATALOG, Changes(values=documents)).learned.dags == DagTimes()


def test_a_stage_that_fails_teaches_nothing_and_is_forgotten() -> None:
    cluster, last = cluster_of(dag(1), early="c"), JobId("c-100-3")
    assert cluster.run(lambda: last in cluster.state.jobs)
    assert cluster.run(lambda: cluster.state.tasks.succeeded(last) > 0)
    cluster.inbox.post(CancelRequested("x", last, "ana"))
    assert cluster.run(lambda: not cluster.state.active)
    known = cluster.state.learned.dags.of("ana")
    assert (known.ended, known.labels["etl"].dags) == ({}, (20, 20, 20))


def test_jobs_of_a_trace_wait_only_for_those_before_them_of_their_owner() -> None:
    first, second, third = dag(1)
    for jobs, said in (
        ([second, first], "arrives before it"),
        ([replace(first, owner="bob"), second], "another owner"),
        ([first, replace(second, after=("nobody",))], "no job 'nobody'"),
    ):
        with pytest.raises(InvalidTrace, match=said):
            run(jobs)
    assert third.after == ("b-100",)


@pytest.mark.explore
def test_where_stages_hang_together_a_gaussian_errs_least_and_3sigma_most() -> None:
    past, jobs = recurring_dags(1, FLAVOURS["2sigma"], 0.8, past=1_200, dags=40, work_rate=1_000.0)
    narrow = tuple(replace(it, tasks=it.tasks[:3]) for it in jobs)
    trace = Trace("t", narrow, past)
    cluster = ClusterSection(servers=200)
    gaussian, scaled, history = (
        simulated(trace, f"slearn{preset}", cluster, 1)["dag_error_p50"]
        for preset in ("", ":slearn-dag", ":3sigma-dag")
    )
    assert gaussian < scaled < history
