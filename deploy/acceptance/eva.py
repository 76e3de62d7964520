"""The `eva` command as the trial's steps call it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any


class StepFailed(Exception):
    """A step did not come out as it should."""


class Eva:
    """Runs the command against one cluster.

    Args:
        cluster: Name of the cluster.
        region: Its region.
        work: Directory for the client file and the log.
        tell: Called with each line that is shown.
        poll_s: Seconds between two looks of `deploy` and `teardown`; `None` for the usual.
    """

    def __init__(
        self,
        cluster: str,
        region: str,
        work: Path,
        tell: Callable[[str], None],
        poll_s: float | None = None,
    ) -> None:
        self.cluster, self.work = cluster, work
        self.client_file = work / "client.yaml"
        self._tell = tell
        self._place = ["--cluster", cluster, "--region", region]
        self._place += [] if poll_s is None else ["--poll-s", str(poll_s)]
        self._running: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()
        self._stopped = ""

    def stop(self, why: str) -> None:
        """Have the present and all further calls fail; any thread may call."""
        with self._lock:
            self._stopped = why
            if self._running is not None and self._running.poll() is None:
                self._running.send_signal(signal.SIGTERM)

    def check(self) -> None:
        """Raise `StepFailed` if `stop` was called."""
        if self._stopped:
            raise StepFailed(self._stopped)

    def go_on(self) -> None:
        """Allow calls again, after `stop`."""
        self._stopped = ""

    def account(self, *arguments: str) -> str:
        """Run a command about the account, such as deploy; see `run`."""
        return self.run(*arguments, *self._place)

    def json(self, *arguments: str) -> Any:
        """Run a command and return the JSON that it prints."""
        return json.loads(self.run(*arguments, "--json"))

    def run(self, *arguments: str, code: int = 0) -> str:
        """Run a command.

        Args:
            arguments: Of the command.
            code: The exit code that is right.

        Returns:
            Its standard output; standard error goes to the log.

        Raises:
            StepFailed: Another exit code, or `stop` was called.
        """
        self._tell(f"$ eva {' '.join(arguments)}")
        log = self.work / "log.txt"
        start = log.stat().st_size if log.exists() else 0
        with log.open("ab") as said:
            with self._lock:
                if self._stopped:
                    raise StepFailed(self._stopped)
                self._running = subprocess.Popen(
                    [sys.executable, "-m", "eva_client.cli", *arguments],
                    env={**os.environ, "EVA_CONFIG": str(self.client_file)},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=said,
                    text=True,
                    # Ctrl-C is for this program, which then ends the command.
                    start_new_session=True,
                )
            try:
                output, _ = self._running.communicate()
            except BaseException:
                self._running.terminate()
                self._running.wait()
                raise
        if self._stopped:
            raise StepFailed(self._stopped)
        if self._running.returncode != code:
            with log.open("rb") as said:
                said.seek(start)
                words = said.read().decode(errors="replace").strip()[-1500:]
            command = " ".join(arguments[:2])
            raise StepFailed(f"eva {command} ended with {self._running.returncode}: {words}")
        return output
