"""A cluster in subnets behind a NAT gateway: deployed, used, paid for without addresses, removed.

The master and its workers boot by their user data; the stand-in's network is of the loopback kind,
so that what they say to each other goes over the addresses that AWS would have given them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.acceptance.eva import Eva
from tests.e2e.cluster import until
from tests.fakes.aws.purchases import aws_bill
from tests.fakes.aws.service import REGION, Aws
from tests.fakes.datacentre import DataCentre, bundles

ZONES = [f"{REGION}a", f"{REGION}b"]
HOUR_OF_LARGE, HOUR_OF_30_GIB = 89_250, 3_288
"""Micro-dollars: the stand-in's price of c7i.large, and gp3 at $0.08 a GiB and month."""
OWN = {"catalog": {"only": ["c7i.large"]}, "round_min_interval": "300ms"}
JOB = {"name": "one", "run": "echo over", "resources": {"cpus": 1, "memory": "1GiB"}}


@dataclass
class Place:
    """A VPC whose subnets reach the internet by a NAT gateway."""

    vpc: str
    subnets: list[str]

    @classmethod
    def made(cls, ec2: Any) -> Place:
        vpc = ec2.create_vpc(CidrBlock="127.66.0.0/16")["Vpc"]["VpcId"]

        def subnet(number: int, zone: str) -> str:
            block = f"127.66.{number}.0/24"
            made = ec2.create_subnet(VpcId=vpc, CidrBlock=block, AvailabilityZone=zone)
            return str(made["Subnet"]["SubnetId"])

        address = ec2.allocate_address(Domain="vpc")["AllocationId"]
        gateway = ec2.create_nat_gateway(SubnetId=subnet(0, ZONES[0]), AllocationId=address)
        way = {"NatGatewayId": gateway["NatGateway"]["NatGatewayId"]}
        table = ec2.create_route_table(VpcId=vpc)["RouteTable"]["RouteTableId"]
        ec2.create_route(RouteTableId=table, DestinationCidrBlock="0.0.0.0/0", **way)
        subnets = [subnet(number, zone) for number, zone in enumerate(ZONES, 1)]
        for name in subnets:
            ec2.associate_route_table(RouteTableId=table, SubnetId=name)
        return cls(vpc, subnets)


def launched(aws: Aws, cluster: str) -> list[dict[str, Any]]:
    """The workers, ended ones included."""
    filters = [{"Name": "tag:eva:cluster", "Values": [cluster]}]
    reservations = aws.client("ec2").describe_instances(Filters=filters)["Reservations"]
    return [instance for each in reservations for instance in each["Instances"]]


def admitted(aws: Aws, group: str) -> set[tuple[int, int, str]]:
    """From where a group lets connections in: ports, and a group or a block of addresses."""
    (described,) = aws.client("ec2").describe_security_groups(GroupIds=[group])["SecurityGroups"]
    return {
        (rule["FromPort"], rule["ToPort"], source)
        for rule in described["IpPermissions"]
        for source in [
            *(pair["GroupId"] for pair in rule["UserIdGroupPairs"]),
            *(block["CidrIp"] for block in rule["IpRanges"]),
        ]
    }


def deploy(eva: Eva, place: Place, home: Path) -> None:
    """Deploy into the subnets that are there, as the how-to says."""
    bundles.make(home / "dist")
    (home / "own.yaml").write_text(yaml.safe_dump(OWN))
    (home / "job.yaml").write_text(yaml.safe_dump(JOB))
    eva.account(
        *("deploy", "aws", "-y", "--users", "127.0.0.1/32"),
        *(part for name in place.subnets for part in ("--subnet", name)),
        *("--bundles", str(home / "dist"), "--settings", str(home / "own.yaml")),
        *("--client-file", str(eva.client_file)),
    )


def check_bill(aws: Aws, eva: Eva) -> None:
    """The ledger is within 2 % of AWS's bill, and neither has an address."""
    bill = aws_bill(aws, eva.cluster, {"c7i.large": "0.08925"})
    assert bill.addresses == 0
    shown = eva.json("cost")
    assert shown["addresses_micro_usd"] == 0
    assert abs(shown["cost_micro_usd"] - float(bill.total) * 1e6) <= 0.02 * float(bill.total) * 1e6


@pytest.mark.long
@pytest.mark.waits
@pytest.mark.timeout(900)
def test_a_cluster_behind_a_nat_gateway_works_and_pays_for_no_address(
    aws: Aws, centre: DataCentre, tmp_path: Path
) -> None:
    ec2 = aws.client("ec2")
    place = Place.made(ec2)
    lines: list[str] = []
    eva = Eva("nat", REGION, tmp_path, lines.append, poll_s=0.5)
    deploy(eva, place, tmp_path)
    pages = aws.client("cloudformation").get_paginator("list_stack_resources")
    listed = pages.paginate(StackName="eva-nat").build_full_result()["StackResourceSummaries"]
    made = {it["LogicalResourceId"]: it["PhysicalResourceId"] for it in listed}
    assert "MasterAddress" not in made
    assert yaml.safe_load(eva.client_file.read_text())["address"].startswith("127.66.1.")

    (job,) = eva.json("submit", str(tmp_path / "job.yaml"))["jobs"]
    (bought,) = until(lambda: launched(aws, "nat"), "a worker is launched")
    # The launch is in a private subnet and its zone, among workers, without a public address.
    subnets = dict(zip(place.subnets, ZONES, strict=True))
    assert bought["Placement"]["AvailabilityZone"] == subnets[bought["SubnetId"]]
    assert [group["GroupId"] for group in bought["SecurityGroups"]] == [made["WorkerGroup"]]
    assert "PublicIpAddress" not in bought
    # Its price has a volume, and no address.
    nodes = until(lambda: eva.json("nodes", "--all")["instances"], "the master knows of it")
    assert round(nodes[0]["price_usd_per_hour"] * 1e6) == HOUR_OF_LARGE + HOUR_OF_30_GIB
    # The worker boots by its user data and reaches the master at its private address.
    eva.run("wait", "--timeout", "10m", job["id"])
    worker = centre.machines[bought["InstanceId"]]
    environment = (worker.root / "etc/eva/worker.env").read_text()
    assert 'EVA_WORKER_MASTER="127.66.1.' in environment
    # Users reach the master, workers reach the master and each other, and nothing else does.
    users = "127.0.0.1/32"
    workers = made["WorkerGroup"]
    assert admitted(aws, made["MasterGroup"]) == {(7411, 7411, users), (7411, 7412, workers)}
    assert admitted(aws, workers) == {(1024, 65535, workers)}

    def ended() -> bool:
        return {it["State"]["Name"] for it in launched(aws, "nat")} == {"terminated"}

    until(ended, "the worker is given back")
    until(lambda: not eva.json("nodes")["instances"], "the books are closed")
    check_bill(aws, eva)
    eva.account("teardown", "-y")
    assert [each for each in aws.decisions() if not each["allowed"]] == []
    stacks = aws.client("cloudformation").describe_stacks()["Stacks"]
    assert {each["StackStatus"] for each in stacks} <= {"DELETE_COMPLETE"}
    # The operator's network is as it was: nothing is in it that would keep it.
    groups = ec2.describe_security_groups(Filters=[{"Name": "vpc-id", "Values": [place.vpc]}])
    assert [group["GroupName"] for group in groups["SecurityGroups"]] == ["default"]
    for name in place.subnets:
        ec2.delete_subnet(SubnetId=name)
