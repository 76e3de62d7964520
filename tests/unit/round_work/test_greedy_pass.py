"""A round that was planned greedily, since the policy took too long, is so in a replay."""

from __future__ import annotations

from eva_lab.simulator.scenario.journal_replay import past
from eva_lab.simulator.simulated_cluster import SimulatedCluster
from eva_master.model.job import JobSpec
from eva_master.model.planning.plan import Assign, Plan, PolicyMemory
from eva_master.model.planning.snapshot import Snapshot
from eva_master.packing.reconfiguration.greedy_pass import GreedyPass, planned_greedily
from eva_master.testing.plan_checks import check
from eva_master.testing.snapshots import Cluster, offer, task
from eva_wire.values.ids import Millis

CATALOG = (offer("four", (0, 4, 16), 0.2, setup_s=10), offer("two", (0, 2, 8), 0.11, setup_s=10))
TASK = task(any=(0, 1, 1))


class Idle:
    """A policy that places nothing."""

    name = "idle"

    def plan(
        self, snapshot: Snapshot, memory: PolicyMemory | None
    ) -> tuple[Plan, PolicyMemory | None]:
        return Plan(), memory


def world_with(greedy: tuple[int, ...]) -> SimulatedCluster:
    world = SimulatedCluster(CATALOG, Idle(), greedy_rounds=greedy)
    world.submit(JobSpec("a", "b", (TASK,), duration_ms=20_000))
    world.run(lambda: world.timeline.now() >= 200_000, limit_ms=201_000)
    return world


def test_all_that_waits_is_placed_and_nothing_that_runs_is_moved() -> None:
    cluster = Cluster(*CATALOG).instance("i", "four")
    cluster.job("runs", TASK, on=["i"])
    for number in range(9):
        cluster.job(f"w{number}", *[TASK] * (1 + number % 3))
    snapshot, memory = cluster.snapshot(), PolicyMemory("other", 7, {"kept": 1})
    plan, after = GreedyPass().plan(snapshot, memory)
    check(snapshot, plan)
    waiting = {run.id for run in snapshot.runs if run.instance is None}
    assert {entry.run for entry in plan.entries if isinstance(entry, Assign)} == waiting
    assert after is memory
    assert planned_greedily(plan.figures)


def test_the_record_of_a_round_says_that_it_was_planned_greedily() -> None:
    assert world_with(()).state.counters.completions == 0
    world = world_with((2,))
    assert world.state.counters.completions == 1
    rounds = [*world.journal.rounds.values()]
    assert [it.number for it in rounds if planned_greedily(it.figures)] == [2]
    records = past(world.state, rounds, charged=0)
    assert records.greedy_rounds == frozenset({2})
    assert records.start_ms == Millis(0)
