"""What policies and users are told of the work that is left, from the job file to the snapshot."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from eva_master.adapters.resolving.parse import parse_job
from eva_master.adapters.store.codec import INSTANCES, RUNS
from eva_master.control.planning.snapshot_builder import revision
from eva_master.control.state.store import State
from eva_master.model.changes import Changes
from eva_master.model.events import Phase, RunReport
from eva_master.model.planning.estimate import LONGEST_MS
from eva_master.model.planning.snapshot import RemainingWork
from eva_master.model.progress import Progress
from eva_wire.values.ids import InstanceId, Millis, RunId
from tests.fakes.hand_driven import (
    CATALOG,
    FAST,
    JOB,
    PACED,
    SETTINGS,
    SLOW,
    WINDOW_MS,
    Cluster,
)
from tests.fakes.snapshots import hypothetical


def test_steps_and_rate_of_a_job_file_say_how_long_it_takes() -> None:
    cluster = Cluster()
    cluster.submit(PACED, name="job")
    assert cluster.view() == RemainingWork(1_000_000)


def test_a_stated_duration_goes_before_steps_and_rate() -> None:
    cluster = Cluster()
    cluster.submit(PACED + "duration: 2h\n", name="job")
    assert cluster.view() == RemainingWork(7_200_000)


def test_nothing_is_made_up_of_a_job_that_says_nothing() -> None:
    cluster = Cluster()
    cluster.submit(JOB, name="job")
    assert cluster.view() is None
    cluster.submit(JOB + "total_steps: 5\n", name="steps")
    assert cluster.view("steps-2/0") is None


def test_progress_lowers_what_is_left() -> None:
    cluster = Cluster()
    cluster.start(PACED)
    cluster.progress(0, at=1_000)
    cluster.progress(90_000, at=301_000)
    assert cluster.left() == 700_000
    cluster.handle(at=302_000)
    assert cluster.left() == 699_000  # it goes on between reports


def test_a_task_slower_than_stated_takes_as_long_as_it_takes() -> None:
    cluster = Cluster()
    cluster.start(PACED)
    cluster.steady(150, until=200_000)
    assert cluster.left() == pytest.approx(1_800_000, rel=0.1)
    eta = cluster.eta()
    assert eta is not None
    assert eta == pytest.approx(2_000_000, rel=0.02)


def test_a_slow_family_puts_off_the_end_and_leaves_the_work_as_it_is() -> None:
    cluster = Cluster()
    cluster.start(PACED, on=SLOW)
    cluster.steady(10, until=300_000)
    assert cluster.left() == pytest.approx(990_000, abs=1_000)  # 297,000 steps at 300
    assert cluster.eta() == pytest.approx(300_000 + 29_700_000, rel=0.01)  # at 10


def test_without_steps_a_stated_duration_runs_down_at_the_speed_of_the_family() -> None:
    text = JOB + "duration: 1000s\nthroughput: {fast: 300, slow: 10}\n"
    fast, slow = Cluster(), Cluster()
    for cluster, on in ((fast, FAST), (slow, SLOW)):
        cluster.start(text, on=on)
        cluster.handle(at=300_000)
    assert fast.left() == 700_000
    assert slow.left() == pytest.approx(990_000, abs=1)
    assert fast.eta() == 1_000_000
    assert slow.eta() == pytest.approx(30_000_000, rel=0.001)


def test_a_stated_duration_and_steps_give_the_part_that_is_left() -> None:
    cluster = Cluster()
    cluster.start(JOB + "duration: 2000s\ntotal_steps: 1000\n")
    cluster.progress(250, at=10_000)
    assert cluster.left() == 1_500_000


def test_time_that_ran_before_a_stop_stays_done() -> None:
    cluster = Cluster()
    cluster.start(JOB + "duration: 1000s\n")
    run = cluster.state.runs[RunId("job-1/0")]
    cluster.say(run.id, Phase.EXITED, at=400_000, stopped=True, generation=1)
    assert cluster.left() == 600_000
    cluster.handle(at=900_000)
    assert cluster.left() == 600_000


def test_an_attempt_without_a_checkpoint_begins_anew() -> None:
    cluster = Cluster()
    cluster.start(JOB + "duration: 1000s\ntotal_steps: 100\n")
    cluster.progress(50, at=100_000)
    assert cluster.left() == 500_000
    cluster.say(RunId("job-1/0"), Phase.EXITED, at=200_000, exit_code=1)
    assert cluster.left() == 1_000_000
    cluster.handle(at=400_000)
    cluster.say(RunId("job-1/0"), Phase.RUNNING, at=400_000)
    cluster.handle(at=500_000)
    assert cluster.left() == 900_000


def test_a_new_master_says_the_same() -> None:
    cluster = Cluster()
    cluster.start(PACED)
    cluster.steady(150, until=200_000)
    before, state = cluster.left(), cluster.state
    state.write_learned()
    written = replace(
        Changes(
            jobs=tuple(state.jobs.values()),
            runs=tuple(RUNS.decode(map(RUNS.encode, state.runs.values()))),
            instances=tuple(INSTANCES.decode(map(INSTANCES.encode, state.instances.values()))),
            job_accounts=tuple(state.job_accounts.values()),
            instance_accounts=tuple(state.instance_accounts.values()),
        ),
        values={"learned": state.learned.to_json()},
    )
    after = Cluster(State.restored(CATALOG, written))
    after.machine.recover(Millis(201_000))
    progress = Progress(30_150)
    report = RunReport(RunId("job-1/0"), 1, Phase.RUNNING, progress=progress)
    after.register(InstanceId("i00001"), report, at=201_000)
    after.steady(150, until=350_000, first=30_150)
    assert after.left() == pytest.approx(before - 75_000 * 2, rel=0.1)


def test_a_new_master_has_time_that_ran_from_the_journal() -> None:
    cluster = Cluster()
    cluster.start(JOB + "duration: 1000s\n")
    state = cluster.state
    written = Changes(
        jobs=tuple(state.jobs.values()),
        runs=tuple(RUNS.decode(map(RUNS.encode, state.runs.values()))),
        instances=tuple(state.instances.values()),
    )
    after = Cluster(State.restored(CATALOG, written))
    after.machine.recover(Millis(300_000))
    after.now = 300_000
    assert after.left() == 700_000


def test_each_task_of_an_array_has_its_own_work_left() -> None:
    cluster = Cluster()
    cluster.start(PACED + "kind: array\ntasks: 2\n")
    cluster.progress(150_000, at=10_000, run="job-1/1")
    assert cluster.left("job-1/1") == 500_000
    assert cluster.left("job-1/0") == 990_000


def test_a_gang_has_as_much_left_as_the_member_with_the_most() -> None:
    cluster = Cluster()
    cluster.start(PACED + "tasks: 3\n")
    cluster.progress(150_000, at=10_000, run="job-1/1")
    cluster.progress(120_000, at=10_000, run="job-1/2")  # the first reports no steps at all
    assert [cluster.left(f"job-1/{index}") for index in range(3)] == [600_000] * 3


@pytest.mark.parametrize(
    ("steps", "total", "least", "most"),
    [
        (10**18, 0, 0, 0),  # more than there are
        (400_000, 400_000, 0, 0),
        (1, 2**62, 0, LONGEST_MS),
        (2**62, 2**62, 0, 0),
        (1, 1, 0, 0),
    ],
)
def test_what_a_program_says_of_itself_stays_in_bounds(
    steps: int, total: int, least: int, most: int
) -> None:
    cluster = Cluster()
    cluster.start(PACED)
    cluster.progress(1, at=1_000, total=total)
    cluster.progress(steps, at=2_000, total=total)
    assert least <= cluster.left() <= most
    eta = cluster.eta()
    assert eta is None or cluster.now <= eta <= cluster.now + 31 * LONGEST_MS


def test_a_preview_knows_what_its_job_states() -> None:
    cluster = Cluster()
    spec = parse_job(PACED, file_name="", owner="me", catalog=CATALOG, workdir=None, name="x")
    seen = hypothetical(cluster.state, spec, Millis(5), SETTINGS)
    assert [run.remaining for run in seen.runs if run.job == "x-1"] == [RemainingWork(1_000_000)]


def test_progress_calls_for_no_plan_and_changes_no_view_while_it_is_as_expected() -> None:
    cluster = Cluster()
    cluster.start(PACED)
    cluster.steady(300, until=200_000)
    seen = revision(cluster.state, Millis(cluster.now), SETTINGS)
    made, rounds = cluster.state.view_cache.made, cluster.rounds
    cluster.steady(300, until=800_000, first=60_000)
    assert revision(cluster.state, Millis(cluster.now), SETTINGS) == seen
    assert (cluster.state.view_cache.made, cluster.rounds) == (made, rounds)
    assert cluster.left() == pytest.approx(200_000, rel=0.1)


def test_progress_that_is_not_as_expected_is_seen_at_the_next_plan_only() -> None:
    cluster = Cluster()
    cluster.start(PACED)
    cluster.steady(300, until=200_000)
    seen = revision(cluster.state, Millis(cluster.now), SETTINGS)
    assert cluster.left() == pytest.approx(800_000, rel=0.1)
    cluster.progress(150_000, at=202_000)  # a leap, be it as it may
    cluster.steady(300, until=300_000, first=150_000)
    assert revision(cluster.state, Millis(cluster.now), SETTINGS) == seen
    assert cluster.left() == pytest.approx(400_000, rel=0.1)


# -- steps before the first window is over ---------------------------------------------------------

UNKNOWN = JOB + "workload: w\ntotal_steps: 2560\n"


def with_history(seconds: int) -> Cluster:
    """Earlier jobs of the workload took so long, and told no steps."""
    cluster = Cluster()
    for number in range(1, 6):
        at = cluster.now + 1_000
        cluster.start(JOB + "workload: w\n", name=f"old{number}", at=at)
        cluster.say(
            RunId(f"old{number}-{number}/0"), Phase.EXITED, at=at + seconds * 1_000, exit_code=0
        )
    return cluster


@pytest.mark.parametrize("history_s", [1, 100_000])
def test_steps_and_total_beat_history_before_the_first_window_is_over(history_s: int) -> None:
    cluster = with_history(history_s)
    start = cluster.now + 1_000
    cluster.start(UNKNOWN, name="new", at=start)
    for second in range(2, 39, 2):
        cluster.progress(second * 26, at=start + second * 1_000, run="new-6/0")
    assert WINDOW_MS > 38_000
    told = cluster.outlook("new-6/0")
    missing_ms = (2_560 - 38 * 26) * 1_000 / 26
    assert told.eta_ms == pytest.approx(cluster.now + missing_ms, rel=0.02)
    assert told.left_ms == pytest.approx(missing_ms, rel=0.02)
    assert not told.estimated
    assert cluster.left("new-6/0") == pytest.approx(missing_ms, rel=0.05)


def test_the_first_report_tells_by_all_the_time_and_later_ones_leave_the_start_out() -> None:
    cluster = Cluster()
    cluster.start(UNKNOWN)
    assert cluster.outlook().left_ms is None
    cluster.progress(0, at=20_000)
    cluster.progress(10, at=30_000)  # it begins after 29 s
    assert cluster.outlook().left_ms == pytest.approx(2_550 * 3_000)
    cluster.progress(20, at=31_000)
    assert cluster.outlook().left_ms == pytest.approx(2_540 * 100)


def test_an_attempt_that_goes_on_counts_its_own_steps_alone() -> None:
    cluster = Cluster()
    cluster.start(UNKNOWN)
    run = RunId("job-1/0")
    cluster.progress(1_000, at=10_000)
    cluster.say(run, Phase.EXITED, at=11_000, exit_code=1, generation=1)
    assert cluster.outlook().left_ms == pytest.approx(1_560 * 11, rel=0.01)  # 1,000 in 11 s
    cluster.handle(at=120_000)
    cluster.say(run, Phase.RUNNING, at=120_000)
    cluster.progress(1_000, at=122_000)  # resumed
    cluster.progress(1_001, at=130_000)
    cluster.progress(1_011, at=140_000)  # a hundred times slower than before
    assert cluster.outlook().eta_ms == pytest.approx(140_000 + 1_549 * 1_000)


def test_time_between_two_attempts_is_no_work() -> None:
    cluster = Cluster()
    cluster.start(JOB + "duration: 1000s\ntotal_steps: 100\n")
    run = RunId("job-1/0")
    cluster.progress(50, at=500_000)
    cluster.say(run, Phase.EXITED, at=500_000, exit_code=1, generation=1)
    cluster.handle(at=900_000)
    cluster.say(run, Phase.RUNNING, at=900_000)
    assert cluster.left() == 500_000
    assert cluster.eta() == 1_400_000
    cluster.handle(at=1_000_000)  # nothing was told by the attempt itself
    assert cluster.left() == 400_000


def test_own_steps_beat_what_was_measured_of_the_workload_but_not_what_is_stated() -> None:
    cluster = Cluster()
    cluster.start(JOB + "workload: w\ntotal_steps: 100000\n", name="job")
    cluster.steady(100, until=200_000)  # the workload is known to make 100 a second
    start = cluster.now + 1_000
    cluster.start(JOB + "workload: w\ntotal_steps: 1000\n", name="slow", at=start)
    for second in range(1, 21):
        cluster.progress(second, at=start + second * 1_000, run="slow-2/0")
    assert cluster.outlook("slow-2/0").left_ms == pytest.approx(980_000)
    cluster = Cluster()
    cluster.start(PACED)
    for second in range(1, 21):
        cluster.progress(second, at=second * 1_000)
    assert cluster.outlook().left_ms == pytest.approx((300_000 - 20) / 300 * 1_000, rel=0.001)


def test_steps_on_a_slow_family_tell_of_the_time_there() -> None:
    text = JOB + "workload: w\ntotal_steps: 1000\n"
    cluster = Cluster()
    cluster.start(text, on=SLOW)
    for second in range(1, 21):
        cluster.progress(second, at=second * 1_000)
    assert cluster.eta() == pytest.approx(20_000 + 980_000)


def test_a_gang_is_as_far_as_the_member_with_most_to_do() -> None:
    cluster = Cluster()
    cluster.start(UNKNOWN + "tasks: 2\n")
    for index in range(2):
        cluster.say(RunId(f"job-1/{index}"), Phase.RUNNING, at=0)
    for second in range(1, 21):
        cluster.progress(second * 20, at=second * 1_000, run="job-1/0")
        cluster.progress(second * 10, at=second * 1_000, run="job-1/1")
    assert cluster.eta() == pytest.approx(20_000 + (2_560 - 200) * 100)


def test_policies_hear_of_steps_as_they_double_not_with_each_report() -> None:
    cluster = with_history(1)
    start = cluster.now + 1_000
    cluster.start(UNKNOWN, name="new", at=start)
    told = {cluster.view("new-6/0")}
    for second in range(1, 40):
        cluster.progress(second * 10 + second**2, at=start + second * 1_000, run="new-6/0")
        told.add(cluster.view("new-6/0"))
    assert 2 < len(told) < 10  # of 39 reports, the pace of which grows


def test_a_master_that_restarts_knows_an_attempts_first_steps() -> None:
    cluster = Cluster()
    cluster.start(UNKNOWN)
    cluster.progress(10, at=30_000)
    cluster.progress(30, at=32_000)
    (run,) = cluster.state.runs.values()
    (read,) = RUNS.decode([RUNS.encode(run)])
    assert read.progress.rate_so_far == 10
    document = json.loads(RUNS.encode(run))
    del document["progress"]["first"]  # as an older master wrote it
    (old,) = RUNS.decode([json.dumps(document)])
    assert old.progress.rate_so_far == 0


def test_neighbours_that_cost_more_than_expected_put_off_an_end_before_a_window_is_over() -> None:
    """Alone it does 300 steps per second, beside another job 120, of which it has done 4,800."""
    cluster = Cluster()
    cluster.start(PACED, name="other")
    run = RunId("job-2/0")
    cluster.start(PACED, name="job", at=1_000, beside=RunId("other-1/0"))
    start = cluster.now
    for second in range(2, 41, 2):
        cluster.progress(second * 120, at=start + second * 1_000, run=run)
    assert WINDOW_MS > 40_000
    eta_ms = cluster.now + (300_000 - 4_800) * 1_000 / 120
    assert cluster.outlook(run).eta_ms == pytest.approx(eta_ms, rel=0.02)
