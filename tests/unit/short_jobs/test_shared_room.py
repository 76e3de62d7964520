"""Short tasks on instances of other jobs: who sees what, and what is left as it is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eva_master.model.job import Latency
from eva_master.model.planning.plan import Plan, PolicyMemory
from eva_master.model.planning.snapshot import Snapshot
from eva_master.packing.parts.splitter import Splitter, below
from eva_master.policies.no_packing import POLICY as NO_PACKING
from eva_master.ports import Policy
from eva_master.testing.job_views import changed
from eva_master.testing.plan_checks import check
from eva_master.testing.snapshots import carried_out
from eva_policies.cloudcoaster import POLICY
from eva_policies.cloudcoaster.config import Config
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import InstanceId, Millis
from tests.fakes.snapshots import Cluster, offer, task

ONE, HALF = task("short", any=(0, 1, 1)), task("long", any=(0, 4, 8))
BOX = offer("box", (0, 8, 16), 1.0)


class Watched:
    """A policy that remembers what it was shown last."""

    def __init__(self, inner: Policy) -> None:
        self._inner = inner
        self.seen: Snapshot | None = None

    @property
    def name(self) -> str:
        return self._inner.name

    def plan(
        self, snapshot: Snapshot, memory: PolicyMemory | None
    ) -> tuple[Plan, PolicyMemory | None]:
        self.seen = snapshot
        return self._inner.plan(snapshot, memory)


def pair(**options: object) -> tuple[Splitter, Watched, Watched]:
    front = Watched(POLICY.build(Config(**options)))  # type: ignore[arg-type]
    back = Watched(NO_PACKING.build(NO_PACKING.config()))
    return Splitter(front, back, below(90_000), shares=POLICY.shares), front, back


def shown(snapshot: Snapshot) -> Snapshot:
    """With the job `short` said to be short."""
    jobs = (
        changed(job, latency=Latency.SHORT) if job.id == "short" else job for job in snapshot.jobs
    )
    return replace(snapshot, jobs=tuple(jobs))


def mixed(tasks: int) -> Snapshot:
    """A box half of which a long job has, and an array of short tasks."""
    cluster = Cluster(BOX).instance("i1", "box").job("long", HALF, on=["i1"])
    return shown(cluster.job("short", *[ONE] * tasks, kind=JobKind.ARRAY).snapshot())


def test_who_waits_takes_the_room_that_other_jobs_leave() -> None:
    splitter, front, back = pair()
    snapshot = mixed(3)
    plan, memory = splitter.plan(snapshot, None)
    check(snapshot, plan)
    assert not plan.launches, "three tasks fit beside the long one"
    (pool,) = plan.pools
    assert (pool.name, pool.members, pool.shared) == ("short.shared", ("i1",), True)
    assert plan.lines[0].pools == ("short.shared",)
    assert front.seen is not None
    assert [(it.id, it.room.free.milli_cpus) for it in front.seen.beside.instances] == [
        ("i1", 4_000)
    ]
    # They have started there. The other policy sees them, and does not touch them.
    after = carried_out(snapshot, plan)
    assert {run.instance for run in after.runs} == {"i1"}
    assert after.instances[0].pool == "", "it does not stand there for that"
    again, _ = splitter.plan(after, memory)
    check(after, again)
    assert (again.launches, again.entries, again.pools, again.lines) == ((), (), (), ())
    assert front.seen.jobs == ()
    assert back.seen is not None
    pinned = {run.id for run in back.seen.runs if run.pinned}
    assert pinned == {f"short/{n}" for n in range(3)}


def test_room_of_others_counts_as_room() -> None:
    # Six tasks of 20 s want six slots, of which four are free.
    plan, _ = pair(slots=8)[0].plan(mixed(6), None)
    assert [launch.offering for launch in plan.launches] == [BOX]
    assert all(run.instance is not None for run in carried_out(mixed(6), plan).runs)
    plan, _ = pair(slots=8)[0].plan(mixed(4), None)
    assert not plan.launches


def test_nobody_uses_it_while_others_have_waited_for_long() -> None:
    cluster = Cluster(replace(BOX, limit=1)).instance("i1", "box").job("long", HALF, on=["i1"])
    cluster.job("short", ONE, kind=JobKind.ARRAY).job("whole", task("w", any=(0, 8, 8)))
    snapshot = shown(cluster.snapshot())

    def pools(waited_s: int) -> list[str]:
        since = Millis(snapshot.now_ms - waited_s * 1000)
        runs = (replace(it, since_ms=since) if it.job == "whole" else it for it in snapshot.runs)
        plan, _ = pair(long_patience_s=600)[0].plan(replace(snapshot, runs=tuple(runs)), None)
        return [pool.name for pool in plan.pools]

    assert pools(599) == ["short.shared"]
    assert pools(600) == []


def test_it_can_be_switched_off() -> None:
    plan, _ = pair(short_first=False, resize="published")[0].plan(mixed(3), None)
    assert [pool.name for pool in plan.pools] == ["short.steady"]


def test_what_is_lent_follows_who_comes_and_goes() -> None:
    splitter, front, _ = pair()

    def free(snapshot: Snapshot) -> list[int]:
        splitter.plan(snapshot, None)
        assert front.seen is not None
        return [it.room.free.milli_cpus for it in front.seen.beside.instances]

    long = Cluster(BOX).instance("i1", "box").job("long", HALF, on=["i1"])
    alone = long.snapshot()
    assert free(alone) == [4_000]
    assert free(alone) == [4_000], "nothing has changed"
    visited = carried_out(mixed(3), pair()[0].plan(mixed(3), None)[0])
    assert free(visited) == [1_000], "three guests have come"
    assert free(alone) == [4_000], "they have gone"
    both = long.job("other", task("other", any=(0, 3, 4)), on=["i1"]).snapshot()
    assert free(both) == [1_000], "another job of the other policy has come"


def test_an_instance_whose_own_jobs_have_gone_is_lent_no_more() -> None:
    splitter, front, _ = pair()
    cluster = Cluster(BOX).instance("i1", "box")
    cluster.job("short", *[ONE] * 3, kind=JobKind.ARRAY, on=["i1", None, None])
    plan, _ = splitter.plan(shown(cluster.snapshot()), None)
    assert front.seen is not None
    assert front.seen.beside.instances == ()
    assert "short.shared" not in {pool.name for pool in plan.pools}
    stay = {it for pool in plan.pools for it in pool.members}
    assert InstanceId("i1") not in stay, "nobody pays for it any longer than it takes"


def test_who_has_come_to_a_line_is_the_front_policy_s_though_it_runs() -> None:
    def shown_to_back(**of_run: str) -> bool:
        splitter, _, back = pair()
        _, memory = splitter.plan(Cluster(BOX).snapshot(), None)
        snapshot = mixed(1)
        runs = (
            replace(run, instance=InstanceId("i1"), **of_run) if run.job == "short" else run
            for run in snapshot.runs
        )
        views = (replace(it, residents=("long/0", "short/0")) for it in snapshot.instances)
        splitter.plan(replace(snapshot, runs=tuple(runs), instances=tuple(views)), memory)
        assert back.seen is not None
        return not all(run.pinned for run in back.seen.runs if run.job == "short")

    assert shown_to_back()
    assert not shown_to_back(pool="short.shared")
    assert shown_to_back(pool="nodes")


def test_a_short_task_that_has_run_for_too_long_counts_as_long() -> None:
    front = Watched(POLICY.build(Config()))
    back = Watched(NO_PACKING.build(NO_PACKING.config()))
    splitter = Splitter.of_short(front, back, 90_000, shares=True)
    cluster = Cluster(BOX).instance("i1", "box").job("long", HALF, on=["i1"])
    cluster.job("short", *[ONE] * 2, kind=JobKind.ARRAY, on=["i1", None])
    snapshot = shown(cluster.snapshot())

    def own(ran_ms: int) -> int:
        since = Millis(snapshot.now_ms - ran_ms)
        runs = (replace(it, running_since_ms=since) for it in snapshot.runs)
        splitter.plan(replace(snapshot, runs=tuple(runs)), None)
        assert front.seen is not None
        (instance,) = front.seen.beside.instances
        assert instance.room.free.milli_cpus == 3_000
        return instance.room.own.milli_cpus

    assert own(179_999) == 4_000
    assert own(180_000) == 5_000


def test_without_short_jobs_the_plan_is_the_other_policy_s() -> None:
    cluster = Cluster(BOX).instance("i1", "box").job("long", HALF, on=["i1"]).job("more", HALF)
    snapshot = cluster.snapshot()
    alone, _ = NO_PACKING.build(NO_PACKING.config()).plan(snapshot, None)
    assert pair()[0].plan(snapshot, None)[0] == alone


@pytest.mark.parametrize("ready", [True, False])
def test_only_who_is_ready_is_lent(ready: bool) -> None:
    cluster = Cluster(BOX).instance("i1", "box", ready=ready).job("long", HALF, on=["i1"])
    cluster.job("short", ONE, kind=JobKind.ARRAY)
    plan, _ = pair()[0].plan(shown(cluster.snapshot()), None)
    assert (["short.shared"] if ready else ["short.steady"]) == [it.name for it in plan.pools]
