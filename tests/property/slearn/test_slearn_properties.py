"""Sizes that are learned: what they may not depend on, and what no number may break."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from eva_master.model.arithmetic.fixed_point import log_ppm
from eva_master.model.catalog import Offering, Purchase
from eva_master.model.events import Phase, RunReport, WorkerReported
from eva_master.model.planning.estimate import LONGEST_MS, Estimate, Estimates, Source
from eva_master.model.planning.job_view import DagView
from eva_master.model.planning.snapshot import Snapshot
from eva_master.testing.job_views import changed
from eva_master.testing.plan_checks import check
from eva_master.testing.snapshots import START
from eva_policies.slearn import POLICY
from eva_policies.slearn.config import Config
from eva_policies.slearn.memory import Memory
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import JobId, Millis, RunId
from tests.drawing import drawn
from tests.fakes.hand_driven import JOB, SETTINGS, Cluster
from tests.fakes.snapshots import Cluster as Views
from tests.fakes.snapshots import offer, task

TASKS = 6
ARRAY = JOB + f"workload: w\nkind: array\ntasks: {TASKS}\n"
AT = 7_000_000


# -- estimates -------------------------------------------------------------------------------------


def _told(order: list[int], began_ms: list[int], pilots: set[int], mode: Estimates) -> object:
    """What a policy is told once all of these tasks have ended in one turn, reported in an order.

    Args:
        order: The tasks that end.
        began_ms: When each of all tasks began to run.
        pilots: Which of them are pilots.
        mode: What is estimated from.
    """
    cluster = Cluster(settings=replace(SETTINGS, estimates=mode))
    cluster.start(ARRAY)
    state = cluster.state
    job = state.jobs[JobId("job-1")]
    for index, at in sorted(enumerate(began_ms), key=lambda it: it[1]):
        run = state.runs[RunId(f"job-1/{index}")]
        cluster.handle(at=at)
        state.put_run(replace(run, started_ms=Millis(at)))
    if pilots:
        state.finished_tasks.choose(job, pilots, ())
    reports = []
    for index in order:
        run = state.runs[RunId(f"job-1/{index}")]
        assert run.instance is not None
        report = RunReport(run.id, run.attempt, Phase.EXITED, exit_code=0)
        reports.append(WorkerReported(run.instance, state.sessions[run.instance], (report,)))
    cluster.handle(*reports, at=AT)
    job = cluster.job_view("job-1").progress
    return job.estimate, job.succeeded, job.succeeded_ms, job.pilots_left


@given(
    st.data(),
    st.lists(st.integers(0, AT - 1), min_size=TASKS, max_size=TASKS),
    st.sets(st.integers(0, TASKS - 1)),
    st.sampled_from([Estimates.POSTERIOR, Estimates.PILOTS]),
)
@drawn(15)
def test_estimates_do_not_depend_on_the_order_of_a_turn_s_reports(
    data: st.DataObject, began_ms: list[int], pilots: set[int], mode: Estimates
) -> None:
    ended = data.draw(st.lists(st.integers(0, TASKS - 1), unique=True, max_size=TASKS - 1))
    other = data.draw(st.permutations(ended))
    assert _told(ended, began_ms, pilots, mode) == _told(other, began_ms, pilots, mode)


# -- numbers ---------------------------------------------------------------------------------------

NODE: Offering = replace(offer("n.4", (0, 4, 4), 0.1), purchase=Purchase.OWNED, limit=2)
SLOT = task("w", any=(0, 1, 1))
MONTH = 31 * 86_400_000
offsets = st.one_of(st.sampled_from([0, 1, -1, MONTH, -MONTH]), st.integers(-MONTH, MONTH))
estimates = st.none() | st.builds(
    lambda mean, scale, freedom: Estimate(
        mean, log_ppm(mean), scale, freedom, Source.POSTERIOR if scale else Source.STATED
    ),
    st.one_of(st.sampled_from([1, MONTH, LONGEST_MS]), st.integers(1, LONGEST_MS)),
    st.sampled_from([0, 100, 10**6, 10**9]),
    st.integers(3, 100),
)
jobs = st.fixed_dictionaries(
    {
        "tasks": st.integers(1, 7),
        "done": st.integers(0, 1_000),
        "running": st.integers(0, 2),
        "estimate": estimates,
        "succeeded_ms": st.sampled_from([0, 1, MONTH]),
        "submitted": offsets,
        "since": offsets,
        "priority": st.integers(0, 1),
        "pilots_left": st.none() | st.integers(0, 2),
        "dag": st.none()
        | st.builds(
            DagView,
            label=st.just("x"),
            first=st.sampled_from([JobId("j0"), JobId("j7")]),
            submitted_ms=offsets.map(Millis),
            waiting=st.integers(0, 3),
            waiting_ms=st.sampled_from([0, 1, 10**6 * LONGEST_MS]),
            ended=st.integers(0, 2),
            ended_ms=st.sampled_from([0, 1, MONTH]),
        ),
    }
)
configs = st.builds(
    Config,
    estimator=st.sampled_from(
        [
            *("posterior", "pilots", "3sigma", "point", "las", "oracle"),
            *("slearn-dag", "3sigma-dag", "point-dag", "las-dag"),
        ]
    ),
    queues=st.sampled_from([2, 10, 18]),
    first_queue_s=st.sampled_from([1, 1_000, 10**9]),
    growth=st.sampled_from([2, 1_000]),
    weight_step=st.sampled_from([1, 1_000]),
    thin=st.sampled_from([0, 3, 10**6]),
    ratio_ppm=st.sampled_from([0, 1, 1_000_000]),
    order=st.sampled_from(["remaining", "arrival"]),
    requeue=st.booleans(),
    sure_ppm=st.sampled_from([0, 600_000]),
    age_cap=st.sampled_from([0, 1, 10**9]),
)


def _snapshot(drawn_jobs: list[dict[str, object]], now: int) -> Snapshot:
    views = Views(NODE).instance("n1", "n.4").instance("n2", "n.4")
    views.now_ms = Millis(now)
    told: dict[str, dict[str, object]] = {}
    since: dict[str, int] = {}
    free = 8
    for number, drawn_job in enumerate(drawn_jobs):
        name, tasks = f"j{number}", int(str(drawn_job["tasks"]))
        running = min(int(str(drawn_job["running"])), tasks, free)
        hosts = [("n1" if 8 - free + it < 4 else "n2") for it in range(running)]
        free -= running
        places = [*hosts, *[None] * (tasks - running)]
        priority = int(str(drawn_job["priority"]))
        views.job(name, *[SLOT] * tasks, on=places, kind=JobKind.ARRAY, priority=priority)
        since[name] = now + int(str(drawn_job["since"]))
        done = int(str(drawn_job["done"]))
        told[name] = {
            "size": tasks + done,
            "succeeded": done,
            "submitted_ms": Millis(now + int(str(drawn_job["submitted"]))),
            **{key: drawn_job[key] for key in ("estimate", "succeeded_ms", "pilots_left", "dag")},
        }
    seen = views.snapshot()
    runs = tuple(
        replace(it, running_since_ms=Millis(since[it.job])) if it.running else it
        for it in seen.runs
    )
    return replace(
        seen,
        runs=runs,
        jobs=tuple(changed(it, **told[it.id]) for it in seen.jobs),
    )


@drawn(60)
@given(st.lists(jobs, max_size=4), st.lists(jobs, max_size=4), offsets, configs)
def test_no_run_time_and_no_clock_breaks_a_round(
    first: list[dict[str, object]], then: list[dict[str, object]], later: int, config: Config
) -> None:
    policy, memory = POLICY.build(config), None
    for drawn_jobs, now in ((first, START), (then, START + later)):
        seen = _snapshot(drawn_jobs, now)
        before = memory
        plan, memory = policy.plan(seen, before)
        check(seen, plan)
        assert (plan, memory) == policy.plan(seen, before)
        assert memory is not None
        assert Memory.read(memory).written() == memory
        succeeded = {job.id: job.progress.succeeded for job in seen.jobs}
        assert all(count > succeeded[job] for job, count in plan.again.milestones), "it is not over"
        assert plan.again.at_ms is None or plan.again.at_ms > now, "it is not asked again at once"
        waiting = {run.job for run in seen.runs if run.instance is None}
        lined = {job for line in plan.lines for job in line.jobs}
        assert waiting <= lined, "each stands in a line"
        whole = {job for line in plan.lines for job in line.jobs if job not in dict(line.chosen)}
        assert waiting <= whole, "and so do all of its tasks"
