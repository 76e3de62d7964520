"""Finds where a container listens."""

from __future__ import annotations

from typing import Any

import psutil

from eva_worker.errors import AttachRefused
from eva_worker.orders import TaskKey
from eva_worker.process.peers import in_control_group
from eva_worker.runtime.listening import in_container, on_this_machine

_HOST = "host"


def address_of(key: TaskKey, container: dict[str, Any], port: int) -> tuple[str, int]:
    """Where a task in a container listens on a port; takes a while.

    Args:
        key: The attempt.
        container: The engine's description of its container.
        port: The port.

    Raises:
        AttachRefused: No process of it does.
    """
    if container["HostConfig"]["NetworkMode"] == _HOST:
        name = container["Id"]
        pids = [pid for pid in psutil.pids() if in_control_group(pid, name)]
        return on_this_machine(key.run, port, pids)
    networks = container["NetworkSettings"]["Networks"].values()
    address = next((network["IPAddress"] for network in networks if network["IPAddress"]), "")
    pid = container["State"]["Pid"]
    if not address or not pid:
        raise AttachRefused(f"the container of {key.run} has no address")
    return in_container(key.run, port, pid, address)
