"""`eva master --cloud ec2`: what it asks of the API when that refuses, loses or ignores.

Nothing boots here: what is bought stays without a worker.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.e2e.cluster import until
from tests.e2e.conftest import Ec2Masters
from tests.e2e.ec2.master import LARGE, XLARGE, ZONES, Ec2Master, name_of
from tests.fakes.aws.purchases import purchases
from tests.fakes.aws.service import LOST, shared


def where(instance: dict[str, Any]) -> str:
    return f"{instance['InstanceType']}@{instance['Placement']['AvailabilityZone']}"


@pytest.mark.long
def test_a_zone_without_capacity_is_left_for_another(make_master: Ec2Masters) -> None:
    master = make_master({"sold_out": [f"{LARGE}@{ZONES[0]}"]})
    job = master.submit("one")
    until(master.alive, "an instance is launched")
    (instance,) = master.made()
    assert where(instance) == f"{LARGE}@{ZONES[1]}"
    told = master.status(job)
    assert f"{LARGE}@{ZONES[0]}/on-demand could not be launched: no capacity" in told
    master.end(job)
    assert master.launches() == ["InsufficientInstanceCapacity", ""]


@pytest.mark.explore
def test_a_type_without_capacity_is_left_for_the_next_best(
    make_master: Ec2Masters,
) -> None:
    master = make_master({"sold_out": [LARGE]})
    job = master.submit("one")
    until(master.alive, "an instance is launched")
    (instance,) = master.made()
    assert instance["InstanceType"] == XLARGE
    assert "could not be launched: no capacity" in master.status(job)
    (node,) = (it for it in _nodes(master) if it["state"] != "gone")
    assert node["type"] == XLARGE
    master.end(job)
    assert master.launches() == ["InsufficientInstanceCapacity"] * 2 + [""]


@pytest.mark.long
def test_when_nothing_is_left_the_job_says_so_and_nobody_insists(
    make_master: Ec2Masters,
) -> None:
    master = make_master({"sold_out": [LARGE, XLARGE]})
    job = master.submit("one")
    # When the first is refused others are still on order.
    until(lambda: "out of stock at present" in master.told(job), "all were refused")
    told = master.status(job)
    assert "tried again at" in told
    assert "no capacity: InsufficientInstanceCapacity" in told
    # Each offering was tried once; the next try is minutes away.
    assert master.launches() == ["InsufficientInstanceCapacity"] * 4
    # Of that a master that starts again knows.
    master.stop_master()
    master.start()
    until(lambda: "tried again at" in master.told(job), "the job says when")
    assert master.launches() == ["InsufficientInstanceCapacity"] * 4
    master.end(job)


@pytest.mark.long
def test_launches_that_fail_after_they_succeeded_are_told_and_not_repeated(
    make_master: Ec2Masters,
) -> None:
    master = make_master({"ends": ["Client.VolumeLimitExceeded"] * 50})
    job = master.submit("one")
    until(lambda: "nothing is bought" in master.told(job) or _refused(master, job), "it says so")
    told = master.status(job)
    assert "ended before its worker registered" in told
    assert "quota of the AWS account exceeded: Client.VolumeLimitExceeded" in told
    assert "ask AWS for a higher quota" in told
    # Two told enough: that it is not this type, nor this zone. Whoever starts again knows it, too.
    assert len(purchases(master.aws, master.name)) == 2
    master.stop_master()
    master.start()
    until(lambda: _refused(master, job), "it says so again")
    assert len(purchases(master.aws, master.name)) == 2
    master.end(job)


def _refused(master: Ec2Master, job: str) -> bool:
    return "tried again at" in master.told(job)


@pytest.mark.long
def test_while_ec2_denies_access_users_are_told_since_when(make_master: Ec2Masters) -> None:
    master = make_master({"calls": {"DescribeInstances": ["UnauthorizedOperation"] * 1000}})
    job = master.submit("one")
    told = "EC2 denies access: UnauthorizedOperation"
    until(lambda: told in master.told(job), "the job says so")
    shown = master.status(job)
    assert re.search(r"since \d\d:\d\d:\d\d UTC EC2 denies", shown)
    assert "check the IAM policy of the master" in shown
    until(
        lambda: [told in it.reason for it in master.instances().values()] == [True],
        "its instance says so",
    )
    # It asks again by itself.
    master.aws.order(master.name, calls={"DescribeInstances": []})
    until(lambda: told not in master.told(job), "all is well")
    until(master.alive, "an instance is launched")
    master.end(job)


@pytest.mark.long
def test_an_instance_that_never_registers_is_replaced_terminated_and_reported(
    make_master: Ec2Masters,
) -> None:
    master = make_master(register_timeout="2s")
    job = master.submit("one")
    until(lambda: len(master.made()) == 2, "there is a replacement")
    first, second = master.made()
    until(lambda: master.made()[0]["State"]["Name"] == "terminated", "the first is terminated")
    # What is wrong with it may be wrong with all of its kind.
    assert where(first) != where(second)
    reasons = {node["id"]: node["reason"] for node in _nodes(master)}
    assert reasons[name_of(first)] == "its worker did not register within 2 s"
    master.end(job)


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param(False, id="same settings", marks=pytest.mark.explore),
        pytest.param(True, id="other settings"),
    ],
)
def test_a_master_that_dies_between_launch_and_record_leaks_nothing(
    make_master: Ec2Masters, changed: bool
) -> None:
    """It dies while EC2 has made the instance and has not answered yet."""
    master = make_master({"faults": [LOST]})
    job = master.submit("one")
    until(master.made, "an instance is made")
    master.kill()
    if changed:
        master.change(root_volume="50GiB", tags={"team": "ml"})
    master.start()
    until(
        lambda: [it.state for it in master.instances().values()] == ["up"], "the master knows of it"
    )
    assert len(master.made()) == 1
    master.end(job)
    assert len(master.made()) == 1
    # Between the two there was no other call that made something.
    assert master.launches().count("") <= 1


@pytest.mark.long
def test_a_job_that_wants_spot_instances_gets_them(make_master: Ec2Masters) -> None:
    """What they cost the master asks before it starts, as nobody else has."""
    places = [f"{kind}@{zone}" for kind in (LARGE, XLARGE) for zone in ZONES]
    shared().set_spot_prices(dict.fromkeys(places, "0.03"))
    master = make_master(ec2={"spot": {"expected_life": "1d", "prices": "500ms"}})
    dear = master.submit("dear")
    cheap = master.submit("cheap", spot="only", resources={"cpus": 4, "memory": "3GiB"})
    until(lambda: len(master.alive()) == 2, "two instances are launched")
    bought = {it["InstanceType"]: it for it in master.made()}
    assert bought[XLARGE]["InstanceLifecycle"] == "spot"
    assert "InstanceLifecycle" not in bought[LARGE]
    prices = {node["purchase"]: node["price_usd_per_hour"] for node in _nodes(master)}
    # The books have what is paid, whatever an interruption may cost: 30 GiB and an address, too.
    assert prices == {"on-demand": 0.08925 + 0.008288, "spot": 0.03 + 0.008288}
    # Who runs pays what the market says by now.
    shared().set_spot_prices(dict.fromkeys(places, "0.05"))
    until(
        lambda: 58_288 in [it.price_micro_usd_per_hour for it in master.instances().values()],
        "it is dearer",
    )
    shared().set_spot_prices(dict.fromkeys(places, "0.03"))
    master.client.cancel(dear)
    master.end(cheap)


def _nodes(master: Ec2Master) -> list[dict[str, Any]]:
    result = master.eva("nodes", "--all", "--json")
    assert result.returncode == 0, result.stderr
    found: list[dict[str, Any]] = json.loads(result.stdout)["instances"]
    return found


@pytest.mark.long
def test_what_is_sold_is_asked_for_again_while_the_master_runs(make_master: Ec2Masters) -> None:
    types = ["m5.large", "m5.xlarge", "m5.2xlarge"]  # No other test buys them.
    master = make_master(
        ec2={"catalog_period": "2s", "snapshot": None}, catalog={"only": types}, profile=False
    )
    job = master.submit("one", resources={"cpus": 2, "memory": "4GiB"})
    until(master.alive, "an instance is launched")
    listing = json.loads(master.eva("status", "--json").stdout)["catalog"]
    assert listing["error"] is None
    assert listing["asked_ms"] < listing["next_ms"]
    assert "what the cloud sells: asked" in " ".join(master.eva("status").stdout.split())

    def events() -> list[str]:
        lines = master.eva("events", "--json").stdout.splitlines()
        return [each["text"] for each in map(json.loads, lines) if each["kind"] == "catalog"]

    assert events() == []
    master.aws.sell({"m5.large": "0.0777000000"}, gone=["m5.2xlarge"])
    (said,) = until(events, "it is told")
    assert "gone: m5.2xlarge" in said
    assert "m5.large ($0.0800/h -> $0.0777/h)" in said
    (node,) = _nodes(master)
    assert node["type"] == "m5.large"
    assert round(node["price_usd_per_hour"], 4) == round(0.0777 + 0.003288 + 0.005, 4)

    # A master that dies tells nothing again, and finds what it knew.
    master.kill()
    master.start()
    assert events() == [said]
    master.aws.order("", calls={"DescribeInstanceTypes": ["UnauthorizedOperation"] * 99})
    try:
        until(lambda: len(events()) == 2, "the failure is told")
        assert "UnauthorizedOperation" in events()[1]
        shown = " ".join(master.eva("status", COLUMNS="400").stdout.split())
        assert "no answer since, again in" in shown
    finally:
        master.aws.order("", calls={"DescribeInstanceTypes": []})
    master.end(job)
