"""Large messages that are being sent take a bounded amount of memory."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from eva_master.adapters.rpc.server import job_messages
from eva_master.adapters.rpc.server.job_messages import SendingRoom
from eva_wire.rpc.errors import TooSlow

MIB = 1024 * 1024


async def test_a_user_s_messages_take_turns_and_small_ones_pass() -> None:
    room = SendingRoom()
    async with AsyncExitStack() as unread:
        for _ in range(8):
            await unread.enter_async_context(room.taken("ann", 2 * MIB))
        begun = asyncio.Event()

        async def send() -> None:
            async with room.taken("ann", 2 * MIB):
                begun.set()

        waiting = asyncio.create_task(send())
        await asyncio.sleep(0)
        async with room.taken("ann", 1000), room.taken("bob", 100 * MIB):
            assert not begun.is_set()
        await unread.aclose()
        await waiting
    async with room.taken("ann", 100 * MIB):
        pass


async def test_whoever_waits_behind_messages_that_nobody_reads_is_told_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(job_messages, "_PATIENCE_S", 0.01)
    room = SendingRoom()
    async with room.taken("ann", 16 * MIB):
        with pytest.raises(TooSlow, match="ann has 16 MiB of messages that nobody reads"):
            async with room.taken("ann", MIB):
                pass
    # Nothing is lost by it.
    async with room.taken("ann", 16 * MIB):
        pass


async def test_all_users_together_have_so_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_messages, "_PATIENCE_S", 0.01)
    room = SendingRoom()
    async with AsyncExitStack() as unread:
        for user in ("ann", "bob", "cyd", "dan"):
            await unread.enter_async_context(room.taken(user, 16 * MIB))
        with pytest.raises(TooSlow, match="others have 64 MiB"):
            async with room.taken("eve", MIB):
                pass
