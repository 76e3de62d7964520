"""A session that ends leaves nothing behind in the agent."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import grpc

from eva_wire._proto import worker_pb2 as pb
from eva_worker.link.session import Session
from eva_worker.orders import Progress, Report, TaskKey, Welcome
from eva_worker.tasks.fence import LeaseFence
from eva_worker.tasks.registry import Tasks
from tests.fakes.patience import DEADLINE_S
from tests.fakes.rpc.master import FakeMaster


class Idle:
    """In place of `Tasks`: there are none."""

    def reports(self) -> list[Report]:
        return []

    def progress(self) -> Mapping[TaskKey, Progress]:
        return {}

    def disturbed(self) -> bool:
        return False


async def test_no_writer_outlives_its_session(tmp_path: Path) -> None:
    """The stream's writer waits for messages, also when the other side is dead."""
    master = FakeMaster(tmp_path)
    await master.start()
    mine = asyncio.all_tasks()
    channel = master.channel()
    up = asyncio.Event()

    async def welcomed(_: Welcome) -> None:
        return

    session = Session(
        channel,
        register=lambda: pb.Register(instance_id="i-1"),
        tasks=cast("Tasks", Idle()),
        welcomed=welcomed,
        notice=lambda: None,
        fence=LeaseFence(tmp_path / "lease"),
        dial=master.channel,
    )
    run = asyncio.create_task(session.run(up.set))
    async with asyncio.timeout(DEADLINE_S):
        await up.wait()
        await master.vanish()
        (result,) = await asyncio.gather(run, return_exceptions=True)
        assert isinstance(result, grpc.aio.AioRpcError | None)
        while left := asyncio.all_tasks() - mine:
            await asyncio.wait(left)
    await channel.close()
