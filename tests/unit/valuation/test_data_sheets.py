"""What data sheets say of GPUs on which nothing was measured."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from eva_master.adapters.catalog import load_catalog
from eva_master.adapters.catalog.gpus import GPUS, parse_gpu
from eva_master.adapters.catalog.pricebook import current_types
from eva_master.adapters.catalog.snapshot import CatalogSnapshot, SoldType
from eva_master.app.nodes.settings import CapacitySection, NodeSection
from eva_master.app.policy_registry import policies
from eva_master.app.sections.building import build_policy
from eva_master.model.catalog import Offering
from eva_master.model.job import TaskSpec
from eva_master.model.planning.snapshot import StandaloneRates
from eva_master.packing.valuation.job_valuation import JobValuation
from eva_master.packing.valuation.reservation_price import rates, sheets
from eva_wire.values.ids import MILLION, Family, Workload
from tests.fakes.snapshots import Cluster, offer, task
from tests.fakes.traces import published

HALF, WHOLE = Family("half"), Family("whole")
SHEETS = {HALF: 450, WHOLE: 900}


def carded(name: str, gpus: int, usd: float, gpu: str | int) -> Offering:
    """One of a family that has the type's name, whose GPUs data sheets tell of."""
    offering = offer(name, (gpus, 8, 60), usd, family=name)
    bandwidth = GPUS[gpu] if isinstance(gpu, str) else gpu
    return replace(offering, type=replace(offering.type, gpu_bandwidth=bandwidth))


def on(**per_second: float) -> TaskSpec:
    """Wants one GPU of either family, with what is stated of its speed there."""
    stated = tuple((Family(name), round(rate * MILLION)) for name, rate in per_second.items())
    return replace(task(half=(1, 1, 1), whole=(1, 1, 1)), throughput=stated)


def test_an_unknown_family_is_expected_to_be_as_fast_as_its_bandwidth_says():
    assert rates(on(whole=9.0), (), SHEETS) == (
        (HALF, pytest.approx(4_500_000, rel=1e-5)),
        (WHOLE, 9_000_000),
    )
    assert rates(on(half=9.0), (), SHEETS)[1][1] == pytest.approx(18_000_000, rel=1e-5)


def test_what_is_known_goes_before_data_sheets():
    measured = ((HALF, 8 * MILLION), (WHOLE, 9 * MILLION))
    assert rates(on(), measured, SHEETS) == measured
    assert rates(on(whole=5.0), measured, SHEETS) == ((HALF, 8 * MILLION), (WHOLE, 5 * MILLION))
    assert rates(on(), (), SHEETS) == (), "nothing is known of it at all"


def test_several_known_families_count_by_their_geometric_mean():
    # 4 at 100 GB/s and 1 at 100 GB/s: as good as 2 at 100 GB/s, which is 6 at 300.
    spec = task(a=(1, 1, 1), b=(1, 1, 1), c=(1, 1, 1))
    measured = ((Family("a"), 4 * MILLION), (Family("b"), 1 * MILLION))
    told = {Family("a"): 100, Family("b"): 100, Family("c"): 300}
    assert dict(rates(spec, measured, told))[Family("c")] == pytest.approx(6 * MILLION, rel=1e-5)


@pytest.mark.parametrize(
    "spec",
    [
        task(whole=(1, 1, 1), half=(2, 1, 1)),
        task(whole=(1, 1, 1), half=(0, 8, 1)),
        task(whole=(0, 1, 1), half=(0, 1, 1)),
        task(whole=(1, 1, 1), other=(1, 1, 1)),
    ],
    ids=["more GPUs", "GPU and CPU", "CPU", "unknown GPU"],
)
def test_without_a_comparison_the_slowest_that_is_known_counts(spec):
    measured = ((WHOLE, 9 * MILLION),)
    assert {rate for _, rate in rates(spec, measured, SHEETS)} == {9 * MILLION}


def test_spot_instances_have_the_same_gpus():
    spot = Family("half/spot")
    spec = task(**{"whole": (1, 1, 1), "half/spot": (1, 1, 1)})
    found = dict(rates(spec, ((WHOLE, 9 * MILLION),), SHEETS))
    assert found[spot] == pytest.approx(4_500_000, rel=1e-5)


