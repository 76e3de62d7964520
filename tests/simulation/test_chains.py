"""Jobs that run one after the other, under the production loop."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eva_lab.simulator.cluster.work import Work
from eva_lab.simulator.simulated_cluster import SimulatedCluster
from eva_master.app.policy_registry import policies
from eva_master.control.measure import ledger
from eva_master.control.settings import Settings
from eva_master.model.events import CancelRequested
from eva_master.model.job import JobSpec
from eva_master.model.planning.plan import Plan, PolicyMemory
from eva_master.model.planning.snapshot import Snapshot
from eva_wire.values.ids import JobId, Millis
from eva_wire.values.states import JobState, RunState
from tests.fakes.jobs import CATALOG, job
from tests.fakes.policies.whole import TRIED

POLICIES = TRIED


class Watched:
    """A policy whose snapshots are kept."""

    def __init__(self, name: str) -> None:
        kind = policies()[name]
        self._policy = kind.build(kind.config())
        self.name = self._policy.name
        self.seen: list[Snapshot] = []
        self.plans: list[Plan] = []

    def plan(
        self, snapshot: Snapshot, memory: PolicyMemory | None
    ) -> tuple[Plan, PolicyMemory | None]:
        plan, after = self._policy.plan(snapshot, memory)
        self.seen.append(snapshot)
        self.plans.append(plan)
        return plan, after


def world(policy: str = "no_packing", **options: object) -> tuple[SimulatedCluster, Watched]:
    watched = Watched(policy)
    return SimulatedCluster(CATALOG, watched, settings=Settings(), **options), watched


def after(spec: JobSpec, *others: str) -> JobSpec:
    return replace(spec, stage=replace(spec.stage, depends_on=tuple(map(JobId, others))))


def entered(cluster: SimulatedCluster, name: str, state: RunState) -> int:
    (run,) = cluster.state.members(JobId(name))
    return next(at for known, at in run.history if known == state.value)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_chain_of_three_runs_one_after_the_other(policy: str) -> None:
    cluster, watched = world(policy)
    cluster.submit(job("a", 1, minutes=10))
    cluster.submit(after(job("b", 1, minutes=10), "a-1"))
    cluster.submit(after(job("c", 1, minutes=10), "a-1", "b-2"))
    assert cluster.run(cluster.quiet)
    state = cluster.state
    assert all(it.state is JobState.SUCCEEDED for it in state.jobs.values())
    for before, then in (("a-1", "b-2"), ("b-2", "c-3")):
        done = state.jobs[JobId(before)].finished_ms
        assert done == state.jobs[JobId(then)].released_ms
        # Room was just freed, so the next one needs no more than a round and a start.
        assert done < entered(cluster, then, RunState.RUNNING) < done + 120_000
    assert all(len(seen.jobs) <= 1 for seen in watched.seen)


@pytest.mark.parametrize("policy", POLICIES)
def test_who_waits_changes_no_plan_for_the_others(policy: str) -> None:
    def plans(*, waiting: bool) -> list[tuple[int, Plan]]:
        cluster, watched = world(policy)
        cluster.submit(job("a", 1, minutes=600))
        if waiting:
            for number in range(5):
                cluster.submit(after(job(f"w{number}", 4), "a-1"))
            cluster.timeline.after(
                3_000_000, lambda: cluster.inbox.post(CancelRequested("x", JobId("w0-2"), "me"))
            )
        for number in range(4):
            at = Millis(600_000 * (number + 1))
            cluster.submit(job(f"b{number}", 1 + number % 2, minutes=30), at=at)
        cluster.run(lambda: cluster.timeline.now() >= 20_000_000)
        return [
            (seen.now_ms, plan_words(plan))
            for seen, plan in zip(watched.seen, watched.plans, strict=True)
        ]

    def plan_words(plan: Plan) -> object:
        entries = [(type(it).__name__, it.run.rpartition("-")[0]) for it in plan.entries]
        return [(it.key, it.offering.id) for it in plan.launches], entries

    with_them, without = plans(waiting=True), plans(waiting=False)
    assert [words for _, words in with_them] == [words for _, words in without]
    assert with_them == without, "nor does a round take place at another time"


def test_the_wait_is_not_charged() -> None:
    def costs(*, waits: bool) -> int:
        cluster, _ = world()
        cluster.submit(job("a", 1, minutes=60))
        second = job("b", 1, minutes=10)
        if waits:
            cluster.submit(after(second, "a-1"))
        else:
            cluster.run(lambda: JobId("a-1") in cluster.state.jobs)
            cluster.run(lambda: not cluster.state.active)
            cluster.submit(second)
        cluster.run(cluster.quiet)
        account = ledger.bill(cluster.state, cluster.timeline.now()).jobs[JobId("b-2")]
        assert account.alone
        return account.alone

    assert costs(waits=True) == costs(waits=False)


def test_a_master_that_dies_between_the_end_of_one_and_the_start_of_the_next() -> None:
    cluster, _ = world()
    cluster.submit(job("a", 1))
    cluster.submit(after(job("b", 1), "a-1"))
    first = JobId("a-1")
    cluster.run(lambda: first in cluster.state.jobs)
    cluster.run(lambda: cluster.state.jobs[first].state is JobState.SUCCEEDED)
    cluster.restart()
    assert cluster.run(cluster.quiet)
    assert cluster.state.jobs[JobId("b-2")].state is JobState.SUCCEEDED
    starts = [run for run, _, _ in cluster.history.starts]
    assert starts == ["a-1/0", "b-2/0"]


def test_a_failure_is_passed_on_and_what_waits_never_starts() -> None:
    cluster, _ = world(work_of=lambda _: Work(60_000, failures=[3] * 9))
    cluster.submit(job("a", 1, retries=0))
    cluster.submit(after(job("b", 1, 1), "a-1"))
    cluster.submit(after(job("c", 1, 2, array=True), "b-2"))
    assert cluster.run(cluster.quiet)
    state = cluster.state
    assert {it.state for it in state.jobs.values()} == {JobState.FAILED}
    assert len({it.finished_ms for it in state.jobs.values()}) == 1, "all in one turn"
    assert {run for run, _, _ in cluster.history.starts} == {"a-1/0"}
