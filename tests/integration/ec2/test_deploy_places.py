"""`eva deploy aws` into a VPC that is there, and with settings of the operator's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml
from click.testing import Result

from tests.fakes.aws.deployer import USERS, Deployer
from tests.fakes.aws.service import CREDENTIALS, REGION, Aws


@pytest.fixture(scope="module")
def account() -> Iterator[Aws]:
    server = Aws()
    yield server
    server.stop()


@pytest.fixture
def aws(account: Aws, monkeypatch: pytest.MonkeyPatch) -> Aws:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name.upper(), value)
    # One session reads boto3's descriptions once.
    session = boto3.session.Session()
    monkeypatch.setattr(boto3.session, "Session", lambda: session)
    return account


@pytest.fixture
def cluster(aws: Aws, tmp_path: Path) -> Deployer:
    return Deployer(aws, tmp_path)


class Place:
    """A VPC of somebody's."""

    def __init__(self, aws: Aws) -> None:
        self.ec2: Any = aws.client("ec2")
        self.vpc = self.ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
        made = self.ec2.create_internet_gateway()["InternetGateway"]
        self.gateway = made["InternetGatewayId"]
        self.ec2.attach_internet_gateway(InternetGatewayId=self.gateway, VpcId=self.vpc)
        self._count = 0

    def subnet(self, *, public_ip: bool = False) -> str:
        """A subnet of the next zone."""
        zone = f"{REGION}{'abc'[self._count]}"
        self._count += 1
        made = self.ec2.create_subnet(
            VpcId=self.vpc, CidrBlock=f"10.0.{self._count}.0/24", AvailabilityZone=zone
        )
        name: str = made["Subnet"]["SubnetId"]
        self.ec2.modify_subnet_attribute(SubnetId=name, MapPublicIpOnLaunch={"Value": public_ip})
        return name

    def route(self, subnet: str | None, **target: str) -> None:
        """Lead everything somewhere: from one subnet, or from all that have no table."""
        if subnet is None:
            tables = self.ec2.describe_route_tables(
                Filters=[
                    {"Name": "vpc-id", "Values": [self.vpc]},
                    {"Name": "association.main", "Values": ["true"]},
                ]
            )["RouteTables"]
            table = tables[0]["RouteTableId"]
        else:
            table = self.ec2.create_route_table(VpcId=self.vpc)["RouteTable"]["RouteTableId"]
            self.ec2.associate_route_table(RouteTableId=table, SubnetId=subnet)
        if target:
            self.ec2.create_route(RouteTableId=table, DestinationCidrBlock="0.0.0.0/0", **target)

    def nat(self, subnet: str) -> str:
        made = self.ec2.create_nat_gateway(SubnetId=subnet, ConnectivityType="private")
        return str(made["NatGateway"]["NatGatewayId"])


@pytest.fixture
def place(aws: Aws) -> Place:
    return Place(aws)


def public_part(done: Result, cluster: Deployer) -> tuple[str, bool]:
    assert done.exit_code == 0, done.output
    return cluster.parameters()["PublicMaster"], "MasterAddress" in cluster.made()


def test_in_a_public_subnet_the_master_has_an_address(cluster: Deployer, place: Place) -> None:
    first, second = place.subnet(public_ip=True), place.subnet(public_ip=True)
    place.route(None, GatewayId=place.gateway)
    done = cluster.deploy(*USERS, "--subnet", first, "--subnet", second)
    assert public_part(done, cluster) == ("true", True)
    assert f"public_addresses: [{REGION}a, {REGION}b]\n" in cluster.user_data()
    assert cluster.master()["SubnetId"] == first
    # The master leaves this for users.
    assert f'"{cluster.made()["MasterAddress"]}:7411"' in cluster.user_data()
    # Stating it all again changes nothing.
    assert cluster.proposed("--subnet", first, "--subnet", second) == {}
    assert cluster.proposed() == {}


def test_behind_a_nat_gateway_the_master_has_none(cluster: Deployer, place: Place) -> None:
    private = place.subnet()
    place.route(None, GatewayId=place.gateway)
    place.route(private, NatGatewayId=place.nat(private))
    done = cluster.deploy(*USERS, "--subnet", private)
    assert public_part(done, cluster) == ("false", False)
    ids = [cluster.made()["MasterInterface"]]
    described = cluster.aws.client("ec2").describe_network_interfaces(NetworkInterfaceIds=ids)
    (interface,) = described["NetworkInterfaces"]
    assert f'"{interface["PrivateIpAddress"]}:7411"' in cluster.user_data()
    # Workers there have none either, so none is in their price.
    assert "public_addresses: []\n" in cluster.user_data()


