"""The Docker engine of this machine, as emulated instances need it."""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import tempfile
from collections.abc import Callable
from ipaddress import ip_network
from pathlib import Path
from typing import Any, Self

import docker
import structlog
from docker.errors import APIError, ContainerError, DockerException, ImageNotFound, NotFound
from docker.types import Mount

from eva_master.adapters.local.image import Tree, python_tree
from eva_wire.values.errors import EngineUnavailable

HOME_LABEL = "eva.home"
"""Label of every container of a worker: a directory below the worker's state directory."""
REPOSITORY = "eva-python"

_USUAL = "unix:///var/run/docker.sock"
_TREE_LABEL = "eva.tree"
_CHANGES = ("ENV PATH=/usr/local/bin:/usr/bin:/bin",)
_TIMEOUT_S = 20
# The client raises its own errors and those of `requests`, which are `OSError`s.
_FAILURES = (DockerException, OSError)
_NETWORK = Path("/proc/self/ns/net")
_TRIAL = f"readlink {_NETWORK} >/eva/network"

_log = structlog.get_logger(__name__)


class Engine:
    """A connection to the engine. Close it, or use it in a `with` statement.

    Args:
        url: Where it listens; empty for where ``DOCKER_HOST`` says, or the usual socket.

    Attributes:
        url: Where it listens.

    Raises:
        EngineUnavailable: The engine does not answer or does not suit emulated instances, because
            it runs on another machine or maps the owners of files to other users.
    """

    def __init__(self, url: str = "") -> None:
        self.url = url or os.environ.get("DOCKER_HOST") or _USUAL
        if not self.url.startswith("unix://"):
            raise EngineUnavailable(f"the engine at {self.url} may be on another machine")
        try:
            self._client: Any = docker.DockerClient(base_url=self.url, timeout=_TIMEOUT_S)
            with contextlib.ExitStack() as undo:
                undo.callback(self._client.close)
                _check(self._client.info())
                undo.pop_all()
        except _FAILURES as error:
            raise EngineUnavailable(f"no Docker engine answers at {self.url}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection to the engine."""
        self._client.close()

    def find_image(self, tree: Tree) -> str | None:
        """Find the image of a tree.

        Returns:
            Its id; `None` if the engine has none, or only that of another tree.

        Raises:
            EngineUnavailable: The engine fails.
        """
        return self._image(tree.digest())

    def make_image(self, tree: Tree) -> str:
        """Build the image of a tree, after adding its shared libraries.

        The image takes the name of an earlier one of this environment, which becomes dangling.
        Containers of that image are not affected, since they use its id.

        Returns:
            Its id.

        Raises:
            EngineUnavailable: The engine fails.
        """
        digest = tree.digest()
        try:
            tree.add_libraries()
            answer = self._client.api.import_image_from_data(
                tree.packed(),
                repository=_name(),
                changes=[*_CHANGES, f"LABEL {_TREE_LABEL}={digest}"],
            )
        except _FAILURES as error:
            raise EngineUnavailable(f"the engine makes no image: {_reason(error)}") from error
        image = self._image(digest)
        if image is None:
            # An import that fails half-way returns success; only its text tells.
            raise EngineUnavailable(f"the engine makes no image: {answer.strip()}")
        return image

    def _image(self, digest: str) -> str | None:
        try:
            image = self._client.images.get(_name())
        except ImageNotFound:
            return None
        except _FAILURES as error:
            raise EngineUnavailable(f"the engine fails: {_reason(error)}") from error
        return str(image.id) if image.labels.get(_TREE_LABEL) == digest else None

    def try_out(self, image: str) -> None:
        """Check that containers of an image run here, with this machine's files, users and network.

        Raises:
            EngineUnavailable: They do not run, or not as needed.
        """
        with tempfile.TemporaryDirectory(prefix="eva-trial-") as directory:
            try:
                self._client.containers.run(
                    image,
                    entrypoint=["/bin/sh", "-c", _TRIAL],
                    mounts=[Mount("/eva", directory, type="bind")],
                    user=f"{os.geteuid()}:{os.getegid()}",
                    network_mode="host",
                    cap_drop=["ALL"],
                    remove=True,
                )
                network = Path(directory, "network").read_text().strip()
            except (ContainerError, *_FAILURES) as error:
                raise EngineUnavailable(f"no container runs: {_reason(error)}") from error
        if network != str(_NETWORK.readlink()):
            raise EngineUnavailable(f"the engine at {self.url} has a network of its own")

    def gateway(self) -> str:
        """Address of this machine in the network that containers have by default.

        Raises:
            EngineUnavailable: There is no such network, or the engine fails.
        """
        try:
            pools = self._client.api.inspect_network("bridge")["IPAM"]["Config"] or ()
            # An engine that runs for the first time states the subnet alone: its first address.
            gateways = [
                str(pool.get("Gateway") or ip_network(pool["Subnet"])[1])
                for pool in pools
                if {"Gateway", "Subnet"} & pool.keys()
            ]
            return next(gateway for gateway in gateways if ":" not in gateway)
        except (NotFound, StopIteration) as error:
            raise EngineUnavailable(
                f"the engine at {self.url} has no network for containers (bridge)",
                hint="let it have one, or set isolation.network to host",
            ) from error
        except _FAILURES as error:
            raise EngineUnavailable(f"the engine fails: {_reason(error)}") from error

    def containers(self, directory: Path) -> dict[str, str]:
        """The containers of workers whose state is below a directory: name by id.

        Raises:
            EngineUnavailable: The engine fails.
        """
        try:
            containers = self._client.api.containers(all=True, filters={"label": [HOME_LABEL]})
        except _FAILURES as error:
            raise EngineUnavailable(f"the engine fails: {_reason(error)}") from error
        return {
            container["Id"]: container["Names"][0].lstrip("/")
            for container in containers
            if Path(container["Labels"][HOME_LABEL]).is_relative_to(directory)
        }

    def remove_containers(self, directory: Path) -> bool:
        """Kill and remove the containers of workers whose state is below a directory.

        Returns:
            Whether there were none; otherwise call again to see that they are gone.

        Raises:
            EngineUnavailable: The engine fails.
        """
        containers = self.containers(directory)
        for container in containers:
            try:
                self._client.api.remove_container(container, force=True, v=True)
            except NotFound:
                continue
            except _FAILURES as error:
                # Another program may be removing it; the next call tells.
                _log.warning("container not removed", id=container, reason=_reason(error))
        return not containers


def ready_image(engine: Engine, told: Callable[[str], None]) -> str:
    """The image of this machine's Python, built unless the engine has it, and checked.

    Args:
        engine: The engine that is to have it.
        told: Called with a message when something takes seconds.

    Returns:
        Its id.

    Raises:
        EngineUnavailable: The image cannot be built, or no container of it runs.
    """
    tree = python_tree()
    image = engine.find_image(tree)
    if image is None:
        told("building an image of this machine's Python for containers; this is done once")
        image = engine.make_image(tree)
    engine.try_out(image)
    return image


def _check(info: dict[str, Any]) -> None:
    """Check that an engine runs on this machine, as root."""
    if info["KernelVersion"] != os.uname().release:
        raise EngineUnavailable("the engine runs in a virtual machine: its files are not ours")
    for option in info.get("SecurityOptions") or ():
        for mode in ("rootless", "userns"):
            if f"name={mode}" in option.split(","):
                raise EngineUnavailable(f"the engine maps users ({mode}): files would not be ours")


def _name() -> str:
    """The image's name: one for each environment that images are made of."""
    return f"{REPOSITORY}:{hashlib.sha256(sys.prefix.encode()).hexdigest()[:12]}"


def _reason(error: BaseException) -> str:
    return str((isinstance(error, APIError) and error.explanation) or error)
