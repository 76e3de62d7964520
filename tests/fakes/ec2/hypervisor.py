"""Boots what was launched: for each instance that the API shows running there is a machine."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import subprocess
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil

from tests.fakes.aws.service import REGION, Aws
from tests.fakes.ec2.machine import MODULE
from tests.fakes.hosts import init
from tests.fakes.hosts.process import die_with_parent
from tests.fakes.hosts.site import Site

_POLL_S = 0.5


class Hypervisor:
    """Watches the API as a data centre would; a thread.

    Args:
        aws: The API.
        site: Network and files.
        docker: An engine's data that every machine begins with.
        recipe: A script that has made the image of all machines, and its argument; each runs it
            before its user data.
    """

    def __init__(self, aws: Aws, site: Site, docker: Path, *, recipe: Sequence[Path] = ()) -> None:
        self._ec2 = aws.client("ec2")
        self._site = site
        self._docker = docker
        self._recipe = recipe
        self._machines: dict[str, subprocess.Popen[bytes]] = {}
        self._over: set[str] = set()
        self._dead_on_arrival = 0
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="hypervisor", daemon=True)
        self.failure: BaseException | None = None

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def close(self) -> None:
        """Stop watching; the machines end with the network."""
        self._closing.set()
        self._thread.join()
        for machine in self._machines.values():
            with contextlib.suppress(ProcessLookupError):
                machine.kill()
            machine.wait()

    def lose_next(self, count: int = 1) -> None:
        """Have the next instances never boot, though the API says that they run."""
        with self._lock:
            self._dead_on_arrival += count

    def home(self, ec2_id: str) -> Path:
        """The directory of an instance."""
        return self._site.path / "machines" / ec2_id

    def booted(self) -> set[str]:
        """Instances whose machines run."""
        with self._lock:
            return {name for name, it in self._machines.items() if it.poll() is None}

    def machine(self, ec2_id: str) -> psutil.Process:
        """The process below which everything of an instance is."""
        return psutil.Process(self._machines[ec2_id].pid)

    def announce(self, ec2_id: str, path: str, document: dict[str, Any]) -> None:
        """Put a document into an instance's metadata, such as ``spot/instance-action``."""
        file = self.home(ec2_id) / "notices" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        aside = file.with_suffix(".new")
        aside.write_text(json.dumps(document))
        aside.rename(file)

    def _run(self) -> None:
        try:
            while not self._closing.wait(_POLL_S):
                self._look()
        except BaseException as error:
            self.failure = error
            raise

    def _look(self) -> None:
        for instance in described(self._ec2):
            name, state = instance["InstanceId"], instance["State"]["Name"]
            machine = self._machines.get(name)
            if state == "running" and machine is None and name not in self._over:
                self._boot(name)
            elif machine is not None and state not in ("pending", "running"):
                machine.kill()
                machine.wait()
                with self._lock:
                    del self._machines[name]
                self._over.add(name)
            elif machine is not None and machine.poll() is not None:
                self._switched_off(name, machine.returncode)

    def _boot(self, name: str) -> None:
        with self._lock:
            if self._dead_on_arrival:
                self._dead_on_arrival -= 1
                self._over.add(name)
                return
        home = self.home(name)
        (home / "notices").mkdir(parents=True)
        answer = self._ec2.describe_instance_attribute(InstanceId=name, Attribute="userData")
        user_data = answer["UserData"]["Value"]
        (home / "instance.json").write_text(json.dumps({"id": name, "user_data": user_data}))
        (home / "user-data").write_bytes(base64.b64decode(user_data))
        command = [
            *init.command(MODULE, self._site),
            *("--docker", str(self._docker)),
            *("--home", str(home)),
            *("--region", REGION),
            *(["--recipe", *map(str, self._recipe)] if self._recipe else []),
        ]
        with (home / "machine.log").open("ab") as log:
            machine = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=home,
                env={"PATH": os.environ["PATH"], **init.environment(self._site)},
                preexec_fn=die_with_parent,  # noqa: PLW1509 - one system call
            )
        with self._lock:
            self._machines[name] = machine

    def _switched_off(self, name: str, code: int) -> None:
        """An instance has powered off: what becomes of it was decided at its launch."""
        answer = self._ec2.describe_instance_attribute(
            InstanceId=name, Attribute="instanceInitiatedShutdownBehavior"
        )
        behaviour = answer["InstanceInitiatedShutdownBehavior"]["Value"]
        if code == 0 and behaviour == "terminate":
            self._ec2.terminate_instances(InstanceIds=[name])
        else:
            self._ec2.stop_instances(InstanceIds=[name])


def described(ec2: Any) -> Iterator[dict[str, Any]]:
    """Every instance that the API knows."""
    for page in ec2.get_paginator("describe_instances").paginate():
        for reservation in page["Reservations"]:
            yield from reservation["Instances"]
