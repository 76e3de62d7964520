"""Users whose master is far away: a connection takes its time to come about."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from eva_client.rpc.master import Client
from eva_wire.values.users import Role
from tests.fakes.rpc.server import rpc_master

FAR_S = 0.7
"""Time that the first byte takes; a handshake over a bad line takes as long."""


@asynccontextmanager
async def far(port: int) -> AsyncIterator[int]:
    """A port that passes connections on to a port, after a while."""

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(FAR_S)
        far_side, back = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(copy(reader, back), copy(far_side, writer))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def test_a_command_reaches_a_master_that_is_far_away(tmp_path: Path) -> None:
    async with rpc_master(tmp_path) as master, far(master.ports.users) as port:
        secret = master.tokens.create("ana", Role.USER)[1]

        def jobs() -> list[object]:
            address = f"127.0.0.1:{port}"
            with Client(address, authorities=master.authorities, token=secret) as client:
                return list(client.jobs())

        assert await asyncio.to_thread(jobs) == []
