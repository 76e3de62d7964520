"""Tasks on a machine's network reach neither the metadata service nor the agent's ports."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from eva_worker.errors import Unprotected
from eva_worker.isolation import UNPRIVILEGED, Isolation
from eva_worker.runtime import docker
from eva_worker.runtime.docker import firewall
from eva_worker.settings import Settings
from tests.fakes.rpc.master import DEADLINE_S, FakeMaster
from tests.integration.worker.test_worker_agent import Worker

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

OPEN = """
from eva_worker.errors import Unprotected
from eva_worker.runtime.registry import RuntimeProvider

def protect(self, settings):
    raise Unprotected("no firewall works")

RuntimeProvider.protect = protect
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


@pytest.mark.parametrize("uid", [0, 1000])
def test_no_task_runs_where_the_metadata_service_stays_open(
    uid: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def close(_: Sequence[int]) -> str:
        raise firewall.NotClosed("nft: not permitted")

    monkeypatch.setattr(firewall, "close", close)
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    place = ("m:1", "i-1", "t", 0, 1000, 1, Path("/x"))
    instance = Settings(*place, metadata_url="http://169.254.169.254")
    with pytest.raises(Unprotected, match="boot an image that has nft or iptables"):
        docker.RUNTIME.protect(instance)
    # Its hardware is this machine's, whose rules are not Eva's.
    docker.RUNTIME.protect(Settings(*place, metadata_url="http://127.0.0.1:1", emulated=True))


async def test_an_agent_that_lets_no_task_run_says_why_and_ends_its_instance(
    master: FakeMaster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(OPEN)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    worker = Worker(master, tmp_path)
    try:
        await worker.start("--power-off", f"touch {shlex.quote(str(tmp_path / 'off'))}")
        worker.order("touch ran")
        assert worker.process
        async with asyncio.timeout(DEADLINE_S):
            assert await worker.process.wait() == 0
    finally:
        await worker.end()
    assert {session.register.unfit for session in master.sessions} == {"no firewall works"}
    assert master.goodbyes == ["no firewall works"]
    assert not (worker.path() / "work" / "ran").exists()
    assert (tmp_path / "off").exists()
