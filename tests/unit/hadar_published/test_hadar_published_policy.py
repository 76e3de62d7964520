from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from eva_lab.runs import named_policy
from eva_master.app.policy_registry import policies
from eva_master.model.catalog import Gpu, Purchase
from eva_master.model.job import ModelSize, TaskSpec, Training
from eva_master.model.planning.plan import Assign, Hold, Plan, PolicyMemory, Suspend
from eva_master.model.planning.snapshot import Snapshot
from eva_master.packing.fleet.contenders import Contenders
from eva_master.testing.job_views import changed
from eva_master.testing.plan_checks import check, quiet
from eva_master.testing.snapshots import START, Cluster, ended, offer, task
from eva_policies.hadar_published.config import Config
from eva_policies.hadar_published.policy import HadarPublished
from eva_policies.hadar_published.queue import ask_of
from eva_wire.values.bounds import JobKind
from eva_wire.values.errors import InvalidConfig
from eva_wire.values.ids import MILLION, Family, Millis
from tests.fakes.fleets.every_schedule import FLEET, GANGS, best, slowest
from tests.fakes.policies.rounds import Trained, in_rounds

HOUR_S = 3600


def fleet(**gpus: int) -> Cluster:
    """A server of so many GPUs of each type."""
    owned = [
        replace(offer(name, (n, n, n), 1, family=name), purchase=Purchase.OWNED)
        for name, n in gpus.items()
    ]
    cluster = Cluster(*owned)
    for name in gpus:
        cluster.instance(name, name)
    return cluster


def trains(**rates: float) -> TaskSpec:
    """A task on one GPU with so many iterations per second on each type."""
    slots: Any = dict.fromkeys(rates, (1, 1, 1))
    stated = sorted((Family(name), round(rate * MILLION)) for name, rate in rates.items())
    return replace(task("w", **slots), throughput=tuple(stated))


def planned(snapshot: Snapshot, **options: Any) -> tuple[Plan, PolicyMemory | None]:
    plan, memory = HadarPublished(Config(**options)).plan(snapshot, None)
    check(snapshot, plan)
    return plan, memory


def placed(plan: Plan) -> dict[str, str]:
    return {it.run: str(it.on) for it in plan.entries if isinstance(it, Assign)}


def crowd(number: int, on: Sequence[str] = (), **options: Any) -> Snapshot:
    """Jobs of one GPU each on a server of two, the first of them running there."""
    cluster = fleet(v100=2)
    for index in range(number):
        place = [on[index]] if index < len(on) else []
        cluster.job(f"j{index}", trains(v100=10.0), on=place, left_s=HOUR_S, **options)
    return cluster.snapshot()


# -- who is admitted -------------------------------------------------------------------------------


def test_whoever_earns_more_where_it_is_fast_goes_there() -> None:
    cluster = fleet(v100=4, k80=4).job("a", *[trains(v100=10, k80=1)] * 4, left_s=HOUR_S)
    cluster.job("b", *[trains(v100=10, k80=9)] * 4, left_s=HOUR_S)
    where = placed(planned(cluster.snapshot(), branches=16)[0])
    assert {run: where[f"{run}/0"] for run in "ab"} == {"a": "v100", "b": "k80"}


def test_a_job_that_does_not_pay_is_told_so() -> None:
    """The slow one would take the last GPU, which costs what the fast one earns there."""
    cluster = fleet(v100=4).job("a", *[trains(v100=100)] * 3, left_s=HOUR_S)
    cluster.job("b", trains(v100=0.01), left_s=HOUR_S)
    plan, _ = planned(cluster.snapshot())
    assert set(placed(plan)) == {"a/0", "a/1", "a/2"}
    (held,) = [it for it in plan.entries if isinstance(it, Hold)]
    assert held == Hold("b/0", "the GPUs that are free cost more than it is worth now")
    assert set(placed(planned(cluster.snapshot(), refused="fills")[0])) == {
        *("a/0", "a/1", "a/2"),
        "b/0",
    }


def test_nobody_waits_beside_an_idle_fleet() -> None:
    """Long after the horizon nobody is worth even what an empty server costs."""
    cluster = fleet(v100=2).job("a", *[trains(v100=1)] * 2, left_s=HOUR_S)
    snapshot = replace(cluster.snapshot(), now_ms=Millis(START + 10**15))
    plan, _ = planned(snapshot, horizon_s=1, eta=1e-6)
    assert placed(plan) == {"a/0": "v100", "a/1": "v100"}


def test_a_gang_on_mixed_types_is_one_of_the_candidates() -> None:
    cluster = fleet(v100=2, k80=1).job("a", *[trains(v100=10, k80=5)] * 3, left_s=HOUR_S)
    assert sorted(placed(planned(cluster.snapshot())[0]).values()) == ["k80", "v100", "v100"]


def test_who_needs_no_gpu_pays_for_none() -> None:
    cluster = fleet(v100=2).job("cpu", task("c", v100=(0, 1, 1)))
    cluster.job("gpu", trains(v100=1), left_s=HOUR_S)
    assert set(placed(planned(cluster.snapshot())[0])) == {"cpu/0", "gpu/0"}