@pytest.mark.parametrize("first", ["public", "private"])
def test_workers_pay_for_addresses_where_their_subnet_gives_them(
    cluster: Deployer, place: Place, first: str
) -> None:
    """Wherever the master is."""
    public, private = place.subnet(public_ip=True), place.subnet()
    place.route(public, GatewayId=place.gateway)
    place.route(private, NatGatewayId=place.nat(private))
    order = (public, private) if first == "public" else (private, public)
    done = cluster.deploy(*USERS, "--subnet", order[0], "--subnet", order[1])
    assert public_part(done, cluster) == (("true", True) if first == "public" else ("false", False))
    assert f"public_addresses: [{REGION}a]\n" in cluster.user_data()


@pytest.mark.parametrize("dead", [False, True])
def test_a_subnet_without_a_way_out_is_refused(cluster: Deployer, place: Place, dead: bool) -> None:
    first, second = place.subnet(public_ip=True), place.subnet(public_ip=True)
    place.route(first, GatewayId=place.gateway)
    place.route(second)  # A table of its own, which does not inherit the main one's routes.
    place.route(None, GatewayId=place.gateway)
    done = cluster.run("deploy", "aws", *USERS, "--subnet", first, "--subnet", second, "--dry-run")
    assert done.exit_code != 0
    assert f"from {second} no route leads to the internet" in done.output
    checked = ("--set", "PublicMaster=false") if dead else ("--set", "PublicMaster=true")
    done = cluster.run("deploy", "aws", *USERS, "--subnet", second, "--dry-run", *checked)
    assert done.exit_code == 0, done.output


def test_workers_that_would_get_no_address_are_refused(cluster: Deployer, place: Place) -> None:
    first, second = place.subnet(public_ip=True), place.subnet(public_ip=False)
    place.route(None, GatewayId=place.gateway)
    done = cluster.run("deploy", "aws", *USERS, "--subnet", first, "--subnet", second, "--dry-run")
    assert done.exit_code != 0
    assert f"workers in {second} would have no public address" in done.output
    assert "--map-public-ip-on-launch" in done.output


def test_own_settings_are_checked_before_anything_happens(
    cluster: Deployer, tmp_path: Path
) -> None:
    file = tmp_path / "own.yaml"

    def refused(text: str) -> str:
        file.write_text(text)
        done = cluster.run("deploy", "aws", *USERS, "--settings", str(file), "-y")
        assert done.exit_code != 0
        return done.output

    said = refused("policy: {name: eva}\nec2:\n  spto: {}\n")
    assert f"{file}:3" in said
    assert "ec2.spto" in said
    said = refused("cluster: other\nec2: {region: eu-west-1}\n")
    assert "the stack says what this is" in said
    assert "line 1, column 1: cluster" in said
    assert "ec2.region" in said
    assert "no driver for the GPUs of p3" in refused("catalog: {only: [p3]}\n")
    assert "no policy" in refused("policy: {name: evva}\n")
    assert "nowhere.yaml" in refused("catalog: {file: nowhere.yaml}\n")
    assert "nowhere.json" in refused("ec2: {snapshot: nowhere.json}\n")
    assert cluster.run("teardown", "-y").exit_code != 0  # There is no stack.


def test_own_settings_stay_until_they_are_taken_back(cluster: Deployer, tmp_path: Path) -> None:
    file, catalog = tmp_path / "own.yaml", tmp_path / "mine.yaml"
    catalog.write_text("only: [c7i, g5]\n")
    mount = "set -e; echo \"$HOME ${x:-'y'}\" && mount -t efs fs-1:/ /mnt/eva\n# 100 % `safe`"
    own = {
        "ec2": {"mount_command": mount, "storage_mount": "/mnt/eva", "spot": {}},
        "catalog": {"file": str(catalog)},
    }
    file.write_text(yaml.safe_dump(own))
    cluster.say()
    place = stated(cluster, file)
    cluster.deploy(*USERS, "--settings", str(file), settings=place)
    assert cluster.parameters()["Settings"] == place
    key, _, digest = place.partition("#sha256=")
    bucket = cluster.made()["Bucket"]
    body = cluster.aws.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read()
    packed = yaml.safe_load(body)
    assert packed["settings"] == own
    assert packed["files"] == {"catalog.file": "only: [c7i, g5]\n"}
    assert len(digest) == 64

    assert cluster.proposed() == {}
    cluster.deploy("--users", "198.51.100.9/32", settings=place)
    assert cluster.parameters()["Settings"] == place
    # What the catalog file says is part of it.
    catalog.write_text("only: [c7i]\n")
    assert "Master" in cluster.proposed("--settings", str(file))
    file.write_text("")
    cluster.deploy("--settings", str(file))
    assert cluster.parameters()["Settings"] == ""


def stated(cluster: Deployer, file: Path) -> str:
    import hashlib

    from eva_master.app.clouds.ec2.own_settings import packed

    digest = hashlib.sha256(packed(file, REGION, [f"{REGION}a", f"{REGION}b"])).hexdigest()
    return f"settings/own-{digest[:16]}.yaml#sha256={digest}"
