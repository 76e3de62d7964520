"""The stage that leaves out new instances all of whose tasks will have ended."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eva_master.control.rounds.rules.late_launches import without_late_launches
from eva_master.model.planning.plan import Assign, NewInstance, Plan, Resize
from eva_master.model.planning.snapshot import RemainingWork, Snapshot
from eva_master.packing.plan_effect import PlanEffect
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import InstanceId, RunId
from tests.fakes.snapshots import START, Cluster, offer, task

BOOT_S, MOVE_S = 100, 60
"""The move of `Cluster` jobs takes ten seconds of a checkpoint and fifty of a start."""
BOX = offer("box", (0, 16, 64), 0.8)
BOX = replace(BOX, type=replace(BOX.type, setup_ms=BOOT_S * 1_000))
TASK = task("w", any=(0, 8, 8))
NEW = NewInstance(0, BOX)


def _cluster(*lefts_s: int | None) -> Cluster:
    """Jobs of one task, each on a box of its own, with so much left."""
    cluster = Cluster(BOX)
    for number, left_s in enumerate(lefts_s):
        cluster.instance(f"i{number}", "box")
        cluster.job(f"j{number}", TASK, on=[f"i{number}"], left_s=left_s)
    return cluster


def _moved(snapshot: Snapshot, *runs: str, launch: NewInstance = NEW) -> list[str]:
    """The task runs among some that still go to one new instance together."""
    plan = Plan((launch,), tuple(Assign(RunId(run), launch.key) for run in runs))
    kept = without_late_launches(PlanEffect(snapshot, plan)).plan
    entries = [str(entry.run) for entry in kept.entries]
    assert bool(kept.launches) == bool(entries)
    return entries


@pytest.mark.parametrize(
    ("left_s", "moves"), [(10, False), (159, False), (160, True), (None, True)]
)
def test_a_task_goes_to_a_new_instance_only_if_it_still_runs_there(
    left_s: int | None, moves: bool
) -> None:
    assert _moved(_cluster(left_s).snapshot(), "j0/0") == (["j0/0"] if moves else [])


def test_one_task_that_lasts_is_enough() -> None:
    snapshot = _cluster(10, 20, 3_600).snapshot()
    assert _moved(snapshot, "j0/0", "j1/0") == []
    assert _moved(snapshot, "j0/0", "j2/0") == ["j0/0", "j2/0"]


def test_a_waiting_task_is_never_held_back() -> None:
    snapshot = _cluster(10).job("n", TASK, left_s=5).snapshot()
    assert _moved(snapshot, "n/0") == ["n/0"]
    assert _moved(snapshot, "j0/0", "n/0") == ["j0/0", "n/0"]


def test_an_estimate_by_other_tasks_holds_nobody_back() -> None:
    snapshot = _cluster(10).snapshot()
    work = RemainingWork(10_000, START, estimated=True)
    runs = tuple(replace(run, remaining=work) for run in snapshot.runs)
    assert _moved(replace(snapshot, runs=runs), "j0/0") == ["j0/0"]


def test_time_left_is_that_of_the_clock() -> None:
    """At half its pace a task with 100 s of work runs for 200 s."""
    snapshot = _cluster(100).snapshot()
    (run,) = snapshot.runs
    assert run.remaining is not None
    slow = replace(run.remaining, pace_ppm=500_000)
    assert _moved(snapshot, "j0/0") == []
    assert _moved(replace(snapshot, runs=(replace(run, remaining=slow),)), "j0/0") == ["j0/0"]


def test_the_members_of_a_gang_stay_together() -> None:
    cluster = Cluster(BOX).instance("i0", "box").instance("i1", "box")
    cluster.job("g", TASK, TASK, on=["i0", "i1"], left_s=30, kind=JobKind.GANG)
    cluster.instance("i2", "box").job("long", TASK, on=["i2"], left_s=3_600)
    plan = Plan((NEW,), (Assign(RunId("g/0"), 0), Assign(RunId("g/1"), InstanceId("i2"))))
    kept = without_late_launches(PlanEffect(cluster.snapshot(), plan)).plan
    assert not kept.launches
    assert not kept.entries


def test_who_leaves_an_instance_that_goes_is_let_go() -> None:
    snapshot = _cluster(10).snapshot()
    assert _moved(replace(snapshot, instances=()), "j0/0") == ["j0/0"]


@pytest.mark.parametrize(("left_s", "moves"), [(10, False), (160, True)])
def test_a_task_that_ends_first_stays_on_an_instance_that_is_drained(
    left_s: int, moves: bool
) -> None:
    """Policies see it without a place, as one that waits; but it runs."""
    snapshot = _cluster(left_s).snapshot()
    (run,) = snapshot.runs
    placeless = replace(run, instance=None, running=False)
    drained = replace(snapshot, instances=(), draining=snapshot.instances, runs=(placeless,))
    assert _moved(drained, "j0/0") == (["j0/0"] if moves else [])


def test_a_gang_that_changes_its_size_is_left_to_the_policy() -> None:
    cluster = Cluster(BOX).instance("i0", "box").job("g", TASK, on=["i0"], left_s=30)
    snapshot = cluster.snapshot()
    plan = Plan((NEW,), (Assign(RunId("g/0"), 0),), sizes=(Resize(snapshot.jobs[0].id, 1, ""),))
    assert without_late_launches(PlanEffect(snapshot, plan)).plan is plan
