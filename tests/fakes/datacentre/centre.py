"""Boots what runs according to the stand-in's API, and switches off what does not."""

from __future__ import annotations

import base64
import contextlib
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.fakes.aws.instances.volumes import STARTS
from tests.fakes.aws.service import Aws
from tests.fakes.datacentre.machine import Machine

_POLL_S = 0.5
_USES = "stand-in:interface"
"""Tag of the masters of stacks: the network interface."""


class DataCentre:
    """Watches the API in a thread.

    Args:
        aws: The stand-in.
        home: A directory with a short name.

    Attributes:
        failure: The error that ended the thread; `None` for none.
    """

    def __init__(self, aws: Aws, home: Path) -> None:
        self._aws, self._home = aws, home
        self._ec2 = aws.client("ec2")
        self.machines: dict[str, Machine] = {}
        self._running: dict[str, str] = {}
        """How often each was restarted through the API, of those that run."""
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="data centre", daemon=True)
        (home / "volumes").mkdir()

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def close(self) -> None:
        """Switch everything off.

        Raises:
            AssertionError: The thread had failed.
        """
        self._closing.set()
        self._thread.join()
        for machine in self.machines.values():
            machine.close()
        assert self.failure is None, self.failure

    def take_snapshots(self) -> list[str]:
        """Have a day pass for the lifecycle policies of stacks.

        Returns:
            The snapshots: each has its disk as of one moment, whatever was written then.
        """
        with self._lock, contextlib.ExitStack() as held:
            for name in self._running:
                held.enter_context(self.machines[name].held())
            taken = self._aws.take_snapshots()
            for volume, snapshot in taken:
                _copy(self._disk(volume), self._disk(snapshot))
        return [snapshot for _, snapshot in taken]

    def logs(self) -> Iterator[tuple[str, str]]:
        """The console of each machine."""
        for name, machine in self.machines.items():
            yield name, machine.console

    def _run(self) -> None:
        try:
            while not self._closing.wait(_POLL_S):
                with self._lock:
                    self._look()
        except BaseException as error:
            self.failure = error
            raise

    def _look(self) -> None:
        for instance in _described(self._ec2):
            name, state = instance["InstanceId"], instance["State"]["Name"]
            starts = _tags(instance).get(STARTS, "")
            machine = self.machines.get(name)
            if state == "running" and machine is None and self._boots(instance):
                machine = self.machines[name] = self._made(instance)
            if machine is None:
                continue
            if state == "running" and self._running.get(name) != starts:
                if name in self._running:
                    machine.stop()
                self._running[name] = starts
                machine.boot()
            elif state == "running":
                if _USES in _tags(instance):
                    machine.plug(self._volumes(instance))
                machine.look()
                if machine.off:
                    self._off(name)
            elif name in self._running:
                del self._running[name]
                machine.stop() if state in ("stopping", "stopped") else machine.lose()

    def _boots(self, instance: dict[str, Any]) -> bool:
        """Whether an instance is of a cluster, and all that it has is attached to it."""
        tags = _tags(instance)
        return "eva:instance" in tags or (_USES in tags and len(self._volumes(instance)) > 0)

    def _volumes(self, instance: dict[str, Any]) -> dict[str, Path]:
        filters = [{"Name": "attachment.instance-id", "Values": [instance["InstanceId"]]}]
        volumes = self._ec2.describe_volumes(Filters=filters)["Volumes"]
        disks: dict[str, Path] = {}
        for volume in volumes:
            if volume["Attachments"][0]["Device"] == instance["RootDeviceName"]:
                continue
            disk = disks[volume["VolumeId"]] = self._disk(volume["VolumeId"])
            if not disk.exists() and (snapshot := volume.get("SnapshotId")):
                _copy(self._disk(snapshot), disk)
            disk.touch()
            _content(disk).mkdir(exist_ok=True)
        return disks

    def _disk(self, name: str) -> Path:
        """The file for a volume or a snapshot; beside it is the directory that it holds."""
        return self._home / "volumes" / name

    def _made(self, instance: dict[str, Any]) -> Machine:
        tags = _tags(instance)
        name = instance["InstanceId"]
        answer = self._ec2.describe_instance_attribute(InstanceId=name, Attribute="userData")
        user_data = base64.b64decode(answer["UserData"]["Value"]).decode()
        kinds = self._ec2.describe_instance_types(InstanceTypes=[instance["InstanceType"]])
        gpus = kinds["InstanceTypes"][0].get("GpuInfo", {}).get("Gpus", [])
        home = self._home / name
        home.mkdir()
        return Machine(
            home,
            endpoint=self._aws.url,
            address=self._address(tags[_USES]) if _USES in tags else "",
            user_data=user_data,
            profile=instance["IamInstanceProfile"]["Arn"].rpartition("/")[2],
            volumes=self._volumes(instance) if _USES in tags else {},
            gpus=sum(gpu["Count"] for gpu in gpus),
        )

    def _address(self, interface: str) -> str:
        """The address of a master: the stand-in's are all of the loopback network."""
        filters = [{"Name": "network-interface-id", "Values": [interface]}]
        if addresses := self._ec2.describe_addresses(Filters=filters)["Addresses"]:
            return str(addresses[0]["PublicIp"])
        answer = self._ec2.describe_network_interfaces(NetworkInterfaceIds=[interface])
        return str(answer["NetworkInterfaces"][0]["PrivateIpAddress"])

    def _off(self, name: str) -> None:
        """End or stop an instance that was switched off from within, as its launch said."""
        answer = self._ec2.describe_instance_attribute(
            InstanceId=name, Attribute="instanceInitiatedShutdownBehavior"
        )
        if answer["InstanceInitiatedShutdownBehavior"]["Value"] == "terminate":
            self._ec2.terminate_instances(InstanceIds=[name])
        else:
            self._ec2.stop_instances(InstanceIds=[name])


def _tags(instance: dict[str, Any]) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in instance.get("Tags", ())}


def _content(disk: Path) -> Path:
    return disk.with_name(f"{disk.name}.content")


def _copy(disk: Path, to: Path) -> None:
    shutil.copy(disk, to)
    shutil.copytree(_content(disk), _content(to), symlinks=True, ignore=_sockets)


def _sockets(directory: str, names: list[str]) -> list[str]:
    return [name for name in names if Path(directory, name).is_socket()]


def _described(ec2: Any) -> Iterator[dict[str, Any]]:
    for page in ec2.get_paginator("describe_instances").paginate():
        for reservation in page["Reservations"]:
            yield from reservation["Instances"]
