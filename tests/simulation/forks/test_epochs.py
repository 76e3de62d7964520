"""Forked jobs on a fleet: they train together, and every step counts once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from eva_lab.simulator.cluster.delays import EqualDelays
from eva_lab.simulator.cluster.work import Work
from eva_lab.simulator.simulated_cluster import SimulatedCluster
from eva_master.adapters.rpc.server import views
from eva_master.app.policy_registry import policies
from eva_master.control.features.forks import tracker
from eva_master.control.features.forks.memory import ForkMemory
from eva_master.control.measure import attained, ledger
from eva_master.control.settings import Settings
from eva_master.model.actions import TellMerge, WorkerAction
from eva_master.model.catalog import InstanceType, Offering, Purchase
from eva_master.model.events import (
    CancelRequested,
    NodeRequested,
    PartGiven,
    ResumeRequested,
    SuspendRequested,
)
from eva_master.model.fleet.nodes import NodeVerb, OwnedNode
from eva_master.model.forks.merging import MergeRule, Merging
from eva_master.model.job import ForkRules, JobSpec, Program, TaskSpec
from eva_master.model.records import Job, StopReason
from eva_master.model.resources import Resources
from eva_master.testing.job_views import with_values
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import Family, InstanceId, JobId, Millis, Price, RunId, Workload
from eva_wire.values.states import JobState, RunState
from tests.fakes.models import model_of

MINUTE_MS = 60_000
SPEEDS = {"fast": 10, "slow": 2}
DELAYS = EqualDelays(fetch_ms=1_000, start_ms=1_000, stop_ms=1_000, report_ms=5_000)
FIFO = policies()["fifo"]


def node(name: str, family: str) -> OwnedNode:
    kind = InstanceType(f"{family}.1", Family(family), Resources(1, 8_000, 16_384))
    sold = Offering(kind, Price(1_000_000), zone="nodes", purchase=Purchase.OWNED)
    return OwnedNode(InstanceId(name), sold, 600_000)


NODES = (node("n-1", "fast"), node("n-2", "slow"), node("n-3", "slow"))


def forked(name: str, steps: int, forks: int = 4, **more: object) -> JobSpec:
    """A job that does ten steps a second on fast nodes, and two on slow ones."""
    need = Resources(1, 1_000, 1_024)
    rates = tuple((Family(it), rate * 1_000_000) for it, rate in sorted(SPEEDS.items()))
    demand = tuple((Family(it), need) for it in sorted(SPEEDS))
    task = TaskSpec(Workload(name), Program("true"), demand, rates)
    kind = JobKind.ARRAY if forks > 1 else JobKind.GANG
    forking = ForkRules(forks, MergeRule(every_ms=MINUTE_MS))
    spec = JobSpec(name, "me", (task,), kind, total_steps=steps, forking=forking)
    return with_values(spec, more)


class Fleet(SimulatedCluster):
    """A fast node and two slow ones."""

    def __init__(self, gives: bool = True, **more: object) -> None:
        settings = Settings(nodes={it.name: it for it in NODES}, round_gap_ms=1_000)
        super().__init__(
            (),
            FIFO.build(FIFO.config()),
            settings=settings,
            delays=DELAYS,
            work_of=lambda run: Work(600 * MINUTE_MS, steps_per_s=1.0, gives_parts=gives),
            speed_of=lambda _run, family: float(SPEEDS[family]),
            **more,  # type: ignore[arg-type]
        )

    def until(self, condition: Callable[[], object]) -> None:
        assert self.run(lambda: bool(condition()), limit_ms=20 * 60 * MINUTE_MS)

    def job(self, name: str) -> Job:
        return self.state.jobs[JobId(name)]

    def ended(self, name: str) -> bool:
        return JobId(name) in self.state.jobs and self.job(name).finished_ms is not None

    def running(self, name: str) -> set[str]:
        runs = self.state.in_hand(JobId(name))
        return {it.instance for it in runs if it.state is RunState.RUNNING and it.instance}


def test_a_forked_job_trains_on_all_idle_nodes_and_counts_each_step_once() -> None:
    fleet = Fleet(merge_ms=5_000)
    fleet.submit(forked("a", 14 * 600))
    fleet.until(lambda: JobId("a-1") in fleet.state.jobs and len(fleet.running("a-1")) == 3)
    assert fleet.running("a-1") == {"n-1", "n-2", "n-3"}
    fleet.until(lambda: fleet.ended("a-1"))
    job = fleet.job("a-1")
    assert job.state is JobState.SUCCEEDED
    assert job.merging is not None
    assert job.merging.steps == 14 * 600
    # Ten minutes by all three together, and a merge of five seconds after each minute.
    assert 9 * MINUTE_MS < job.finished_ms < 13 * MINUTE_MS


def test_a_fork_gives_its_room_to_whoever_comes() -> None:
    fleet = Fleet()
    fleet.submit(forked("a", 14 * 600))
    fleet.until(lambda: JobId("a-1") in fleet.state.jobs and len(fleet.running("a-1")) == 3)
    fleet.submit(forked("b", 2 * 300, forks=1))
    began = fleet.timeline.now()
    fleet.until(lambda: JobId("b-2") in fleet.state.jobs and fleet.running("b-2"))
    # The fork's stop, the start of the other, and a round between them.
    assert fleet.timeline.now() - began < 10_000
    assert len(fleet.running("a-1")) == 2
    fleet.until(lambda: fleet.ended("b-2"))
    fleet.until(lambda: len(fleet.running("a-1")) == 3 or fleet.ended("a-1"))
    fleet.until(lambda: fleet.ended("a-1"))
    assert fleet.job("a-1").state is JobState.SUCCEEDED
    merging = fleet.job("a-1").merging
    assert merging is not None
    assert merging.steps == 14 * 600


def test_a_program_that_never_gives_is_unforked_after_two_rounds() -> None:
    fleet = Fleet(gives=False)
    fleet.submit(forked("a", 14 * 600))
    fleet.until(lambda: JobId("a-1") in fleet.state.jobs and len(fleet.running("a-1")) == 3)
    fleet.until(lambda: (it := fleet.job("a-1").merging) is not None and it.unforked)
    merging = fleet.job("a-1").merging
    assert merging is not None
    assert merging.unforked == "fork 0 gave no part in 2 rounds in a row"
    fleet.until(lambda: len(fleet.state.in_hand(JobId("a-1"))) == 1)
    assert fleet.running("a-1") == {"n-1"}
    # By itself it does its own work, and that is the job's.
    fleet.until(lambda: fleet.ended("a-1"))
    assert fleet.job("a-1").state is JobState.SUCCEEDED
    assert fleet.state.runs[RunId("a-1/0")].state is RunState.SUCCEEDED


def test_a_master_that_dies_goes_on_with_the_epoch() -> None:
    fleet = Fleet(merge_ms=5_000)
    fleet.submit(forked("a", 14 * 600))
    fleet.until(lambda: JobId("a-1") in fleet.state.jobs and len(fleet.running("a-1")) == 3)
    for minute in range(2, 9):
        fleet.until(lambda at=minute * MINUTE_MS + minute * 7_000: fleet.timeline.now() >= at)
        before = fleet.job("a-1").merging
        fleet.restart()
        assert fleet.job("a-1").merging == before
    fleet.until(lambda: fleet.ended("a-1"))
    merging = fleet.job("a-1").merging
    assert merging is not None
    assert merging.steps == 14 * 600
    assert fleet.job("a-1").finished_ms < 14 * MINUTE_MS


def test_the_steps_of_a_job_that_is_suspended_are_kept() -> None:
    fleet = Fleet()
    fleet.submit(forked("a", 14 * 600))
    fleet.until(lambda: JobId("a-1") in fleet.state.jobs and len(fleet.running("a-1")) == 3)
    fleet.until(lambda: fleet.timeline.now() > 5 * MINUTE_MS)
    fleet.inbox.post(SuspendRequested("s", JobId("a-1"), "me"))
    fleet.until(lambda: not fleet.state.in_hand(JobId("a-1")))
    merging = fleet.job("a-1").merging
    assert merging is not None
    kept = merging.steps + sum(it.steps for it in merging.parts)
    assert kept > 14 * 60 * 4
    fleet.inbox.post(ResumeRequested("r", JobId("a-1"), "me"))
    fleet.until(lambda: fleet.ended("a-1"))
    after = fleet.job("a-1").merging
    assert after is not None
    assert after.steps == 14 * 600


def test_forks_are_charged_to_their_job() -> None:
    fleet = Fleet()
    fleet.submit(forked("a", 14 * 100))
    fleet.until(lambda: fleet.ended("a-1"))
    account = ledger.bill(fleet.state, Millis(fleet.timeline.now())).jobs[JobId("a-1")]
    assert 0 < account.replicas < account.charged


def test_a_fork_leaves_a_node_that_is_drained_and_the_others_go_on() -> None:
    fleet = Fleet()
    fleet.submit(forked("a", 14 * 600))
    fleet.until(lambda: JobId("a-1") in fleet.state.jobs and len(fleet.running("a-1")) == 3)
    fleet.inbox.post(NodeRequested("d", InstanceId("n-3"), NodeVerb.DRAIN, "me"))
    fleet.until(lambda: len(fleet.state.in_hand(JobId("a-1"))) == 2)
    assert fleet.running("a-1") == {"n-1", "n-2"}
    fleet.until(lambda: fleet.ended("a-1"))
    merging = fleet.job("a-1").merging
    assert merging is not None
    assert merging.steps == 14 * 600
    assert not fleet.machine._context.memory(ForkMemory).told_merges


def test_nothing_is_remembered_of_a_forked_job_that_was_cancelled() -> None:
    fleet = Fleet()
    fleet.submit(forked("a", 14 * 600))
    fleet.until(lambda: JobId("a-1") in fleet.state.jobs and len(fleet.running("a-1")) == 3)
    fleet.inbox.post(CancelRequested("c", JobId("a-1"), "me"))
    fleet.until(lambda: fleet.ended("a-1"))
    assert fleet.job("a-1").state is JobState.CANCELLED
    assert not fleet.machine._context.memory(ForkMemory).told_merges


def test_who_is_left_alone_in_an_epoch_does_what_the_others_did_not() -> None:
    fleet = Fleet()
    fleet.submit(forked("a", 12 * 600, forks=2, merge=MergeRule(every_ms=120 * MINUTE_MS)))
    fleet.until(lambda: JobId("a-1") in fleet.state.jobs and len(fleet.running("a-1")) == 2)
    fleet.until(lambda: (it := fleet.job("a-1").merging) is not None and len(it.shares) == 2)
    lost = InstanceId("n-2")
    fleet.inbox.post(NodeRequested("d", lost, NodeVerb.DRAIN, "me"))
    fleet.workers.wipe(lost)  # its fork gives nothing, and comes back nowhere
    fleet.inbox.post(NodeRequested("d3", InstanceId("n-3"), NodeVerb.DRAIN, "me"))
    fleet.until(lambda: fleet.ended("a-1"))
    job = fleet.job("a-1")
    assert job.merging is not None
    assert job.merging.steps == 12 * 600
    assert job.finished_ms is not None
    assert job.finished_ms > 11 * MINUTE_MS  # by the fast node alone


def _merging(fleet: Fleet) -> Merging:
    merging = fleet.job("a-1").merging
    assert merging is not None
    return merging


def _trains_on_three(fleet: Fleet) -> None:
    fleet.submit(forked("a", 14 * 3_600))
    fleet.until(lambda: JobId("a-1") in fleet.state.jobs and len(fleet.running("a-1")) == 3)
    fleet.until(lambda: len(_merging(fleet).shares) == 3)


def test_a_leader_that_is_to_merge_no_more_is_stopped_and_begins_anew() -> None:
    fleet = Fleet(merge_ms=5_000)
    _trains_on_three(fleet)
    fleet.workers.merge_ms = 17 * MINUTE_MS  # more than the minute and a quarter of an hour
    fleet.until(lambda: _merging(fleet).leader == 0)
    epoch = _merging(fleet).epoch
    fleet.workers.merge_ms = 5_000
    fleet.until(lambda: _merging(fleet).leader not in (0, None))
    own = fleet.state.runs[RunId("a-1/0")]
    assert (own.state, own.stop, own.attempt) == (RunState.STOPPING, StopReason.MERGE, 1)
    assert own.target == "n-1"
    fleet.until(lambda: fleet.state.runs[own.id].state is RunState.RUNNING)
    assert fleet.state.runs[own.id].attempt == 2
    fleet.until(lambda: _merging(fleet).epoch > epoch + 1)
    # The one that counts is that of the second leader, and has not the first one's part.
    assert dict(_merging(fleet).missed) == {}
    fleet.until(lambda: fleet.ended("a-1"))
    assert _merging(fleet).steps == 14 * 3_600


def test_a_fork_that_is_cut_off_is_left_out_and_ends_no_forking() -> None:
    fleet = Fleet()
    _trains_on_three(fleet)
    lost = InstanceId("n-2")
    fleet.workers.cut(lost, 9 * MINUTE_MS)  # its tasks stop after ten minutes
    number = next(it.replica for it in fleet.state.in_hand(JobId("a-1")) if it.instance == lost)
    cut_ms = fleet.timeline.now()
    fleet.until(lambda: _merging(fleet).share_of(number) is None)
    assert fleet.timeline.now() - cut_ms <= 60_000
    epoch, rejoins_ms = _merging(fleet).epoch, cut_ms + 9 * MINUTE_MS
    fleet.until(lambda: fleet.timeline.now() >= rejoins_ms - 1_000)
    assert _merging(fleet).epoch >= epoch + 7  # the others go on, a minute each
    assert _merging(fleet).missed == ()
    run = next(it for it in fleet.state.in_hand(JobId("a-1")) if it.replica == number)
    fleet.until(lambda: _merging(fleet).share_of(number) is not None)
    assert fleet.timeline.now() - rejoins_ms < 30_000
    assert fleet.state.runs[run.id].attempt == run.attempt
    fleet.until(lambda: fleet.ended("a-1"))
    assert (_merging(fleet).steps, _merging(fleet).unforked) == (14 * 3_600, "")


def test_who_reconnects_at_once_keeps_its_share() -> None:
    fleet = Fleet()
    _trains_on_three(fleet)
    before = _merging(fleet)
    fleet.workers.cut(InstanceId("n-2"), 20_000)
    at = fleet.timeline.now() + 30_000
    fleet.until(lambda: fleet.timeline.now() >= at)
    assert _merging(fleet).shares == before.shares


def test_a_master_that_was_away_for_long_blames_nobody() -> None:
    fleet = Fleet()
    _trains_on_three(fleet)
    fleet.workers.merge_ms = 30 * MINUTE_MS
    fleet.until(lambda: _merging(fleet).leader == 0)
    late = _merging(fleet).since_ms + MergeRule(every_ms=MINUTE_MS).lead_ms
    fleet.until(lambda: fleet.timeline.now() >= late - 5 * MINUTE_MS)
    for name, away_s in (("n-1", 530), ("n-2", 490), ("n-3", 490)):
        fleet.workers.cut(InstanceId(name), away_s * 1_000)
    fleet.until(lambda: fleet.timeline.now() >= late + 175_000)
    fleet.restart()
    # The leader comes back half a minute after the others, and may then say what it has done.
    fleet.until(lambda: fleet.timeline.now() >= late + 205_000)
    assert InstanceId("n-2") in fleet.state.sessions
    assert InstanceId("n-1") not in fleet.state.sessions
    assert (_merging(fleet).leader, _merging(fleet).missed) == (0, ())


def test_an_order_that_was_lost_is_said_again() -> None:
    fleet = Fleet()
    _trains_on_three(fleet)
    said_ms: list[int] = []
    hear = fleet.workers.execute

    def execute(action: WorkerAction) -> None:
        if isinstance(action, TellMerge) and action.run == "a-1/0" and action.round.give:
            said_ms.append(fleet.timeline.now())  # and nobody hears it
        else:
            hear(action)

    fleet.workers.execute = execute  # type: ignore[method-assign]
    fleet.until(lambda: len(said_ms) > 1)
    assert said_ms[1] - said_ms[0] == Settings().worker_resend_ms


def test_a_program_that_makes_no_step_goes_on_unforked() -> None:
    fleet = Fleet(gives=False)
    _trains_on_three(fleet)
    for _ in range(2):
        assert _merging(fleet).unforked == ""
        for run in fleet.state.in_hand(JobId("a-1")):
            assert run.instance is not None
            session = fleet.state.sessions[run.instance]
            epoch = _merging(fleet).epoch
            fleet.inbox.post(PartGiven(run.instance, session, run.id, run.attempt, epoch, 0))
        at = fleet.timeline.now() + 1_000
        fleet.until(lambda at=at: fleet.timeline.now() >= at)
    assert _merging(fleet).unforked == "no fork made a step in 2 rounds in a row"
    fleet.until(lambda: fleet.ended("a-1"))
    assert fleet.job("a-1").state is JobState.SUCCEEDED


def _shown(fleet: Fleet) -> tuple[set[int], set[int]]:
    """The steps and totals that users see of a job's forks."""
    now = Millis(fleet.timeline.now())
    model = model_of(fleet.state)
    message = views.job(model, model.record(JobId("a-1"), now), now)
    return {it.steps for it in message.tasks}, {it.total_steps for it in message.tasks}


