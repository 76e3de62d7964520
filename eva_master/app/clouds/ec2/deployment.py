"""`eva deploy aws` and `eva teardown`: creates and removes a cluster in an AWS account."""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from eva_client.cli.views.words import plain
from eva_client.settings import write_aws_settings
from eva_master.adapters.bundling.bundle_making import made_of_installed
from eva_master.adapters.bundling.found import Bundles, find_bundles
from eva_master.adapters.bundling.installed_wheels import fingerprint
from eva_master.adapters.catalog.snapshot import read_snapshot
from eva_master.adapters.deployment import (
    Absent,
    Account,
    Bucket,
    Change,
    Check,
    Preflight,
    Stack,
    client_parameter,
    network_of,
    stated_by,
    stated_in,
    unmade,
)
from eva_master.adapters.ec2.client import Aws
from eva_master.adapters.ec2.launching.images import find_image
from eva_master.adapters.ec2.offerings import is_burstable, zones_of
from eva_master.adapters.ec2.settings import IMAGES, Ec2Settings
from eva_master.adapters.identities.principals import principal_of, with_entries
from eva_master.adapters.resolving.parse import parse_job
from eva_master.app.clouds.ec2 import own_settings
from eva_master.app.clouds.ec2.standing_cost import StandingCost, standing_cost
from eva_master.app.clouds.ec2.wiring import ec2_settings, section_of, snapshot_file, types_of
from eva_master.app.config import MasterConfig
from eva_master.model.catalog import Catalog
from eva_master.model.job import JobSpec
from eva_wire.settings.common import user_state_dir
from eva_wire.text.unreadable import text_of
from eva_wire.values.errors import CloudDenied, CloudError, InvalidConfig

Told = Callable[[str], None]
_CLIENT_WAIT_S = 900.0
_LAST_LINES = 15
NEWEST_IMAGE = "latest"
"""Instead of an image's id: Amazon's newest."""
_ORDINARY = "availability-zone"
_ZONES = ("Zone", "SecondZone", "ThirdZone", "FourthZone", "FifthZone", "SixthZone")
"""Parameters of the template for the zones of a new VPC, the master's first."""
_KEPT = ("Bucket", "MasterInterface", "StateVolume")
"""Resources that the cluster is not to lose: its files, its address and its state."""


