"""A Docker engine for tests: its own socket, its own data, no part in the machine's network."""

from __future__ import annotations

import contextlib
import ctypes
import io
import os
import shutil
import signal
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import psutil

IMAGE = "eva-test:latest"
START_S = 30
_BUSYBOX = Path("/bin/busybox")
_PR_SET_PDEATHSIG = 1


def available() -> bool:
    """Whether this machine can run an engine and has what its image is made of."""
    return os.geteuid() == 0 and shutil.which("dockerd") is not None and _BUSYBOX.exists()


@contextlib.contextmanager
def running() -> Iterator[str]:
    """Run an engine that has `IMAGE`; yields its URL. Leaves no container, mount or file."""
    # Not below a test's directory: the name of a Unix socket has at most 107 bytes.
    root = Path(tempfile.mkdtemp(prefix="eva-dockerd-"))
    try:
        with _started(root) as url:
            client = docker.DockerClient(base_url=url)
            client.api.import_image_from_data(
                _busybox_root(), repository=IMAGE, changes=["ENV PATH=/bin", "ENV OF_IMAGE=1"]
            )
            try:
                yield url
            finally:
                for container in client.containers.list(all=True):
                    container.remove(force=True)
                client.close()
    finally:
        _unmount_below(root)
        shutil.rmtree(root)


@contextlib.contextmanager
def _started(root: Path) -> Iterator[str]:
    for driver in ("overlay2", "vfs"):
        process = _spawn(root, driver)
        try:
            if url := _answering(root, process):
                yield url
                return
        finally:
            _end(process)
            (root / "pid").unlink(missing_ok=True)
    raise RuntimeError(f"dockerd does not start:\n{(root / 'log').read_text()[-3000:]}")


def _spawn(root: Path, driver: str) -> subprocess.Popen[bytes]:
    def die_with_parent() -> None:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)

    with (root / "log").open("ab") as log:
        return subprocess.Popen(
            [
                *("dockerd", f"--storage-driver={driver}", f"--data-root={root / 'data'}"),
                *(f"--exec-root={root / 'exec'}", f"--pidfile={root / 'pid'}"),
                *("--bridge=none", "--iptables=false", "-H", f"unix://{root / 'docker.sock'}"),
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            preexec_fn=die_with_parent,  # noqa: PLW1509 - one system call
        )


def _answering(root: Path, process: subprocess.Popen[bytes]) -> str | None:
    """Wait for an engine; its URL, or `None` if it gave up."""
    url = f"unix://{root / 'docker.sock'}"
    deadline = time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(docker.errors.DockerException, OSError):
            client: Any = docker.DockerClient(base_url=url)
            client.close()
            return url
        time.sleep(0.05)
    return None


def _end(process: subprocess.Popen[bytes]) -> None:
    children = [] if process.poll() is not None else psutil.Process(process.pid).children(True)
    process.terminate()
    try:
        process.wait(START_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for child in children:  # Its containerd, should it have been left.
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()


def _unmount_below(root: Path) -> None:
    """The engine mounts its data onto itself, and the namespaces that it keeps."""
    points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    for point in sorted((p for p in points if p.startswith(f"{root}/")), reverse=True):
        subprocess.run(["umount", "--lazy", point], check=True)


def _busybox_root() -> bytes:
    """A root directory with a shell and the small tools, as a tar file."""
    names = subprocess.run([_BUSYBOX, "--list"], check=True, capture_output=True, text=True)
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        tar.add(_BUSYBOX.resolve(), "bin/busybox")
        for name in set(names.stdout.split()) - {"busybox"}:
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
        tmp = tarfile.TarInfo("tmp")
        tmp.type, tmp.mode = tarfile.DIRTYPE, 0o1777
        tar.addfile(tmp)
    return data.getvalue()
