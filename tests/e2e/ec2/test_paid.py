"""`eva cost` beside the bill that AWS would send, from the stand-in's own records."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import pytest

from tests.e2e.cluster import Cluster, until
from tests.e2e.conftest import Ec2Masters, Ec2s
from tests.e2e.ec2.master import LARGE, XLARGE, ZONES, name_of
from tests.fakes.aws.purchases import AwsBill, aws_bill
from tests.fakes.aws.service import shared
from tests.fakes.ec2.machine import BLACK_BOX_PORT

RUN = f"env EVA_BLACK_BOX=127.0.0.1:{BLACK_BOX_PORT} python3 counter.py && echo over"
NEAR = Fraction(2, 100)
ROUNDED = Fraction(1, 1_000_000)
PRICES = {LARGE: "0.08925", XLARGE: "0.1785", "c5.large": "0.085", "c5.xlarge": "0.17"}


def told(cluster: Cluster, *arguments: str) -> dict[str, Any]:
    """The answer of `eva cost`."""
    result = cluster.eva("cost", "--json", *arguments)
    assert result.returncode == 0, result.stderr
    answer: dict[str, Any] = json.loads(result.stdout)
    return answer


def check(cluster: Cluster, bill: AwsBill) -> None:
    """The whole is within 2 % of AWS's bill and so is each line; the lines are the whole."""
    shown = told(cluster)
    assert near(shown["cost_micro_usd"], bill.total)
    assert near(shown["volumes_micro_usd"], bill.volumes)
    assert near(shown["addresses_micro_usd"], bill.addresses)
    lines = told(cluster, "--by", "part")["parts"]
    parts = {line["name"]: line["cost_micro_usd"] for line in lines}
    assert sum(parts.values()) == shown["cost_micro_usd"]
    assert near(parts["instances"], bill.instances)
    assert parts.get("volumes", 0) == shown["volumes_micro_usd"]


def near(micro_usd: int, dollars: Fraction) -> bool:
    """Whether an amount is within 2 % of another one, but for how it is rounded."""
    return abs(Fraction(micro_usd, 1_000_000) - dollars) <= NEAR * dollars + ROUNDED


def test_a_short_life_is_billed_as_a_minute_of_everything(make_master: Ec2Masters) -> None:
    """On demand, on spot and with a disk; one launch comes to nothing, and the master dies."""
    places = [f"{kind}@{zone}" for kind in (LARGE, XLARGE) for zone in ZONES]
    shared().set_spot_prices(dict.fromkeys(places, "0.03"))
    master = make_master(
        {"ends": ["Client.InternalError"]}, ec2={"spot": {"expected_life": "1d", "prices": "500ms"}}
    )
    need = {"cpus": 4, "memory": "3GiB"}
    jobs = [
        master.submit("one"),
        master.submit("spot", spot="only", resources=need),
        master.submit("disk", resources={**need, "disk": "270GiB"}),
    ]
    until(lambda: len(master.made()) == 3 and len(master.alive()) == 2, "one launch has failed")
    master.kill()
    master.start()
    until(lambda: len(_up(master.eva("nodes", "--json").stdout)) == 2, "the master knows of them")
    for job in jobs:
        master.client.cancel(job)
    until(lambda: not master.alive(), "nothing is paid for")
    until(lambda: not master.client.describe().instances, "the books are closed")
    bought = {launch["ec2_id"]: launch for launch in master.aws.purchases()}
    sizes = sorted(bought[node["InstanceId"]]["gib"] for node in master.made())
    assert sizes == [30, 30, 300]
    check(master, aws_bill(master.aws, master.name, PRICES))


def _up(nodes: str) -> list[dict[str, Any]]:
    return [node for node in json.loads(nodes)["instances"] if node["state"] == "up"]


def test_an_instance_without_an_address_is_billed_for_none(make_master: Ec2Masters) -> None:
    """In a subnet behind a NAT gateway."""
    ec2 = shared().client("ec2")
    vpc = ec2.create_vpc(CidrBlock="10.93.0.0/16")["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.93.0.0/24", AvailabilityZone=ZONES[0])
    section = {"subnets": {ZONES[0]: subnet["Subnet"]["SubnetId"]}, "zones": [ZONES[0]]}
    master = make_master({}, ec2={**section, "public_addresses": False})
    job = master.submit("one")
    until(master.alive, "an instance is launched")
    (instance,) = master.made()
    until(lambda: master.client.describe().instances, "the master knows of it")
    master.end(job)
    until(lambda: not master.client.describe().instances, "the books are closed")
    assert name_of(instance) in {node.id for node in master.client.cost(newest=9).instances}
    bill = aws_bill(master.aws, master.name, PRICES)
    assert bill.addresses == 0
    check(master, bill)


@pytest.mark.hosts
@pytest.mark.long
@pytest.mark.waits
def test_jobs_that_run_cost_what_aws_bills(make_ec2: Ec2s) -> None:
    """With a boot that fails, a spot price that changes, a disk, and a master that dies."""
    cluster = make_ec2(
        spot=True, ec2={"spot": {"prices": "500ms"}}, settings={"register_timeout": "2m"}
    )
    cluster.hypervisor.lose_next()
    small = {"cpus": 1, "memory": "1GiB"}
    jobs = [
        cluster.submit("one", run=RUN, resources=small),
        cluster.submit("spot", run=RUN, resources=small, spot="only"),
        cluster.submit("disk", run=RUN, resources={**small, "disk": "70GiB"}),
    ]
    for job in jobs:
        until(lambda job=job: cluster.task(job).generation, f"{job} runs")
    cluster.aws.set_spot_prices(
        dict.fromkeys(("c5.large@us-east-1a", "c5.xlarge@us-east-1a"), "0.09")
    )
    dearer = 90_000 + 3_288 + 5_000
    until(
        lambda: dearer in [n.price_micro_usd_per_hour for n in cluster.instances().values()],
        "the spot instance is dearer",
    )
    cluster.kill()
    cluster.start()
    cluster.until_running(*jobs)
    cluster.finish(*jobs)
    cluster.until_ended(*jobs)
    cluster.until_empty()
    assert [node for node in cluster.records().values() if node.gone_ms and node.up_ms]
    bill = aws_bill(cluster.aws, "eva", PRICES)
    check(cluster, bill)
    cluster.stop_master()
