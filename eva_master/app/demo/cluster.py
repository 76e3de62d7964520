"""A private cluster: `eva up` as a process of its own, with its state in a temporary directory."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import psutil
import yaml

from eva_client.rpc.master import Client
from eva_wire.values.errors import Unreachable

_HERE = Path(__file__).parent
_START_S = 60.0
_STOP_S = 30.0
_LINGER_S = 5.0
_POLL_S = 0.1


class DemoFailed(Exception):
    """The demo failed; the message says how."""


class DemoCluster:
    """A cluster on this machine, from `start` to `stop`.

    Attributes:
        home: The temporary directory; its path marks the processes of the cluster.
    """

    def __init__(self) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="eva-demo-"))
        self.scratch.mkdir()
        self._client: Client | None = None
        self._master: subprocess.Popen[bytes] | None = None

    @property
    def client(self) -> Client:
        """A connection to the master, since `start`."""
        assert self._client is not None
        return self._client

    @property
    def scratch(self) -> Path:
        """For temporary files of the cluster and its jobs: a killed process leaves them behind."""
        return self.home / "tmp"

    @property
    def log(self) -> Path:
        """The output of the master so far."""
        return self.home / "master.log"

    def start(self, settings: Mapping[str, str] | None = None) -> None:
        """Start the master, and wait until it answers.

        Args:
            settings: More of the master's settings, as variables of its environment.

        Raises:
            DemoFailed: The master ended, or it took too long to answer.
        """
        command = [
            *(sys.executable, "-m", "eva_client.cli", "up"),
            *("--config", str(_HERE / "master.yaml")),
            *("--catalog-file", str(_HERE / "catalog.yaml")),
            *("--state-dir", str(self.home / "state")),
            *("--listen", "127.0.0.1:0"),
        ]
        with self.log.open("wb") as log:
            # In a session of its own: Ctrl-C is for the demo, which then ends the master.
            self._master = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**self._environment(), **(settings or {})},
                start_new_session=True,
            )
        expiry = time.monotonic() + _START_S
        while not self._opened():
            if self._master.poll() is not None:
                raise DemoFailed(f"the master ended at once:\n{self.log.read_text()}")
            if time.monotonic() > expiry:
                raise DemoFailed(f"the master does not answer after {_START_S:g} s")
            time.sleep(_POLL_S)

    def _environment(self) -> dict[str, str]:
        """The environment of this process without the user's settings of Eva."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("EVA_")}
        return {**kept, "TMPDIR": str(self.scratch), "XDG_RUNTIME_DIR": str(self.scratch)}

    def _opened(self) -> bool:
        """Whether the master has written the settings for clients, and answers."""
        settings = self.home / "state" / "client.yaml"
        if not settings.exists():
            return False
        values = yaml.safe_load(settings.read_text())
        client = Client(
            values["address"],
            authorities=Path(values["ca_file"]).read_bytes(),
            token=values["token"],
        )
        try:
            client.describe()
        except Unreachable:
            client.close()
            return False
        self._client = client
        return True

    def stop(self) -> list[str]:
        """End the cluster as Ctrl-C ends `eva up`, by force if need be.

        Returns:
            The processes that it left behind and that had to be killed; none unless there is a bug.
        """
        if self._client is not None:
            self._client.close()
        if self._master is not None:
            self._master.send_signal(signal.SIGTERM)
            try:
                self._master.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                self._master.kill()
                self._master.wait()
        # The master's helpers end by themselves when they see that it is gone.
        expiry = time.monotonic() + _LINGER_S
        while self._processes() and time.monotonic() < expiry:
            time.sleep(_POLL_S)
        remains: list[str] = []
        while processes := self._processes():
            remains += [f"{each.pid} {' '.join(each.info['cmdline'])}" for each in processes]
            for process in processes:
                process.kill()
            psutil.wait_procs(processes, timeout=1)
        return remains

    def remove(self) -> None:
        """Remove the state of the cluster."""
        shutil.rmtree(self.home, ignore_errors=True)

    def _processes(self) -> list[psutil.Process]:
        """The processes whose arguments or environment name the cluster's directory."""
        mark = str(self.home)
        marked = []
        for process in psutil.process_iter(["cmdline", "environ", "status"]):
            texts = [*(process.info["cmdline"] or ()), *(process.info["environ"] or {}).values()]
            dead = process.info["status"] == psutil.STATUS_ZOMBIE
            if any(mark in text for text in texts) and not dead and process.pid != os.getpid():
                marked.append(process)
        return marked
