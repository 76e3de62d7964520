"""`eva deploy aws` and `eva teardown`: creates and removes a cluster in an AWS account."""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import boto3
import yaml
from boto3.exceptions import S3UploadFailedError
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
from eva_master.app.clouds.ec2 import own_settings
from eva_master.app.clouds.ec2.standing_cost import StandingCost, standing_cost
from eva_wire.files import write_file
from eva_wire.values.errors import CloudError, InvalidConfig

Told = Callable[[str], None]
_PORT = 7411
_CLIENT_WAIT_S = 900.0
NEWEST_IMAGE = "latest"
"""Instead of an image's id: Amazon's newest."""
_AMAZON_LINUX = "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64"
_ORDINARY = "availability-zone"
_KEPT = ("Bucket", "MasterInterface", "StateVolume")
"""Resources that the cluster is not to lose: its files, its address and its state."""


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

    Unstated parameters stay as they are.

    Args:
        account: Where the cluster is.
        bundles: Directory of the bundles.
        subnets: Existing subnets; none for a new VPC.
        parameters: More parameters of the template.
        settings: A file of the master's settings, `None` for those that it has.

    Attributes:
        changes: Changes that would be made.
        parameter_changes: Parameters of a stack that is there which would change: name, before,
            after.
        master_replaced: Whether the master gets another instance, which takes some minutes.
        standing_cost: Cost of the cluster while no job runs, before the changes (if there is one)
            and after.

    Raises:
        NotFound: There are no bundles.
        InvalidConfig: The subnets or the settings do not suit a cluster, or the change would throw
            its state away.
        CloudError: AWS refuses the change.
    """

    def __init__(
        self,
        account: Account,
        *,
        bundles: Path,
        subnets: tuple[str, ...],
        parameters: Mapping[str, str],
        settings: Path | None = None,
    ) -> None:
        self._account = account
        self._clients = account.clients()
        self._bundles: Bundles = find_bundles(bundles)
        self.stack = Stack(self._clients("cloudformation"), account.cluster, account.poll_s)
        self._new = not self.stack.exists()
        had = self.stack.parameters()
        network = find_network(
            self._clients("ec2"), subnets, routes="PublicMaster" not in parameters
        ).parameters()
        _refuse_another_place(had, network)
        self._parameters = {
            "ClusterName": account.cluster,
            "MasterPresent": "true",
            **self._bundles.parameters(had.get("WorkerBundles", "")),
            **self._zones(had, network),
            **network,
            **parameters,
            "MasterImage": self._image(had, parameters.get("MasterImage", "")),
        }
        self._settings = self._packed(settings, had) if settings else b""
        if settings:
            self._parameters["Settings"] = _stated(self._settings)
        self._change_set, self.changes = self.stack.propose(self._parameters)
        if lost := [
            change.resource for change in self.changes if change.resource in _KEPT and change.lost
        ]:
            self.drop()
            raise InvalidConfig(
                f"this would throw {' and '.join(lost)} away, with what the cluster has stored",
                hint="make another cluster (--cluster), and tear this one down when it is empty",
            )
        self.master_replaced = any(
            change.resource == "Master" and change.lost for change in self.changes
        )
        self.parameter_changes = [
            (name, had[name], value)
            for name, value in sorted(self._parameters.items())
            if name in had and had[name] != value
        ]
        after = {**self.stack.defaults(), **had, **self._parameters}
        self.standing_cost = (
            None if self._new else self._cost({**self.stack.defaults(), **had}),
            self._cost(after),
        )

    changes: list[Change]

    def drop(self) -> None:
        """Discard the proposed changes without making them."""
        if self._change_set:
            self.stack.drop(self._change_set)

    def carry_out(self, told: Told) -> None:
        """Make the changes, and upload what the master needs before it does."""
        if not self._new:  # Before the master looks for them.
            self._upload(self.stack.resources()["Bucket"], told)
        if self.master_replaced:
            self._remove_master(told)
        self.stack.execute(self._change_set)
        if self._new:
            told("Waiting for the bucket")
            self._upload(self.stack.await_resource("Bucket"), told)
        told("Waiting for the stack; the master follows")
        self.stack.settle()

    def _remove_master(self, told: Told) -> None:
        """Free the master's interface and volume, which CloudFormation would not do in time.

        CloudFormation creates a replacement before it deletes the original.
        """
        self.drop()
        ec2, master = self._clients("ec2"), self.stack.resources()["Master"]
        told("Stopping the master; tasks run on")
        with contextlib.ExitStack() as otherwise:
            # Whatever comes between, and be it Ctrl-C.
            otherwise.callback(self._start_again, master)
            try:
                ec2.stop_instances(InstanceIds=[master])
                waiter = {"Delay": max(1, round(self._account.poll_s)), "MaxAttempts": 300}
                ec2.get_waiter("instance_stopped").wait(InstanceIds=[master], WaiterConfig=waiter)
            except (BotoCoreError, ClientError) as error:
                raise CloudError(f"EC2: {error}", hint="the old master is started again") from error
            told("Removing its instance; its state and its address stay")
            without, _ = self.stack.propose({**self._parameters, "MasterPresent": "false"})
            self.stack.execute(without)
            self.stack.settle()
            otherwise.pop_all()
        self._change_set, _ = self.stack.propose(self._parameters)

    def _start_again(self, master: str) -> None:
        with contextlib.suppress(BotoCoreError, ClientError):
            self._clients("ec2").start_instances(InstanceIds=[master])

    def _packed(self, file: Path, had: Mapping[str, str]) -> bytes:
        parameters = {**had, **self._parameters}
        by_zone = yaml.safe_load(parameters.get("SubnetsByZone") or "{}")
        zones = list(by_zone) or [parameters["Zone"], parameters["SecondZone"]]
        return own_settings.packed(file, self._account.region, zones)

    def _image(self, had: Mapping[str, str], asked: str) -> str:
        """The image that the master has, unless somebody asks for another one."""
        if not asked and had.get("MasterImage", "").startswith("ami-"):
            return had["MasterImage"]
        named = _AMAZON_LINUX if asked in ("", NEWEST_IMAGE) else asked.removeprefix("ssm:")
        try:
            if named.startswith("/"):
                parameter = self._clients("ssm").get_parameter(Name=named)
                named = parameter["Parameter"]["Value"]
            # Before a master that runs gives way to it.
            (image,) = self._clients("ec2").describe_images(ImageIds=[named])["Images"]
        except (BotoCoreError, ClientError, ValueError) as error:
            raise InvalidConfig(
                f"there is no image {named}: {error}", hint="see --set MasterImage and --region"
            ) from error
        if image.get("Architecture") != "x86_64":
            raise InvalidConfig(
                f"{named} is for {image.get('Architecture')}", hint="the master runs on x86_64"
            )
        return str(named)

    def _zones(self, had: Mapping[str, str], network: Mapping[str, str]) -> dict[str, str]:
        """The zones of a VPC of the cluster's own: those where its subnets are, or two of today."""
        if network or had.get("VpcId") or (had.get("Zone") and had.get("SecondZone")):
            return {}
        ec2 = self._clients("ec2")
        try:
            if had:  # By a release that left the choice to CloudFormation.
                made = self.stack.resources()
                ids = [made["SubnetA"], made["SubnetB"]]
                subnets = ec2.describe_subnets(SubnetIds=ids)["Subnets"]
                zone = {subnet["SubnetId"]: subnet["AvailabilityZone"] for subnet in subnets}
                return {"Zone": zone[ids[0]], "SecondZone": zone[ids[1]]}
            zones = ec2.describe_availability_zones()["AvailabilityZones"]
        except (BotoCoreError, ClientError) as error:
            raise CloudError(f"EC2: {error}") from error
        names = sorted(
            zone["ZoneName"]
            for zone in zones
            if zone.get("State") == "available" and zone.get("ZoneType", _ORDINARY) == _ORDINARY
        )
        if len(names) < 2:
            raise InvalidConfig(
                f"{self._account.region} has too few zones for this account: {', '.join(names)}",
                hint="name subnets with --subnet",
            )
        return {"Zone": names[0], "SecondZone": names[1]}

    def _cost(self, parameters: Mapping[str, str]) -> StandingCost:
        return standing_cost(parameters, self._account.region, self._account.endpoint)

    def client_file(self, target: Path, told: Told) -> None:
        """Write the settings to connect to the master, once the master has stored them.

        Raises:
            CloudError: The master has not stored them within a quarter of an hour.
        """
        told("Waiting for the master to start")
        parameters = {**self.stack.parameters(), **self._parameters}
        answer = self._await_master([parameters["MasterBundle"], parameters.get("Settings", "")])
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
        s3 = self._clients("s3")
        try:
            for key, file in self._bundles.files():
                told(f"Uploading {file.name}")
                s3.upload_file(str(file), bucket, key)
            if self._settings:
                told("Uploading the settings")
                key = _stated(self._settings).partition("#")[0]
                s3.put_object(Bucket=bucket, Key=key, Body=self._settings)
        except (BotoCoreError, ClientError, S3UploadFailedError) as error:
            raise CloudError(f"S3: {error}") from error

    def _await_master(self, made_of: list[str]) -> dict[str, Any]:
        """The master's record once it runs this bundle with these settings."""
        name = client_parameter(self._account.cluster)
        deadline = time.monotonic() + _CLIENT_WAIT_S
        while True:
            try:
                parameter = self._clients("ssm").get_parameter(Name=name, WithDecryption=True)
            except ClientError as error:
                if error.response["Error"]["Code"] != "ParameterNotFound":
                    raise CloudError(f"SSM: {error}") from error
            else:
                said: dict[str, Any] = json.loads(parameter["Parameter"]["Value"])
                if said.get("made_of") == made_of:
                    return said
            if time.monotonic() > deadline:
                raise CloudError(
                    f"the master has not started within {_CLIENT_WAIT_S / 60:g} minutes",
                    hint="look at its console: aws ec2 get-console-output --latest --instance-id "
                    + self.stack.resources().get("Master", "..."),
                )
            time.sleep(self._account.poll_s)


def _stated(settings: bytes) -> str:
    """Key in the bucket and digest of packed settings; empty for none."""
    if not settings:
        return ""
    digest = hashlib.sha256(settings).hexdigest()
    return f"settings/own-{digest[:16]}.yaml#sha256={digest}"


def _refuse_another_place(had: Mapping[str, str], network: Mapping[str, str]) -> None:
    """A cluster stays where its state is; raises `InvalidConfig`."""
    if had and network and any(had.get(key) != network[key] for key in ("VpcId", "SubnetId")):
        where = had.get("SubnetId") or "a VPC of its own"
        raise InvalidConfig(
            f"the cluster is in {where}, and cannot move: its state is in one zone",
            hint="leave --subnet out, or name the master's subnet first",
        )


def teardown(account: Account) -> Teardown:
    """Prepare to remove a cluster.

    Raises:
        NotFound: There is no such stack.
    """
    clients = account.clients()
    stack = Stack(clients("cloudformation"), account.cluster, account.poll_s)
    stack.resources()
    return Teardown(stack, account.cluster, clients, account.poll_s)
