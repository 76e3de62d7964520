"""Run times that nobody states: what policies and users are told, from events to snapshots."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from eva_master.adapters.store.codec import INSTANCES, RUNS
from eva_master.control.measure import remaining
from eva_master.control.planning.snapshot_builder import ESTIMATED_AT_ONCE, revision, snapshot
from eva_master.control.settings import Settings
from eva_master.control.state.store import State
from eva_master.learning.colocation import key, observe
from eva_master.learning.run_times.posterior import NONE_FINISHED
from eva_master.learning.runtimes import Traits
from eva_master.learning.voices.lessons import Lessons
from eva_master.model.arithmetic.fixed_point import exp_of_ppm
from eva_master.model.changes import Changes
from eva_master.model.events import CancelRequested, Phase
from eva_master.model.planning.estimate import Estimate, Estimates, Evidence, Source
from eva_master.model.resources import Resources
from eva_wire.values.ids import MILLION, JobId, Millis, RunId, Workload
from tests.fakes.hand_driven import CATALOG, JOB, PACED, SETTINGS, SLOW, Cluster
from tests.fakes.learned.lessons import lessons_of, teach
from tests.fakes.snapshots import hypothetical

W = JOB + "workload: w\n"
ARRAY = W + "kind: array\ntasks: 5\n"
NEW = 1_000_000_000
"""When the job is submitted that is judged by the others."""
_TRAITS = Traits("w", "job", Millis(0), Resources(0, 1_000, 1_024))


def exited(cluster: Cluster, run: str, *, at: int, **more: int) -> None:
    cluster.say(RunId(run), Phase.EXITED, at=at, **{"exit_code": 0, **more})


def ended(cluster: Cluster, *seconds: int, text: str = W, owner: str = "me") -> None:
    """Have jobs run, one after the other, and end after so many seconds."""
    for took in seconds:
        name, at = f"old{len(cluster.state.jobs)}", cluster.now + 10_000
        cluster.start(text, name=name, at=at, owner=owner)
        run = f"{name}-{len(cluster.state.jobs)}/0"
        exited(cluster, run, at=at + took * 1_000)


def estimate(cluster: Cluster, job: str) -> Estimate:
    found = cluster.job_view(job).progress.estimate
    assert found is not None
    return found


def mode(estimates: Estimates) -> Cluster:
    return Cluster(settings=replace(SETTINGS, estimates=estimates))


def restarted(cluster: Cluster) -> Cluster:
    """Another master, with what this one has written down."""
    state = cluster.state
    state.write_learned()
    written = replace(
        Changes(
            jobs=tuple(state.jobs.values()),
            runs=tuple(RUNS.decode(map(RUNS.encode, state.runs.values()))),
            instances=tuple(INSTANCES.decode(map(INSTANCES.encode, state.instances.values()))),
        ),
        values={"learned": state.learned.to_json()},
    )
    after = Cluster(State.restored(CATALOG, written), cluster.machine.settings)
    after.now = cluster.now
    return after


# -- history -------------------------------------------------------------------------------------


def test_a_job_is_expected_to_take_as_long_as_earlier_ones() -> None:
    cluster = Cluster()
    ended(cluster, 600, 640, 700)
    cluster.submit(W, name="new", at=NEW)
    found = estimate(cluster, "new-4")
    assert (found.source, found.tasks) == (Source.HISTORY, 0)
    assert found.least_ms < 640_000 < found.most_ms
    assert found.mean_ms == pytest.approx(650_000, rel=0.1)
    work = cluster.view("new-4/0")
    assert work is not None
    assert work.estimated
    assert work.at_since_ms == pytest.approx(found.mean_ms, rel=0.05)  # two digits of it
    assert found.exceeds_ppm(60_000) > 990_000 > 500_000 > found.exceeds_ppm(3_600_000)


def test_a_new_user_begins_without_history() -> None:
    cluster = Cluster()
    ended(cluster, 600, 640, 700)
    cluster.submit(W, name="new", at=NEW, owner="you")
    assert cluster.job_view("new-4").progress.estimate is None
    assert cluster.view("new-4/0") is None


def test_time_in_other_hands_is_no_run_time() -> None:
    """Moves, waits and retries are not counted, nor what was lost with a failed attempt."""
    cluster = Cluster()
    cluster.start(W)
    run = RunId("job-1/0")
    cluster.say(run, Phase.EXITED, at=400_000, exit_code=1, generation=1)
    cluster.handle(at=9_000_000)
    cluster.say(run, Phase.RUNNING, at=9_000_000)
    exited(cluster, run, at=9_200_000)
    assert cluster.state.runs[run].took_ms == 600_000
    cluster = Cluster()
    cluster.start(W)
    cluster.say(run, Phase.EXITED, at=400_000, exit_code=1)
    cluster.handle(at=500_000)
    cluster.say(run, Phase.RUNNING, at=500_000)
    exited(cluster, run, at=700_000)
    assert cluster.state.runs[run].took_ms == 200_000


def test_time_on_a_slow_family_counts_as_standalone_time() -> None:
    cluster = Cluster()
    cluster.start(PACED, on=SLOW)  # a thirtieth of the speed
    exited(cluster, "job-1/0", at=3_000_000)
    assert cluster.state.runs[RunId("job-1/0")].took_ms == 100_000


def beside_each_other(cluster: Cluster) -> list[int]:
    """Times that two tasks took that ran for 1,000 s each, half of it beside each other."""
    cluster.start(W, name="a")
    cluster.start(W, name="b", at=500_000, beside=RunId("a-1/0"))
    exited(cluster, "a-1/0", at=1_000_000)
    exited(cluster, "b-2/0", at=1_500_000)
    return [cluster.state.runs[RunId(name)].took_ms for name in ("a-1/0", "b-2/0")]


def test_company_that_nobody_measured_does_not_shorten_what_a_task_took() -> None:
    assert beside_each_other(Cluster()) == [1_000_000, 1_000_000]


def test_company_counts_as_it_was_measured() -> None:
    cluster = Cluster()
    beside = observe(
        lessons_of(cluster.state).throughput, key(Workload("w"), [Workload("w")]), 600_000
    )
    teach(cluster.state, Lessons(throughput=beside), "me")
    assert beside_each_other(cluster) == [800_000, 800_000]


def test_three_tasks_side_by_side_count_by_the_pairs_that_were_measured() -> None:
    cluster = Cluster()
    a, b = Workload("a"), Workload("b")
    seen = observe(lessons_of(cluster.state).throughput, key(a, [b]), 500_000)
    teach(cluster.state, Lessons(throughput=seen), "me")
    cluster.start(JOB + "workload: a\n", name="a")
    cluster.start(JOB + "workload: b\n", name="b", beside=RunId("a-1/0"))
    cluster.start(JOB + "workload: c\n", name="c", beside=RunId("a-1/0"))
    for run in ("a-1/0", "b-2/0", "c-3/0"):
        exited(cluster, run, at=1_000_000)
    took = [cluster.state.runs[RunId(it)].took_ms for it in ("a-1/0", "b-2/0", "c-3/0")]
    assert took == [500_000, 1_000_000, 1_000_000]


def test_a_gang_is_one_observation() -> None:
    cluster = Cluster()
    cluster.start(W + "tasks: 3\n")
    for index in range(3):
        cluster.say(RunId(f"job-1/{index}"), Phase.RUNNING, at=0)
    for index in range(3):
        exited(cluster, f"job-1/{index}", at=600_000)
    (known,) = cluster.state.learned.run_times.owners.values()
    assert {(it.jobs, it.tasks) for it in known.spreads.values()} == {(1, 1)}


def test_failed_and_cancelled_jobs_teach_by_what_has_finished() -> None:
    cluster = Cluster()
    cluster.start(ARRAY)
    for index in range(3):
        exited(cluster, f"job-1/{index}", at=600_000)
    cluster.handle(CancelRequested("c", JobId("job-1")), at=700_000)
    for index in (3, 4):
        cluster.say(RunId(f"job-1/{index}"), Phase.EXITED, at=700_000, stopped=True)
    assert cluster.state.jobs[JobId("job-1")].state == "cancelled"
    cluster.submit(W, name="new", at=NEW)
    assert exp_of_ppm(estimate(cluster, "new-2").log) == pytest.approx(600_000, rel=0.001)
    cluster = Cluster()
    cluster.start(W)
    cluster.handle(CancelRequested("c", JobId("job-1")), at=700_000)
    cluster.say(RunId("job-1/0"), Phase.EXITED, at=700_000, stopped=True)
    assert cluster.state.learned.run_times.owners == {}


def test_more_jobs_that_end_are_no_occasion_for_a_plan_of_their_own() -> None:
    cluster = Cluster()
    ended(cluster, 600, 640, 700)
    cluster.submit(W, name="new", at=NEW)
    before = estimate(cluster, "new-4")
    ended(cluster, 6_000)
    seen = revision(cluster.state, Millis(cluster.now), SETTINGS)
    assert estimate(cluster, "new-4") != before
    assert revision(cluster.state, Millis(cluster.now), SETTINGS) == seen


def test_what_was_told_of_a_task_that_runs_stands() -> None:
    cluster = Cluster()
    ended(cluster, 600, 640, 700)
    cluster.start(W, name="new", at=NEW)
    told = cluster.view("new-4/0")
    ended(cluster, 6_000, 6_000)
    assert cluster.view("new-4/0") == told


def test_a_snapshot_brings_some_estimates_up_to_date_and_the_next_one_the_others() -> None:
    cluster = Cluster()
    ended(cluster, 600, 640, 700)
    count = ESTIMATED_AT_ONCE + 10
    for number in range(count):
        cluster.submit(W, name=f"new{number}", at=NEW)
    take = partial(snapshot, cluster.state, Millis(NEW), SETTINGS)
    for _ in range(2):
        before = {job.id: job.progress.estimate for job in take().jobs}
    known = cluster.state.learned.run_times
    for number in range(3):
        known = known.observe("me", _TRAITS, NONE_FINISHED.plus(6_000_000), Millis(number))
    cluster.state.set_learned(replace(cluster.state.learned, run_times=known))

    def renewed() -> int:
        return sum(
            job.progress.estimate != before[job.id] for job in take().jobs if job.id in before
        )

    assert renewed() == ESTIMATED_AT_ONCE
    assert renewed() == count
    made = cluster.state.view_cache.made
    take()
    assert cluster.state.view_cache.made == made  # nothing is left to be done


def test_a_prior_that_spreads_over_more_than_its_mean_is_no_figure_for_users() -> None:
    cluster = Cluster()
    ended(cluster, 10, 1_000, 20, 3_000)
    cluster.start(W, name="new", at=NEW)
    assert estimate(cluster, "new-5").vague
    cluster.handle(at=NEW + 5_000)
    shown = cluster.outlook("new-5/0")
    assert (shown.left_ms, shown.eta_ms, shown.earliest_ms, shown.latest_ms) == (None,) * 4
    assert shown.estimate is not None
    work = cluster.view("new-5/0")
    assert work is not None
    assert work.estimated, "policies weigh the distribution, vague as it is"


def test_jobs_that_take_about_as_long_give_a_figure() -> None:
    cluster = Cluster()
    ended(cluster, *[600, 640, 700] * 3)
    cluster.start(W, name="new", at=NEW)
    cluster.handle(at=NEW + 5_000)
    assert not estimate(cluster, "new-10").vague
    assert cluster.outlook("new-10/0").eta_ms == pytest.approx(NEW + 645_000, rel=0.2)


# -- pilots and posterior ------------------------------------------------------------------------


def test_the_first_tasks_of_an_array_tell_how_long_the_others_take() -> None:
    cluster = Cluster()
    cluster.start(ARRAY)
    assert cluster.job_view("job-1").progress.estimate is None
    exited(cluster, "job-1/3", at=600_000)
    found = estimate(cluster, "job-1")
    assert (found.source, found.tasks) == (Source.PILOTS, 1)
    assert found.mean_ms == pytest.approx(600_000, rel=0.15)
    for index in (0, 1):
        exited(cluster, f"job-1/{index}", at=600_000)
    assert estimate(cluster, "job-1").spread_ppm < found.spread_ppm
    assert cluster.outlook("job-1/2").estimated


def test_history_and_finished_tasks_are_joined() -> None:
    cluster = Cluster()
    ended(cluster, *[600, 640, 700] * 3)
    cluster.start(ARRAY, name="new", at=NEW)
    before = estimate(cluster, "new-10")
    exited(cluster, "new-10/0", at=NEW + 900_000)
    after = estimate(cluster, "new-10")
    assert (before.source, after.source) == (Source.HISTORY, Source.POSTERIOR)
    assert before.mean_ms < after.mean_ms < 900_000


@pytest.mark.parametrize(
    ("estimates", "before", "after"),
    [
        (Estimates.POSTERIOR, Source.HISTORY, Source.POSTERIOR),
        (Estimates.HISTORY, Source.HISTORY, Source.HISTORY),
        (Estimates.PILOTS, None, Source.PILOTS),
        (Estimates.OFF, None, None),
    ],
)
def test_the_operator_decides_what_is_estimated_from(
    estimates: Estimates, before: Source | None, after: Source | None
) -> None:
    cluster = mode(estimates)
    ended(cluster, 600, 640, 700)
    cluster.start(ARRAY, name="new", at=NEW)

    def source() -> Source | None:
        found = cluster.job_view("new-4").progress.estimate
        return None if found is None else found.source

    assert source() is before
    exited(cluster, "new-4/0", at=NEW + 500_000)
    assert source() is after
    assert (cluster.view("new-4/1") is None) == (after is None)


def test_off_means_that_nothing_is_learned() -> None:
    cluster = mode(Estimates.OFF)
    ended(cluster, 600, 640, 700)
    assert cluster.state.learned.run_times.owners == {}
    assert not any(run.took_ms for run in cluster.state.runs.values())


def test_a_new_master_expects_the_same() -> None:
    cluster = Cluster()
    ended(cluster, 600, 640, 700)
    cluster.start(ARRAY, name="new", at=NEW)
    exited(cluster, "new-4/0", at=NEW + 900_000)
    after = restarted(cluster)
    assert estimate(after, "new-4") == estimate(cluster, "new-4")
    assert after.state.learned.run_times == cluster.state.learned.run_times


def test_tasks_of_other_kinds_say_nothing() -> None:
    cluster = Cluster()
    tasks = (
        "- {name: a, workload: small}\n- {name: b, workload: large}\n- {name: c, workload: large}"
    )
    cluster.start(JOB + f"kind: array\ntasks:\n{tasks}\n")
    exited(cluster, "job-1/1", at=600_000)
    assert cluster.view("job-1/0") is None
    assert cluster.view("job-1/2") is not None


# -- a task that takes longer --------------------------------------------------------------------


def test_a_task_that_takes_longer_than_expected_is_expected_to_go_on() -> None:
    cluster = Cluster()
    ended(cluster, *[600] * 20)
    cluster.start(W, name="new", at=NEW)
    cluster.handle(at=NEW + 300_000)
    assert cluster.left("new-21/0") == pytest.approx(300_000, rel=0.1)
    cluster.handle(at=NEW + 4_000_000)
    assert cluster.left("new-21/0") == 1_000_000  # a quarter of the time that it has run for
    told = cluster.outlook("new-21/0")
    assert told.eta_ms == NEW + 5_000_000
    assert told.earliest_ms is not None
    assert told.latest_ms is not None
    assert cluster.now <= told.earliest_ms <= told.eta_ms <= told.latest_ms


def test_users_are_told_how_sure_an_eta_is() -> None:
    cluster = Cluster()
    ended(cluster, *[500, 600, 720] * 6)
    cluster.start(W, name="new", at=NEW)
    cluster.handle(at=NEW + 60_000)
    told = cluster.outlook("new-19/0")
    assert told.estimate is not None
    assert (told.earliest_ms, told.latest_ms) == (
        NEW + told.estimate.least_ms,
        NEW + told.estimate.most_ms,
    )
    assert told.eta_ms is not None
    assert NEW + 400_000 < told.earliest_ms < told.eta_ms < told.latest_ms < NEW + 900_000
    stated = Cluster()
    stated.start(JOB + "duration: 10m\n")
    assert stated.outlook().earliest_ms is None
    assert stated.outlook().estimate == Estimate.stated(600_000)


# -- what is stated ------------------------------------------------------------------------------

HOURLY = W + "duration: 1h\n"


def test_what_is_stated_goes_before_what_is_learned() -> None:
    cluster = Cluster()
    ended(cluster, 600, 640)
    cluster.submit(HOURLY, name="new", at=NEW)
    assert estimate(cluster, "new-3") == Estimate.stated(3_600_000)
    assert estimate(cluster, "new-3").exceeds_ppm(3_599_999) == MILLION
    cluster.submit(PACED, name="steps", at=NEW)
    assert estimate(cluster, "steps-4") == Estimate.stated(1_000_000)


def test_three_tasks_in_a_row_that_contradict_a_stated_duration_are_believed() -> None:
    cluster = Cluster()
    cluster.submit(HOURLY, name="waits", at=0)
    ended(cluster, 600, 640, text=HOURLY)
    assert estimate(cluster, "waits-1").source is Source.STATED
    ended(cluster, 700, text=HOURLY)
    found = estimate(cluster, "waits-1")
    assert found.source is Source.HISTORY
    assert found.mean_ms == pytest.approx(650_000, rel=0.2)
    job = cluster.state.jobs[JobId("waits-1")]
    why = remaining.contradicted(cluster.state, job)
    assert why is not None
    assert (why.workload, why.stated_ms, why.took_ms) == (
        "w",
        3_600_000,
        (600_000, 640_000, 700_000),
    )
    assert remaining.contradicted(restarted(cluster).state, job) == why
    ended(cluster, 3_500, text=HOURLY)
    assert remaining.contradicted(cluster.state, job) is None
    assert estimate(cluster, "waits-1").source is Source.STATED


def test_an_array_corrects_what_it_states_itself() -> None:
    cluster = Cluster()
    cluster.start(ARRAY + "duration: 1h\n")
    for index in range(3):
        assert cluster.job_view("job-1").progress.estimate == Estimate.stated(3_600_000)
        exited(cluster, f"job-1/{index}", at=600_000)
    assert estimate(cluster, "job-1").source is Source.PILOTS
    assert cluster.left("job-1/4") < 600_000


def test_without_estimates_whatever_is_stated_is_believed() -> None:
    cluster = mode(Estimates.OFF)
    cluster.start(ARRAY + "duration: 1h\n")
    for index in range(4):
        exited(cluster, f"job-1/{index}", at=600_000)
    assert estimate(cluster, "job-1") == Estimate.stated(3_600_000)


def test_a_preview_has_an_estimate() -> None:
    cluster = Cluster()
    ended(cluster, 600, 640, 700)
    spec = cluster.state.jobs[JobId("old0-1")].spec
    seen = hypothetical(cluster.state, spec, Millis(cluster.now), Settings())
    (view,) = (job for job in seen.jobs if job.id.startswith(f"{spec.name}-"))
    assert view.progress.estimate is not None
    assert view.progress.estimate.source is Source.HISTORY


# -- what is behind it ---------------------------------------------------------------------------


def evidence(cluster: Cluster, job: str) -> Evidence:
    found = remaining.evidence(cluster.state, cluster.state.jobs[JobId(job)])
    assert found is not None
    return found


def test_each_source_says_what_it_knows_by_itself() -> None:
    cluster = Cluster()
    ended(cluster, 600, 640, 700)
    cluster.submit(W, name="new", at=NEW)
    found = evidence(cluster, "new-4")
    assert (found.pilots, found.pilots_ms) == (0, 0)
    assert (found.feature, found.value, found.jobs) == ("workload", "w", 3)
    # The geometric mean of the three.
    assert found.jobs_ms == pytest.approx((600 * 640 * 700) ** (1 / 3) * 1_000, rel=1e-3)
    assert 50_000 < found.spread_ppm < 1_000_000


@pytest.mark.parametrize(
    ("mode_", "pilots", "jobs"),
    [
        (Estimates.POSTERIOR, 2, 3),
        (Estimates.PILOTS, 2, 0),
        (Estimates.HISTORY, 0, 3),
        (Estimates.POINT, 0, 3),
    ],
)
def test_what_is_not_used_is_not_told(mode_: Estimates, pilots: int, jobs: int) -> None:
    cluster = mode(mode_)
    ended(cluster, 600, 640, 700)
    cluster.start(ARRAY, name="new", at=NEW)
    for index, took in ((0, 100_000), (1, 140_000)):
        exited(cluster, f"new-4/{index}", at=NEW + took)
    found = evidence(cluster, "new-4")
    assert (found.pilots, found.jobs) == (pilots, jobs)
    assert found.pilots_ms == (120_000 if pilots else 0)
    assert found.feature == ("workload" if jobs else "")


def test_nothing_is_behind_what_nobody_knows() -> None:
    cluster = mode(Estimates.OFF)
    ended(cluster, 600, 640, 700)
    cluster.submit(W, name="new", at=NEW)
    assert remaining.evidence(cluster.state, cluster.state.jobs[JobId("new-4")]) is None