def test_unequal_gpus_in_a_family_count_as_the_slowest():
    one = carded("a", 1, 1.0, 500)
    two = replace(one, type=replace(one.type, name="a.big", gpu_bandwidth=400))
    cpu = offer("c", (0, 8, 60), 1.0, family="c")
    assert sheets([one, two, cpu]) == sheets([two, one]) == {Family("a"): 400}


@pytest.mark.parametrize("name", sorted(set(policies()) - {"owl"}))
def test_policies_buy_where_an_iteration_is_expected_to_cost_least(name):
    # One iteration per second on a T4 at $1. By bandwidth 2.8 on a V100 at $2: a third cheaper.
    slow, fast = carded("t4", 1, 1.0, "T4"), carded("v100", 1, 2.0, "V100")
    spec = replace(task("w", t4=(1, 1, 1), v100=(1, 1, 1)))
    known = StandaloneRates((((Workload("w"), Family("t4")), MILLION),))
    snapshot = replace(Cluster(slow, fast).job("a", spec).snapshot(), standalone=known)
    plan, _ = build_policy(name, {}).plan(snapshot, None)
    assert [launch.offering for launch in plan.launches] == [fast]
    # Without data sheets they are expected to be equally fast.
    blind = tuple(replace(it, type=replace(it.type, gpu_bandwidth=0)) for it in snapshot.catalog)
    plan, _ = build_policy(name, {}).plan(replace(snapshot, catalog=blind), None)
    assert [launch.offering.type.name for launch in plan.launches] == ["t4"]
    assert JobValuation((slow, fast), known).of_task(spec).offering == fast


def test_types_say_which_gpus_they_have():
    every = current_types().items()
    told = {name: parse_gpu(entry["gpu"]) for name, entry in every if entry.get("gpus")}
    assert told["p3.2xlarge"] == 900
    assert told["g5.48xlarge"] == 600
    assert {it.type.name: it.type.gpu_bandwidth for it in load_catalog()}["p3.16xlarge"] == 900
    section = CapacitySection.model_validate(
        {"gpus": 2, "gpu": "450GB/s", "cpus": 4, "memory": "1GiB"}
    )
    node = NodeSection(type="rack.big", capacity=section).node("n")
    assert node.offering.type.gpu_bandwidth == 450


def test_gpus_that_a_cloud_names_are_looked_up():
    def sold(gpus: int, gpu: str) -> SoldType:
        return SoldType(
            architecture="x86_64", milli_cpus=8_000, memory_mib=1_024, gpus=gpus, gpu=gpu, price=1
        )

    types = {"a.one": sold(1, "A10G"), "b.one": sold(1, "Unheard-Of"), "c.one": sold(0, "")}
    taken = CatalogSnapshot(region="us-east-1", taken=datetime(2026, 1, 1, tzinfo=UTC), types=types)
    catalog = load_catalog(known=taken.entries())
    assert [it.type.gpu_bandwidth for it in catalog] == [600, 0, 0]


@pytest.mark.parametrize("text", ["v100", "", "900", "0GB/s", "-1GB/s", "9e9GB/s", 900, None, True])
def test_what_is_no_gpu_is_refused(text):
    with pytest.raises(ValueError, match="is no GPU that is known"):
        parse_gpu(text)


@pytest.mark.published
def test_bandwidth_tells_how_fast_published_models_are():
    """Against what the authors of Gavel measured: within a half, mostly, and not by luck."""
    expected = {Family("k80"): 240, Family("p100"): 732, Family("v100"): 900}
    off, blind = zip(*_misjudged(expected), strict=True)
    assert len(off) > 100
    assert statistics.median(off) < 1.4
    assert statistics.median(blind) > 2


def _misjudged(told: dict[Family, int]) -> Iterator[tuple[float, float]]:
    """By which factor each rate is missed that is expected from one other; and if all are equal."""
    table = json.loads((published() / "hadar" / "gavel_rates.json").read_text())
    for model in table.values():
        known = {Family(name): rate for name, rate in model["1"].items() if name in told and rate}
        for source, rate in known.items():
            for target in known.keys() - {source}:
                spec = task(**{source: (1, 1, 1), target: (1, 1, 1)})
                measured = ((source, round(rate * MILLION)),)
                found = dict(rates(spec, measured, told))[target] / MILLION
                off, blind = found / known[target], rate / known[target]
                yield max(off, 1 / off), max(blind, 1 / blind)
