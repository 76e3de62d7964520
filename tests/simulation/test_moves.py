"""How tasks get from one instance to another, on virtual time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eva_lab.simulator.cluster.delays import EqualDelays
from eva_lab.simulator.cluster.work import Work
from eva_lab.simulator.simulated_cluster import SimulatedCluster
from eva_master.control.measure import ledger
from eva_master.control.settings import Settings
from eva_master.model.actions import LaunchInstance
from eva_master.model.events import CancelRequested, Phase, RunReport, WorkerReported
from eva_master.model.records import TaskRun
from eva_master.policies.no_packing import POLICY as NO_PACKING
from eva_wire.values.ids import InstanceId, JobId, RunId
from tests.fakes.jobs import CATALOG, LARGE, MEDIUM, SMALL, Script, job
from tests.fakes.learned.lessons import lessons_of

DELAYS = EqualDelays(fetch_ms=4_000, start_ms=5_000, stop_ms=3_000, report_ms=10_000)


def _world(script: Script, **more: object) -> SimulatedCluster:
    return SimulatedCluster(CATALOG, script, delays=DELAYS, **more)  # type: ignore[arg-type]


def _run(world: SimulatedCluster, name: str) -> TaskRun:
    return world.state.runs[RunId(name)]


def _entered(record: object, state: str) -> list[int]:
    return [at for name, at in record.history if name == state]  # type: ignore[attr-defined]


def _run_until_running(world: SimulatedCluster, *names: str) -> None:
    assert world.run(
        lambda: all(
            RunId(name) in world.state.runs and _run(world, name).state == "running"
            for name in names
        ),
        limit_ms=3_600_000,
    )


def _replan(world: SimulatedCluster) -> None:
    """Something happens that calls for a plan: a job comes and goes."""
    command = world.submit(job("nudge", 1, minutes=0.01))
    assert world.run(lambda: command in world.answers.replies, limit_ms=60_000)


def test_a_task_is_stopped_only_when_its_target_is_ready_and_has_its_files() -> None:
    script = Script({"a-1/0": "big"}, {"big": LARGE})
    world = _world(script)
    world.submit(job("a", 2, minutes=60))
    _run_until_running(world, "a-1/0")
    source = _run(world, "a-1/0").instance
    script.wanted["a-1/0"] = "little"
    _replan(world)
    assert world.run(lambda: _run(world, "a-1/0").moves == 1, limit_ms=3_600_000)
    run = _run(world, "a-1/0")
    target = world.state.instances[run.target]
    stopped = _entered(run, "stopping")[-1]
    assert stopped == target.ready_ms + DELAYS.fetch_ms
    _run_until_running(world, "a-1/0")
    assert _run(world, "a-1/0").generation == 1
    # The source went the moment it was empty, not at the next round.
    assert _entered(world.state.instances[source], "terminating") == [stopped + DELAYS.stop_ms]
    assert world.run(world.quiet)
    assert world.state.jobs[JobId("a-1")].state == "succeeded"


def test_two_tasks_on_full_instances_change_places() -> None:
    script = Script({"a-1/0": "left", "b-2/0": "right"}, {})
    world = _world(script)
    world.submit(job("a", 2, minutes=30))
    world.submit(job("b", 2, minutes=30))
    _run_until_running(world, "a-1/0", "b-2/0")
    left, right = _run(world, "a-1/0").instance, _run(world, "b-2/0").instance
    script.where = {"left": left, "right": right}
    script.wanted |= {"a-1/0": "right", "b-2/0": "left"}
    _replan(world)
    assert world.run(lambda: _run(world, "a-1/0").instance == right, limit_ms=600_000)
    _run_until_running(world, "a-1/0", "b-2/0")
    assert _run(world, "b-2/0").instance == left
    assert world.run(world.quiet)


def test_a_task_does_not_leave_for_room_that_is_not_being_freed() -> None:
    """The room on the target is held by a task whose own target takes a long time to come up."""
    script = Script({"a-1/0": "left", "b-2/0": "right"}, {})
    world = _world(script)
    world.submit(job("a", 2, minutes=30))
    world.submit(job("b", 2, minutes=30))
    _run_until_running(world, "a-1/0", "b-2/0")
    right = _run(world, "b-2/0").instance
    script.where = {"left": _run(world, "a-1/0").instance, "right": right}
    script.wanted |= {"a-1/0": "right", "b-2/0": "new"}
    _replan(world)
    assert world.run(lambda: _run(world, "a-1/0").instance == right, limit_ms=600_000)
    new = world.state.instances[_run(world, "b-2/0").target]
    # Nobody stood idle while the new instance came up: both stopped together.
    assert _entered(_run(world, "a-1/0"), "stopping") == [new.ready_ms + DELAYS.fetch_ms]
    assert world.run(world.quiet)


def test_a_task_stays_where_it_is_when_its_target_fails() -> None:
    script = Script({"a-1/0": "big"}, {"big": LARGE})
    world = _world(script)
    world.submit(job("a", 2, minutes=30))
    _run_until_running(world, "a-1/0")
    source = _run(world, "a-1/0").instance
    script.wanted["a-1/0"] = "little"
    script.veto = lambda run: run == "a-1/0" and _run(world, run).target == target
    target: InstanceId | None = None
    _replan(world)
    assert world.run(lambda: _run(world, "a-1/0").target != source, limit_ms=600_000)
    target = _run(world, "a-1/0").target
    script.wanted["a-1/0"] = "big"
    world.cloud.fail(target)
    assert world.run(world.quiet)
    run = _run(world, "a-1/0")
    assert (run.attempt, run.moves) == (1, 0)
    assert world.state.jobs[JobId("a-1")].state == "succeeded"


def test_a_gang_starts_together_and_moves_together() -> None:
    script = Script({"g-1/0": "one", "g-1/1": "two"}, {"two": MEDIUM})
    world = _world(script)
    world.submit(job("g", 2, 4, minutes=30))
    _run_until_running(world, "g-1/0", "g-1/1")
    script.wanted["g-1/0"] = "three"
    _replan(world)
    assert world.run(lambda: _run(world, "g-1/0").attempt == 2, limit_ms=600_000)
    one, two = _run(world, "g-1/0"), _run(world, "g-1/1")
    assert (one.moves, two.moves) == (1, 0)
    assert two.attempt == 2
    assert _entered(one, "starting") == _entered(two, "starting")
    assert world.run(world.quiet)


def test_a_gang_restarts_whole_when_a_member_fails() -> None:
    world = _world(Script({}, {"g-1/1": MEDIUM}), work_of=lambda run: works[run])
    works = {"g-1/0": Work(600_000), "g-1/1": Work(600_000, failures=[7])}
    world.submit(job("g", 2, 4))
    assert world.run(world.quiet)
    record = world.state.jobs[JobId("g-1")]
    assert (record.state, record.failures, record.attempt) == ("succeeded", 1, 2)
    assert (
        _entered(_run(world, "g-1/0"), "stopping") == _entered(_run(world, "g-1/1"), "waiting")[1:]
    )
    assert [run for run, attempt, _ in world.history.starts if attempt == 2] == [
        "g-1/0",
        "g-1/1",
    ]


def test_a_job_that_keeps_failing_fails_with_its_exit_code() -> None:
    world = _world(Script({}, {}), work_of=lambda _run: work)
    work = Work(600_000, failures=[7, 7, 9])
    world.submit(job("a", 2, retries=2))
    assert world.run(world.quiet)
    record = world.state.jobs[JobId("a-1")]
    assert (record.state, record.exit_code, record.failures) == ("failed", 9, 3)
    assert "no retries left" in record.reason
    ends = [at for at, _ in zip(_entered(_run(world, "a-1/0"), "waiting"), range(9), strict=False)]
    starts = _entered(_run(world, "a-1/0"), "starting")
    backoff = Settings().backoff_ms
    assert [start - end for start, end in zip(starts[1:], ends[1:], strict=False)] == [
        backoff,
        2 * backoff,
    ]


def test_a_silent_worker_loses_its_tasks_only_once_the_cloud_says_it_is_gone() -> None:
    settings = Settings(lost_worker_ms=120_000)
    world = _world(Script({}, {}), settings=settings, terminate_ms=400_000)
    world.submit(job("a", 2, minutes=60))
    _run_until_running(world, "a-1/0")
    first = _run(world, "a-1/0").instance
    world.workers.cut(first, back_after_ms=30 * 86_400_000)
    assert world.run(lambda: _run(world, "a-1/0").attempt == 2, limit_ms=3_600_000)
    gone = world.state.instances[first]
    assert gone.state == "gone"
    assert "silent for 120 s" in gone.reason
    assert _entered(_run(world, "a-1/0"), "starting")[-1] >= gone.gone_ms
    assert world.run(world.quiet)


def test_a_worker_that_comes_back_in_time_keeps_its_tasks() -> None:
    world = _world(Script({}, {}))
    world.submit(job("a", 2, minutes=60))
    _run_until_running(world, "a-1/0")
    world.workers.cut(_run(world, "a-1/0").instance, back_after_ms=100_000)
    assert world.run(world.quiet)
    assert _run(world, "a-1/0").attempt == 1


def test_an_instance_whose_worker_never_registers_is_given_back() -> None:
    script = Script({}, {})
    world = _world(script, settings=Settings(register_timeout_ms=300_000))
    world.workers.boot = lambda machine: None if machine.instance == "i00001" else boot(machine)
    boot = type(world.workers).boot.__get__(world.workers)
    world.submit(job("a", 2))
    assert world.run(world.quiet)
    assert "did not register within 300 s" in world.state.instances[InstanceId("i00001")].reason
    assert world.state.jobs[JobId("a-1")].state == "succeeded"


@pytest.mark.parametrize("when_ms", [500, 5_000, 40_000, 200_000])
def test_a_cancelled_job_leaves_nothing_behind(when_ms: int) -> None:
    world = _world(Script({}, {}))
    world.submit(job("a", 2))
    cancel = CancelRequested("cancel", JobId("a-1"))
    world.timeline.after(when_ms, lambda: world.inbox.post(cancel))
    assert world.run(lambda: "cancel" in world.answers.replies and world.quiet())
    assert world.state.jobs[JobId("a-1")].state == "cancelled"
    assert _run(world, "a-1/0").state == "cancelled"


def test_a_job_that_runs_too_long_is_failed() -> None:
    world = _world(Script({}, {}))
    world.submit(job("a", 2, minutes=60, max_duration_ms=600_000))
    assert world.run(world.quiet)
    record = world.state.jobs[JobId("a-1")]
    assert (record.state, record.exit_code) == ("failed", 124)
    assert "max_duration" in record.reason
    assert record.finished_ms - record.started_ms == 600_000 + DELAYS.stop_ms


def test_interference_is_measured_and_learned() -> None:
    script = Script({"a-1/0": "box", "b-2/0": "box"}, {"box": MEDIUM})
    slow = {"a": 0.8, "b": 0.6}
    world = _world(
        script,
        settings=Settings(window_ms=30_000),
        truth=lambda workload, others: slow[workload] if others else 1.0,
    )
    world.submit(job("a", 2, minutes=30))
    world.submit(job("b", 2, minutes=90))
    assert world.run(world.quiet)
    # b ran alone after a had ended, which taught its stand-alone rate too late for this pair;
    # a second a, beside a second b, is measured against what is known by now.
    script.wanted |= {"a-3/0": "alone", "b-4/0": "box2", "a-5/0": "box2"}
    script.offerings["box2"] = MEDIUM
    world.submit(job("a", 2, minutes=30))
    assert world.run(world.quiet)
    world.submit(job("b", 2, minutes=30))
    world.submit(job("a", 2, minutes=30))
    assert world.run(world.quiet)
    learned = dict(lessons_of(world.state).throughput.observed)
    assert learned["b", ("a",)] == pytest.approx(600_000, rel=0.05)
    assert learned["a", ("b",)] == pytest.approx(800_000, rel=0.05)


def test_the_ledger_equals_the_clouds_own_record() -> None:
    script = Script({"a-1/0": "box", "b-2/0": "box"}, {"box": MEDIUM})
    world = _world(script)
    world.submit(job("a", 2, minutes=7))
    world.submit(job("b", 1, minutes=11))
    assert world.run(world.quiet)
    bill = ledger.bill(world.state, world.timeline.now())
    record = {
        instance: machine.offering.price * (machine.gone_ms - machine.up_ms)
        for instance, machine in world.cloud.bill().items()
    }
    assert {i: account.charged for i, account in bill.instances.items()} == record
    assert bill.charged == bill.idle + sum(account.charged for account in bill.jobs.values())
    assert SMALL.price < MEDIUM.price


def test_what_was_out_of_stock_is_tried_again_when_the_cloud_says() -> None:
    policy = NO_PACKING.build(NO_PACKING.config())
    world = SimulatedCluster(
        CATALOG, policy, delays=DELAYS, settings=Settings(round_period_ms=86_400_000)
    )
    world.cloud.sold_out = lambda _offering: world.timeline.now() < 30_000
    world.submit(job("a", 2, minutes=1))
    assert world.run(world.quiet)
    refused = [i for i in world.state.instances.values() if "out of stock" in i.reason]
    assert {i.offering.type.name for i in refused} == {"c.2", "c.4", "c.8"}
    (launched,) = (i for i in world.state.instances.values() if i.up_ms is not None)
    # A minute is how long the simulated cloud says that it will have none.
    assert 60_000 <= launched.requested_ms - refused[0].requested_ms < 62_000


def test_a_worker_that_has_lost_its_task_starts_it_anew() -> None:
    world = _world(Script({}, {}))
    world.submit(job("a", 2, minutes=60))
    _run_until_running(world, "a-1/0")
    world.workers.wipe(_run(world, "a-1/0").instance)
    assert world.run(world.quiet)
    run, record = _run(world, "a-1/0"), world.state.jobs[JobId("a-1")]
    assert (record.state, run.attempt, record.failures) == ("succeeded", 2, 0)


def test_an_instance_that_nobody_wants_is_terminated() -> None:
    world = _world(Script({}, {}))
    world.submit(job("a", 2))
    _run_until_running(world, "a-1/0")
    stray = InstanceId("stray")
    never_ready = replace(SMALL, type=replace(SMALL.type, setup_ms=10**12))
    world.cloud.execute(LaunchInstance(stray, never_ready, 1))
    while stray not in world.cloud.bill():
        world.timeline.advance()
    world.inbox.clear()  # only the list of what is billed tells of it
    assert world.run(world.quiet)
    assert stray not in world.state.instances


def test_an_instance_whose_end_nobody_heard_of_is_asked_about() -> None:
    world = _world(Script({}, {}))
    world.submit(job("a", 2, minutes=60))
    _run_until_running(world, "a-1/0")
    first = _run(world, "a-1/0").instance
    world.cloud.fail(first)
    world.inbox.clear()  # neither the cloud's word nor the end of the session arrives
    assert world.run(lambda: world.state.instances[first].state == "gone", limit_ms=150_000)
    assert world.run(world.quiet)


def test_jobs_are_charged_for_the_time_they_share() -> None:
    script = Script({"a-1/0": "box", "b-2/0": "box"}, {"box": LARGE})
    world = _world(script)
    world.submit(job("a", 2, minutes=10))
    world.submit(job("b", 4, minutes=20))
    assert world.run(world.quiet)
    (box,) = world.state.instances.values()
    a, b = _run(world, "a-1/0"), _run(world, "b-2/0")
    assert _entered(a, "starting") == _entered(b, "starting")
    together = _entered(a, "succeeded")[0] - _entered(a, "starting")[0]
    after = _entered(b, "succeeded")[0] - _entered(a, "succeeded")[0]
    bill = ledger.bill(world.state, world.timeline.now())
    # Reservation prices are 100,000 and 190,000 micro-dollars per hour.
    shared = box.offering.price * together
    assert bill.jobs[JobId("a-1")].charged == pytest.approx(shared * 100 / 290, abs=9)
    assert bill.jobs[JobId("b-2")].charged == pytest.approx(
        shared * 190 / 290 + box.offering.price * after, abs=9
    )


def test_the_user_is_told_why_a_task_ended() -> None:
    world = _world(Script({}, {}))
    world.submit(job("a", 2, retries=0))
    _run_until_running(world, "a-1/0")
    place = _run(world, "a-1/0").instance
    why = "out of memory: its limit is 2 GiB"
    report = RunReport(RunId("a-1/0"), 1, Phase.EXITED, exit_code=137, message=why)
    world.inbox.post(WorkerReported(place, world.state.sessions[place], (report,)))
    assert world.run(world.quiet)
    assert (
        world.state.jobs[JobId("a-1")].reason == f"task a-1/0 exited with code 137 (SIGKILL): {why}"
    )
