"""`eva plan` foresees what `eva submit` does: under every policy, with whatever a job file says."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eva_master.app.policy_registry import policies
from eva_master.control.settings import Limits, Settings
from eva_master.model.catalog import InstanceType, Offering, Purchase, spot_family
from eva_master.model.fleet.nodes import NODE_ZONE, OwnedNode
from eva_master.model.fleet.partitions import (
    Budget,
    Partition,
    PartitionLimits,
    Partitions,
    ShortJobs,
)
from eva_master.model.job import Deadline, JobSpec, Latency
from eva_master.model.planning.spot_choice import SpotChoice
from eva_master.model.planning.suspension import Preemption
from eva_master.model.resources import Resources
from eva_master.model.tenants.quotas import Tenancy
from eva_master.packing.parts.splitter import Splitter
from eva_master.ports import Policy
from eva_wire.values.ids import Family, InstanceId, Millis, Price
from tests.drawing import drawn
from tests.fakes.jobs import LARGE, MEDIUM, SMALL, job
from tests.property.previews.cluster import Cluster, compare

NODE = replace(MEDIUM, purchase=Purchase.OWNED, zone=NODE_ZONE)
CATALOG = (SMALL, MEDIUM, LARGE)
GPUS = Family("v100")
GPU_NODE = Offering(
    InstanceType("v100.x2", GPUS, Resources(2, 16_000, 65_536)), Price(0), Purchase.OWNED, NODE_ZONE
)


@st.composite
def specs(draw: st.DrawFn, name: str) -> JobSpec:
    """A job file as a user may write it."""
    array = draw(st.booleans())
    cpus = draw(st.lists(st.sampled_from([1, 2, 4, 8]), min_size=1, max_size=4))
    spec = job(
        name,
        *(cpus if array else cpus[:2]),
        array=array,
        minutes=draw(st.sampled_from([0.1, 1, 30])),
        priority=draw(st.sampled_from([0, 0, 5])),
        latency=draw(st.sampled_from([Latency.AUTO, Latency.SHORT, Latency.LONG])),
        pilots=draw(st.sampled_from([None, 1])) if array else None,
        concurrency=draw(st.sampled_from([None, 1, 2])) if array else None,
    )
    if draw(st.integers(0, 3)) == 0:
        spec = replace(spec, duration_ms=None)
    return spec


@st.composite
def worlds(draw: st.DrawFn) -> Settings:
    """Limits, quotas and rules of an operator."""
    limits = Limits(
        instances=draw(st.sampled_from([10**9, 2, 4])),
        instances_per_job=draw(st.sampled_from([10**9, 1])),
        instances_per_user=draw(st.sampled_from([10**9, 2])),
    )
    known = Settings(round_gap_ms=0, profile=draw(st.booleans()), limits=limits)
    if draw(st.booleans()):
        part = Partition(
            "all",
            default=True,
            limits=PartitionLimits(instances=draw(st.sampled_from([None, 2]))),
            budget=Budget(per_hour=draw(st.sampled_from([None, 300_000]))),
            short=draw(st.sampled_from([None, ShortJobs(60_000)])),
        )
        known = replace(known, partitions=Partitions((part,)))
    return replace(known, preemption=draw(st.sampled_from(list(Preemption))))


@pytest.mark.parametrize("name", sorted(policies()))
@pytest.mark.parametrize("nodes", [0, 2])
@drawn(15)
@given(data=st.data())
def test_a_preview_is_the_first_plan_of_the_submission(
    name: str, nodes: int, data: st.DataObject
) -> None:
    kind = policies()[name]
    _foreseen_as_it_comes(kind.build(kind.config()), data.draw(worlds()), nodes, data)


@pytest.mark.parametrize("front", ["cloudcoaster", "no_packing", "slearn", "stratus"])
@pytest.mark.parametrize("back", ["eva", "fifo", "eva_published"])
@drawn(20)
@given(data=st.data())
def test_a_preview_is_the_first_plan_behind_a_splitter(
    front: str, back: str, data: st.DataObject
) -> None:
    short, others = (policies()[it] for it in (front, back))
    policy = Splitter.of_short(
        short.build(short.config()),
        others.build(others.config()),
        60_000,
        shares=bool(getattr(short, "shares", False)),
    )
    rules = data.draw(worlds())
    whole = next((it for it in rules.partitions.all if it.default), None)
    part = replace(whole or Partition("all", default=True), short=ShortJobs(60_000))
    _foreseen_as_it_comes(policy, replace(rules, partitions=Partitions((part,))), 0, data)


@pytest.mark.parametrize("name", ["eva", "no_packing", "hadar", "fifo", "astraea"])
@drawn(20)
@given(data=st.data())
def test_a_preview_keeps_to_quotas_and_budgets(name: str, data: st.DataObject) -> None:
    kind, owners = policies()[name], ("vision", "speech")
    quotas = {it: ((GPUS, data.draw(st.sampled_from([1, 2, 4]))),) for it in owners}
    budgets = {it: data.draw(st.sampled_from([1, 10**12])) for it in owners}
    budget = Budget(per_month=data.draw(st.sampled_from([None, 1])))
    part = Partition("all", default=True, budget=budget, lends=name == "astraea")
    rules = replace(
        Settings(round_gap_ms=0, profile=False),
        partitions=Partitions((part,)),
        tenancy=Tenancy(
            quotas,
            data.draw(st.sampled_from([{}, budgets])),
        ),
        nodes={it: OwnedNode(it, GPU_NODE, 60_000) for it in map(InstanceId, ("n0", "n1"))},
    )

    def spec(name: str) -> JobSpec:
        made = job(name, *[1] * data.draw(st.integers(1, 3)), array=data.draw(st.booleans()))
        need = ((GPUS, Resources(1, 1_000, 1_024)),)
        tasks = tuple(replace(it, demand=need) for it in made.tasks)
        return replace(made, tasks=tasks, tenant=data.draw(st.sampled_from(owners)))

    cluster = Cluster((GPU_NODE,), kind.build(kind.config()), rules)
    cluster.settle(cluster.machine.recover(Millis(0)))
    cluster.register(*rules.nodes)
    before = [spec(f"old{number}") for number in range(data.draw(st.integers(0, 3)))]
    compare(cluster, before, spec("new"))


SPOT = Offering(
    InstanceType("spot.1", spot_family(SMALL.type.family), SMALL.type.capacity),
    Price(SMALL.price // 3),
    purchase=Purchase.SPOT,
)


@pytest.mark.parametrize("away", [False, True], ids=["spot there", "spot away"])
@pytest.mark.parametrize(
    ("name", "rule"),
    [
        *((it, SpotChoice.LEARNED) for it in ("eva", "no_packing", "stratus")),
        *(("eva", it) for it in SpotChoice if it is not SpotChoice.LEARNED),
    ],
)
@pytest.mark.parametrize(
    ("minutes", "more"),
    [
        (10, {"spot_wait_ms": 600_000}),
        (10, {}),
        (None, {"deadline": Deadline(within_ms=36_000_000)}),
        (600, {"deadline": Deadline(within_ms=36_000_000)}),
        (600, {"deadline": Deadline(within_ms=60_000)}),
        (10, {"deadline": Deadline(within_ms=36_000_000)}),
    ],
    ids=["waits", "free", "unknown", "no time", "too late", "time to lose"],
)
def test_a_preview_buys_on_the_market_of_the_submission(
    minutes: int | None, more: dict[str, object], name: str, rule: SpotChoice, away: bool
) -> None:
    kind = policies()[name]
    spot = replace(SPOT, unavailable_until=Millis(10**9)) if away else SPOT
    rules = Settings(round_gap_ms=0, spot_choice=rule)
    cluster = Cluster((SMALL, spot), kind.build(kind.config()), rules)
    cluster.settle(cluster.machine.recover(Millis(0)))
    made = job("new", 1, minutes=minutes or 1, **more)
    need = made.tasks[0].demand[0][1]
    families = tuple(sorted((it.type.family, need) for it in (SMALL, spot)))
    made = replace(made, tasks=(replace(made.tasks[0], demand=families),))
    compare(cluster, [], replace(made, duration_ms=None) if minutes is None else made)


def _foreseen_as_it_comes(policy: Policy, rules: Settings, nodes: int, data: st.DataObject) -> None:
    owned = {
        InstanceId(f"n{number}"): OwnedNode(InstanceId(f"n{number}"), NODE, 60_000)
        for number in range(nodes)
    }
    rules = replace(rules, nodes=owned)
    catalog = (*CATALOG, NODE) if nodes else CATALOG
    cluster = Cluster(catalog, policy, rules)
    cluster.settle(cluster.machine.recover(Millis(0)))
    cluster.register(*owned)
    before = [data.draw(specs(f"old{it}")) for it in range(data.draw(st.integers(0, 2)))]
    compare(cluster, before, data.draw(specs("new")))
