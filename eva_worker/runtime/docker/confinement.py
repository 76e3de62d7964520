"""Decides which user and network a container has."""

from __future__ import annotations

import resource
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from docker.types import Ulimit

from eva_wire.service.dumps import NONE
from eva_worker.isolation import UNPRIVILEGED, Isolation


@dataclass(frozen=True, slots=True)
class Confinement:
    """The user and the network of a container.

    Attributes:
        user: ``UID:GID`` inside the container.
        owner: Required owner of the task's files on this machine; `None` if they are right.
        network: Docker's network mode.
        userns: ``host`` for no user namespace where the engine would make one, else empty.
    """

    user: str
    owner: tuple[int, int] | None
    network: str
    userns: str = ""

    @property
    def options(self) -> dict[str, Any]:
        """The options of the container."""
        more = {"userns_mode": self.userns} if self.userns else {}
        return {"user": self.user, "network_mode": self.network, **more}


def confinement(
    isolation: Isolation, info: Mapping[str, Any], *, gang: bool, uid: int, gid: int
) -> Confinement:
    """Confine a task's container.

    Args:
        isolation: The operator's decisions.
        info: The engine's description of itself.
        gang: Whether the task is of a gang, whose members choose ports for each other.
        uid: The worker's user.
        gid: The worker's group.
    """
    network = network_of(isolation, gang=gang)
    on_host = network == "host"
    remapped = _has(info, "userns")
    if _has(info, "rootless"):
        # Root of such a container is the user that the engine and the worker run as.
        return Confinement("0:0", None, network)
    if remapped and uid == 0 and not on_host:
        # Root of such a container is a user without rights on this machine.
        return Confinement("0:0", _remapped_root(info), network)
    # A user namespace and the machine's network exclude each other.
    userns = "host" if remapped else ""
    if uid != 0 or isolation.user == "worker":
        return Confinement(f"{uid}:{gid}", None, network, userns)
    nobody = UNPRIVILEGED, UNPRIVILEGED
    return Confinement(f"{UNPRIVILEGED}:{UNPRIVILEGED}", nobody, network, userns)


def network_of(isolation: Isolation, *, gang: bool = False) -> str:
    """Docker's network mode for a task."""
    return "host" if gang or isolation.network == "host" else "bridge"


def network_of_builds(isolation: Isolation) -> str:
    """Docker's network mode for builds of images.

    They run as root. The firewall tells tasks on the machine's network by their user, so there it
    would keep a build neither from the metadata service nor from the agent's ports.
    """
    return "host" if (isolation.network, isolation.user) == ("host", "worker") else "bridge"


def limits(isolation: Isolation) -> dict[str, Any]:
    """The options of a container that limit what it may take, besides processors and memory."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    # The engine cannot give more than it has, and it has what services of this machine have.
    files = isolation.open_files if most < 0 else min(isolation.open_files, most)
    return {
        "pids_limit": isolation.processes,
        "ulimits": [
            Ulimit(name="nofile", soft=files, hard=files),
            # A dump of a program's memory would fill the disk that all tasks share.
            Ulimit(name="core", soft=NONE, hard=NONE),
        ],
    }


def _has(info: Mapping[str, Any], option: str) -> bool:
    return any(f"name={option}" in entry.split(",") for entry in info.get("SecurityOptions") or ())


def _remapped_root(info: Mapping[str, Any]) -> tuple[int, int]:
    """The user and group on this machine that root of a container is: the engine says it so."""
    uid, _, gid = PurePath(info["DockerRootDir"]).name.partition(".")
    return int(uid), int(gid)
