"""`eva deploy aws` and `eva teardown` against CloudFormation's stand-in."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from eva_master.adapters.deployment import find_bundles
from eva_master.app.cli import main
from tests.fakes.aws.service import CREDENTIALS, REGION, Aws

Run = Callable[..., Result]
CLUSTER = "lab"


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[Aws]:
    """A server of its own: what is left in it counts."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name.upper(), value)
    server = Aws()
    yield server
    server.stop()


@pytest.fixture
def bundles(tmp_path: Path) -> Path:
    directory = tmp_path / "dist"
    directory.mkdir()
    for name in ("master-0.1.0-x86_64-1", "worker-0.1.0-x86_64-2", "worker-0.1.0-aarch64-3"):
        (directory / f"eva-{name}.tar").write_bytes(name.encode())
    return directory


@pytest.fixture
def run(aws: Aws, bundles: Path, tmp_path: Path) -> Run:
    def run(*arguments: str, input: str | None = None) -> Result:  # noqa: A002
        more = ["--cluster", CLUSTER, "--region", REGION, "--endpoint", aws.url, "--poll-s", "0.01"]
        if arguments[0] == "deploy":
            more += ["--bundles", str(bundles), "--client-file", str(tmp_path / "client.yaml")]
        return CliRunner().invoke(main, [*arguments, *more], input=input)

    return run


def say(aws: Aws) -> None:
    """What the master does when it has started."""
    said = json.dumps({"token": "eva_secret", "ca": "-----BEGIN CERTIFICATE-----"})
    aws.client("ssm").put_parameter(
        Name=f"/eva/{CLUSTER}/client", Value=said, Type="SecureString", Overwrite=True
    )


def deployed(run: Run, aws: Aws, *more: str) -> Result:
    say(aws)
    done = run("deploy", "aws", "--users", "203.0.113.7/32", "-y", *more)
    assert done.exit_code == 0, done.output
    return done


def stacks(aws: Aws) -> list[str]:
    found = aws.client("cloudformation").describe_stacks()["Stacks"]
    return [it["StackName"] for it in found if it["StackStatus"] != "DELETE_COMPLETE"]


def made(aws: Aws) -> dict[str, str]:
    pages = aws.client("cloudformation").get_paginator("list_stack_resources")
    found = pages.paginate(StackName=f"eva-{CLUSTER}").build_full_result()
    return {
        it["LogicalResourceId"]: it["PhysicalResourceId"] for it in found["StackResourceSummaries"]
    }


def instances(aws: Aws) -> list[dict[str, Any]]:
    reservations = aws.client("ec2").describe_instances()["Reservations"]
    return [it for one in reservations for it in one["Instances"]]


def launch(aws: Aws, count: int, cluster: str) -> list[str]:
    """What a master does."""
    tags = [{"Key": "eva:cluster", "Value": cluster}]
    answer = aws.client("ec2").run_instances(
        ImageId="ami-12c6146b",
        InstanceType="c5.large",
        MinCount=count,
        MaxCount=count,
        TagSpecifications=[{"ResourceType": kind, "Tags": tags} for kind in ("instance", "volume")],
    )
    return [it["InstanceId"] for it in answer["Instances"]]


def test_a_dry_run_shows_what_would_be_made_and_makes_nothing(run: Run, aws: Aws) -> None:
    done = run("deploy", "aws", "--users", "203.0.113.7/32", "--dry-run", "--json")
    assert done.exit_code == 0, done.output
    changes = {it["resource"]: it for it in json.loads(done.stdout)}
    assert changes["Master"]["type"] == "AWS::EC2::Instance"
    assert {"Bucket", "StateVolume", "WorkerRole", "Vpc"} <= changes.keys()
    assert {it["action"] for it in changes.values()} == {"Add"}
    assert stacks(aws) == []
    assert instances(aws) == []


def test_who_does_not_agree_changes_nothing(run: Run, aws: Aws) -> None:
    done = run("deploy", "aws", "--users", "203.0.113.7/32", input="n\n")
    assert done.exit_code == 1
    assert stacks(aws) == []


def test_a_cluster_is_made_and_its_client_file_written(run: Run, aws: Aws, tmp_path: Path) -> None:
    deployed(run, aws)
    there = made(aws)
    (master,) = instances(aws)
    assert master["InstanceId"] == there["Master"]
    keys = {
        it["Key"] for it in aws.client("s3").list_objects_v2(Bucket=there["Bucket"])["Contents"]
    }
    assert keys == {
        "bundles/eva-master-0.1.0-x86_64-1.tar",
        "bundles/eva-worker-0.1.0-x86_64-2.tar",
        "bundles/eva-worker-0.1.0-aarch64-3.tar",
    }
    client = yaml.safe_load((tmp_path / "client.yaml").read_text())
    assert client["address"] == f"{there['MasterAddress']}:7411"
    assert client["token"] == "eva_secret"
    assert Path(client["ca_file"]).read_text() == "-----BEGIN CERTIFICATE-----"
    assert (tmp_path / "client.yaml").stat().st_mode & 0o777 == 0o600


