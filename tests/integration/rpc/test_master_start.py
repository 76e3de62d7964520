"""A master that cannot open all that it should says so and ends in good order."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import psutil
import pytest

from eva_master.adapters.listening import require_free
from eva_wire.values.errors import CannotListen
from tests.fakes.patience import DEADLINE_S
from tests.fakes.rpc.ports import free_port


def start(
    command: str, state: Path, *, env: Mapping[str, str] | None = None, **ports: str
) -> subprocess.CompletedProcess[str]:
    """Run a master that cannot start, on the given ports and otherwise on free ones."""
    given = {"listen": "127.0.0.1:0", "worker_listen": "127.0.0.1:0", **ports}
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in given.items()]
    return subprocess.run(
        [sys.executable, "-m", "eva_client.cli", command, f"--state-dir={state}", *flags],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
        env=env,
    )


@pytest.mark.parametrize(
    ("command", "setting"),
    [
        ("up", "listen"),
        pytest.param("master", "worker_listen", marks=pytest.mark.explore),
        pytest.param("master", "metrics_port", marks=pytest.mark.explore),
    ],
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


PROCESSES = {**os.environ, "EVA_MASTER_LOCAL__RUNTIME": "process"}
RUN_UP = """
import os, signal, sys
import eva_master.app.local as local
from eva_master.app.policy_registry import policies
from eva_master.app.settings import load_master_config

async def serve(config, *, power_off, on_open, tell):
    for number in range(3):
        tell(f"Stopping task {number}")
    print("stored")

local.serve = serve
local.run_up(load_master_config(policies=policies(), flags={"state_dir": sys.argv[1]}))
"""


def test_a_cluster_whose_reader_is_gone_is_ended_in_good_order(tmp_path: Path) -> None:
    """As that of `eva up 2>&1 | tee log` is by Ctrl-C, before anything is told."""
    reader, unread = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-c", RUN_UP, str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=unread,
        text=True,
        timeout=DEADLINE_S,
        check=False,
        env=PROCESSES,
    )
    os.close(unread)
    assert done.stdout == "stored\n"


@pytest.mark.parametrize("ignored", [False, True])
def test_the_end_of_its_terminal_ends_a_cluster_unless_it_is_ignored(
    tmp_path: Path, ignored: bool
) -> None:
    arguments = ["up", f"--state-dir={tmp_path}", "--listen=127.0.0.1:0"]
    eva = [sys.executable, "-m", "eva_client.cli", *arguments, "--worker-listen=127.0.0.1:0"]
    command = ["nohup", *eva] if ignored else eva
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=PROCESSES,
    ) as master:
        assert master.stdout is not None
        for line in master.stdout:
            if "Ctrl-C" in line:
                break
        master.send_signal(signal.SIGHUP)
        if ignored:
            with pytest.raises(subprocess.TimeoutExpired):
                master.wait(2)
            master.terminate()
        master.stdout.read()
        assert master.wait(DEADLINE_S) == 0


@pytest.mark.parametrize(
    "what",
    [
        "state",
        pytest.param("authority", marks=pytest.mark.explore),
        pytest.param("cloud", marks=pytest.mark.explore),
    ],
)
def test_files_in_the_way_are_named_without_a_word_of_python(tmp_path: Path, what: str) -> None:
    state = tmp_path / "state"
    in_the_way = {"state": state, "authority": state / "pki", "cloud": state / "cloud"}[what]
    in_the_way.parent.mkdir(exist_ok=True)
    in_the_way.write_text("not a directory")
    master = start("up", state, env=PROCESSES)
    assert master.returncode in (1, 2)
    told = [line for line in master.stderr.splitlines() if not line.startswith("{")]
    assert told[0].startswith("error: ")
    assert str(in_the_way) in told[0]
    assert not [line for line in told if "Traceback" in line or "Errno" in line]


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
