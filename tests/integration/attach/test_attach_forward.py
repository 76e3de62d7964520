"""Connections to ports of running tasks, with the client's own end."""

from __future__ import annotations

import asyncio
import hashlib
import http.server
import shlex
import socket
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from eva_client.attach.forwarding import Forwarding
from eva_client.attach.places import NamedRun
from eva_client.rpc.master import Client
from eva_wire.values.errors import AttachRefused, CannotListen, EvaError
from eva_wire.values.users import Role
from tests.fakes.patience import DEADLINE_S
from tests.fakes.rpc.attaching import AttachWorld, attach_world
from tests.fakes.rpc.ports import free_port
from tests.fakes.rpc.server import RpcMaster

BIG = 3_000_000


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
async def world(tmp_path: Path, port: int) -> AsyncIterator[AttachWorld]:
    """A task that serves its directory."""
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "big").write_bytes(bytes(range(250)) * (BIG // 250))
    command = f"exec {shlex.quote(sys.executable)} -m http.server {port} --bind 127.0.0.1"
    async with attach_world(tmp_path, command) as running:
        async with asyncio.timeout(DEADLINE_S):
            while not _listens(port):
                await asyncio.sleep(0.05)
        yield running


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def client_of(master: RpcMaster) -> Client:
    """The command's own client, as ana."""
    secret = master.tokens.create("ana", Role.USER)[1]
    address = f"127.0.0.1:{master.ports.users}"
    return Client(address, authorities=master.authorities, token=secret)


def forwarding(world: AttachWorld, client: Client, port: int, errors: list[EvaError]) -> Forwarding:
    """A forwarding to the task."""
    return Forwarding(client, NamedRun(world.job).port(port), errors.append)


async def test_a_server_in_a_task_is_reached(world: AttachWorld, port: int) -> None:
    errors: list[EvaError] = []

    def use() -> tuple[list[str], list[EvaError]]:
        with client_of(world.master) as client:
            forward = forwarding(world, client, port, errors)
            here = forward.listen(0, "")
            forward.check()
            threading.Thread(target=forward.run, daemon=True).start()
            digests = []
            for _ in range(3):
                with urllib.request.urlopen(f"http://127.0.0.1:{here}/big") as answer:
                    digests.append(hashlib.sha256(answer.read()).hexdigest())
            with pytest.raises(urllib.error.HTTPError, match="404"):
                urllib.request.urlopen(f"http://127.0.0.1:{here}/none")
            return digests, list(errors)

    digests, met = await asyncio.to_thread(use)
    expected = hashlib.sha256((world.home / "big").read_bytes()).hexdigest()
    assert digests == [expected] * 3
    assert met == []


async def test_a_port_of_the_machine_is_refused(world: AttachWorld) -> None:
    """This process listens there, as another task might."""
    with http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as server:
        other = server.server_address[1]

        def use() -> None:
            with client_of(world.master) as client:
                forwarding(world, client, other, []).check()

        with pytest.raises(AttachRefused, match=f"train-1/0 listens on port {other}"):
            await asyncio.to_thread(use)


async def test_a_local_port_that_is_taken_is_told_in_one_line(world: AttachWorld) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, client_of(world.master) as client:
        number = taken.getsockname()[1]
        with pytest.raises(CannotListen) as error:
            forwarding(world, client, 8888, []).listen(
                number, "write 8888:0 for any port that is free"
            )
    assert (
        str(error.value) == f"port {number} of this machine cannot be had: Address already in use"
    )
    assert error.value.hint == "write 8888:0 for any port that is free"