class Deployment:
    """One cluster's deployment, from the proposal to a client file.

    Unstated parameters stay as they are. A call that was cut short is finished by another one.

    Args:
        account: Where the cluster is.
        told: Called with a sentence before what takes long.
        bundles: Directory of the bundles, `None` for those of the packages that are installed here,
            which the cluster may have already.
        subnets: Existing subnets; none for a new VPC.
        parameters: More parameters of the template.
        settings: A file of the master's settings, `None` for those that it has.
        look_only: Whether the changes are only shown; then no bundles are made.
        job_file: A job that is to run, for the checks; `None` for none in particular.

    Attributes:
        checks: Facts about the account, of a new cluster or if it is only looked at.
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
        told: Told,
        *,
        bundles: Path | None,
        subnets: tuple[str, ...],
        parameters: Mapping[str, str],
        settings: Path | None = None,
        look_only: bool = False,
        job_file: Path | None = None,
    ) -> None:
        self._account = account
        self._told = told
        self._clients = clients = account.clients()
        self._aws = Aws(
            Ec2Settings(account.cluster, account.region),
            threading.Event(),
            lambda settings, service: clients(service, settings.region),
        )
        self._bundles: Bundles | None = None if bundles is None else find_bundles(bundles)
        self._made_of = ""
        # With a wrong clock or without credentials every call fails, for odd reasons.
        arn = str(clients("sts").get_caller_identity()["Arn"])
        self.stack = Stack(clients("cloudformation"), account.cluster, account.poll_s)
        self.stack.await_others(told)
        self._new = not self.stack.exists()
        had, defaults = self.stack.parameters(), self.stack.defaults()
        network = network_of(clients("ec2"), subnets, routes="PublicMaster" not in parameters)
        _refuse_another_place(had, network)
        self._parameters = {
            "ClusterName": account.cluster,
            "MasterPresent": "true",
            **network,
            **parameters,
            "MasterImage": self._image(had, parameters.get("MasterImage", "")),
        }
        if self._new and not network:
            self._parameters |= self._zones({**defaults, **self._parameters})
        self._parameters["Operators"] = _with_operator({**had, **parameters}, arn)
        after = {**defaults, **had, **self._parameters}
        after["MasterCredits"] = self._parameters["MasterCredits"] = _credits(after)
        zones = _zones_of(after)
        self._settings = own_settings.packed(settings, account.region, zones) if settings else b""
        if settings:
            self._parameters["Settings"] = _stated(self._settings)
        config = own_settings.as_master(settings, account.region, zones)
        examined = look_only or self._new
        self.checks = self._preflight(after, zones, config, job_file) if examined else []
        if not look_only:
            _refuse_to_begin(self.checks)
        self._parameters |= self._bundled(had, config, look_only=look_only)
        self._propose(look_only=look_only)
        self.parameter_changes = [
            (name, had[name], value)
            for name, value in sorted(self._parameters.items())
            if name in had and had[name] != value
        ]
        before = None if self._new else self._cost({**defaults, **had})
        self.standing_cost = before, self._cost(after)

    def _propose(self, *, look_only: bool) -> None:
        """Have the changes worked out; raises `InvalidConfig` if they would lose the state."""
        self.changes: list[Change]
        self._change_set, self.changes = "", []
        try:
            self._change_set, self.changes = self.stack.propose(self._parameters)
        except CloudDenied as error:
            if not look_only:
                raise
            self.checks.append(Check("stack", False, error.message, error.hint or "", stops=True))
        gone = {change.resource for change in self.changes if change.lost}
        self.master_replaced = "Master" in gone
        if lost := sorted(gone & {*_KEPT}):
            self.drop()
            raise InvalidConfig(
                f"this would throw {' and '.join(lost)} away, with what the cluster has stored",
                hint="make another cluster (--cluster), and tear this one down when it is empty",
            )

    def _preflight(
        self,
        after: Mapping[str, str],
        zones: Sequence[str],
        config: MasterConfig,
        job_file: Path | None,
    ) -> list[Check]:
        """Check the account."""
        types = types_of(config, read_snapshot(snapshot_file(config)))
        return Preflight(
            self._clients,
            self._aws,
            machine=after["MasterType"],
            image=after["MasterImage"],
            zones=[after["Zone"], *(zone for zone in zones if zone != after["Zone"])],
            settings=replace(ec2_settings(config), endpoint=self._account.endpoint),
            types=types,
            spot=section_of(config).spot is not None,
            job=None if job_file is None else _job(job_file, types),
        ).checks()

    def drop(self) -> None:
        """Discard the proposed changes without making them."""
        if self._change_set:
            self.stack.drop(self._change_set)

    def carry_out(self) -> None:
        """Make the changes, and whatever an earlier call has left undone."""
        if not self._new:  # Before the master looks for them.
            name = self.stack.resources()["Bucket"]
            self._upload(name)
            if self.changes:
                Bucket(self._clients("s3"), name).forget_words()
        if self.changes:
            if self.master_replaced:
                self._remove_master()
            self.stack.execute(self._change_set)
            if self._new:
                self._told("Waiting for the bucket")
                self._upload(self.stack.await_resource("Bucket"))
            self._told("Waiting for the stack; the master follows")
            self.stack.settle()
        self._wake_master()

    def _bundled(
        self, had: Mapping[str, str], config: MasterConfig, *, look_only: bool
    ) -> dict[str, str]:
        """Parameters of the template for the bundles; none if the cluster keeps those it has."""
        if self._bundles is None:
            self._made_of = fingerprint()
            kinds = section_of(config).architectures
            stated = stated_in(had) if had else {}
            bucket = self.stack.resources().get("Bucket", "") if stated else ""
            stored = Bucket(self._clients("s3"), bucket)
            kept = bool(bucket) and stated.keys() >= {*kinds} and stored.has(stated.values())
            if kept and self._made_of in ("", stored.made_of(stated[""])):
                if not self._made_of:
                    self._told("The cluster keeps its bundles, as dist has none (make bundle)")
                return {}
            if look_only:
                return unmade()
            directory = made_of_installed(user_state_dir() / "bundles", kinds, self._told)
            self._bundles = find_bundles(directory)
        return stated_by(self._bundles, had.get("WorkerBundles", ""))

    def _remove_master(self) -> None:
        """Free the master's interface and volume, which CloudFormation would not do in time.

        CloudFormation creates a replacement before it deletes the original.
        """
        self.drop()
        ec2, master = self._clients("ec2"), self.stack.resources()["Master"]
        self._told("Stopping the master; tasks run on")
        with contextlib.ExitStack() as otherwise:
            # Whatever comes between, and be it Ctrl-C.
            otherwise.callback(self._start_again, master)
            ec2.stop_instances(InstanceIds=[master])
            self._account.await_state(ec2, "stopped", [master])
            self._told("Removing its instance; its state and its address stay")
            without, _ = self.stack.propose({**self._parameters, "MasterPresent": "false"})
            self.stack.execute(without)
            self.stack.settle()
            otherwise.pop_all()
        self._change_set, _ = self.stack.propose(self._parameters)

    def _start_again(self, master: str) -> None:
        with contextlib.suppress(CloudError):
            self._clients("ec2").start_instances(InstanceIds=[master])

    def _wake_master(self) -> None:
        """Start a master that a call has stopped which was cut short before it made another."""
        ec2, master = self._clients("ec2"), self.stack.resources()["Master"]
        (reservation,) = ec2.describe_instances(InstanceIds=[master])["Reservations"]
        if reservation["Instances"][0]["State"]["Name"] in ("stopping", "stopped"):
            self._told("Starting the master, which is stopped")
            self._account.await_state(ec2, "stopped", [master])
            ec2.start_instances(InstanceIds=[master])

    def _image(self, had: Mapping[str, str], asked: str) -> str:
        """The image that the master has, unless another one is asked for."""
        if not asked and had:
            return had["MasterImage"]
        named = IMAGES["x86_64"] if asked in ("", NEWEST_IMAGE) else asked
        try:
            # Before a master that runs gives way to it.
            image = find_image(named, self._aws.call)
        except CloudError as error:
            raise InvalidConfig(
                f"there is no image {named}: {error.message}",
                hint="see --set MasterImage and --region",
            ) from error
        if image.architecture != "x86_64":
            raise InvalidConfig(
                f"{named} is for {image.architecture}", hint="the master runs on x86_64"
            )
        return image.ami

    def _zones(self, parameters: Mapping[str, str]) -> dict[str, str]:
        """Zones of a new VPC: those that are stated, and others that sell the master's type."""
        machine = parameters["MasterType"]
        zones = self._clients("ec2").describe_availability_zones()["AvailabilityZones"]
        names = sorted(
            zone["ZoneName"]
            for zone in zones
            if zone.get("State") == "available" and zone.get("ZoneType", _ORDINARY) == _ORDINARY
        )
        selling = zones_of(self._aws, [machine]).get(machine, set()) & {*names}
        if not selling or len(names) < 2:
            raise InvalidConfig(
                f"{machine}, the master's type, is sold in {len(selling)} of the {len(names)} zones"
                f" that {self._account.region} has for this account, and a VPC takes two zones",
                hint="choose another type (--set MasterType=t3a.small), or name subnets (--subnet)",
            )
        stated = {key: parameters[key] for key in _ZONES if parameters.get(key)}
        best_first = sorted(names, key=lambda name: name not in selling)
        chosen = best_first[: max(2, len(selling))]
        others = [name for name in chosen if name not in stated.values()]
        return stated | dict(
            zip([key for key in _ZONES if key not in stated], others, strict=False)
        )

    def _cost(self, parameters: Mapping[str, str]) -> StandingCost:
        return standing_cost(parameters, self._account.region, self._account.endpoint)

    def client_file(self, target: Path) -> None:
        """Write the settings to connect to the master, once the master has stored them.

        Raises:
            CloudError: The master has not stored them within a quarter of an hour.
        """
        self._told("Waiting for the master to start")
        parameters = {**self.stack.parameters(), **self._parameters}
        made_of = [parameters.get(name, "") for name in ("MasterBundle", "Settings", "Operators")]
        answer = self._await_master(made_of)
        write_aws_settings(target, str(answer["address"]), str(answer["ca"]))

    def _upload(self, name: str) -> None:
        """Upload what the master needs and the bucket lacks."""
        bucket = Bucket(self._clients("s3"), name)
        for stated, file in self._bundles.files() if self._bundles else ():
            if not bucket.has([stated]):
                self._told(f"Uploading {file.name}")
                bucket.upload(stated, file, self._made_of)
        settings = {**self.stack.parameters(), **self._parameters}.get("Settings", "")
        if settings and not bucket.has([settings]):
            if not self._settings:
                self.drop()
                raise InvalidConfig(
                    "the bucket lacks the cluster's settings, and the master waits for them",
                    hint="name their file again: --settings FILE",
                )
            self._told("Uploading the settings")
            bucket.upload(settings, self._settings)

    def _await_master(self, made_of: list[str]) -> dict[str, Any]:
        """The master's record once it runs this bundle with these settings."""
        name = client_parameter(self._account.cluster)
        bucket = Bucket(self._clients("s3"), self.stack.resources()["Bucket"])
        ends_at_s = time.monotonic() + _CLIENT_WAIT_S
        words = ""
        while True:
            with contextlib.suppress(Absent):
                parameter = self._clients("ssm").get_parameter(Name=name, WithDecryption=True)
                said: dict[str, Any] = json.loads(parameter["Parameter"]["Value"])
                if said.get("made_of") == made_of:
                    return said
            if (latest := bucket.last_words()) and latest != words:
                words = latest
                self._quote("The master has not started yet; the end of its log", latest)
            if time.monotonic() > ends_at_s:
                raise self._mute(words)
            time.sleep(self._account.poll_s)

    def _quote(self, about: str, text: str) -> None:
        self._told(f"{about}:")
        for line in text.splitlines()[-_LAST_LINES:]:
            self._told(f"  {plain(line[:500])}")

    def _console(self, master: str) -> str:
        """The console's output now; what EC2 posted last where the type has only that."""
        ec2 = self._clients("ec2")
        try:
            answer = ec2.get_console_output(InstanceId=master, Latest=True)
        except CloudError:
            answer = ec2.get_console_output(InstanceId=master)
        return str(answer.get("Output", ""))

    def _mute(self, words: str) -> CloudError:
        """The error if the master has not started in time."""
        master = self.stack.resources().get("Master", "...")
        region = self._account.region
        with contextlib.suppress(CloudError):
            if not words:
                said = self._console(master) or "nothing"
                self._quote(f"The console of {master} says last", said)
        hint = f"aws ssm start-session --region {region} --target {master}"
        if self.stack.parameters().get("SessionManager") != "true":
            hint = f"run the command again with --set SessionManager=true, then: {hint}"
        return CloudError(
            f"the master has not started within {_CLIENT_WAIT_S / 60:g} minutes", hint=hint
        )


