"""How the tasks of a gang start, stop and go on together, on virtual time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eva_lab.simulator.cluster.checkpoints import SimulatedCheckpoints
from eva_lab.simulator.cluster.delays import EqualDelays
from eva_lab.simulator.cluster.work import Checkpoint, Work
from eva_lab.simulator.simulated_cluster import SimulatedCluster
from eva_master.control.settings import Settings
from eva_master.model.actions import Gang, ListCheckpoints, StopTask, TaskOrder
from eva_master.model.events import CheckpointsListed, Tick
from eva_master.model.records import Job, TaskRun
from eva_wire.values.ids import JobId, RunId
from tests.fakes.jobs import CATALOG, MEDIUM, Script, job

DELAYS = EqualDelays(fetch_ms=4_000, start_ms=5_000, stop_ms=3_000, report_ms=10_000)
FIRST, SECOND = RunId("g-1/0"), RunId("g-1/1")
HOUR_MS = 3_600_000
HELD = Checkpoint(1_000.0, 1)


class Stage:
    """A world with one gang of two, ``g-1``, each member on an instance of its own.

    Attributes:
        works: What the members have to do, an hour where nothing is said.
    """

    def __init__(self, works: dict[RunId, Work] | None = None, **options: object) -> None:
        self.works = {FIRST: Work(HOUR_MS), SECOND: Work(HOUR_MS), **(works or {})}
        self.script = Script({}, {})
        self.world = SimulatedCluster(
            CATALOG,
            self.script,
            delays=DELAYS,
            work_of=lambda run: self.works.get(run) or Work(60_000),
            **options,  # type: ignore[arg-type]
        )
        self.world.submit(job("g", 2, 2))
        self.run_until_attempt(1)

    def run_until_attempt(self, attempt: int) -> None:
        """Until all members run in an attempt."""
        assert self.world.run(
            lambda: all(
                run in self.world.state.runs
                and (self.run(run).attempt, self.run(run).state) == (attempt, "running")
                for run in (FIRST, SECOND)
            ),
            limit_ms=HOUR_MS,
        )

    def run(self, run: RunId) -> TaskRun:
        return self.world.state.runs[run]

    @property
    def job(self) -> Job:
        return self.world.state.jobs[JobId("g-1")]

    def order(self, run: RunId, attempt: int) -> TaskOrder:
        return self.world.history.orders[run, attempt]

    def origins(self, attempt: int) -> list[tuple[int | None, RunId | None]]:
        """What the members of an attempt began from."""
        orders = [self.order(run, attempt) for run in (FIRST, SECOND)]
        return [(order.resume, order.checkpoint_of) for order in orders]

    def publish(self, *runs: RunId) -> None:
        for run in runs:
            self.world.workers.publish(run)

    def lose(self, run: RunId) -> None:
        """Its instance dies."""
        place = self.run(run).instance
        assert place is not None
        self.world.cloud.fail(place)

    def stored(self, run: RunId) -> list[int]:
        return sorted(self.works[run].stored)


def entered(record: object, state: str) -> list[int]:
    return [at for name, at in record.history if name == state]  # type: ignore[attr-defined]


def test_members_are_told_where_to_meet() -> None:
    stage = Stage()
    orders = [stage.order(run, 1) for run in (FIRST, SECOND)]
    address = stage.world.state.instances[stage.run(FIRST).instance].address
    assert [order.gang for order in orders] == [Gang(rank, 2, address, 20_000) for rank in (0, 1)]
    assert stage.origins(1) == [(0, None), (0, None)]


def test_a_task_on_its_own_meets_nobody_and_resumes_from_what_is_there() -> None:
    world = SimulatedCluster(CATALOG, Script({}, {}), delays=DELAYS)
    world.submit(job("a", 2))
    world.submit(job("array", 1, 1, array=True))
    assert world.run(world.quiet)
    assert {(order.gang, order.resume) for order in world.history.orders.values()} == {(None, None)}


def test_gangs_meet_on_ports_of_their_own_and_each_attempt_on_a_new_one() -> None:
    stage = Stage()
    stage.world.submit(job("h", 1, 1, minutes=60))
    assert stage.world.run(lambda: (RunId("h-2/0"), 1) in stage.world.history.orders)
    stage.lose(SECOND)
    stage.run_until_attempt(2)
    ports = [
        stage.world.history.orders[run, attempt].gang.port
        for run, attempt in ((FIRST, 1), (RunId("h-2/0"), 1), (FIRST, 2))
    ]
    assert ports == [20_000, 20_001, 20_002]
    assert stage.order(SECOND, 2).gang == replace(stage.order(FIRST, 2).gang, rank=1)


def test_a_gang_waits_for_a_port_and_takes_its_own_again_if_there_is_no_other() -> None:
    stage = Stage(settings=Settings(gang_ports=(30_000, 30_000)))
    stage.world.submit(job("h", 1, 1))
    late = RunId("h-2/0")
    assert stage.world.run(
        lambda: late in stage.world.state.runs and "ports" in stage.run(late).waiting_for
    )
    stage.lose(SECOND)
    stage.run_until_attempt(2)
    assert stage.order(FIRST, 2).gang.port == 30_000
    assert stage.world.run(stage.world.quiet)
    started = entered(stage.run(late), "starting")[0]
    assert started >= stage.job.finished_ms


def test_an_order_that_is_repeated_says_the_same_after_a_restart() -> None:
    stage = Stage()
    stage.publish(FIRST, SECOND)
    stage.works[FIRST].publishes = False
    stage.lose(SECOND)
    orders = stage.world.history.orders
    assert stage.world.run(lambda: (FIRST, 2) in orders)
    before = orders.pop((FIRST, 2))
    stage.world.restart()
    place = stage.run(FIRST).instance
    assert place is not None
    stage.world.workers.wipe(place)  # it knows of no start, and is told again
    assert stage.world.run(lambda: (FIRST, 2) in orders)
    assert orders[FIRST, 2] == before
    assert before.resume == 1


def test_a_gang_goes_back_to_the_newest_checkpoint_that_all_have() -> None:
    stage = Stage()
    stage.publish(FIRST, SECOND)
    stage.publish(FIRST)  # the other one is lost before it gets there
    stage.lose(SECOND)
    stage.run_until_attempt(2)
    # The first published a third one when it was told to stop.
    assert stage.origins(2) == [(1, None), (1, None)]
    assert stage.stored(FIRST) == stage.stored(SECOND) == [1]
    assert (stage.run(FIRST).generation, stage.run(SECOND).generation) == (1, 1)
    assert (stage.run(FIRST).resume, stage.job.failures) == (1, 0)
    stage.publish(FIRST, SECOND)
    assert stage.stored(FIRST) == [1, 2]
    assert stage.world.run(stage.world.quiet)
    assert stage.job.state == "succeeded"


def test_steps_are_counted_from_the_checkpoint() -> None:
    stage = Stage()
    stage.publish(FIRST, SECOND)
    held = round(stage.works[FIRST].stored[1].done_ms) // 1000
    end = stage.world.timeline.now() + 600_000
    stage.world.run(lambda: stage.world.timeline.now() > end)
    before = stage.run(FIRST).progress.steps
    stage.works[SECOND].publishes = False
    stage.lose(SECOND)
    stage.run_until_attempt(2)
    assert stage.run(FIRST).progress.steps == held < before


def test_checkpoints_without_a_generation_count_as_work_that_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of programs without the SDK: agents report that they store them, and choose among them."""

    def answer(self: SimulatedCheckpoints, request: ListCheckpoints) -> None:
        none = tuple((run, ()) for run in request.runs)
        self._inbox.post(CheckpointsListed(request.number, request.job, none))

    monkeypatch.setattr(SimulatedCheckpoints, "request", answer)
    stage = Stage()
    end = stage.world.timeline.now() + 600_000
    stage.world.run(lambda: stage.world.timeline.now() > end)
    stage.publish(FIRST)
    stage.works[FIRST].publishes = stage.works[SECOND].publishes = False
    stage.lose(SECOND)
    assert stage.world.run(lambda: stage.run(FIRST).attempt == 2)
    for run in map(stage.run, (FIRST, SECOND)):
        assert (run.generation, run.resume) == (1, 0)
        assert run.work_ms >= 600_000
        assert run.progress.steps >= 600