def test_users_see_the_progress_of_the_job_and_not_that_of_its_forks() -> None:
    fleet, total = Fleet(merge_ms=5_000), 14 * 600
    fleet.submit(forked("a", total))
    fleet.until(lambda: JobId("a-1") in fleet.state.jobs and fleet.job("a-1").merging is not None)
    assert _shown(fleet) == ({0}, {total})
    fleet.until(lambda: _merging(fleet).merged == 3)
    assert _shown(fleet) == ({_merging(fleet).steps}, {total})
    assert fleet.state.runs[RunId("a-1/0")].progress.steps not in (0, _merging(fleet).steps)
    fleet.until(lambda: fleet.ended("a-1"))
    assert _shown(fleet) == ({total}, {total})


def test_a_job_that_goes_on_unforked_has_what_was_merged_and_what_it_does_since() -> None:
    fleet, total = Fleet(merge_ms=5_000), 14 * 600
    fleet.submit(forked("a", total))
    fleet.until(lambda: JobId("a-1") in fleet.state.jobs and fleet.running("a-1"))
    fleet.until(lambda: _merging(fleet).merged == 2)
    job, own = fleet.job("a-1"), fleet.state.runs[RunId("a-1/0")]
    merged, before = _merging(fleet).steps, own.progress.steps
    assert _merging(fleet).own == before > 0
    fleet.state.put_job(replace(job, merging=tracker.unforked(_merging(fleet), "a test")))
    later = replace(own, progress=replace(own.progress, steps=before + 70))
    fleet.state.put_run(later)
    assert merged + 70 in _shown(fleet)[0]
    assert attained.steps_left(fleet.job("a-1"), [later]) == -(-(total - merged - 70) // 84) * 84
    # After a start without a checkpoint it has what it does from there.
    fleet.state.put_run(replace(own, progress=replace(own.progress, steps=5)))
    assert merged + 5 in _shown(fleet)[0]
    # Journals of before do not tell where the last merge was.
    old = replace(_merging(fleet), own=None)
    assert [old.done(total, it) for it in (5, merged + 9, total + 1)] == [merged, merged + 9, total]


def test_a_program_that_knows_no_forks_has_its_own_steps() -> None:
    fleet, total = Fleet(gives=False), 14 * 600
    _trains_on_three(fleet)
    fleet.until(lambda: _merging(fleet).unforked)
    done = fleet.state.runs[RunId("a-1/0")].progress.steps
    assert done > 0
    assert _merging(fleet).done(total, done) == done
