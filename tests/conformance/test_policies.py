"""What every policy must keep to; runs over each package of `eva_master.policies`."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import fields, replace
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eva_master.policies
from eva_master.model.ids import InstanceId, Millis, OfferingId, RunId
from eva_master.model.job import JobKind, TaskSpec
from eva_master.model.planning.plan import Hold, Place, Plan, PolicyMemory, Suspend
from eva_master.model.planning.snapshot import Snapshot
from eva_master.model.resources import NOTHING, Resources
from eva_master.ports import Policy, PolicyKind
from tests.fakes.snapshots import START, Amounts, Cluster, carried_out, ended, offer, table, task

KINDS: dict[str, PolicyKind] = {
    module.name: import_module(f"eva_master.policies.{module.name}").POLICY
    for module in iter_modules(eva_master.policies.__path__)
    if module.ispkg
}

ABLATIONS = {
    "eva-without-interference": {"interference": False},
    "eva-without-full": {"full": False},
    "eva-without-partial": {"partial": False},
    "eva-without-gangs": {"multi_task_view": False},
    "eva-greedy": {"optimizer": "greedy"},
    "eva-by-the-lp": {"optimizer": "lp"},
}
"""Options of Eva, in the published ensemble where there is a choice."""


PAIRS = tuple(
    (one, other, 1_000_000 - 20_000 * number)
    for number, (one, other) in enumerate(
        (one, other)
        for one in ("gpu", "small", "any", "gpu-cpu")
        for other in ("gpu", "small", "any", "gpu-cpu")
    )
)
BASELINES = {
    "owl-with-a-profile": ("owl", {"profile": PAIRS, "least_throughput_ppm": 700_000}),
    "owl-that-moves-nothing": ("owl", {"profile": PAIRS, "migrate": False}),
    "stratus-that-clears-nothing": ("stratus", {"clear_below_percent": 0}),
    "stratus-that-clears-what-it-can": ("stratus", {"clear_below_percent": 100}),
}
"""Baselines with other settings than their own."""


def _variants() -> dict[str, tuple[PolicyKind, dict[str, Any]]]:
    """Every policy with its defaults, every preset, and Eva with one idea less."""
    found: dict[str, tuple[PolicyKind, dict[str, Any]]] = {}
    for name, kind in KINDS.items():
        found[name] = kind, {}
        for preset, options in getattr(kind, "presets", {}).items():
            found[f"{name}:{preset}"] = kind, dict(options)
    found.update({name: (KINDS[of], dict(more)) for name, (of, more) in BASELINES.items()})
    published = found["eva:published"][1] if "eva:published" in found else _ensemble()
    for name, options in ABLATIONS.items():
        if {**published, **options} not in [known for _, known in found.values()]:
            found[name] = KINDS["eva"], {**published, **options}
    return found


def _ensemble() -> dict[str, Any]:
    names = {field.name for field in fields(KINDS["eva"].config)}
    return {"method": "published"} if "method" in names else {}


VARIANTS = _variants()


def made(name: str) -> Policy:
    """A policy by the name of its variant."""
    kind, options = VARIANTS[name]
    return kind.build(kind.config(**options))


CATALOG = (
    ("p.small", (1, 8, 61), 3.06, "p"),
    ("p.large", (4, 32, 244), 12.24, "p"),
    ("c.small", (0, 4, 8), 0.18, "c"),
    ("c.medium", (0, 8, 16), 0.36, "c"),
    ("c.large", (0, 32, 64), 1.43, "c"),
    ("r.medium", (0, 8, 64), 0.53, "r"),
)
TASKS = (
    task("gpu", p=(1, 4, 24)),
    task("gpu-cpu", p=(1, 8, 50)),
    task("gpus", p=(4, 4, 10)),
    task("small", p=(0, 4, 8), c=(0, 2, 4), r=(0, 2, 4)),
    task("any", p=(0, 14, 16), c=(0, 8, 16), r=(0, 8, 16)),  # all of a c.medium
    task("memory", r=(0, 1, 60)),
    task("none", c=(0, 1, 0)),
    task("huge", c=(0, 64, 64)),  # no offering hosts it
    task("elsewhere", x=(0, 1, 1)),  # a family that is not on sale
)


@pytest.fixture(params=sorted(VARIANTS))
def policy(request: pytest.FixtureRequest) -> Policy:
    return made(request.param)


@st.composite
def clusters(draw: st.DrawFn) -> Snapshot:
    """Small clusters in the middle of their lives."""
    limits = st.one_of(st.none(), st.none(), st.integers(0, 3))
    cluster = Cluster(
        *(
            offer(
                name,
                size,
                usd,
                family=family,
                limit=draw(limits),
                until=START + draw(st.sampled_from([0, 0, 0, 60_000])),
            )
            for name, size, usd, family in CATALOG
        )
    )
    room: dict[str, tuple[str, Resources]] = {}
    for offering in cluster.catalog:
        for number in range(draw(st.integers(0, 2 if offering.limit is None else offering.limit))):
            name = f"i-{offering.type.name}-{number}"
            cluster.instance(name, offering.type.name, ready=draw(st.booleans()))
            room[name] = offering.type.family, offering.type.capacity
    for number in range(draw(st.integers(0, 8))):
        spec = draw(st.sampled_from(TASKS))
        tasks = [spec] * draw(st.sampled_from([1, 1, 1, 2, 3]))
        places = [_resident(room, spec) if draw(st.booleans()) else None for _ in tasks]
        cluster.job(
            f"job-{number}",
            *tasks,
            on=places,
            running=draw(st.booleans()),
            pinned=draw(st.sampled_from([False, False, True])),
            kind=draw(st.sampled_from(JobKind)),
            priority=draw(st.integers(0, 1)),
            left_s=draw(st.sampled_from([None, 0, 100, 5_000, 5_500, 60_000])),
        )
    cluster.throughput = table(
        draw(
            st.dictionaries(
                st.tuples(
                    st.sampled_from(["gpu", "small", "any"]),
                    st.sampled_from([("gpu",), ("small",), ("any",), ("any", "small")]),
                ),
                st.sampled_from([0.3, 0.6, 0.9, 1.0]),
                max_size=4,
            )
        )
    )
    return cluster.snapshot()


def _resident(room: dict[str, tuple[str, Resources]], spec: TaskSpec) -> str | None:
    """An instance with room for the task, from which the room is taken."""
    for name, (family, left) in room.items():
        need = next((need for other, need in spec.demand if other == family), None)
        if need is not None and need.fits(left):
            room[name] = family, left - need
            return name
    return None


def check(snapshot: Snapshot, plan: Plan) -> None:
    """Raise unless the plan is one that a correct policy may make."""
    runs = {run.id: run for run in snapshot.runs}
    named = [entry.run for entry in plan.entries]
    assert len(named) == len(set(named)), "at most one entry per task run"
    assert not [run for run in named if runs[run].pinned], "pinned runs are left alone"
    live = {instance.id for instance in snapshot.instances}
    for entry in plan.entries:
        match entry:
            case Place(run=run, on=host):
                assert host != runs[run].instance, "only what changes something"
            case Hold(run=run, reason=reason):
                assert runs[run].instance is None
                assert reason
            case Suspend(run=run, reason=reason):
                assert runs[run].instance in live
                assert reason
    waiting = {run.id for run in snapshot.runs if not run.pinned and run.instance is None}
    assert waiting <= set(named), "every waiting run is placed, or held for a reason"
    _check_launches(snapshot, plan)
    _check_room(carried_out(snapshot, plan), snapshot)
    _check_gangs(snapshot, plan)
    _check_reasons(snapshot, plan)


def _check_launches(snapshot: Snapshot, plan: Plan) -> None:
    used = {e.on for e in plan.entries if isinstance(e, Place) and isinstance(e.on, int)}
    assert used == {launch.key for launch in plan.launches}, "each new instance is used"
    assert len(plan.launches) == len(used)
    counts: Counter[OfferingId] = Counter(i.offering.id for i in snapshot.instances)
    for launch in plan.launches:
        assert launch.offering in snapshot.catalog
        assert launch.offering.available(snapshot.now_ms)
        counts[launch.offering.id] += 1
        # An instance is launched before another one is freed: both count.
        limit = launch.offering.limit
        assert limit is None or counts[launch.offering.id] <= limit, launch.offering.id


def _check_room(after: Snapshot, before: Snapshot) -> None:
    specs = {run.id: run.task for run in after.runs}
    for instance in after.instances:
        used = NOTHING
        for run in instance.residents:
            need = specs[run].demand_on(instance.offering.type.family)
            assert need is not None, f"{run} cannot run on {instance.id}"
            used += need
        assert used.fits(instance.offering.type.capacity), instance.id
    assert {run.id for run in after.runs} == {run.id for run in before.runs}


def _check_gangs(snapshot: Snapshot, plan: Plan) -> None:
    placed = {entry.run for entry in plan.entries if isinstance(entry, Place)}
    held = {entry.run for entry in plan.entries if isinstance(entry, Hold)}
    suspended = {entry.run for entry in plan.entries if isinstance(entry, Suspend)}
    for job in snapshot.jobs:
        if job.kind is JobKind.GANG:
            members = set(job.runs)
            assert not (members & placed and members & (held | suspended)), f"{job.id} is split"
            assert not members & suspended or members <= suspended


def _check_reasons(snapshot: Snapshot, plan: Plan) -> None:
    live = {instance.id for instance in snapshot.instances}
    before = {run.id: run.instance for run in snapshot.runs if run.instance in live}
    entries = {entry.run: entry for entry in plan.entries}
    places: dict[RunId, InstanceId | int] = {
        **{run: host for run, host in before.items() if run not in entries},
        **{entry.run: entry.on for entry in plan.entries if isinstance(entry, Place)},
    }
    told = [(tenant.run, one.on) for one in plan.reasons.hostings for tenant in one.tenants]
    assert sorted(told) == sorted(places.items()), "every place has a reason"
    for one in plan.reasons.hostings:
        values = sum(tenant.value_micro_usd_per_hour for tenant in one.tenants)
        assert abs(values - one.value_micro_usd_per_hour) <= len(one.tenants), "but for rounding"
    running = {run.id for run in snapshot.runs if run.running}
    moves = [move for one in plan.reasons.exchanges for move in one.moves]
    assert sorted((move.run, move.source, move.target) for move in moves) == sorted(
        (run, before[run], places[run])
        for run in entries.keys() & running & before.keys() & places.keys()
    ), "every move has a reason"


def quiet(plan: Plan) -> bool:
    """Whether nothing starts, moves or stops."""
    return not plan.launches and all(isinstance(entry, Hold) for entry in plan.entries)


@settings(deadline=None, max_examples=40)
@given(snapshot=clusters())
@pytest.mark.parametrize("name", sorted(VARIANTS))
def test_plans_are_lawful_over_a_cluster_s_life(name, snapshot):
    policy = made(name)
    memory: PolicyMemory | None = None
    for step in range(3):
        plan, memory = policy.plan(snapshot, memory)
        check(snapshot, plan)
        snapshot = carried_out(snapshot, plan)
        first = [job.id for job in snapshot.jobs][:1] if step else []
        snapshot = ended(replace(snapshot, now_ms=snapshot.now_ms + 300_000), *first)


# -- a cluster in which nothing changes ------------------------------------------------------------

FEW = 5
"""Rounds in which a cluster has to come to rest."""


def later(snapshot: Snapshot, *, event: bool = False, minutes: int = 5) -> Snapshot:
    """The next round; `event` is a job that came and went."""
    return replace(
        snapshot,
        now_ms=Millis(snapshot.now_ms + minutes * 60_000),
        arrivals=snapshot.arrivals + event,
        completions=snapshot.completions + event,
    )


def at_rest(
    policy: Policy, snapshot: Snapshot, *, event: bool
) -> tuple[Snapshot, PolicyMemory | None]:
    """The cluster once a round changes nothing; fails if there is none soon."""
    memory: PolicyMemory | None = None
    snapshot = later(snapshot)  # by now everything is in stock that ever will be
    for _ in range(FEW):
        plan, memory = policy.plan(snapshot, memory)
        if quiet(plan):
            return snapshot, memory
        snapshot = later(carried_out(snapshot, plan), event=event)
    raise AssertionError(f"after {FEW} rounds there is still this to do: {plan}")


@settings(deadline=None, max_examples=40)
@given(snapshot=clusters())
@pytest.mark.parametrize("name", sorted(VARIANTS))
def test_a_plan_that_was_carried_out_is_followed_by_none(name, snapshot):
    policy = made(name)
    plan, memory = policy.plan(snapshot, None)
    placed = carried_out(snapshot, plan)
    again, _ = policy.plan(placed, memory)
    assert quiet(again), again


@settings(deadline=None, max_examples=25)
@given(snapshot=clusters(), event=st.booleans())
@pytest.mark.parametrize("name", sorted(VARIANTS))
def test_an_unchanging_cluster_comes_to_rest_and_stays_at_rest(name, snapshot, event):
    policy = made(name)
    still, memory = at_rest(policy, snapshot, event=event)
    for minutes in (5, 60, 7 * 24 * 60):
        still = later(still, event=event, minutes=minutes)
        plan, memory = policy.plan(still, memory)
        assert quiet(plan), plan


@settings(deadline=None, max_examples=25)
@given(snapshot=clusters())
@pytest.mark.parametrize("name", sorted(VARIANTS))
def test_what_would_be_as_good_elsewhere_stays(name, snapshot):
    policy = made(name)
    still, memory = at_rest(policy, snapshot, event=True)
    twins = tuple(
        replace(offering, type=replace(offering.type, name=f"a-{offering.type.name}"))
        for offering in still.catalog
        if offering.limit is None
    )
    plan, _ = policy.plan(
        replace(later(still, event=True), catalog=(*twins, *still.catalog)), memory
    )
    moved = [entry.run for entry in plan.entries if isinstance(entry, Place)]
    waited = {run.id for run in still.runs if run.instance is None}
    assert set(moved) <= waited, plan


EXPLAINED = sorted(
    name
    for name, (kind, _) in VARIANTS.items()
    if "explained" in {field.name for field in fields(kind.config)}
)
"""Variants whose reasons can be left out."""


@settings(deadline=None, max_examples=20)
@given(snapshot=clusters())
@pytest.mark.parametrize("name", EXPLAINED)
def test_reasons_decide_nothing(name, snapshot):
    kind, options = VARIANTS[name]
    policy = kind.build(kind.config(**{**options, "explained": True}))
    terse = kind.build(kind.config(**{**options, "explained": False}))
    memory: PolicyMemory | None = None
    other: PolicyMemory | None = None
    for _ in range(2):
        plan, memory = policy.plan(snapshot, memory)
        same, other = terse.plan(snapshot, other)
        assert (plan.launches, plan.entries) == (same.launches, same.entries)
        snapshot = later(carried_out(snapshot, plan), event=True)


@settings(deadline=None, max_examples=20)
@given(snapshot=clusters(), seed=st.integers(0, 1000))
@pytest.mark.parametrize("name", sorted(VARIANTS))
def test_the_same_cluster_gets_the_same_plan_in_whatever_order_it_was_built(name, snapshot, seed):
    shuffled = random.Random(seed)
    catalog, runs = list(snapshot.catalog), list(snapshot.runs)
    shuffled.shuffle(catalog)
    shuffled.shuffle(runs)
    other = replace(
        snapshot,
        catalog=tuple(catalog),
        runs=tuple(sorted(runs, key=lambda run: run.id)),
    )
    # Whether it has planned before or not: what matters it has from its memory.
    policy = made(name)
    first = policy.plan(snapshot, None)
    assert policy.plan(snapshot, None) == first
    assert policy.plan(other, None) == first
    assert made(name).plan(other, None) == first
    assert policy.plan(other, None)[0].reasons == first[0].reasons


@pytest.mark.parametrize("name", sorted(KINDS))
def test_a_policy_says_who_it_is_and_its_config_has_defaults(name):
    kind = KINDS[name]
    assert kind.name == name
    assert kind.build(kind.config()).name == name
    assert kind.config.__dataclass_params__.frozen


def big(*sizes: Amounts) -> Cluster:
    return Cluster(*(offer(f"t{n}", size, 1.0 + n) for n, size in enumerate(sizes)))


def test_an_empty_cluster_needs_nothing(policy):
    plan, _ = policy.plan(big((0, 4, 16)).snapshot(), None)
    assert quiet(plan)
    assert quiet(policy.plan(Cluster().snapshot(), None)[0])


def test_a_cluster_that_nothing_is_on_sale_for_holds_its_tasks(policy):
    plan, _ = policy.plan(Cluster().job("a", task(any=(0, 1, 1))).snapshot(), None)
    assert [type(entry) for entry in plan.entries] == [Hold]


def test_tasks_that_ask_for_no_memory_or_for_nothing_are_placed(policy):
    cluster = big((0, 4, 16))
    for number in range(10):
        cluster.job(f"cpu-{number}", task(any=(0, 1, 0))).job(f"no-{number}", task(any=(0, 0, 0)))
    snapshot = cluster.snapshot()
    plan, _ = policy.plan(snapshot, None)
    check(snapshot, plan)
    assert all(isinstance(entry, Place) for entry in plan.entries)


@pytest.mark.parametrize("usd", [0, 0.000001, 90_000])
def test_absurd_prices_and_amounts_are_reckoned_with(policy, usd):
    cluster = Cluster(
        offer("little", (0, 1, 1), usd / 2),
        offer("vast", (1_000, 100_000, 1_000_000), usd),
        offer("some", (1, 4, 16), usd / 2),
    )
    for number in range(12):
        cluster.job(f"a{number}", task("a", any=(1, 2, 8)), left_s=5_000)
    cluster.job("gang", *[task("b", any=(10, 500, 20_000))] * 20, left_s=10**9)
    snapshot = cluster.snapshot()
    plan, memory = policy.plan(snapshot, None)
    check(snapshot, plan)
    assert all(isinstance(entry, Place) for entry in plan.entries)
    assert quiet(policy.plan(carried_out(snapshot, plan), memory)[0])


def test_a_task_as_large_as_a_type_gets_one(policy):
    cluster = big((0, 4, 16), (2, 8, 32)).job("a", task(any=(2, 8, 32)))
    plan, _ = policy.plan(cluster.snapshot(), None)
    assert [launch.offering.type.name for launch in plan.launches] == ["t1"]


def test_a_task_of_one_family_stays_within_it(policy):
    cluster = Cluster(
        offer("c", (0, 8, 16), 0.3, family="c"), offer("r", (0, 8, 64), 0.5, family="r")
    ).job("a", task(r=(0, 8, 16)))
    plan, _ = policy.plan(cluster.snapshot(), None)
    assert [launch.offering.type.name for launch in plan.launches] == ["r"]


def test_hundreds_of_equal_types_are_told_apart(policy):
    cluster = Cluster(*(offer(f"t{n:03}", (0, 4, 16), 1.0, limit=1) for n in range(300)))
    for number in range(20):
        cluster.job(f"j{number:02}", task(any=(0, 4, 16)))
    snapshot = cluster.snapshot()
    plan, memory = policy.plan(snapshot, None)
    check(snapshot, plan)
    names = [launch.offering.type.name for launch in plan.launches]
    assert sorted(names) == [f"t{n:03}" for n in range(20)]
    assert quiet(policy.plan(carried_out(snapshot, plan), memory)[0])


def test_types_of_equal_price_are_told_apart_by_what_they_hold(policy):
    cluster = Cluster(
        *(offer(f"t{n}", (0, 2 * n, 8 * n), 1.0) for n in (1, 2, 3)),
        *(offer(f"u{n}", (0, 2 * n, 8 * n), 1.0, family="c") for n in (1, 2, 3)),
    )
    for number in range(6):
        cluster.job(f"j{number}", task(any=(0, 2, 8), c=(0, 2, 8)))
    snapshot = cluster.snapshot()
    plan, memory = policy.plan(snapshot, None)
    check(snapshot, plan)
    assert all(isinstance(entry, Place) for entry in plan.entries)
    assert quiet(policy.plan(carried_out(snapshot, plan), memory)[0])


@pytest.mark.parametrize("value", [0.000001, 0.999999, 1.0])
def test_throughput_at_its_edges(policy, value):
    cluster = Cluster(offer("box", (0, 8, 16), 1.0), offer("half", (0, 4, 8), 0.6))
    cluster.throughput = table({("w", ("w",)): value, ("w", ("w", "w", "w")): 1.0})
    cluster.job("gang", *[task("w", any=(0, 2, 4))] * 3)
    for number in range(4):
        cluster.job(f"j{number}", task("w", any=(0, 2, 4)))
    snapshot = cluster.snapshot()
    plan, memory = policy.plan(snapshot, None)
    check(snapshot, plan)
    assert all(isinstance(entry, Place) for entry in plan.entries)
    assert quiet(policy.plan(carried_out(snapshot, plan), memory)[0])


def test_where_everything_is_pinned_nothing_is_touched(policy):
    cluster = Cluster(offer("t", (0, 4, 16), 1.0), offer("s", (0, 2, 8), 0.1))
    for number in range(5):
        cluster.instance(f"i{number}", "t", ready=number % 2 == 0)
        cluster.job(f"a{number}", task(any=(0, 2, 8)), on=[f"i{number}"], pinned=True)
    cluster.job("waits", task(any=(0, 2, 8)), pinned=True)
    snapshot = cluster.snapshot()
    plan, memory = policy.plan(snapshot, None)
    assert (plan.launches, plan.entries) == ((), ())
    assert quiet(policy.plan(later(snapshot, event=True), memory)[0])


def test_pinned_copies_keep_their_room(policy):
    cluster = Cluster(offer("t", (0, 4, 16), 1.0, limit=1)).instance("i", "t", ready=False)
    cluster.job("a", task(any=(0, 4, 16)), on=["i"], running=False, pinned=True)
    cluster.job("b", task(any=(0, 4, 16)))
    plan, _ = policy.plan(cluster.snapshot(), None)
    assert [(type(entry), entry.run) for entry in plan.entries] == [(Hold, RunId("b/0"))]


def test_a_copy_whose_instance_is_gone_is_placed_again(policy):
    cluster = big((0, 4, 16)).job("a", task(any=(0, 4, 16)), on=[InstanceId("gone")])
    plan, _ = policy.plan(cluster.snapshot(), None)
    assert [type(entry) for entry in plan.entries] == [Place]
