"""The roles of a deployed cluster allow what it does, and nothing beyond."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from eva_master.adapters.ec2 import Ec2Cloud, Ec2Settings
from eva_master.adapters.ec2.client import Aws as ApiCalls
from eva_master.adapters.ec2.offerings import take_snapshot
from eva_master.adapters.ec2.quotas import quota_of, standing
from eva_master.model.actions import SyncCloud, TerminateInstance
from eva_master.model.catalog import Purchase
from eva_master.model.events import CloudListed, InstanceGone, InstanceUp
from eva_wire.values.ids import InstanceId
from tests.fakes.aws import account as cluster_account
from tests.fakes.aws.deployer import AMAZON_LINUX, OLD_IMAGE, USERS, Deployer
from tests.fakes.aws.iam import Demand, Unsupported, allowed
from tests.fakes.aws.launches import ShortMemory
from tests.fakes.aws.service import CREDENTIALS, IMAGE, REGION, Aws
from tests.fakes.rpc.mailbox import Mailbox, WallClock

TAG = {"Key": "eva:cluster"}


@pytest.fixture(scope="module")
def account() -> Iterator[Aws]:
    server = Aws()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def cluster(account: Aws, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployer]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in CREDENTIALS.items():
            patch.setenv(name.upper(), value)
        session = boto3.session.Session()
        patch.setattr(boto3.session, "Session", lambda: session)
        account.publish(AMAZON_LINUX, OLD_IMAGE)
        deployer = Deployer(account, tmp_path_factory.mktemp("deployed"))
        deployer.deploy(*USERS)
        yield deployer


class Roles:
    """The cluster's two roles, and its resources."""

    def __init__(self, cluster: Deployer) -> None:
        self.aws, self.cluster = cluster.aws, cluster.cluster
        self.made = cluster.made()
        self.zone = cluster.parameters()["Zone"]
        self.admin = self.aws.client("ec2")

    def master(self, service: str) -> Any:
        return self.aws.as_role(self.made["MasterRole"], service)

    def worker(self, service: str) -> Any:
        return self.aws.as_role(self.made["WorkerRole"], service)

    def settings(self) -> Ec2Settings:
        return Ec2Settings(
            cluster=self.cluster,
            region=REGION,
            images={"x86_64": IMAGE, "x86_64-gpu": IMAGE},
            endpoint=self.aws.url,
            subnets={self.zone: self.made["SubnetA"]},
            security_groups=[self.made["WorkerGroup"]],
            instance_profile=self.made["WorkerProfile"],
            poll_s=0.05,
        )

    def launch(self, client: Any, **changed: Any) -> Any:
        """A launch as the adapter makes it, but for what is changed."""
        tags = [{**TAG, "Value": self.cluster}]
        request = {
            "ImageId": OLD_IMAGE,
            "InstanceType": "c7i.large",
            "MinCount": 1,
            "MaxCount": 1,
            "SubnetId": self.made["SubnetA"],
            "SecurityGroupIds": [self.made["WorkerGroup"]],
            "IamInstanceProfile": {"Name": self.made["WorkerProfile"]},
            "TagSpecifications": [
                {"ResourceType": kind, "Tags": tags} for kind in ("instance", "volume")
            ],
            **changed,
        }
        return client.run_instances(
            **{key: value for key, value in request.items() if value is not None}
        )

    def instance(self, cluster: str = "other") -> str:
        """An instance of the account's, made by its owner."""
        tags = [{"ResourceType": "instance", "Tags": [{**TAG, "Value": cluster}]}]
        made = self.admin.run_instances(
            ImageId=OLD_IMAGE,
            InstanceType="c7i.large",
            MinCount=1,
            MaxCount=1,
            TagSpecifications=tags,
        )
        return str(made["Instances"][0]["InstanceId"])

    def bucket(self) -> str:
        return str(self.made["Bucket"])


@pytest.fixture
def roles(cluster: Deployer) -> Roles:
    return Roles(cluster)