def test_a_second_call_finds_all_as_it_should_be(run: Run, aws: Aws) -> None:
    deployed(run, aws)
    done = run("deploy", "aws")
    assert done.exit_code == 0, done.output
    assert "as it should be" in done.output
    assert stacks(aws) == [f"eva-{CLUSTER}"]


def test_another_bundle_is_a_change(run: Run, aws: Aws, bundles: Path) -> None:
    # Of what is for CloudFormation to say; its stand-in does not know.
    deployed(run, aws)
    (bundles / "eva-master-0.1.0-x86_64-1.tar").write_bytes(b"a newer one")
    done = run("deploy", "aws", "--dry-run", "--json")
    assert done.exit_code == 0, done.output
    assert {it["action"] for it in json.loads(done.stdout)} == {"Modify"}
    assert stacks(aws) == [f"eva-{CLUSTER}"]


def test_the_newest_bundles_are_stated_with_their_digests(bundles: Path) -> None:
    newer = bundles / "eva-master-0.2.0-x86_64-4.tar"
    newer.write_bytes(b"a newer one")
    os.utime(newer, (2e9, 2e9))
    found = find_bundles(bundles)
    digest = hashlib.sha256(b"a newer one").hexdigest()
    stated = found.parameters()
    assert stated["MasterBundle"] == f"bundles/{newer.name}#sha256={digest}"
    workers = yaml.safe_load(stated["WorkerBundles"])
    assert {kind: place.partition("#")[0] for kind, place in workers.items()} == {
        "x86_64": "s3://BUCKET/bundles/eva-worker-0.1.0-x86_64-2.tar",
        "arm64": "s3://BUCKET/bundles/eva-worker-0.1.0-aarch64-3.tar",
    }


def test_teardown_leaves_nothing(run: Run, aws: Aws) -> None:
    # In a VPC that is there: the stand-in cannot delete route tables, and so no VPC.
    ec2, s3 = aws.client("ec2"), aws.client("s3")
    subnet = ec2.describe_subnets()["Subnets"][0]["SubnetId"]
    deployed(run, aws, "--subnet", subnet)
    there = made(aws)
    launch(aws, 3, CLUSTER)
    (other,) = launch(aws, 1, "other")
    s3.put_object(Bucket=there["Bucket"], Key="objects/jobs/a/0/logs/0", Body=b"x")
    s3.create_multipart_upload(Bucket=there["Bucket"], Key="objects/jobs/a/0/half")

    done = run("teardown", input=f"{CLUSTER}\n")
    assert done.exit_code == 0, done.output
    assert "3 instances" in done.output
    assert stacks(aws) == []
    assert [it["Name"] for it in s3.list_buckets()["Buckets"]] == []
    alive = [it for it in instances(aws) if it["State"]["Name"] != "terminated"]
    assert [it["InstanceId"] for it in alive] == [other]
    ours = [{"Key": "Name", "Option": "BeginsWith", "Values": ["/eva/"]}]
    assert aws.client("ssm").describe_parameters(ParameterFilters=ours)["Parameters"] == []
    volumes = ec2.describe_volumes(Filters=[{"Name": "tag:eva:cluster", "Values": [CLUSTER]}])
    assert volumes["Volumes"] == []
    again = run("teardown", "-y")
    assert "there is no stack" in again.output


def test_teardown_wants_the_name_typed(run: Run, aws: Aws) -> None:
    deployed(run, aws)
    done = run("teardown", input="yes\n")
    assert done.exit_code == 1
    assert stacks(aws) == [f"eva-{CLUSTER}"]


def test_subnets_that_are_there_are_used(run: Run, aws: Aws) -> None:
    ec2 = aws.client("ec2")
    found = ec2.describe_subnets()["Subnets"]
    first, second = found[0], found[1]
    ids = [first["SubnetId"], second["SubnetId"]]
    deployed(run, aws, "--subnet", ids[0], "--subnet", ids[1])
    (master,) = instances(aws)
    assert master["SubnetId"] == ids[0]


def test_without_bundles_it_says_how_to_make_them(run: Run, bundles: Path) -> None:
    for file in bundles.iterdir():
        file.unlink()
    done = run("deploy", "aws", "--users", "203.0.113.7/32")
    assert done.exit_code != 0
    assert "make bundle" in done.output
