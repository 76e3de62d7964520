"""`eva deploy aws` and `eva teardown` against CloudFormation's stand-in."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml

from eva_master.adapters.bundling.found import find_bundles
from eva_master.adapters.deployment import stated_by
from tests.fakes.aws.deployer import USERS, Deployer
from tests.fakes.aws.resources import CREDITS
from tests.fakes.aws.service import CREDENTIALS, Aws


@pytest.fixture(scope="module")
def server() -> Iterator[Aws]:
    server = Aws()
    yield server
    server.stop()


@pytest.fixture
def aws(server: Aws, monkeypatch: pytest.MonkeyPatch) -> Aws:
    """An account of its own: what is left in it counts."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name.upper(), value)
    # One session reads boto3's descriptions once.
    session = boto3.session.Session()
    monkeypatch.setattr(boto3.session, "Session", lambda: session)
    server.forget()
    return server


@pytest.fixture
def deployer(aws: Aws, tmp_path: Path) -> Deployer:
    return Deployer(aws, tmp_path)


def stacks(aws: Aws) -> list[str]:
    found = aws.client("cloudformation").describe_stacks()["Stacks"]
    return [it["StackName"] for it in found if it["StackStatus"] != "DELETE_COMPLETE"]


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


def test_a_dry_run_shows_what_would_be_made_and_makes_nothing(deployer: Deployer, aws: Aws) -> None:
    done = deployer.run("deploy", "aws", *USERS, "--dry-run", "--json")
    assert done.exit_code == 0, done.output
    shown = json.loads(done.stdout)
    changes = {it["resource"]: it for it in shown["changes"]}
    assert changes["Master"]["type"] == "AWS::EC2::Instance"
    assert {"Bucket", "StateVolume", "WorkerRole", "Vpc"} <= changes.keys()
    assert {it["action"] for it in changes.values()} == {"Add"}
    assert shown["standing_cost"]["usd_per_month"] == 21.787
    assert stacks(aws) == []
    assert instances(aws) == []
    assert aws.client("s3").list_buckets()["Buckets"] == []


def test_who_does_not_agree_changes_nothing(deployer: Deployer, aws: Aws) -> None:
    done = deployer.run("deploy", "aws", *USERS, input="n\n")
    assert done.exit_code == 1
    assert stacks(aws) == []


def test_a_cluster_is_made_and_its_client_file_written(deployer: Deployer, aws: Aws) -> None:
    deployer.deploy(*USERS)
    there = deployer.made()
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
    client = yaml.safe_load(deployer.client_file.read_text())
    assert client["address"] == deployer.address
    assert client["identity"] == "aws"
    assert "token" not in client
    assert Path(client["ca_file"]).read_text() == "-----BEGIN CERTIFICATE-----"
    assert deployer.client_file.stat().st_mode & 0o777 == 0o600
    again = deployer.run("deploy", "aws")
    assert again.exit_code == 0, again.output
    assert "as it should be" in again.output


def test_the_newest_bundles_are_stated_with_their_digests(tmp_path: Path) -> None:
    for name in ("master-0.1.0-x86_64-1", "worker-0.1.0-x86_64-2", "worker-0.1.0-aarch64-3"):
        (tmp_path / f"eva-{name}.tar").write_bytes(name.encode())
    newer = tmp_path / "eva-master-0.2.0-x86_64-4.tar"
    newer.write_bytes(b"a newer one")
    os.utime(newer, (2e9, 2e9))
    found = find_bundles(tmp_path)
    digest = hashlib.sha256(b"a newer one").hexdigest()
    stated = stated_by(found)
    assert stated["MasterBundle"] == f"bundles/{newer.name}#sha256={digest}"
    workers = yaml.safe_load(stated["WorkerBundles"])
    assert {kind: place.partition("#")[0] for kind, place in workers.items()} == {
        "x86_64": "s3://BUCKET/bundles/eva-worker-0.1.0-x86_64-2.tar",
        "arm64": "s3://BUCKET/bundles/eva-worker-0.1.0-aarch64-3.tar",
    }


