"""The Docker engine of a test host, at the usual socket: to be used in a host's mounts alone."""

from __future__ import annotations

import http.client
import os
import socket
import time
from pathlib import Path

from tests.fakes.hosts.process import run

SOCKET = Path("/run/docker.sock")
PID = Path("/run/docker.pid")
START_S = 30.0
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
        TimeoutError: It does not.
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


def clone(prepared: Path, data: Path) -> None:
    """Copy a data directory that has images, in little time and space.

    The files of an image are never written again, so they are shared; the engine's own are not.
    """
    data.mkdir(parents=True)
    for part in prepared.iterdir():
        sharing = ("--link",) if part.name == "overlay2" else ()
        run("cp", "--archive", *sharing, str(part), str(data))
