"""Coroutines that run at once: what their task can do once one of them has failed."""

from __future__ import annotations

import asyncio

import pytest

from eva_worker.at_once import each, together


async def test_a_task_is_not_left_marked_as_being_cancelled() -> None:
    this = asyncio.current_task()
    assert this is not None

    async def failing() -> None:
        await asyncio.sleep(0)
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="the disk is full"):
        await together([failing(), asyncio.Event().wait()])  # type: ignore[list-item]

    assert this.cancelling() == 0
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await asyncio.Event().wait()


async def test_the_first_failure_ends_the_others_before_it_is_raised() -> None:
    ended: list[int] = []

    async def one(number: int) -> int:
        try:
            if number == 3:
                raise OSError("gone")
            await asyncio.Event().wait()
        finally:
            ended.append(number)
        return number

    with pytest.raises(OSError, match="gone"):
        await each(range(4), one)
    assert sorted(ended) == [0, 1, 2, 3]


async def test_a_cancellation_ends_all_of_them() -> None:
    begun, ended = asyncio.Event(), list[str]()

    async def member() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("member")

    task = asyncio.ensure_future(together([member(), member()]))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == ["member", "member"]


async def test_results_are_in_the_order_of_what_was_asked() -> None:
    async def after(turns: int) -> int:
        for _ in range(turns):
            await asyncio.sleep(0)
        return turns

    assert await together(after(turns) for turns in (3, 1, 2)) == [3, 1, 2]
