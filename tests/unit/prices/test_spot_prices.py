"""A spot instance has two prices, and both commands show both: billed, and with interruptions."""

from __future__ import annotations

from dataclasses import replace

from eva_client.cli.views import shapes
from eva_client.cli.views.explanation import hosting_shape
from eva_client.cli.views.instance_words import costs
from eva_master.adapters.rpc.server import reasons, views
from eva_master.control.planning.snapshot_builder import snapshot
from eva_master.control.readside.publisher import Publisher
from eva_master.control.settings import Settings
from eva_master.control.state.store import State
from eva_master.model.catalog import Offering, Purchase, spot_family
from eva_master.model.planning.reasons import Hosting
from eva_master.model.records import Instance
from eva_wire._proto import api_pb2 as pb
from eva_wire.values.ids import InstanceId, Millis, Price
from tests.fakes.jobs import SMALL

_KIND = replace(SMALL.type, family=spot_family(SMALL.type.family))
SPOT = Offering(_KIND, Price(29_500), purchase=Purchase.SPOT, interruptions_ppm=500_000)


def test_nodes_and_explain_have_the_same_two_prices_of_a_spot_instance() -> None:
    state, settings, now = State((SMALL, SPOT)), Settings(), Millis(60_000)
    name = InstanceId("i00001")
    up = (("launching", 0), ("up", 0), ("ready", 0))
    state.put_instance(Instance(name, SPOT, up, requested_ms=Millis(0), up_ms=Millis(0)))
    model = Publisher(state, settings).publish(now)
    seen = next(it for it in snapshot(state, now, settings).catalog if it.id == SPOT.id)
    shown = views.instance(model, model.instances[name])
    assert shown.price_micro_usd_per_hour == 29_500
    assert shown.expected_micro_usd_per_hour == seen.price > 29_500
    hosting = reasons.hosting(
        Hosting(name, SPOT.type.name, seen.price, 100_000, ()), reasons.billed(SPOT)
    )
    assert hosting.price_micro_usd_per_hour == shown.expected_micro_usd_per_hour
    assert hosting.billed_micro_usd_per_hour == shown.price_micro_usd_per_hour
    assert "with expected interruptions (billed $0.0295/h)" in costs(hosting)
    node, explained = shapes.instance(shown), hosting_shape(hosting)
    prices = node["price_micro_usd_per_hour"], node["expected_price_micro_usd_per_hour"]
    assert prices == (
        explained["billed_price_micro_usd_per_hour"],
        explained["price_micro_usd_per_hour"],
    )


def test_an_instance_on_demand_has_one_price() -> None:
    hosting = reasons.hosting(
        Hosting(InstanceId("i"), "c.2", 100_000, 100_000, ()), reasons.billed(SMALL)
    )
    assert not hosting.HasField("billed_micro_usd_per_hour")
    assert hosting_shape(hosting)["billed_price_micro_usd_per_hour"] == 100_000
    node = shapes.instance(pb.Instance(price_micro_usd_per_hour=5))
    assert node["expected_price_micro_usd_per_hour"] == 5