def _with_operator(parameters: Mapping[str, str], arn: str) -> str:
    """The operators of a cluster, and whoever deploys it now."""
    deployer, _ = principal_of(arn)
    try:
        listed = json.loads(parameters.get("Operators", "[]"))
        own = {"arn": deployer.arn, "user": deployer.owner, "role": "operator"}
        return json.dumps(with_entries([own], listed))
    except (ValueError, TypeError, KeyError) as error:
        raise InvalidConfig(
            f"Operators cannot be read: {error}", hint="--set Operators='[]' leaves you alone in it"
        ) from error


def _zones_of(parameters: Mapping[str, str]) -> list[str]:
    """The zones in which a stack with these parameters launches workers."""
    by_zone = yaml.safe_load(parameters.get("SubnetsByZone") or "{}")
    return list(by_zone) or [parameters[name] for name in _ZONES if parameters.get(name)]


def _credits(parameters: Mapping[str, str]) -> str:
    """How a burstable master computes above its baseline; to be billed for that is to be asked."""
    burstable = is_burstable(parameters["MasterType"])
    return (parameters["MasterCredits"] or "standard") if burstable else ""


def _refuse_to_begin(checks: Sequence[Check]) -> None:
    """Raise `CloudError` if no cluster can be made in an account."""
    if wrong := [check for check in checks if check.stops and check.ok is False]:
        raise CloudError(
            "; ".join(check.says for check in wrong),
            hint="; ".join(check.hint for check in wrong if check.hint),
        )


def _job(file: Path, types: Catalog) -> JobSpec:
    """The job of a file; raises `InvalidJob`."""
    text = text_of(file)
    return parse_job(text, file_name=str(file), owner="any", catalog=types, workdir=None)


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