def test_gpus_without_cpus_are_no_room() -> None:
    slots = {"v100": (1, 2.0, 1)}
    hungry = replace(task("w", **slots), throughput=((Family("v100"), MILLION),))
    cluster = fleet(v100=2).job("a", hungry, left_s=HOUR_S).job("b", hungry, left_s=HOUR_S)
    plan, _ = planned(cluster.snapshot())
    assert len(placed(plan)) == 1
    assert [it.reason for it in plan.entries if isinstance(it, Hold)] == [
        "the GPUs that it needs are not free"
    ]


# -- turns -----------------------------------------------------------------------------------------


def test_every_round_gives_the_fleet_away_anew_unless_running_jobs_stay() -> None:
    """Two run who have little left; the one that came first earns more than both."""
    cluster = fleet(v100=2).job("a", *[trains(v100=10)] * 2, left_s=100 * HOUR_S)
    for name in ("b", "c"):
        cluster.job(name, trains(v100=0.1), on=["v100"], left_s=60)
    snapshot = cluster.snapshot()
    plan, _ = planned(snapshot)
    assert {it.run for it in plan.entries if isinstance(it, Suspend)} == {"b/0", "c/0"}
    assert set(placed(plan)) == {"a/0", "a/1"}
    assert plan.again.at_ms is not None
    plan, _ = planned(snapshot, replan="arrivals")
    assert quiet(plan)


def test_a_lease_is_kept() -> None:
    cluster = fleet(v100=2).job("a", *[trains(v100=10)] * 2, left_s=100 * HOUR_S)
    cluster.job("b", trains(v100=0.1), on=["v100"], left_s=60)
    snapshot = cluster.snapshot()
    leased = [changed(it, lease_ms=START) if it.id == "b" else it for it in snapshot.jobs]
    for had_s, moved in ((299, False), (300, True)):
        now = replace(snapshot, jobs=tuple(leased), now_ms=Millis(START + 1000 * had_s))
        assert quiet(planned(now)[0]) is not moved


def test_a_fleet_in_which_everybody_has_a_place_is_given_away_anew_once() -> None:
    policy = HadarPublished(Config())
    cluster = fleet(v100=1, k80=1).job("a", trains(v100=10, k80=1), on=["k80"], left_s=HOUR_S)
    snapshot = cluster.snapshot()
    plan, memory = policy.plan(snapshot, None)
    assert placed(plan) == {"a/0": "v100"}
    assert plan.again.at_ms is None
    # Nothing came of it; but for the same jobs and servers it is not tried again.
    plan, memory = policy.plan(snapshot, memory)
    assert quiet(plan)
    other = cluster.job("b", trains(v100=1, k80=1), on=["v100"], left_s=60).snapshot()
    plan, memory = policy.plan(other, memory)
    assert placed(plan) == {"a/0": "v100", "b/0": "k80"}


# -- memory and options ----------------------------------------------------------------------------


def test_prices_remember_jobs_that_have_ended() -> None:
    policy = HadarPublished(Config())
    cluster = fleet(v100=4).job("fast", trains(v100=100), left_s=HOUR_S)
    cluster.job("slow", trains(v100=1), left_s=HOUR_S)
    _, memory = policy.plan(cluster.snapshot(), None)
    assert memory is not None
    memory = replace(memory, data=json.loads(json.dumps(memory.data)))
    _, later = policy.plan(ended(cluster.snapshot(), "fast"), memory)
    assert later is not None
    assert later.data["extremes"] == memory.data["extremes"]
    assert later.data["sizes"] == {"slow": 3600.0}
    _, forgetful = HadarPublished(Config(remember_prices=False)).plan(cluster.snapshot(), memory)
    assert forgetful is not None
    assert forgetful.data["extremes"] == {}


def test_a_job_is_as_large_as_it_was_at_first() -> None:
    policy = HadarPublished(Config())
    _, memory = policy.plan(crowd(1), None)
    half = fleet(v100=2).job("j0", trains(v100=10.0), left_s=HOUR_S // 2).snapshot()
    _, memory = policy.plan(half, memory)
    assert memory is not None
    assert memory.data["sizes"] == {"j0": 36_000.0}


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"extremes": [], "sizes": {}, "rested": "", "utility": "throughput", "horizon_s": 360_000},
        {"extremes": {"v100": [1, 2]}, "sizes": {}, "rested": "", "utility": 1, "horizon_s": 1},
        {
            **{"sizes": {}, "rested": "", "utility": "throughput", "horizon_s": 360_000},
            "extremes": {"v100": [0, 0, 0]},
        },
        {"extremes": {}, "sizes": {"j0": "x"}, "rested": "", "utility": "", "horizon_s": 1},
    ],
)
def test_a_memory_that_cannot_be_read_is_none(data: dict[str, Any]) -> None:
    policy, snapshot = HadarPublished(Config()), crowd(3)
    bad = PolicyMemory("hadar_published", 1, data)
    assert policy.plan(snapshot, bad) == policy.plan(snapshot, None)