def test_what_the_master_never_heard_of_counts() -> None:
    """A member that is cut off stores, and deletes, checkpoints without the master's knowledge."""
    stage = Stage()
    stage.world.workers.cut(stage.run(SECOND).instance, back_after_ms=30 * 86_400_000)
    stage.works[FIRST].stored = {8: HELD, 9: HELD}
    stage.works[SECOND].stored = {7: HELD, 9: HELD}
    stage.works[FIRST].publishes = False
    stage.run_until_attempt(2)
    assert stage.origins(2) == [(9, None), (9, None)]


def test_members_that_publish_nothing_take_the_first_ones_checkpoint() -> None:
    stage = Stage({SECOND: Work(HOUR_MS, publishes=False)})
    stage.lose(SECOND)
    stage.run_until_attempt(2)
    assert stage.origins(2) == [(1, None), (1, FIRST)]


def test_without_a_checkpoint_in_common_a_gang_starts_over_and_says_so() -> None:
    stage = Stage()
    stage.works[FIRST].stored = {5: HELD}
    stage.works[FIRST].publishes = False
    stage.works[SECOND].stored = {3: HELD}
    stage.lose(SECOND)
    stage.run_until_attempt(2)
    assert stage.origins(2) == [(0, None), (0, None)]
    assert "no checkpoint in common" in stage.job.reason
    # Else a new one of the same number would one day be taken for a companion of these.
    assert stage.stored(FIRST) == stage.stored(SECOND) == []


