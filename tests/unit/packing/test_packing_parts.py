"""Snapshots are divided and plans merged: nobody is lost, nothing is sold twice."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given

from eva_master.app.policy_registry import policies
from eva_master.model.planning.estimate import Estimate
from eva_master.model.planning.job_view import JobView
from eva_master.model.planning.plan import Assign, Hold, NewInstance, Plan, PolicyMemory
from eva_master.model.planning.reasons import Exchange, Hosting, Move, Reasons
from eva_master.model.planning.snapshot import Snapshot
from eva_master.model.planning.standing import Line, Pool
from eva_master.packing.parts.partition import divide, merge
from eva_master.packing.parts.splitter import Splitter, below
from eva_master.ports import Policy
from eva_master.testing.clusters import clusters
from eva_master.testing.job_views import changed
from eva_master.testing.plan_checks import check
from eva_master.testing.policy_suite import drawn
from eva_master.testing.snapshots import Cluster, carried_out, offer, task
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import InstanceId, JobId, Millis, RunId
from tests.fakes.pools.policy import Config, PoolPolicy

ONE, TWO = offer("t1", (0, 4, 16), 1.0), offer("t2", (0, 8, 32), 2.0, limit=3)
SMALL = task(any=(0, 1, 1))


def made(name: str) -> Policy:
    kind = policies()[name]
    return kind.build(kind.config())


def lasting(snapshot: Snapshot, **minutes: int) -> Snapshot:
    """A snapshot that knows how long the tasks of some jobs take."""
    estimates = {job: Estimate.stated(each * 60_000) for job, each in minutes.items()}
    jobs = tuple(changed(job, estimate=estimates.get(job.id)) for job in snapshot.jobs)
    return replace(snapshot, jobs=jobs)


def plan_of(names: str, offering: int, pool: str = "") -> Plan:
    """A plan with an instance for each of some task runs."""
    launches = tuple(NewInstance(7 + n, (ONE, TWO)[offering]) for n in range(len(names)))
    entries = tuple(Assign(RunId(name), 7 + n) for n, name in enumerate(names))
    keys = tuple(it.key for it in launches)
    hostings = tuple(Hosting(key, "t", 1, 1, ()) for key in keys)
    move = Move(RunId(names[0]), InstanceId("i"), 7, 1)
    return Plan(
        launches,
        entries,
        {"kind": names, names: 1},
        Reasons(hostings, (Exchange((move,), 1, 1),)),
        (Pool(pool, keys, "r", keys[:1]),) if pool else (),
        (Line((pool,), (JobId("j"),), only=keys[-1:]),) if pool else (),
    )


def test_merged_plans_keep_pilots() -> None:
    one, two = (Plan(pilots=((JobId(name), (1, 2)),)) for name in "ab")
    assert merge((one, two)).pilots == ((JobId("a"), (1, 2)), (JobId("b"), (1, 2)))
    assert merge((Plan(), one)) is one, "to name pilots is to decide something"


def test_merged_plans_keep_who_is_where() -> None:
    one, two = plan_of("ab", 0, "p"), plan_of("cd", 1, "q")
    merged = merge((one, two))
    sold = {it.key: it.offering for it in merged.launches}
    places = {it.run: it.on for it in merged.entries if isinstance(it, Assign)}
    assert len(set(places.values())) == len(sold) == 4
    assert {run: sold[key].id for run, key in places.items()} == {
        "a": ONE.id,
        "b": ONE.id,
        "c": TWO.id,
        "d": TWO.id,
    }
    assert {it.name: it.members for it in merged.pools} == {
        "p": (places["a"], places["b"]),
        "q": (places["c"], places["d"]),
    }
    assert [it.closed for it in merged.pools] == [(places["a"],), (places["c"],)]
    assert [it.only for it in merged.lines] == [(places["b"],), (places["d"],)]
    assert merged.figures == {"kind": "cd", "ab": 1, "cd": 1}
    assert [it.on for it in merged.reasons.hostings] == [places[run] for run in "abcd"]
    moved = [it.moves[0].target for it in merged.reasons.exchanges]
    assert moved == [places["a"], places["c"]]


def test_a_plan_alone_is_left_as_it_is() -> None:
    plan = plan_of("ab", 0)
    assert merge((Plan(), plan)) is plan
    assert merge((Plan(), Plan())) == Plan()
    hold = Plan(entries=(Hold(RunId("x"), "why"),))
    assert merge((hold, Plan())) is hold


@drawn(60)
@given(snapshot=clusters())
def test_a_divided_snapshot_has_everybody_once_and_sells_no_more(snapshot: Snapshot) -> None:
    job_of = {run.id: run.job for run in snapshot.runs}
    ours = {view.id for view in snapshot.instances if sum(view.id.encode()) % 2}

    def belongs(view: JobView) -> bool:
        places = {run.instance for run in snapshot.runs if run.job == view.id} - {None}
        return bool(places) and places <= ours

    parts = divide(snapshot, {job.id for job in snapshot.jobs if belongs(job)}, ours)
    for name in ("jobs", "runs", "instances"):
        found = [view.id for part in parts for view in getattr(part, name)]
        assert sorted(found) == [view.id for view in getattr(snapshot, name)]
    for part in parts:
        assert {job_of[run.id] for run in part.runs} <= {job.id for job in part.jobs}
        there = Counter(view.offering.id for view in part.instances)
        others = Counter(view.offering.id for view in snapshot.instances) - there
        for before, after in zip(snapshot.catalog, part.catalog, strict=True):
            if before.limit is not None:
                assert after.limit == max(0, before.limit - others[before.id])
    assert not parts[0].jobs or parts[0].now_ms == parts[1].now_ms == snapshot.now_ms


@pytest.mark.parametrize("name", ["eva", "stratus", "no_packing"])
@drawn(8)
@given(snapshot=clusters())
def test_with_nothing_short_it_is_the_back_policy_alone(name: str, snapshot: Snapshot) -> None:
    both, alone = Splitter(made("stratus"), made(name), below(60_000)), made(name)
    memory: PolicyMemory | None = None
    own: PolicyMemory | None = None
    for _ in range(2):
        plan, memory = both.plan(snapshot, memory)
        expected, own = alone.plan(snapshot, own)
        assert (plan.launches, plan.entries, plan.figures) == (
            expected.launches,
            expected.entries,
            expected.figures,
        )
        assert plan.reasons == expected.reasons
        snapshot = carried_out(snapshot, plan)
        snapshot = replace(
            snapshot,
            now_ms=Millis(snapshot.now_ms + 300_000),
            arrivals=snapshot.arrivals + 1,
            completions=snapshot.completions + 1,
        )


def test_each_policy_has_the_jobs_of_its_kind_and_they_share_no_instance() -> None:
    cluster = Cluster(ONE)
    cluster.job("short", *[SMALL] * 2, kind=JobKind.ARRAY).job("long", SMALL).job("unknown", SMALL)
    snapshot = lasting(cluster.snapshot(), short=5, long=60)
    splitter = Splitter(made("stratus"), made("stratus"), below(600_000))
    plan, memory = splitter.plan(snapshot, None)
    check(snapshot, plan)
    placed = carried_out(snapshot, plan)
    where = {run.id: run.instance for run in placed.runs}
    assert where["short/0"] == where["short/1"] != where["long/0"] == where["unknown/0"]
    # Whoever was short remains so, also once it takes longer, and after a restart.
    assert memory is not None
    assert json.loads(json.dumps(memory.data)) == memory.data
    later = lasting(placed, short=90, long=60)
    later = replace(later, now_ms=Millis(later.now_ms + 60_000))
    again, after = splitter.plan(later, replace(memory, data=json.loads(json.dumps(memory.data))))
    assert again.entries == ()
    assert after is not None
    assert after.data["jobs"] == ["short"]
    # Who has a place on a shared instance is not taken over.
    mixed = lasting(
        Cluster(ONE).instance("i", "t1").job("a", SMALL, on="i").job("b", SMALL, on="i").snapshot(),
        a=1,
        b=60,
    )
    nothing, _ = splitter.plan(mixed, None)
    check(mixed, nothing)
    assert nothing.entries == ()


def test_the_front_policy_keeps_its_pools_under_names_of_its_own() -> None:
    cluster = Cluster(ONE).job("short", *[SMALL] * 3, kind=JobKind.ARRAY)
    snapshot = lasting(cluster.snapshot(), short=5)
    splitter = Splitter(PoolPolicy(Config()), PoolPolicy(Config(keeps=True)), below(600_000))
    plan, memory = splitter.plan(snapshot, None)
    check(snapshot, plan)
    assert [(it.name, len(it.members)) for it in plan.pools] == [("short.small", 2), ("small", 2)]
    assert [(it.pools, it.jobs) for it in plan.lines] == [(("short.small",), ("short",))]
    after = carried_out(snapshot, plan)
    assert Counter(view.pool for view in after.instances) == {"short.small": 2, "small": 2}
    again, _ = splitter.plan(after, memory)
    assert again.launches == ()
    assert {it.name: set(it.members) for it in again.pools} == {
        name: {view.id for view in after.instances if view.pool == name}
        for name in ("short.small", "small")
    }


def test_what_the_front_policy_buys_is_not_there_for_the_other() -> None:
    large = task(any=(0, 8, 32))
    cluster = Cluster(TWO).job("short", large, large, kind=JobKind.ARRAY)
    cluster.job("long", large, large, kind=JobKind.ARRAY)
    snapshot = lasting(cluster.snapshot(), short=5)
    splitter = Splitter(made("no_packing"), made("no_packing"), below(600_000))
    plan, _ = splitter.plan(snapshot, None)
    check(snapshot, plan)
    assert len(plan.launches) == 3
    assert {it.run for it in plan.entries if isinstance(it, Assign)} >= {"short/0", "short/1"}


def test_each_policy_is_told_of_its_own_arrivals() -> None:
    seen: dict[str, list[tuple[int, int]]] = {"front": [], "back": []}

    class Listener:
        def __init__(self, name: str) -> None:
            self.name = name

        def plan(
            self, snapshot: Snapshot, memory: PolicyMemory | None
        ) -> tuple[Plan, PolicyMemory | None]:
            seen[self.name].append((snapshot.arrivals, snapshot.completions))
            return Plan(), memory

    splitter = Splitter(Listener("front"), Listener("back"), below(600_000))
    both = Cluster(ONE).job("short", SMALL).job("long", SMALL).snapshot()
    first = replace(lasting(both, short=5, long=60), arrivals=7, completions=5)
    _, memory = splitter.plan(first, None)
    left = Cluster(ONE).job("long", SMALL).snapshot()
    _, memory = splitter.plan(replace(left, arrivals=7, completions=6), memory)
    _, memory = splitter.plan(replace(left, arrivals=8, completions=7), memory)
    assert seen == {"front": [(1, 0), (1, 1), (1, 1)], "back": [(6, 5), (6, 5), (7, 6)]}
