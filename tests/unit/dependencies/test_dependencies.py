"""Jobs that wait for others: who is waited for, when they arrive, and how they end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from eva_master.control.machine import Machine
from eva_master.control.settings import Limits, Settings
from eva_master.control.state.dependencies import Dependencies
from eva_master.control.state.store import State
from eva_master.model.actions import Action, Reply, RequestPlan
from eva_master.model.events import CancelRequested, JobSubmitted, PlanReady, Tick
from eva_master.model.planning.plan import Plan
from eva_master.model.records import Ended, Job, Outcome
from eva_wire.values.errors import InvalidJob, LimitExceeded
from eva_wire.values.ids import JobId, Millis
from eva_wire.values.states import JobState, RunState
from tests.fakes.jobs import CATALOG, job

HISTORY_KEPT_MS = 1_000


class Cluster:
    """A control loop whose policy leaves everybody waiting."""

    def __init__(self, state: State | None = None, **settings: object) -> None:
        merged = {"round_gap_ms": 0, **settings}
        self.machine = Machine(state or State(CATALOG), Settings(**merged))
        self.now = Millis(0)
        self._commands = 0

    @property
    def state(self) -> State:
        return self.machine.state

    def submit(self, name: str, *after: str, owner: str = "me", ended: object = ()) -> Reply:
        self._commands += 1
        spec = job(name, 1, owner=owner, depends_on=tuple(map(JobId, after)))
        actions = self.handle(JobSubmitted(f"c{self._commands}", spec, tuple(ended)))
        return next(it for it in actions if isinstance(it, Reply))

    def handle(self, *events: object) -> list[Action]:
        """One turn; a plan that is asked for is answered by an empty one."""
        self.now = Millis(self.now + 1)
        actions = self.machine.handle(events, self.now)
        for action in actions:
            if isinstance(action, RequestPlan):
                self.machine.handle([PlanReady(action.round, Plan(), None)], self.now)
        return actions

    def end(self, name: str, state: JobState = JobState.SUCCEEDED) -> list[Action]:
        """End a job as if its task had run."""
        context = self.machine._context
        context.begin(self.now)
        record = self.state.jobs[JobId(name)]
        reason = "" if state is JobState.SUCCEEDED else "its own"
        outcome = Outcome(state.value)
        ending = record.to(JobState.ENDING, self.now)
        context.put_job(replace(ending, outcome=outcome, exit_code=3, reason=reason))
        return self.handle(Tick())

    def job(self, name: str) -> Job:
        return self.state.jobs[JobId(name)]

    def seen(self, actions: list[Action]) -> list[str]:
        """The jobs that the policy was shown."""
        (request,) = (it for it in actions if isinstance(it, RequestPlan))
        return [view.id for view in request.snapshot.jobs]


def holds(dependencies: Dependencies) -> Iterator[int]:
    """How much is held of any kind."""
    for name in ("_left", "_followers", "_unmet", "_decided"):
        yield len(getattr(dependencies, name))


def test_a_job_that_waits_is_in_no_snapshot_until_the_last_one_has_succeeded() -> None:
    cluster = Cluster()
    for name in ("a", "b"):
        cluster.submit(name)
    before = cluster.state.counters
    assert cluster.submit("c", "a-1", "b-2").job == "c-3"
    after = cluster.state.counters
    assert (after.jobs - before.jobs, after.arrivals - before.arrivals) == (1, 0)
    assert after.rounds == before.rounds, "its submission is no reason for a round"
    assert cluster.seen(cluster.end("a-1")) == ["b-2"]
    assert cluster.job("c-3").waits
    assert list(cluster.state.dependencies.left(JobId("c-3"))) == ["b-2"]
    actions = cluster.end("b-2")
    assert cluster.seen(actions) == ["c-3"]
    assert cluster.job("c-3").released_ms == cluster.now
    (view,) = next(it for it in actions if isinstance(it, RequestPlan)).snapshot.jobs
    assert view.submitted_ms == cluster.now, "it arrives as if it had just been submitted"
    assert cluster.state.counters.arrivals == 3
    assert cluster.state.unplaced
    assert set(holds(cluster.state.dependencies)) == {0}


def test_nothing_but_a_job_that_waits_keeps_no_round_going() -> None:
    cluster = Cluster(round_period_ms=1_000)
    cluster.submit("a")
    cluster.submit("b", "a-1")
    assert list(cluster.state.unplaced) == ["a-1"]


@pytest.mark.parametrize(
    ("outcome", "words", "code", "chain"),
    [
        (JobState.FAILED, "failed", 1, "failed because a-1 did"),
        (JobState.CANCELLED, "was cancelled", 130, "was cancelled because a-1 was"),
    ],
)
def test_an_end_without_success_is_passed_on_with_its_reason(
    outcome: JobState, words: str, code: int, chain: str
) -> None:
    cluster = Cluster()
    cluster.submit("a")
    cluster.submit("b", "a-1")
    cluster.submit("c", "b-2")
    completions = cluster.state.counters.completions
    cluster.end("a-1", outcome)
    direct, indirect = cluster.job("b-2"), cluster.job("c-3")
    assert (direct.state, direct.exit_code) == (outcome, code)
    assert direct.reason == f"a-1, after which it was to run, {words}"
    assert direct.unmet == Ended(JobId("a-1"), Outcome(outcome.value), JobId("a-1"))
    assert indirect.state is outcome
    assert indirect.reason == f"b-2, after which it was to run, {chain}"
    assert indirect.unmet == Ended(JobId("b-2"), Outcome(outcome.value), JobId("a-1"))
    run = next(cluster.state.members(JobId("c-3")))
    assert run.state is RunState(outcome.value)
    assert cluster.state.counters.completions == completions + 1, "no plan was about the others"
    assert not cluster.state.active
    assert set(holds(cluster.state.dependencies)) == {0}


def test_a_chain_of_thousands_ends_in_one_turn() -> None:
    cluster = Cluster(limits=Limits(jobs_per_user=20_000, jobs=20_000, tasks_per_user=20_000))
    cluster.submit("a")
    last = "a-1"
    for number in range(2, 3_002):
        last = cluster.submit(f"j{number}", last).job
    cluster.machine.take_changes()
    cluster.end("a-1", JobState.FAILED)
    changes = cluster.machine.take_changes()
    assert len(changes.jobs) == 3_001
    assert all(it.state is JobState.FAILED for it in changes.jobs)
    assert cluster.job(last).unmet.origin == "a-1"
    assert set(holds(cluster.state.dependencies)) == {0}


@pytest.mark.parametrize("limit", ["waits", "waits_per_user"])
def test_all_that_unfinished_jobs_name_is_limited(limit: str) -> None:
    cluster = Cluster(limits=Limits(**{limit: 3}))
    for name in ("a", "b"):
        cluster.submit(name)
    cluster.submit("c", "a-1", "b-2")
    reply = cluster.submit("d", "a-1", "b-2")
    assert isinstance(reply.error, LimitExceeded)
    assert f"(limits.{limit})" in reply.error.message
    assert cluster.submit("e", "a-1").job == "e-4"
    assert cluster.submit("f").job == "f-5", "it names nobody"
    cluster.handle(CancelRequested("x", JobId("c-3"), "me"))
    assert cluster.submit("d", "a-1", "b-2").job == "d-6"


def test_the_end_of_one_of_many_costs_what_hangs_on_it_alone() -> None:
    """Neither those that hang on others nor those that are over are looked at."""
    cluster = Cluster()
    cluster.submit("a")
    cluster.submit("b")
    for number in range(50):
        cluster.submit(f"x{number}", "a-1")
    cluster.submit("y", "b-2")
    cluster.machine.take_changes()
    cluster.end("b-2")
    assert {it.id for it in cluster.machine.take_changes().jobs} == {"b-2", "y-53"}


def test_cancelling_a_job_that_waits_takes_those_after_it_along_and_nobody_else() -> None:
    cluster = Cluster()
    cluster.submit("a")
    cluster.submit("b", "a-1")
    cluster.submit("c", "b-2")
    cluster.handle(CancelRequested("x", JobId("b-2"), "me"))
    assert cluster.job("b-2").reason == "cancelled by its owner"
    assert cluster.job("b-2").unmet is None
    assert cluster.job("c-3").state is JobState.CANCELLED
    assert cluster.job("a-1").state is JobState.PENDING
    assert set(holds(cluster.state.dependencies)) == {0}


@pytest.mark.parametrize("outcome", [JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED])
@pytest.mark.parametrize("forgotten", [False, True])
def test_one_that_has_ended_counts_at_once(outcome: JobState, forgotten: bool) -> None:
    cluster = Cluster(history_kept_ms=HISTORY_KEPT_MS)
    cluster.submit("a")
    cluster.end("a-1", outcome)
    end = Ended.of(cluster.job("a-1"))
    if forgotten:
        cluster.now = Millis(cluster.now + 2 * HISTORY_KEPT_MS)
        cluster.machine.take_changes()
        cluster.handle(Tick())
        assert JobId("a-1") not in cluster.state.jobs
    rounds = cluster.state.counters.rounds
    assert cluster.submit("b", "a-1", ended=[end]).job == "b-2"
    succeeded = outcome is JobState.SUCCEEDED
    assert cluster.state.counters.rounds - rounds == succeeded, "only then there is news to plan"
    if succeeded:
        assert not cluster.job("b-2").waits
        assert cluster.job("b-2").state is JobState.PENDING
    else:
        assert cluster.job("b-2").state is outcome
        assert cluster.job("b-2").unmet == end
    assert set(holds(cluster.state.dependencies)) == {0}


@pytest.mark.parametrize("after", ["theirs-1", "nothing-7"])
def test_a_job_of_somebody_else_is_told_like_one_that_there_is_not(after: str) -> None:
    cluster = Cluster()
    cluster.submit("theirs", owner="you")
    cluster.machine.take_changes()
    reply = cluster.submit("mine", after)
    assert isinstance(reply.error, InvalidJob)
    assert reply.error.message == f"there is no job {after} of yours, after which it is to run"
    assert reply.owner == "me"
    assert not cluster.machine.take_changes()


def test_a_restart_goes_on_where_the_last_commit_was() -> None:
    cluster = Cluster()
    cluster.submit("a")
    cluster.submit("b")
    cluster.submit("c", "a-1", "b-2")
    cluster.submit("d", "c-3")
    cluster.end("a-1")
    written = cluster.machine.take_changes()
    restored = State.restored(CATALOG, replace(written, rounds=()))
    # What had ended is left out of what a master loads if it is over for long.
    recent = replace(
        written,
        jobs=tuple(it for it in written.jobs if it.id != "a-1"),
        runs=tuple(it for it in written.runs if it.job != "a-1"),
    )
    for state in (restored, State.restored(CATALOG, recent)):
        again = Cluster(state)
        again.machine.recover(Millis(10))
        assert list(state.dependencies.left(JobId("c-3"))) == ["b-2"]
        assert again.job("c-3").waits
        again.now = Millis(20)
        again.end("b-2")
        assert not again.job("c-3").waits
        assert again.job("d-4").waits


def test_a_record_without_its_last_step_is_settled_at_the_start() -> None:
    """As of a release whose journal tells no more than the ids."""
    cluster = Cluster()
    cluster.submit("a")
    cluster.end("a-1")
    spec = job("b", 1, depends_on=(JobId("a-1"),))
    history = ((JobState.PENDING.value, 1),)
    state = cluster.state
    state.put_job(Job(JobId("b-2"), spec, Millis(1), history))
    again = Cluster(State.restored(CATALOG, state.take_changes()))
    again.machine.recover(Millis(50))
    assert again.job("b-2").released_ms == 50