def denials(aws: Aws) -> list[str]:
    return [
        f"{asked['action']} {asked['resource']}"
        for asked in aws.decisions()
        if not asked["allowed"]
    ]


def test_a_masters_whole_work_on_ec2_is_allowed(roles: Roles) -> None:
    """Launches of both markets, tags, looks and terminations, by the adapter itself."""
    before = denials(roles.aws)
    roles.aws.set_spot_prices({f"c7i.large@{roles.zone}": "0.03"})
    settings, inbox = roles.settings(), Mailbox()
    # An end that EC2 does not date is dated by a tag.
    factory = lambda _, service: cluster_account.Undated(roles.master(service))  # noqa: E731
    offering = replace(cluster_account.OFFERING, zone=roles.zone)
    cloud = Ec2Cloud(
        inbox,
        WallClock(),
        settings,
        user_data=lambda _: "#!/bin/sh\n",
        launch_records=ShortMemory(),
        catalog=(offering,),
        client_factory=factory,
        settle_s=0.2,
        allowance=cluster_account.QUICK,
    )
    try:
        cloud.execute(replace(cluster_account.LAUNCH, offering=offering))
        first = inbox.expect(InstanceUp).instance
        second = InstanceId("i-2")
        spot = replace(offering, purchase=Purchase.SPOT)
        cloud.execute(replace(cluster_account.LAUNCH, instance=second, offering=spot))
        inbox.expect(InstanceUp)
        cloud.execute(SyncCloud())
        assert {first, second} == {*dict(inbox.expect(CloudListed).instances)}
        for instance in (first, second):
            cloud.execute(TerminateInstance(instance))
            inbox.expect(InstanceGone)
    finally:
        cloud.close()
    decisions = roles.aws.decisions()
    asked = {(each["action"], each["resource"].rpartition(":")[2]) for each in decisions}
    actions = {action for action, _ in asked}
    assert {"ec2:RunInstances", "ec2:CreateTags", "ec2:TerminateInstances"} <= actions
    assert ("ec2:RunInstances", "spot-instances-request/*") in asked
    assert "iam:PassRole" in actions
    assert denials(roles.aws) == before