def test_a_checkpoint_that_is_gone_fails_the_start_and_the_next_one_takes_what_is_there() -> None:
    stage = Stage()
    stage.publish(FIRST, SECOND)
    stage.publish(FIRST, SECOND)
    request = stage.world.checkpoints.request

    def then_lose_it(wanted: ListCheckpoints) -> None:
        request(wanted)
        stage.works[SECOND].stored.pop(2, None)

    stage.works[FIRST].publishes = stage.works[SECOND].publishes = False
    stage.world.checkpoints.request = then_lose_it
    stage.lose(SECOND)
    stage.run_until_attempt(3)
    assert stage.origins(2) == [(2, None), (2, None)]
    assert "no generation 2" in stage.job.reason
    assert stage.origins(3) == [(1, None), (1, None)]


def test_a_lost_member_is_planned_for_as_soon_as_the_others_have_stopped() -> None:
    stage = Stage()
    lost_ms = stage.world.timeline.now()
    stage.lose(SECOND)
    stage.run_until_attempt(2)
    assert stage.world.timeline.now() - lost_ms < Settings().round_period_ms / 2


def test_a_moved_member_takes_the_whole_gang_along() -> None:
    stage = Stage()
    stage.script.wanted[SECOND] = "elsewhere"
    stage.script.offerings["elsewhere"] = MEDIUM
    stage.world.submit(job("nudge", 1))
    stage.run_until_attempt(2)
    first, second = stage.run(FIRST), stage.run(SECOND)
    assert (first.moves, second.moves) == (0, 1)
    assert entered(first, "stopping") == entered(second, "stopping")
    assert stage.origins(2) == [(1, None), (1, None)]


