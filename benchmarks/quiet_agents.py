"""Runs many agents in one process, each with its own connection and one running task.

Run as `python -m benchmarks.quiet_agents REQUEST`, a JSON file with the master's `address` for
agents, its `authorities`, and the `agents`, each with `instance`, `key`, `certificate`, and the
`run` that runs there. They register, send an empty heartbeat as often as they are told to, and
answer `Sync`; they do so until SIGTERM.
"""

from __future__ import annotations

import asyncio
import json
import random
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from eva_wire._proto import worker_pb2 as pb
from eva_wire._proto.worker_pb2_grpc import WorkersStub
from eva_worker.link.channel import dial

Outgoing = asyncio.Queue[pb.WorkerMessage]

_CONNECTING = 50
"""Number of agents that connect at a time."""


class QuietAgent:
    """One agent.

    Args:
        address: ``HOST:PORT`` of the master.
        authorities: In PEM.
        instance: The agent's instance.
        key: In PEM, as is the certificate.
        certificate: Its certificate.
        run: Task run here, in its first attempt.
    """

    def __init__(
        self,
        address: str,
        *,
        authorities: str,
        instance: str,
        key: str,
        certificate: str,
        run: str,
    ) -> None:
        self._address = address
        self._authorities = authorities.encode()
        self._key = key.encode()
        self._certificate = certificate.encode()
        self._running = pb.TaskReport(run_id=run, attempt=1, phase=pb.PHASE_RUNNING)
        self._register = pb.Register(
            instance_id=instance, tasks=[self._running], agent_version="bench"
        )

    async def run(self, dialling: asyncio.Semaphore) -> None:
        """Register, then beat until the stream ends.

        Raises:
            grpc.aio.AioRpcError: The stream broke.
        """
        outgoing: Outgoing = asyncio.Queue()
        outgoing.put_nowait(pb.WorkerMessage(register=self._register))
        async with AsyncExitStack() as stack:
            async with dialling:
                channel = dial(
                    self._address,
                    authorities=self._authorities,
                    key=self._key,
                    certificate=self._certificate,
                )
                stub: Any = WorkersStub(await stack.enter_async_context(channel))
                call = stub.Session(_each(outgoing))
                welcome = (await call.read()).welcome
            beating = asyncio.create_task(_beat(outgoing, welcome.heartbeat_ms / 1000))
            stack.callback(beating.cancel)
            everything = pb.WorkerMessage(reports=pb.Reports(tasks=[self._running], complete=True))
            while isinstance(message := await call.read(), pb.MasterMessage):
                if message.WhichOneof("body") == "sync":
                    outgoing.put_nowait(everything)


async def _each(outgoing: Outgoing) -> AsyncIterator[pb.WorkerMessage]:
    while True:
        yield await outgoing.get()


async def _beat(outgoing: Outgoing, every_s: float) -> None:
    await asyncio.sleep(every_s * random.random())  # agents do not start at the same moment
    while True:
        outgoing.put_nowait(pb.WorkerMessage(heartbeat=pb.Heartbeat()))
        await asyncio.sleep(every_s)


async def _run(path: str) -> None:
    request = json.loads(Path(path).read_text())
    dialling = asyncio.Semaphore(_CONNECTING)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    master = {"address": request["address"], "authorities": request["authorities"]}
    agents = [
        asyncio.create_task(QuietAgent(**master, **agent).run(dialling))
        for agent in request["agents"]
    ]
    await stop.wait()
    for agent in agents:
        agent.cancel()
    ends = await asyncio.gather(*agents, return_exceptions=True)
    for end in {repr(end) for end in ends if isinstance(end, Exception)}:
        print(end, file=sys.stderr)


if __name__ == "__main__":
    asyncio.run(_run(sys.argv[1]))
