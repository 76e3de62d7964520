"""A Docker engine for tests: its own socket and data, and a bridge that leads to this machine."""

from __future__ import annotations

import contextlib
import ctypes
import io
import os
import secrets
import shutil
import signal
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import docker
import psutil

from tests.fakes.paths import short_tempdir
from tests.fakes.patience import DEADLINE_S

IMAGE = "eva-test:latest"
_POLL_S = 0.05
_BUSYBOX = Path("/bin/busybox")
_PR_SET_PDEATHSIG = 1
_BRIDGES = 1 << 14
_TRIES = 20
_STARTS = 5


def available() -> bool:
    """Whether this machine can run an engine and has what its image is made of."""
    tools = all(shutil.which(name) for name in ("dockerd", "ip"))
    return os.geteuid() == 0 and tools and _BUSYBOX.exists()


class Engine:
    """An engine that can be stopped, killed, frozen and started again.

    Args:
        root: Directory for all that it keeps.
        live_restore: Whether containers outlive it.
        tools: Directory of programs that it finds before all others.
        options: More of its own options.
        before: Commands of a shell in a mount namespace of its own, which then runs it.
    """

    def __init__(
        self,
        root: Path,
        *,
        live_restore: bool = False,
        tools: Path | None = None,
        options: Sequence[str] = (),
        before: str = "",
    ) -> None:
        self._bridge = self.gateway = ""
        self._options = options
        shell = ("unshare", "--mount", "sh", "-ec", f'{before}\nexec "$@"', "dockerd")
        self._runs_it = shell if before else ()
        self.url = f"unix://{root / 'docker.sock'}"
        self._root = root
        self._live_restore = live_restore
        self._tools = tools
        self._driver = ""
        self._process: subprocess.Popen[bytes] | None = None

    def connect(self) -> None:
        """Make the bridge of its containers, which `disconnect` removes; its name reserves it.

        Raises:
            RuntimeError: There is no bridge to be had.
        """
        for number in (secrets.randbelow(_BRIDGES) for _ in range(_TRIES)):
            self._bridge = f"eva{number}"
            self.gateway = f"10.{192 + (number >> 8)}.{number & 0xFF}.1"
            # An address of its own. One that it takes over from its first container goes with that
            # container, and the others reach nobody until they have forgotten it.
            own = f"02:00:00:00:{number >> 8:02x}:{number & 0xFF:02x}"
            add = ("link", "add", self._bridge, "address", own, "type", "bridge")
            made = _ip(*add, check=False)
            if made.returncode == 0:
                _ip("address", "add", f"{self.gateway}/24", "dev", self._bridge)
                _ip("link", "set", self._bridge, "up")
                return
        raise RuntimeError(f"no bridge for containers: {made.stderr.decode()}")

    def disconnect(self) -> None:
        """Remove the bridge."""
        _ip("link", "delete", self._bridge)

    def start(self) -> None:
        """Start it, again if it was stopped; raises `RuntimeError` if it does not come up."""
        drivers = (self._driver,) if self._driver else ("overlay2", "vfs")
        # dockerd gives up if its containerd needs more than 15 s, as it may on a busy machine.
        for driver in drivers * _STARTS:
            self._process = self._spawn(driver)
            if _answering(self.url, self._process):
                self._driver = driver
                return
            self.stop()
        raise RuntimeError(f"dockerd does not start:\n{(self._root / 'log').read_text()[-3000:]}")

    def stop(self, signal_: signal.Signals = signal.SIGTERM) -> None:
        """End it, in good order or (SIGKILL) not; returns when it is gone."""
        process = self._process
        if process is None:
            return
        running = process.poll() is None
        children = psutil.Process(process.pid).children() if running else []
        process.send_signal(signal_)
        try:
            process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for child in children:  # Its containerd, should it have been left.
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        psutil.wait_procs(children, DEADLINE_S)
        # A pid file that names a process, whichever, keeps the next engine from starting.
        (self._root / "pid").unlink(missing_ok=True)
        self._process = None

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Halt it, so that it takes connections and answers nothing."""
        assert self._process
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def _spawn(self, driver: str) -> subprocess.Popen[bytes]:
        def die_with_parent() -> None:
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)

        root = self._root
        path = os.pathsep.join(filter(None, (str(self._tools or ""), os.environ["PATH"])))
        with (root / "log").open("ab") as log:
            return subprocess.Popen(
                [
                    *self._runs_it,
                    *("dockerd", f"--storage-driver={driver}", f"--data-root={root / 'data'}"),
                    *(f"--exec-root={root / 'exec'}", f"--pidfile={root / 'pid'}"),
                    *(f"--bridge={self._bridge}", "--userland-proxy=false", "-H", self.url),
                    # Rules of a firewall would be this machine's.
                    *("--iptables=false", "--ip6tables=false", "--ip-masq=false"),
                    "--ip-forward=false",
                    *self._options,
                    *(["--live-restore"] if self._live_restore else []),
                ],
                env={**os.environ, "PATH": path},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=die_with_parent,  # noqa: PLW1509 - one system call
            )


@contextlib.contextmanager
def engine(
    *,
    live_restore: bool = False,
    tools: Path | None = None,
    options: Sequence[str] = (),
    before: str = "",
) -> Iterator[Engine]:
    """Run an engine that has `IMAGE`. Leaves no container, mount or file.

    Args:
        live_restore: Whether containers outlive it.
        tools: Directory of programs that it finds before all others.
        options: More of its own options.
        before: See `Engine`.
    """
    root = Path(tempfile.mkdtemp(prefix="eva-dockerd-", dir=short_tempdir()))
    root.chmod(0o711)  # Containers' root may be another user.
    running = Engine(root, live_restore=live_restore, tools=tools, options=options, before=before)
    running.connect()
    try:
        running.start()
        with contextlib.closing(_client(running.url)) as client:
            client.api.import_image_from_data(
                busybox_root(), repository=IMAGE, changes=["ENV PATH=/bin", "ENV OF_IMAGE=1"]
            )
        yield running
        with contextlib.closing(_client(running.url)) as client:
            _remove_containers(client)
    finally:
        running.stop()
        running.disconnect()
        _remove(root)


@contextlib.contextmanager
def running() -> Iterator[str]:
    """Run an engine that has `IMAGE`; yields its URL."""
    with engine() as running:
        yield running.url


def _client(url: str) -> Any:
    """A client with as much patience as all tests have."""
    return docker.DockerClient(base_url=url, timeout=int(DEADLINE_S))


def _ip(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["ip", *arguments], check=check, capture_output=True)


def _answering(url: str, process: subprocess.Popen[bytes]) -> bool:
    """Wait for an engine; tells whether it is up, or gave up."""
    deadline = time.monotonic() + DEADLINE_S
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(docker.errors.DockerException, OSError):
            _client(url).close()
            return True
        time.sleep(_POLL_S)
    return False


def _remove_containers(client: Any) -> None:
    """Remove all containers, also those that are just being removed by others."""
    deadline = time.monotonic() + DEADLINE_S
    while left := client.containers.list(all=True, ignore_removed=True):
        for container in left:
            # The container is gone, or about to be.
            with contextlib.suppress(docker.errors.APIError):
                container.remove(force=True)
        if time.monotonic() > deadline:
            raise TimeoutError(f"containers that cannot be removed: {left}")
        time.sleep(_POLL_S)


def _remove(root: Path) -> None:
    """Remove an engine's files; shims of its containers, which outlive it, do so meanwhile."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        _unmount_below(root)
        shutil.rmtree(root, ignore_errors=True)
        if not root.exists():
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"of a Docker engine there is left: {list(root.iterdir())}")
        time.sleep(_POLL_S)


def _unmount_below(root: Path) -> None:
    """The engine mounts its data onto itself, and the namespaces that it keeps."""
    points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    for point in sorted((p for p in points if p.startswith(f"{root}/")), reverse=True):
        # The mount may be gone by now.
        subprocess.run(["umount", "--lazy", point], check=False, capture_output=True)


def busybox_root(mark: str = "") -> bytes:
    """A root directory with a shell and the small tools, as a tar file.

    Args:
        mark: Makes it unlike those with another mark.
    """
    names = subprocess.run([_BUSYBOX, "--list"], check=True, capture_output=True, text=True)
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        for name, mode in (("bin", 0o755), ("tmp", 0o1777)):
            # Some storage drivers let nobody into a directory that is not named.
            directory = tarfile.TarInfo(name)
            directory.type, directory.mode = tarfile.DIRTYPE, mode
            tar.addfile(directory)
        tar.add(_BUSYBOX.resolve(), "bin/busybox")
        for name in set(names.stdout.split()) - {"busybox"}:
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
        if mark:
            tar.addfile(tarfile.TarInfo(mark))
    return data.getvalue()
