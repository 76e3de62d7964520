"""`eva deploy aws` and `eva teardown`: creates and removes a cluster in an AWS account."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import boto3
import yaml
from botocore.exceptions import BotoCoreError, ClientError

from eva_master.adapters.deployment import (
    Bundles,
    Change,
    Stack,
    Teardown,
    address_of,
    client_parameter,
    find_bundles,
    find_network,
)
from eva_master.adapters.pki.files import write_file
from eva_master.model.errors import CloudError

Told = Callable[[str], None]
_PORT = 7411
_CLIENT_WAIT_S = 900.0


@dataclass(frozen=True, slots=True)
class Account:
    """The account and region of a cluster.

    Attributes:
        cluster: Its name.
        region: AWS region.
        endpoint: URL of AWS's APIs, empty for AWS's own.
        poll_s: Seconds between two looks while waiting.
    """

    cluster: str
    region: str
    endpoint: str = ""
    poll_s: float = 5.0

    def clients(self) -> Callable[[str], Any]:
        """Makes clients of boto3, one for each service; credentials as boto3 finds them."""
        session = boto3.session.Session()

        @cache
        def client(service: str) -> Any:
            return session.client(
                service, region_name=self.region, endpoint_url=self.endpoint or None
            )

        return client


class Deployment:
    """One cluster's deployment, from the proposal to a client file.

    Args:
        account: Where the cluster is.
        bundles: Directory of the bundles.
        subnets: Existing subnets; none for a new VPC.
        parameters: More parameters of the template.

    Raises:
        NotFound: There are no bundles.
        InvalidConfig: The subnets do not suit a cluster.
        CloudError: AWS refuses the change.
    """

    def __init__(
        self,
        account: Account,
        *,
        bundles: Path,
        subnets: tuple[str, ...],
        parameters: Mapping[str, str],
    ) -> None:
        self._account = account
        self._clients = account.clients()
        self._bundles: Bundles = find_bundles(bundles)
        self.stack = Stack(self._clients("cloudformation"), account.cluster, account.poll_s)
        self._new = not self.stack.exists()
        place = find_network(self._clients("ec2"), subnets).parameters()
        named = {"ClusterName": account.cluster, **self._bundles.parameters()}
        self._change_set, self.changes = self.stack.propose({**named, **place, **parameters})

    changes: list[Change]

    def drop(self) -> None:
        """Discard the proposed changes without making them."""
        if self._change_set:
            self.stack.drop(self._change_set)

    def carry_out(self, told: Told) -> None:
        """Make the changes, and upload the bundles before the master needs them."""
        if not self._new:  # Before the master looks for them.
            self._upload(self.stack.resources()["Bucket"], told)
        self.stack.execute(self._change_set)
        if self._new:
            told("Waiting for the bucket")
            self._upload(self.stack.await_resource("Bucket"), told)
        told("Waiting for the stack; the master follows")
        self.stack.settle()

    def client_file(self, target: Path, told: Told) -> None:
        """Write the settings to connect to the master, once the master has stored them.

        Raises:
            CloudError: It has not stored them within a quarter of an hour.
        """
        told("Waiting for the master to start")
        answer = self._await_parameter(client_parameter(self._account.cluster))
        ca_file = target.with_suffix(".pem")
        target.parent.mkdir(parents=True, exist_ok=True)
        write_file(ca_file, answer["ca"].encode(), mode=0o600)
        address = address_of(self._clients("ec2"), self.stack.resources())
        settings = {
            "address": f"{address}:{_PORT}",
            "ca_file": str(ca_file.absolute()),
            "token": answer["token"],
        }
        write_file(target, yaml.safe_dump(settings, sort_keys=False).encode(), mode=0o600)

    def _upload(self, bucket: str, told: Told) -> None:
        for key, file in self._bundles.files():
            told(f"Uploading {file.name}")
            try:
                self._clients("s3").upload_file(str(file), bucket, key)
            except (BotoCoreError, ClientError) as error:
                raise CloudError(f"S3: {error}") from error

    def _await_parameter(self, name: str) -> dict[str, str]:
        deadline = time.monotonic() + _CLIENT_WAIT_S
        while True:
            try:
                found = self._clients("ssm").get_parameter(Name=name, WithDecryption=True)
            except ClientError as error:
                if error.response["Error"]["Code"] != "ParameterNotFound":
                    raise CloudError(f"SSM: {error}") from error
            else:
                said: dict[str, str] = json.loads(found["Parameter"]["Value"])
                return said
            if time.monotonic() > deadline:
                raise CloudError(
                    f"the master has not started within {_CLIENT_WAIT_S / 60:g} minutes",
                    hint="look at its console: aws ec2 get-console-output --instance-id ...",
                )
            time.sleep(self._account.poll_s)


def teardown(account: Account) -> Teardown:
    """Prepare to remove a cluster.

    Raises:
        NotFound: There is no such stack.
    """
    clients = account.clients()
    stack = Stack(clients("cloudformation"), account.cluster, account.poll_s)
    stack.resources()
    return Teardown(stack, account.cluster, clients, account.poll_s)
