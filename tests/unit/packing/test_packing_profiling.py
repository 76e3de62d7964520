"""Tasks of unknown standalone throughput: alone until it is known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eva_master.app.sections.building import build_policy
from eva_master.model.planning.snapshot import Snapshot, StandaloneRates
from eva_master.packing.configuration.build import configure, waiting
from eva_master.packing.lp.optimizer import Optimizer, Tier
from eva_master.packing.problem import Problem, Valuation
from eva_master.packing.profiling import unprofiled
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import MILLION, Family, Workload
from tests.fakes.snapshots import Cluster, offer, task

BOX = offer("box", (0, 4, 16), 0.8)
HALF = offer("half", (0, 2, 8), 0.45)


def profiled(cluster: Cluster, *workloads: str) -> Snapshot:
    """The cluster of a master that profiles; of these workloads it knows the rate."""
    known = tuple(((Workload(name), Family("any")), MILLION) for name in sorted(workloads))
    return replace(cluster.snapshot(), profile=True, standalone=StandaloneRates(known))


def bought(snapshot: Snapshot, tier: Tier = Tier.GREEDY, **view: bool) -> list[str]:
    problem = Problem(snapshot, Valuation(**view))
    plan = configure(problem, waiting(problem), Optimizer(problem, tier).pack)
    assert not plan.unplaced or tier is Tier.GREEDY
    return sorted(launch.offering.type.name for launch in plan.launches)


def pair() -> Cluster:
    a, b = task("a", any=(0, 2, 8)), task("b", any=(0, 2, 8))
    return Cluster(BOX, HALF).job("1", a).job("2", b)


@pytest.mark.parametrize("tier", [Tier.GREEDY, Tier.LP])
def test_a_task_of_unknown_throughput_is_not_packed(tier):
    assert bought(profiled(pair()), tier) == ["half", "half"]
    assert bought(profiled(pair(), "a"), tier) == ["half", "half"], "b is unknown still"
    assert bought(profiled(pair(), "a", "b"), tier) == ["box"]


def test_unless_the_master_does_not_profile():
    assert bought(pair().snapshot()) == ["box"]


def test_a_stated_throughput_will_do():
    stated = replace(task("a", any=(0, 2, 8)), throughput=((Family("any"), MILLION),))
    cluster = Cluster(BOX, HALF).job("1", stated).job("2", replace(stated, workload=Workload("b")))
    assert bought(profiled(cluster)) == ["box"]


def test_members_of_a_gang_are_apart_as_well():
    spec = task("g", any=(0, 2, 8))
    cluster = Cluster(BOX, HALF).job("g", spec, spec, kind=JobKind.GANG)
    assert bought(profiled(cluster)) == ["half", "half"]
    assert bought(profiled(cluster, "g")) == ["box"]


@pytest.mark.parametrize("tier", [Tier.GREEDY, Tier.LP])
@pytest.mark.parametrize("view", [False, True])
def test_a_gang_that_is_late_in_company_is_together_and_nobody_joins_it(tier, view):
    quarter = task("a", any=(0, 1, 4))
    cluster = Cluster(BOX, HALF).job("g", quarter, quarter, kind=JobKind.GANG).job("1", quarter)
    snapshot = cluster.snapshot()
    assert bought(snapshot) == ["box"]
    runs = tuple(replace(run, alone=run.job == "g") for run in snapshot.runs)
    assert bought(replace(snapshot, runs=runs), tier, multi_task_view=view) == ["half", "half"]


def test_nobody_joins_one_that_is_being_profiled():
    cluster = Cluster(BOX, HALF).instance("i", "box")
    cluster.job("1", task("a", any=(0, 2, 8)), on=["i"]).job("2", task("b", any=(0, 2, 8)))
    assert bought(profiled(cluster, "b")) == ["half"]
    assert bought(profiled(cluster, "a", "b")) == []


def test_what_is_together_already_is_not_parted():
    cluster = Cluster(BOX, HALF).instance("i", "box")
    cluster.job("1", task("a", any=(0, 2, 8)), on=["i"])
    cluster.job("2", task("b", any=(0, 2, 8)), on=["i"])
    assert unprofiled(profiled(cluster), {}) == frozenset()


def test_where_there_is_no_room_of_its_own_a_task_is_packed_in_the_end():
    cluster = Cluster(replace(BOX, limit=1))
    cluster.job("1", task("a", any=(0, 2, 8))).job("2", task("b", any=(0, 2, 8)))
    snapshot = profiled(cluster)
    problem = Problem(snapshot, Valuation())
    first = configure(problem, waiting(problem))
    (left,) = first.unplaced
    runs = tuple(replace(run, held=True) for run in snapshot.runs)
    assert unprofiled(replace(snapshot, runs=runs), {}) == frozenset()
    assert bought(replace(snapshot, runs=runs)) == ["box"]
    assert left in {"1/0", "2/0"}


def test_who_does_not_believe_in_interference_does_not_profile():
    assert bought(profiled(pair()), interference=False) == ["box"]


@pytest.mark.parametrize("policy", ["eva", "eva_published", "synergy", "owl"])
def test_reasons_tell_who_is_alone_to_be_profiled(policy):
    cluster = pair().job("3", task("c", any=(0, 4, 16)))
    plan, _ = build_policy(policy, {}).plan(profiled(cluster, "c"), None)
    assert plan.reasons is not None
    told = {
        occupant.run: occupant.profiled for h in plan.reasons.hostings for occupant in h.occupants
    }
    assert told == {"1/0": True, "2/0": True, "3/0": False}


def alone(cluster: Cluster, *known: str) -> set[str]:
    snapshot = profiled(cluster, *known)
    measured = {workload: () for (workload, _), _ in snapshot.standalone.measured}
    return set(unprofiled(snapshot, measured))


def test_one_task_of_a_workload_is_alone_that_of_the_first_job():
    a, b = task("a", any=(0, 2, 8)), task("b", any=(0, 2, 8))
    cluster = Cluster(BOX, HALF).job("1", a, a, a, kind=JobKind.ARRAY).job("2", a, b)
    assert alone(cluster) == {"1/0", "2/0", "2/1"}, "a gang is measured as a whole"
    assert alone(cluster, "b") == {"1/0"}
    assert alone(cluster, "a", "b") == set()


def test_whoever_is_alone_already_is_measured():
    a = task("a", any=(0, 2, 8))
    cluster = Cluster(BOX, HALF).instance("i", "box").instance("k", "half")
    cluster.job("1", a).job("2", a, on=["k"]).job("3", a, on=["i"]).job("4", a, on=["i"])
    assert alone(cluster) == {"2/0"}


def test_of_an_array_of_many_workloads_two_are_alone():
    specs = [task(f"w{number}", any=(0, 2, 8)) for number in range(6)]
    cluster = Cluster(BOX, HALF).job("1", *specs, kind=JobKind.ARRAY)
    assert alone(cluster) == {"1/0", "1/1"}
    assert alone(cluster, "w0") == {"1/1", "1/2"}


def test_a_program_that_reports_no_steps_is_never_alone_for_that():
    silent = replace(task("a", any=(0, 2, 8)), reports_steps=False)
    assert alone(Cluster(BOX, HALF).job("1", silent).job("2", silent)) == set()
