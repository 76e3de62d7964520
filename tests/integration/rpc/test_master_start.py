"""A master that cannot open all that it should says so and ends in good order."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from eva_master.adapters.listening import require_free
from eva_master.model.errors import CannotListen
from tests.fakes.rpc.ports import free_port


def start(command: str, state: Path, **ports: str) -> subprocess.CompletedProcess[str]:
    """Run a master that cannot start, on the given ports and otherwise on free ones."""
    given = {"listen": "127.0.0.1:0", "worker_listen": "127.0.0.1:0", **ports}
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in given.items()]
    return subprocess.run(
        [sys.executable, "-m", "eva_master.app.cli", command, f"--state-dir={state}", *flags],
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )


@pytest.mark.parametrize(
    ("command", "setting"),
    [("up", "listen"), ("master", "worker_listen"), ("master", "metrics_port")],
)
def test_a_port_that_is_taken_is_named_with_its_holder(
    command: str, setting: str, tmp_path: Path
) -> None:
    """The words are Eva's alone: nothing of Python, of gRPC, or of its processes."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        address = str(port) if setting == "metrics_port" else f"127.0.0.1:{port}"
        master = start(command, tmp_path, **{setting: address})
    assert master.returncode == 2
    holder = f"{psutil.Process().name()} (pid {os.getpid()})"
    told = [line for line in master.stderr.splitlines() if not line.startswith("{")]
    assert told == [
        f"error: cannot listen on 127.0.0.1:{port} ({setting}): {holder} has this port",
        f"hint: end that process, or choose another port for {setting}",
    ]


def test_what_is_open_already_is_closed_again(tmp_path: Path) -> None:
    """The master goes away in good order if it fails after its ports were opened."""
    (tmp_path / "client.yaml").mkdir()
    master = start("master", tmp_path)
    assert master.returncode not in (0, -signal.SIGKILL)
    assert "never awaited" not in master.stderr
    assert "leaked" not in master.stderr


def test_addresses_that_nobody_can_listen_on() -> None:
    """Each is named with its setting, and what to write instead."""
    for address, why in (
        ("203.0.113.9:7411", "this machine has no such address"),
        ("no-such-host.invalid:7411", "nobody knows the host 'no-such-host.invalid'"),
    ):
        with pytest.raises(CannotListen, match=rf"{re.escape(address)} \(listen\): {why}") as told:
            require_free({"listen": address})
        assert "0.0.0.0" in told.value.hint


def test_the_same_port_twice_is_refused_by_name() -> None:
    port = free_port()
    with pytest.raises(CannotListen, match=r"worker_listen and listen are the same"):
        require_free({"listen": f"127.0.0.1:{port}", "worker_listen": f"127.0.0.1:{port}"})
    require_free({"listen": f"127.0.0.1:{port}", "worker_listen": "127.0.0.1:0"})
    require_free({"listen": "[::]:0", "worker_listen": f"0.0.0.0:{port}"})


def test_somebody_elses_process_is_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """What this user may not see is another process."""

    def denied(_kind: str) -> None:
        raise psutil.AccessDenied

    monkeypatch.setattr(psutil, "net_connections", denied)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(CannotListen, match="another process has this port"):
            require_free({"listen": address})