def test_a_masters_looks_at_the_market_and_at_quotas_are_allowed(
    roles: Roles, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = denials(roles.aws)
    role = roles.made["MasterRole"]
    client = boto3.session.Session().client
    keys = {"aws_access_key_id": role, "aws_secret_access_key": "testing"}
    monkeypatch.setattr(
        boto3.session, "Session", lambda: _Signing(lambda *a, **k: client(*a, **{**k, **keys}))
    )
    taken = take_snapshot(roles.settings(), architectures=["x86_64"], names=["c7i.large"])
    assert taken.types
    quota = quota_of("p3.8xlarge", Purchase.ON_DEMAND)
    assert quota is not None
    aws = ApiCalls(roles.settings(), threading.Event(), lambda _, service: roles.master(service))
    assert standing(quota, (cluster_account.OFFERING,), aws)[1] == 64
    assert {asked["role"] for asked in roles.aws.decisions()} >= {role}
    assert denials(roles.aws) == before


class _Signing:
    def __init__(self, client: Callable[..., Any]) -> None:
        self.client = client


def test_files_of_both_roles_are_where_they_may_be(roles: Roles) -> None:
    before = denials(roles.aws)
    bucket = roles.bucket()
    roles.aws.client("s3").put_object(Bucket=bucket, Key="bundles/w.tar", Body=b"w")
    worker, master = roles.worker("s3"), roles.master("s3")
    worker.get_object(Bucket=bucket, Key="bundles/w.tar")
    worker.put_object(Bucket=bucket, Key="objects/jobs/j/0/outputs/x", Body=b"1")
    worker.put_object(Bucket=bucket, Key="objects/boots/i-1.log", Body=b"1")
    worker.list_objects_v2(Bucket=bucket, Prefix="objects/jobs/j/")
    source = {"Bucket": bucket, "Key": "objects/jobs/j/0/outputs/x"}
    worker.copy_object(Bucket=bucket, Key="objects/jobs/j/0/outputs/y", CopySource=source)
    key = "objects/jobs/j/0/checkpoints/1"
    upload = worker.create_multipart_upload(Bucket=bucket, Key=key)["UploadId"]
    worker.upload_part(Bucket=bucket, Key=key, UploadId=upload, PartNumber=1, Body=b"part")
    worker.list_parts(Bucket=bucket, Key=key, UploadId=upload)
    worker.abort_multipart_upload(Bucket=bucket, Key=key, UploadId=upload)
    worker.delete_object(Bucket=bucket, Key="objects/jobs/j/0/outputs/y")
    master.get_object(Bucket=bucket, Key="objects/jobs/j/0/outputs/x")
    master.put_object(Bucket=bucket, Key="settings/state-id", Body=b"1")
    many = {"Objects": [{"Key": "objects/jobs/j/0/outputs/x"}]}
    master.delete_objects(Bucket=bucket, Delete=many)
    assert denials(roles.aws) == before


REFUSED: dict[str, Callable[[Roles], Any]] = {
    "a launch without the tag": lambda it: it.launch(it.master("ec2"), TagSpecifications=None),
    "a launch with another cluster's tag": lambda it: it.launch(
        it.master("ec2"),
        TagSpecifications=[
            {"ResourceType": kind, "Tags": [{**TAG, "Value": "other"}]}
            for kind in ("instance", "volume")
        ],
    ),
    "a launch into another VPC": lambda it: it.launch(
        it.master("ec2"),
        SubnetId=it.admin.describe_subnets(
            Filters=[{"Name": "default-for-az", "Values": ["true"]}]
        )["Subnets"][0]["SubnetId"],
    ),
    "a launch into another group": lambda it: it.launch(
        it.master("ec2"), SecurityGroupIds=[it.made["MasterGroup"]]
    ),
    "a launch with the master's role": lambda it: it.launch(
        it.master("ec2"), IamInstanceProfile={"Name": it.made["MasterProfile"]}
    ),
    "another cluster's instance terminated": lambda it: it.master("ec2").terminate_instances(
        InstanceIds=[it.instance()]
    ),
    "another cluster's instance tagged": lambda it: it.master("ec2").create_tags(
        Resources=[it.instance()], Tags=[{**TAG, "Value": it.cluster}]
    ),
    "an instance of its own given another cluster's tag": lambda it: it.master("ec2").create_tags(
        Resources=[it.instance(it.cluster)], Tags=[{**TAG, "Value": "other"}]
    ),
    "an instance stopped": lambda it: it.master("ec2").stop_instances(
        InstanceIds=[it.instance(it.cluster)]
    ),
    "another cluster's parameter": lambda it: it.master("ssm").put_parameter(
        Name="/eva/other/client", Value="x", Type="String", Overwrite=True
    ),
    "a bundle exchanged": lambda it: it.master("s3").put_object(
        Bucket=it.bucket(), Key="bundles/w.tar", Body=b"evil"
    ),
    "a worker that launches": lambda it: it.launch(it.worker("ec2")),
    "a worker that looks at instances": lambda it: it.worker("ec2").describe_instances(),
    "a worker that reads the settings": lambda it: it.worker("s3").get_object(
        Bucket=it.bucket(), Key="settings/state-id"
    ),
    "a worker that exchanges a bundle": lambda it: it.worker("s3").put_object(
        Bucket=it.bucket(), Key="bundles/w.tar", Body=b"evil"
    ),
    "a worker that lists everything": lambda it: it.worker("s3").list_objects_v2(
        Bucket=it.bucket()
    ),
    "a worker that copies the settings": lambda it: it.worker("s3").copy_object(
        Bucket=it.bucket(),
        Key="objects/jobs/j/0/outputs/x",
        CopySource={"Bucket": it.bucket(), "Key": "settings/state-id"},
    ),
    "a worker that reads parameters": lambda it: it.worker("ssm").get_parameter(
        Name=f"/eva/{it.cluster}/client"
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_calls_are_refused(roles: Roles, name: str) -> None:
    with pytest.raises(ClientError) as refusal:
        REFUSED[name](roles)
    code = refusal.value.response["Error"]["Code"]
    assert code in ("UnauthorizedOperation", "AccessDenied", "AccessDeniedException")
    assert "is not authorized to perform" in str(refusal.value)


# -- the evaluation itself -----------------------------------------------------------------------

ALLOW: dict[str, Any] = {
    "Statement": [
        {
            "Effect": "Allow",
            "Action": ["ec2:Run*", "s3:GetObject"],
            "Resource": "arn:aws:ec2:us-east-1:123456789012:instance/*",
            "Condition": {"StringEquals": {"aws:RequestTag/eva:cluster": ["a", "b"]}},
        }
    ]
}
ASKED = Demand(
    "ec2:RunInstances",
    "arn:aws:ec2:us-east-1:123456789012:instance/*",
    {"aws:RequestTag/eva:cluster": ["b"]},
)


def test_wildcards_and_lists_and_absent_keys() -> None:
    assert allowed([ALLOW], ASKED)
    assert allowed([ALLOW], replace(ASKED, action="EC2:runinstances"))
    assert not allowed([ALLOW], replace(ASKED, action="ec2:TerminateInstances"))
    assert not allowed([ALLOW], replace(ASKED, context={}))
    assert not allowed([ALLOW], replace(ASKED, context={"aws:RequestTag/eva:cluster": ["B"]}))
    other = ASKED.resource.replace("instance", "volume")
    assert not allowed([ALLOW], replace(ASKED, resource=other))
    # A star stays within its part of an ARN.
    wide = copy.deepcopy(ALLOW)
    wide["Statement"][0]["Resource"] = "arn:aws:ec2:*:instance/*"
    assert not allowed([wide], ASKED)


def test_a_denial_wins() -> None:
    deny = {
        "Statement": [
            {
                "Effect": "Deny",
                "Action": "s3:*",
                "Resource": "*",
                "Principal": "*",
                "Condition": {"Bool": {"aws:SecureTransport": "false"}},
            }
        ]
    }
    everything = {"Statement": {"Effect": "Allow", "Action": "*", "Resource": "*"}}
    get = Demand("s3:GetObject", "arn:aws:s3:::b/k", {"aws:SecureTransport": ["true"]})
    assert allowed([everything, deny], get)
    assert not allowed([everything, deny], replace(get, context={"aws:SecureTransport": ["false"]}))
    assert not allowed([], get)


@pytest.mark.parametrize(
    ("condition", "context", "holds"),
    [
        ({"ArnLike": {"ec2:Vpc": "arn:aws:ec2:*:*:vpc/vpc-1"}}, "arn:aws:ec2:r:1:vpc/vpc-1", True),
        ({"ArnLike": {"ec2:Vpc": "arn:aws:ec2:*:vpc/vpc-1"}}, "arn:aws:ec2:r:1:vpc/vpc-1", False),
        ({"StringLike": {"ec2:Vpc": "objects/*"}}, "objects/a/b", True),
        ({"StringLike": {"ec2:Vpc": "objects/?"}}, "objects/ab", False),
        ({"ForAllValues:StringEquals": {"aws:TagKeys": ["a", "b"]}}, "", True),
    ],
)
def test_conditions(condition: dict[str, Any], context: str, holds: bool) -> None:
    statement = {"Effect": "Allow", "Action": "*", "Resource": "*", "Condition": condition}
    demand = replace(ASKED, context={"ec2:Vpc": [context]} if context else {})
    assert allowed([{"Statement": [statement]}], demand) is holds


def test_an_unknown_operator_is_an_error_and_not_a_permission() -> None:
    for part in (
        {"Condition": {"StringNotEquals": {"a": "b"}}},
        {"NotAction": "ec2:*"},
        {"Resource": "arn:aws:s3:::${aws:username}/*"},
    ):
        statement = {"Effect": "Allow", "Action": "s3:Nothing", "Resource": "*", **part}
        with pytest.raises(Unsupported):
            allowed([ALLOW, {"Statement": [statement]}], ASKED)