def test_teardown_leaves_nothing(deployer: Deployer, aws: Aws) -> None:
    ec2, s3 = aws.client("ec2"), aws.client("s3")
    deployer.deploy(*USERS)
    there = deployer.made()
    launch(aws, 3, deployer.cluster)
    (other,) = launch(aws, 1, "other")
    s3.put_object(Bucket=there["Bucket"], Key="objects/jobs/a/0/logs/0", Body=b"x")
    s3.create_multipart_upload(Bucket=there["Bucket"], Key="objects/jobs/a/0/half")

    # Who wants the name typed, and gets something else, goes no further.
    assert deployer.run("teardown", input="yes\n").exit_code == 1
    assert stacks(aws) == [deployer.stack]
    # As the policy of the stack makes them, which copies the tags of the volume.
    ec2, volume = aws.client("ec2"), deployer.made()["StateVolume"]
    tags = ec2.describe_volumes(VolumeIds=[volume])["Volumes"][0]["Tags"]
    for _ in range(2):
        ec2.create_snapshot(
            VolumeId=volume, TagSpecifications=[{"ResourceType": "snapshot", "Tags": tags}]
        )
    done = deployer.run("teardown", input=f"{deployer.cluster}\n")
    assert "Deleting 2 snapshots of the master's state" in done.output
    state = [{"Name": "tag:eva:state", "Values": [deployer.cluster]}]
    assert not ec2.describe_snapshots(OwnerIds=["self"], Filters=state)["Snapshots"]
    assert not ec2.describe_volumes(Filters=state)["Volumes"]
    assert done.exit_code == 0, done.output
    assert "3 instances" in done.output
    assert stacks(aws) == []
    assert [it["Name"] for it in s3.list_buckets()["Buckets"]] == []
    alive = [it for it in instances(aws) if it["State"]["Name"] != "terminated"]
    assert [it["InstanceId"] for it in alive] == [other]
    ours = [{"Key": "Name", "Option": "BeginsWith", "Values": ["/eva/"]}]
    assert aws.client("ssm").describe_parameters(ParameterFilters=ours)["Parameters"] == []
    owned = [{"Name": "tag:eva:cluster", "Values": [deployer.cluster]}]
    volumes = ec2.describe_volumes(Filters=owned)
    assert volumes["Volumes"] == []
    again = deployer.run("teardown", "-y")
    assert "there is no stack" in again.output


def test_a_teardown_that_was_cut_short_is_taken_up_again(deployer: Deployer, aws: Aws) -> None:
    """A bucket that had something in it when its stack was deleted is emptied the next time."""
    deployer.deploy(*USERS)
    aws.client("cloudformation").delete_stack(StackName=deployer.stack)
    assert deployer.status() == "DELETE_FAILED"
    refused = deployer.run("deploy", "aws", "-y")
    assert "run eva teardown" in refused.output
    done = deployer.run("teardown", "-y")
    assert done.exit_code == 0, done.output
    assert stacks(aws) == []


def test_without_bundles_it_says_how_to_make_them(deployer: Deployer) -> None:
    for file in deployer.bundles.iterdir():
        file.unlink()
    done = deployer.run("deploy", "aws", *USERS)
    assert done.exit_code != 0
    assert "make bundle" in done.output


def test_a_master_costs_no_more_than_is_shown(deployer: Deployer) -> None:
    """A burstable one computes at its baseline once its credits are used up, unless asked."""
    deployer.deploy(*USERS)
    assert {"Key": CREDITS, "Value": "standard"} in deployer.master()["Tags"]
    said = deployer.run("deploy", "aws", "--dry-run", "--set", "MasterCredits=unlimited").output
    assert "MasterCredits: standard -> unlimited" in said
    assert "more if it computes long above its baseline" in said
    # Other types have no credits.
    deployer.deploy("--set", "MasterType=c7i.large")
    assert deployer.parameters()["MasterCredits"] == ""
    assert "above its baseline" not in deployer.run("deploy", "aws", "--dry-run").output
