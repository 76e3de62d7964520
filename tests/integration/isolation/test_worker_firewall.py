"""Tasks on a machine's network reach neither the metadata service nor the agent's ports."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from eva_worker.isolation import UNPRIVILEGED, Isolation
from eva_worker.runtime import docker
from eva_worker.runtime.docker import firewall
from eva_worker.settings import Settings

TRIAL = """
import json, os, socket, subprocess, sys
from eva_worker.runtime.docker import firewall

def run(command, given):
    if sys.argv[1] == "iptables" and command[0] == "nft":
        raise FileNotFoundError("nft is not there")
    firewall._run(command, given)

def sh(command):
    subprocess.run(command, shell=True, check=True)

sh("ip link set lo up")
sh("ip address add 169.254.169.254/32 dev lo; ip address add fd00:ec2::254/128 dev lo nodad")
places = [("169.254.169.254", 80), ("fd00:ec2::254", 80), ("127.0.0.1", 9100), ("127.0.0.1", 9101)]
servers = [
    socket.create_server(it, family=socket.AF_INET6 if ":" in it[0] else socket.AF_INET)
    for it in places
]
done = [firewall.close([9100], run) for _ in range(2)]
"".encode("idna")
reached = {}
for user in (int(sys.argv[2]), 0):
    read, write = os.pipe()
    if os.fork() == 0:
        os.setgid(user)
        os.setuid(user)
        found = []
        for place in places:
            try:
                socket.create_connection(place, timeout=20).close()
                found.append(place)
            except OSError:
                pass
        os.write(write, json.dumps(found).encode())
        os._exit(0)
    os.close(write)
    reached[user] = json.loads(os.read(read, 4096))
    os.wait()
print(json.dumps([done, *reached.values()]))
"""


@pytest.mark.root
@pytest.mark.parametrize("program", ["nft", "iptables"])
def test_tasks_reach_what_is_open_and_nothing_else(program: str) -> None:
    if not shutil.which(program):
        pytest.skip(f"needs {program}")
    done = subprocess.run(
        [*("unshare", "--net", sys.executable, "-c", TRIAL), program, str(UNPRIVILEGED)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    closed_by, task, others = json.loads(done.stdout)
    assert closed_by == [program] * 2
    assert task == [["127.0.0.1", 9101]]
    assert len(others) == 4


def test_without_any_firewall_it_says_which_and_why() -> None:
    def refuse(command: Sequence[str], _: str) -> None:
        raise subprocess.CalledProcessError(4, command, stderr="Operation not permitted\n")

    with pytest.raises(firewall.NotClosed) as failed:
        firewall.close([], refuse)
    assert str(failed.value) == ("nft: Operation not permitted; iptables: Operation not permitted")


@pytest.mark.parametrize(
    ("user", "uid", "fails", "why"),
    [
        ("unprivileged", 0, False, None),
        ("unprivileged", 0, True, "no firewall"),
        ("unprivileged", 1000, False, "the worker is not root"),
        ("worker", 0, False, "tasks run as the worker's user, as the operator decided"),
    ],
)
def test_what_stays_open_is_said_loudly(
    user: str, uid: int, fails: bool, why: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def close(ports: Sequence[int]) -> str:
        assert ports == [9100]
        if fails:
            raise firewall.NotClosed("no firewall")
        return "nft"

    monkeypatch.setattr(firewall, "close", close)
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    settings = Settings(
        "m:1", "i-1", "t", 0, 1000, 1, Path("/x"), metrics_port=9100, isolation=Isolation(user)
    )
    with capture_logs() as logs:
        docker._close_addresses(settings)
    (said,) = logs
    assert (said["log_level"], said.get("reason")) == ("error" if why else "info", why)
