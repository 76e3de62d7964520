"""A caller of `eva deploy aws` and `eva teardown`, and the account afterwards."""

from __future__ import annotations

import base64
import json
import uuid
from pathlib import Path
from typing import Any

import boto3
from botocore.exceptions import ClientError
from click.testing import CliRunner, Result

from eva_client.cli import main
from eva_master.adapters.bundling.found import find_bundles
from eva_master.adapters.deployment import stated_by
from eva_master.app.clouds.ec2.deployment import _with_operator
from tests.fakes.aws.service import REGION, Aws

USERS = ("--users", "203.0.113.7/32")
AMAZON_LINUX = "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64"
OLD_IMAGE, NEW_IMAGE = "ami-12c6146b", "ami-760aaa0f"
"""Of those that moto knows."""


class Deployer:
    """One cluster, from outside.

    Args:
        aws: The account.
        home: A directory for bundles and client files.
    """

    def __init__(self, aws: Aws, home: Path) -> None:
        self.aws = aws
        self.cluster = f"c{uuid.uuid4().hex[:12]}"
        self.stack = f"eva-{self.cluster}"
        self.bundles = home / "dist"
        self.bundles_named = True
        self.address = "203.0.113.99:7411"
        self.client_file = home / "client.yaml"
        self.bundles.mkdir()
        for name in ("master-0.1.0-x86_64-1", "worker-0.1.0-x86_64-2", "worker-0.1.0-aarch64-3"):
            (self.bundles / f"eva-{name}.tar").write_bytes(name.encode())

    def run(self, *arguments: str, input: str | None = None) -> Result:  # noqa: A002
        """Call the command."""
        more = ["--cluster", self.cluster, "--region", REGION, "--endpoint", self.aws.url]
        more += ["--poll-s", "0.01"]
        if arguments[0] == "deploy":
            more += ["--client-file", str(self.client_file)]
            more += ["--bundles", str(self.bundles)] if self.bundles_named else []
        return CliRunner().invoke(main, [*arguments, *more], input=input)

    def deploy(self, *more: str, settings: str = "") -> Result:
        """Deploy, with a master that starts at once; it must succeed.

        Args:
            more: Arguments.
            settings: Value of the template's parameter of that name.
        """
        stated = [name for name in more if name.startswith("Operators=")]
        self.say(settings, *(name.partition("=")[2] for name in stated))
        done = self.run("deploy", "aws", "-y", *more)
        assert done.exit_code == 0, done.output
        return done

    def say(self, settings: str = "", operators: str = "") -> None:
        """Act as the master that has started, once whoever calls now has deployed it."""
        bundle = stated_by(find_bundles(self.bundles))["MasterBundle"]
        said = {
            "address": self.address,
            "ca": "-----BEGIN CERTIFICATE-----",
            "made_of": [bundle, settings, self._operators(operators)],
        }
        self.aws.client("ssm").put_parameter(
            Name=f"/eva/{self.cluster}/client",
            Value=json.dumps(said),
            Type="SecureString",
            Overwrite=True,
        )

    def _operators(self, stated: str) -> str:
        session = boto3.session.Session()
        own = session.client("sts", region_name=REGION, endpoint_url=self.aws.url)
        sts = own if session.get_credentials() else self.aws.client("sts")
        arn = sts.get_caller_identity()["Arn"]
        present = {} if stated else self._parameters_if_any()
        return _with_operator({"Operators": stated or present.get("Operators", "[]")}, arn)

    def _parameters_if_any(self) -> dict[str, str]:
        try:
            return self.parameters()
        except ClientError:
            return {}

    def proposed(self, *more: str) -> dict[str, str]:
        """Changes that would be made, and whether they would replace, by resource."""
        done = self.run("deploy", "aws", "--dry-run", "--json", *more)
        assert done.exit_code == 0, done.output
        return {it["resource"]: it["replaced"] for it in json.loads(done.stdout)["changes"]}

    def status(self) -> str:
        """The stack's."""
        stacks = self.aws.client("cloudformation").describe_stacks(StackName=self.stack)
        return str(stacks["Stacks"][0]["StackStatus"])

    def parameters(self) -> dict[str, str]:
        """The stack's."""
        stacks = self.aws.client("cloudformation").describe_stacks(StackName=self.stack)
        found = stacks["Stacks"][0]["Parameters"]
        return {it["ParameterKey"]: it["ParameterValue"] for it in found}

    def events(self) -> list[tuple[str, str, str]]:
        """Resource, status and reason of what has happened to the stack, the oldest first."""
        cloudformation = self.aws.client("cloudformation")
        found = cloudformation.describe_stack_events(StackName=self.stack)["StackEvents"]
        return [
            (it["LogicalResourceId"], it["ResourceStatus"], it.get("ResourceStatusReason", ""))
            for it in reversed(found)
        ]

    def made(self) -> dict[str, str]:
        """The stack's resources."""
        pages = self.aws.client("cloudformation").get_paginator("list_stack_resources")
        found = pages.paginate(StackName=self.stack).build_full_result()
        return {
            it["LogicalResourceId"]: it["PhysicalResourceId"]
            for it in found["StackResourceSummaries"]
        }

    def master(self) -> dict[str, Any]:
        """The master's instance."""
        ids = [self.made()["Master"]]
        (one,) = self.aws.client("ec2").describe_instances(InstanceIds=ids)["Reservations"]
        found: dict[str, Any] = one["Instances"][0]
        return found

    def user_data(self) -> str:
        """The user data of the master's instance."""
        attribute = self.aws.client("ec2").describe_instance_attribute(
            InstanceId=self.made()["Master"], Attribute="userData"
        )
        return base64.b64decode(attribute["UserData"]["Value"]).decode()
