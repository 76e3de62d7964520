"""The Docker engine of a test host, at the usual socket: to be used in a host's mounts alone."""

from __future__ import annotations

import http.client
import os
import shutil
import socket
import time
from pathlib import Path

from tests.fakes.hosts.process import run
from tests.fakes.patience import DEADLINE_S

SOCKET = Path("/run/docker.sock")
PID = Path("/run/docker.pid")
START_S = DEADLINE_S
_POLL_S = 0.02


def prepare() -> None:
    """Give this mount namespace a ``/run`` of its own; nothing in it is anybody else's."""
    run("mount", "-t", "tmpfs", "tmpfs", "/run")
    os.environ.pop("DOCKER_HOST", None)


def command(data: Path, cgroup: str, *, live_restore: bool = True) -> list[str]:
    """The engine's command line.

    Args:
        data: Its data directory.
        cgroup: The parent of its containers' control groups.
        live_restore: Whether containers outlive it.
    """
    return [
        *("dockerd", "--storage-driver=overlay2", f"--data-root={data}"),
        *("--exec-root=/run/docker", f"--pidfile={PID}", f"--host=unix://{SOCKET}"),
        *(
            "--bridge=none",
            "--iptables=false",
            "--log-level=warn",
            f"--cgroup-parent={cgroup}",
        ),
        *(["--live-restore"] if live_restore else []),
    ]


def await_answer() -> None:
    """Wait until the engine answers.

    Raises:
        TimeoutError: The engine does not answer.
    """
    deadline = time.monotonic() + START_S
    while not _answers():
        if time.monotonic() > deadline:
            raise TimeoutError(f"the engine does not answer within {START_S:g} s")
        time.sleep(_POLL_S)


def _answers() -> bool:
    connection = http.client.HTTPConnection("engine", timeout=START_S)
    try:
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(str(SOCKET))
        connection.request("GET", "/_ping")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def lend(prepared: Path, data: Path, *, on: Path | None = None) -> None:
    """Make a data directory of an engine that has images, in little time and space.

    Call this at each start of a machine: the contents of images are mounted, as they are never
    written again; the rest is the engine's own, which stays.

    Args:
        prepared: A directory that has the images.
        data: The directory; made.
        on: Where to mount it; `None` for where it is.
    """
    layers = [layer.relative_to(prepared) for layer in prepared.glob("overlay2/*/diff")]
    if not data.exists():
        aside = data.with_name(f"{data.name}.new")
        shutil.rmtree(aside, ignore_errors=True)
        shutil.copytree(prepared, aside, symlinks=True, ignore=_not_copied)
        for layer in layers:
            (aside / layer).mkdir()
        aside.rename(data)
    on = on or data
    run("mount", "--bind", str(data), str(on))
    for layer in layers:
        run("mount", "--bind", str(prepared / layer), str(on / layer))
        run("mount", "-o", "remount,bind,ro", str(on / layer))


def _not_copied(directory: str, names: list[str]) -> set[str]:
    """Files of images; and a device, which the engine makes when it starts."""
    layer = {"diff"} if Path(directory).parent.name == "overlay2" else set()
    return {*names} & {*layer, "backingFsBlockDev"}
