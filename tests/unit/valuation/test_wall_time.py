"""Work at less than full pace goes on for longer than its standalone time."""

from __future__ import annotations

from dataclasses import replace

from eva_master.model.planning.snapshot import RemainingWork, Snapshot
from eva_master.packing.local_search.cost_model import CostWeights
from eva_master.packing.planner_cache import PlannerCache
from eva_master.packing.toolkit import open_instances
from eva_policies.cloudcoaster.resizing import staying
from eva_wire.values.ids import MILLION, Millis
from tests.fakes.snapshots import Cluster, offer, task

MINUTE = 60_000
NOW = Millis(90 * MINUTE)
START = Millis(80 * MINUTE)


def half_speed(minutes: int, *, estimated: bool = False) -> RemainingWork:
    """Work of a task that has run at half pace since ten minutes ago."""
    return RemainingWork(minutes * MINUTE, START, MILLION // 2, estimated)


def running(snapshot: Snapshot, *works: RemainingWork) -> Snapshot:
    pairs = zip(snapshot.runs, works, strict=True)
    runs = tuple(replace(run, running=True, remaining=work) for run, work in pairs)
    return replace(snapshot, now_ms=NOW, runs=runs)


def test_work_at_half_pace_goes_on_for_twice_as_long() -> None:
    # 20 minutes of work at the start; 5 were done in 10, and 15 take 30.
    work = half_speed(20)
    assert work.standalone_ms(NOW) == 15 * MINUTE
    assert work.ends_in_ms(NOW) == work.goes_on_ms(NOW) == 30 * MINUTE


def test_estimated_work_goes_on_and_has_no_known_end() -> None:
    work = half_speed(20, estimated=True)
    assert work.ends_in_ms(NOW) is None
    assert work.goes_on_ms(NOW) == 30 * MINUTE


def test_work_that_does_not_run_goes_on_for_its_standalone_time() -> None:
    assert RemainingWork(20 * MINUTE).goes_on_ms(NOW) == 20 * MINUTE


def test_a_move_may_pay_for_as_long_as_the_task_goes_on() -> None:
    cluster = Cluster(offer("box", (0, 4, 16), 0.4)).instance("i", "box")
    cluster.job("a", task(any=(0, 1, 2)), on=["i"])
    (run,) = running(cluster.snapshot(), half_speed(20)).runs
    terms = CostWeights(horizon_ms=60 * MINUTE, horizon_left=True)
    assert terms.move_pays_within_ms(run, None, NOW) == 30 * MINUTE


def test_members_that_will_be_empty_soonest_go_first() -> None:
    box = offer("box", (0, 1, 2), 0.4)
    cluster = Cluster(box).instance("slow", "box").instance("fast", "box")
    cluster.job("a", task(any=(0, 1, 2)), on=["slow"]).job("b", task(any=(0, 1, 2)), on=["fast"])
    # The first task has 15 minutes of work left, which take 30; the second one has 20.
    steady = RemainingWork(30 * MINUTE, START)
    snapshot = running(cluster.snapshot(), half_speed(20), steady)
    instances = open_instances(snapshot, PlannerCache())
    rows = {view.id: row for row, view in enumerate(snapshot.instances)}
    kept = staying(snapshot, instances, dict.fromkeys(rows.values(), 1), 1)
    assert kept == {rows[view.id] for view in snapshot.instances if view.id == "slow"}
