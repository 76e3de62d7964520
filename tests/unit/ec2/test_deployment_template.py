"""The CloudFormation template: sound, and its roles allow no more than they must."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from eva_master.adapters.deployment.stack import Change, template
from eva_master.adapters.ec2.launching.userdata import MOST_BYTES
from eva_master.app.clouds.ec2 import commands
from tests.lazily import lazily

cfnlint = lazily("cfnlint")

_READS = ("Describe", "Get", "List")
_OWNED = ("eva:cluster", "ec2:Vpc", "ec2:Owner", "ec2:CreateAction")
"""Conditions that say whose a resource is."""


@dataclass
class Statement:
    role: str
    actions: list[str]
    resources: list[Any]
    conditions: str

    @property
    def mutating(self) -> list[str]:
        return [it for it in self.actions if not it.partition(":")[2].startswith(_READS)]

    def named(self, resource: Any) -> bool:
        """Whether a resource is one of this stack, or below one, and not a whole kind."""
        text = json.dumps(resource)
        kind = text.strip('"}').rsplit(":", 1)[-1]
        ours = any(name in text for name in ("${Bucket.Arn}", "Bucket", "WorkerRole"))
        whole = resource == "*" or (kind.endswith("/*") and not ours)
        return not whole

    def conditioned(self) -> bool:
        return any(key in self.conditions for key in _OWNED)


def document() -> Any:
    return lazily("cfnlint.decode.cfn_yaml").loads(template())


def statements() -> Iterator[Statement]:
    resources = document()["Resources"]
    for name, resource in resources.items():
        if resource["Type"] != "AWS::IAM::Role":
            continue
        for policy in resource["Properties"].get("Policies", ()):  # AWS has policies of its own.
            for it in policy["PolicyDocument"]["Statement"]:
                assert it["Effect"] == "Allow"
                actions, places = it["Action"], it["Resource"]
                yield Statement(
                    name,
                    actions if isinstance(actions, list) else [actions],
                    places if isinstance(places, list) else [places],
                    json.dumps(it.get("Condition", {})),
                )


def test_cfn_lint_has_nothing_to_say() -> None:
    path = files("eva_master.adapters.deployment").joinpath("template.yaml")
    found = cfnlint.lint_file(Path(str(path)))
    assert [str(match) for match in found] == []


def test_what_changes_something_is_confined_to_what_is_the_clusters() -> None:
    mutating = [it for it in statements() if it.mutating]
    assert len(mutating) >= 12
    for statement in mutating:
        for resource in statement.resources:
            confined = statement.named(resource) or statement.conditioned()
            assert confined, f"{statement.role}: {statement.mutating} on {resource}"


def test_the_check_finds_what_is_not_confined() -> None:
    anything = Statement("R", ["ec2:TerminateInstances"], ["*"], "{}")
    instances = {"Fn::Sub": "arn:${AWS::Partition}:ec2:${AWS::Region}:${AWS::AccountId}:instance/*"}
    assert not anything.named("*")
    assert not anything.named(instances)
    assert not anything.conditioned()


def test_nothing_is_allowed_altogether() -> None:
    actions = [action for it in statements() for action in it.actions]
    assert not [action for action in actions if "*" in action]
    launching = [it for it in statements() if "ec2:RunInstances" in it.actions]
    (tagged,) = [it for it in launching if "instance/*" in json.dumps(it.resources)]
    assert "aws:RequestTag/eva:cluster" in tagged.conditions
    (ending,) = [it for it in statements() if "ec2:TerminateInstances" in it.actions]
    assert "aws:ResourceTag/eva:cluster" in ending.conditions
    workers = [action for it in statements() if it.role == "WorkerRole" for action in it.actions]
    assert {action.partition(":")[0] for action in workers} == {"s3"}


def test_the_master_may_call_what_the_master_calls() -> None:
    allowed = {action for it in statements() if it.role == "MasterRole" for action in it.actions}
    ec2 = Path(__file__).parents[3] / "eva_master" / "adapters" / "ec2"
    source = "".join(path.read_text() for path in ec2.glob("*.py"))
    names = {
        "run_instances": "ec2:RunInstances",
        "terminate_instances": "ec2:TerminateInstances",
        "create_tags": "ec2:CreateTags",
        "describe_instances": "ec2:DescribeInstances",
        "describe_images": "ec2:DescribeImages",
        "describe_spot_price_history": "ec2:DescribeSpotPriceHistory",
        "describe_instance_types": "ec2:DescribeInstanceTypes",
        "describe_instance_type_offerings": "ec2:DescribeInstanceTypeOfferings",
        "get_service_quota": "servicequotas:GetServiceQuota",
        "list_service_quotas": "servicequotas:ListServiceQuotas",
        "get_products": "pricing:GetProducts",
        "get_parameter": "ssm:GetParameter",
    }
    called = {action for name, action in names.items() if f'"{name}"' in source}
    assert called >= {"ec2:RunInstances", "ec2:TerminateInstances", "ec2:CreateTags"}
    assert called <= allowed


def test_nothing_reaches_workers_but_workers() -> None:
    resources = document()["Resources"]
    assert "SecurityGroupIngress" not in resources["WorkerGroup"]["Properties"]
    rules = {
        name: it["Properties"]
        for name, it in resources.items()
        if it["Type"] == "AWS::EC2::SecurityGroupIngress"
        and it["Properties"]["GroupId"] == {"Ref": "WorkerGroup"}
    }
    (rule,) = rules.values()
    assert rule["SourceSecurityGroupId"] == {"Ref": "WorkerGroup"}


def test_files_are_encrypted_private_and_do_not_pile_up() -> None:
    bucket = document()["Resources"]["Bucket"]["Properties"]
    assert "BucketEncryption" in bucket
    assert set(bucket["PublicAccessBlockConfiguration"].values()) == {True}
    rules = bucket["LifecycleConfiguration"]["Rules"]
    assert any("AbortIncompleteMultipartUpload" in rule for rule in rules)
    volumes = document()["Resources"]["StateVolume"]["Properties"]
    assert volumes["Encrypted"] is True


def test_the_masters_script_is_one_that_bash_understands(tmp_path: Path) -> None:
    text, _ = document()["Resources"]["Master"]["Properties"]["UserData"]["Fn::Base64"]["Fn::Sub"]
    assert len(text.encode()) < MOST_BYTES // 2
    _, script = text.split("#!/bin/bash\n")
    file = tmp_path / "script"
    file.write_text(script.rpartition("--//--")[0])
    bash = shutil.which("bash")
    assert bash
    subprocess.run([bash, "-n", str(file)], check=True)


@pytest.mark.parametrize("role", ["master", "worker"])
def test_a_unit_is_in_its_bundle(role: str) -> None:
    unit = Path(__file__).parents[3] / "deploy" / "systemd" / f"eva-{role}.service"
    assert "ExecStart=/opt/eva/bin/" in unit.read_text()


@pytest.mark.parametrize("action", ["Add", "Dynamic", "Import", "Modify", "Remove"])
def test_every_action_of_a_change_set_is_shown(
    action: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """All actions that botocore's model of DescribeChangeSet has."""
    commands._print_changes("eva-lab", [Change(action, "Master", "AWS::EC2::Instance", "False")])
    assert "AWS::EC2::Instance  Master" in capsys.readouterr().out
