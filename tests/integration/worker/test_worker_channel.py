"""A master that is cut off is noticed, though no connection is closed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import grpc
import pytest

from eva_wire._proto import worker_pb2 as pb
from eva_wire._proto.worker_pb2_grpc import WorkersStub
from tests.fakes.rpc.master import FakeMaster

DEADLINE_S = 20  # Less than gRPC's own minute.


class Line:
    """A TCP line that can be cut without either end being told."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._cut = asyncio.Event()
        self._work: set[asyncio.Task[None]] = set()

    async def open(self) -> int:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1")
        return int(self._server.sockets[0].getsockname()[1])

    def cut(self) -> None:
        self._cut.set()

    async def close(self) -> None:
        self._server.close()
        for task in self._work:
            task.cancel()
        await asyncio.gather(*self._work, return_exceptions=True)

    async def _accept(self, here: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        there, out = await asyncio.open_connection("127.0.0.1", self._port)
        for pair in ((here, out), (there, back)):
            task = asyncio.create_task(self._pass(*pair))
            self._work.add(task)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            if not self._cut.is_set():
                writer.write(data)
        writer.close()


async def test_cut_line_ends_the_stream(tmp_path: Path) -> None:
    master = FakeMaster(tmp_path)
    await master.start()
    line = Line(master.port)
    channel = master.channel(await line.open(), keepalive_ms=300)
    try:
        call = WorkersStub(channel).Session()
        await call.write(pb.WorkerMessage(register=pb.Register(instance_id="i-1")))
        welcome = await call.read()
        assert welcome.welcome.cluster == "test"
        line.cut()
        async with asyncio.timeout(DEADLINE_S):
            with pytest.raises(grpc.aio.AioRpcError) as lost:
                await call.read()
        assert lost.value.code() is grpc.StatusCode.UNAVAILABLE
    finally:
        await channel.close()
        await line.close()
        await master.vanish()