def test_a_gang_restarts_whole_though_a_member_was_done() -> None:
    stage = Stage({FIRST: Work(60_000), SECOND: Work(HOUR_MS // 6, failures=[7])})
    stage.run_until_attempt(2)
    assert entered(stage.run(FIRST), "succeeded") != []
    assert stage.origins(2) == [(0, None), (0, None)]
    assert stage.world.run(stage.world.quiet)
    assert (stage.job.state, stage.job.failures) == ("succeeded", 1)


def test_a_member_that_was_done_stays_so_when_the_gang_is_not_tried_again() -> None:
    stage = Stage({FIRST: Work(60_000)})
    assert stage.world.run(lambda: stage.run(FIRST).state == "succeeded")
    stage.world.state.put_job(replace(stage.job, failures=stage.job.spec.failing.retries))
    fail(stage, SECOND)
    assert stage.world.run(stage.world.quiet)
    assert stage.job.state == "failed"
    assert [stage.run(run).state.value for run in (FIRST, SECOND)] == ["succeeded", "failed"]


def fail(stage: Stage, run: RunId) -> None:
    """Its program exits with 1."""
    for agent, attempt in stage.world.workers.attempts_of(stage.job.id):
        if attempt.order.run == run:
            agent.exit(attempt, 1)


def test_a_member_that_fails_for_want_of_a_lost_one_is_no_failure() -> None:
    stage = Stage()
    for attempt in (1, 2, 3, 4, 5):
        fail(stage, FIRST)
        assert stage.world.run(lambda: stage.job.failure is not None)
        assert stage.job.reason == "task g-1/0 exited with code 1"
        stage.lose(SECOND)
        stage.run_until_attempt(attempt + 1)
        assert (stage.job.failures, stage.job.failure) == (0, None)


def test_a_failure_counts_once_for_the_gang_however_many_members_fail() -> None:
    stage = Stage()
    fail(stage, FIRST)
    fail(stage, SECOND)
    stage.run_until_attempt(2)
    assert stage.job.failures == 1
    waited = [entered(stage.run(run), "waiting")[-1] for run in (FIRST, SECOND)]
    assert entered(stage.run(FIRST), "starting")[-1] == max(waited) + Settings().backoff_ms


def test_a_gang_that_keeps_failing_fails() -> None:
    stage = Stage()
    for attempt in (1, 2, 3, 4):
        stage.run_until_attempt(attempt)
        fail(stage, SECOND)
    assert stage.world.run(stage.world.quiet)
    assert (stage.job.state, stage.job.exit_code, stage.job.failures) == ("failed", 1, 4)
    assert stage.job.reason == "task g-1/1 exited with code 1; no retries left"
    assert {stage.run(run).state.value for run in (FIRST, SECOND)} == {"failed"}


def test_a_gang_of_which_a_member_is_done_is_not_moved() -> None:
    stage = Stage({FIRST: Work(60_000)})
    assert stage.world.run(lambda: stage.run(FIRST).state == "succeeded")
    stage.script.wanted[SECOND] = "elsewhere"
    stage.script.offerings["elsewhere"] = MEDIUM
    stage.world.submit(job("nudge", 1))
    assert stage.world.run(stage.world.quiet)
    assert (stage.job.attempt, stage.job.state) == (1, "succeeded")


def test_a_member_that_is_cut_off_is_given_up_before_the_gang_goes_on() -> None:
    stage = Stage(settings=Settings(lost_worker_ms=120_000), terminate_ms=400_000)
    lost = stage.run(SECOND).instance
    stage.world.workers.cut(lost, back_after_ms=30 * 86_400_000)
    stage.run_until_attempt(2)
    gone = stage.world.state.instances[lost]
    assert gone.state == "gone"
    assert entered(stage.run(FIRST), "stopping")[0] == entered(gone, "terminating")[0]
    starts = [entered(stage.run(run), "starting")[1] for run in (FIRST, SECOND)]
    assert min(starts) >= gone.gone_ms
    assert starts[0] == starts[1]


@pytest.mark.parametrize("when_ms", [1_000, 4_000])
def test_a_member_whose_worker_is_lost_while_it_starts(when_ms: int) -> None:
    stage = Stage()
    stage.lose(SECOND)
    assert stage.world.run(lambda: stage.run(SECOND).state == "starting")
    end = stage.world.timeline.now() + when_ms
    stage.world.timeline.after(when_ms, lambda: stage.world.inbox.post(Tick()))
    stage.world.run(lambda: stage.world.timeline.now() >= end)
    assert stage.run(SECOND).state == "starting"
    stage.lose(SECOND)
    stage.run_until_attempt(3)
    assert stage.order(FIRST, 3).gang.port == stage.order(SECOND, 3).gang.port
    assert stage.world.run(stage.world.quiet)
    assert (stage.job.state, stage.job.failures) == ("succeeded", 0)


def test_all_members_are_told_to_stop_at_once() -> None:
    stage = Stage()
    told: list[tuple[int, RunId]] = []
    execute = stage.world.workers.execute

    def noting(action: object) -> None:
        if isinstance(action, StopTask):
            told.append((stage.world.timeline.now(), action.run))
        execute(action)

    stage.world.workers.execute = noting
    stage.script.wanted[SECOND] = "elsewhere"
    stage.world.submit(job("nudge", 1))
    stage.run_until_attempt(2)
    assert told[0][0] == told[1][0]
    assert {run for _, run in told[:2]} == {FIRST, SECOND}


def test_a_slow_store_is_asked_once() -> None:
    """A question that is still being carried out might remove what the next attempt stores."""
    stage = Stage()
    request = stage.world.checkpoints.request
    asked: list[int | None] = []

    def slow(wanted: ListCheckpoints) -> None:
        asked.append(wanted.give_up_after)
        stage.world.timeline.after(200_000, lambda: request(wanted))

    stage.world.checkpoints.request = slow
    stage.publish(FIRST, SECOND)
    stage.lose(SECOND)
    stage.run_until_attempt(2)
    # The first one published once more when it was stopped.
    assert asked == [None, 1]
    assert stage.origins(2) == [(1, None), (1, None)]


def test_a_store_that_does_not_answer_is_asked_again_and_the_user_told() -> None:
    stage = Stage()
    request = stage.world.checkpoints.request
    asked: list[int] = []

    def failing_once(wanted: ListCheckpoints) -> None:
        asked.append(stage.world.timeline.now())
        if len(asked) == 1:
            answer = CheckpointsListed(wanted.number, wanted.job, (), error="no such bucket")
            stage.world.inbox.post(answer)
        else:
            request(wanted)

    stage.world.checkpoints.request = failing_once
    stage.lose(SECOND)
    assert stage.world.run(lambda: "no such bucket" in stage.run(FIRST).waiting_for)
    stage.run_until_attempt(2)
    assert asked[1] - asked[0] == Settings().worker_resend_ms
    assert stage.run(FIRST).waiting_for == ""