def test_the_queue_is_in_the_order_that_is_asked_for() -> None:
    cluster = fleet(v100=1)
    for name, rate, left_s in (("j2", 1.0, 7200), ("j10", 2.0, 3600), ("j11", 1.0, 60)):
        cluster.job(name, trains(v100=rate), left_s=left_s)
    cluster.job("j12", trains(v100=1.5), left_s=HOUR_S, priority=-1)
    first = {
        order: placed(planned(cluster.snapshot(), order=order, branches=1)[0])
        for order in ("arrival", "utility", "shortest")
    }
    assert first == {
        "arrival": {"j2/0": "v100"},
        "utility": {"j10/0": "v100"},
        "shortest": {"j11/0": "v100"},
    }


def test_tasks_of_arrays_ask_one_by_one() -> None:
    cluster = fleet(v100=2).job("a", *[trains(v100=1)] * 3, kind=JobKind.ARRAY, left_s=HOUR_S)
    assert len(placed(planned(cluster.snapshot(), refused="fills")[0])) == 2


def test_the_published_hadar_has_options_of_its_own() -> None:
    assert named_policy("hadar_published")[0].name == "hadar_published"
    assert {"hadar", "hadar_published"} <= set(policies())
    with pytest.raises(InvalidConfig, match="branches"):
        named_policy("hadar_published", {"branches": 0})


# -- the paper's example ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "ends"),
    [
        ({}, {"j1": 3, "j2": 2, "j3": 8}),
        ({"order": "utility"}, {"j1": 3, "j2": 2, "j3": 8}),
        # What stays where it began stays on the type on which it is slowest.
        ({"replan": "arrivals"}, {"j1": 3, "j2": 2, "j3": 27}),
    ],
)
def test_the_paper_s_example_takes_longer_than_it_must(options: Any, ends: dict[str, int]) -> None:
    jobs = {
        name: Trained(it.gpus, it.epochs, dict(zip(FLEET, it.rates, strict=True)))
        for name, it in GANGS.items()
    }
    rounds = in_rounds(HadarPublished(Config(**options)), FLEET, jobs)
    found = {
        name: max(number for number, on in enumerate(rounds, 1) if name in on) for name in jobs
    }
    least = best(list(GANGS.values()), tuple(FLEET.values()), slowest, one_type=False)
    assert max(found.values()) >= least.rounds == 6
    assert sum(found.values()) >= 3 * least.mean == 12
    assert found == ends


# -- first rates -----------------------------------------------------------------------------------


def unrated(**gpus: Gpu | None) -> Snapshot:
    """A job of unknown rates, on a fleet with a server of each type."""
    owned = []
    for name, gpu in gpus.items():
        sold = replace(offer(name, (1, 1, 1), 1, family=name), purchase=Purchase.OWNED)
        owned.append(replace(sold, type=replace(sold.type, gpu=gpu)))
    cluster = Cluster(*owned)
    for name in gpus:
        cluster.instance(name, name)
    return cluster.job("j", task("w", **dict.fromkeys(gpus, (1, 1, 1))), left_s=HOUR_S).snapshot()


def test_without_rates_a_job_goes_where_the_formula_says_that_it_is_fastest() -> None:
    k80, v100 = Gpu(4_370, 12), Gpu(125_000, 16)
    for snapshot in (unrated(a=k80, b=v100), unrated(b=v100, a=k80)):
        assert placed(planned(snapshot, first_rates=True)[0]) == {"j/0": "b"}
    assert placed(planned(unrated(a=v100, b=k80), first_rates=True)[0]) == {"j/0": "a"}
    # Of a type of which nothing is known the formula says nothing, so all count as equally fast.
    unknown = placed(planned(unrated(a=k80, b=v100, c=None), first_rates=True)[0])
    assert unknown == placed(planned(unrated(a=k80, b=v100, c=None))[0])


def test_jobs_of_unknown_length_are_compared_by_their_steps_and_the_formula() -> None:
    """Both are as long by steps; a model that is more complex takes eight times as long."""
    gpu = Gpu(100_000, 25)
    cluster = Cluster(
        replace(
            offer("v", (1, 1, 1), 1, family="v"),
            purchase=Purchase.OWNED,
        )
    )
    cluster.instance("v", "v")
    for name in "ab":
        cluster.job(name, task("w", v=(1, 1, 1)))
    now = cluster.snapshot()
    sheets = {Family("v"): gpu}
    asks = []
    for job, size in zip(now.jobs, (ModelSize.SMALL, ModelSize.EXTRA_HIGH), strict=True):
        told = changed(job, training=Training(model=size), steps_left=1_000)
        _, found = Contenders().of(replace(now, jobs=(told,), runs=now.runs), 0)
        one = next(it for it in found if it.job.id == job.id)
        asks.append(ask_of(one, sheets, Millis(now.now_ms), sheets=sheets))
    first, second = asks
    assert first is not None
    assert second is not None
    assert first.left == second.left == 1_000
    assert second.takes_s(second.rates[Family("v")]) == pytest.approx(
        8 * first.takes_s(first.rates[Family("v")])
    )
