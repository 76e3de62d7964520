"""How large objects are cut, and how much of them is in memory."""

from __future__ import annotations

import asyncio

import pytest

from eva_worker.files.parts import BUFFERS, MIB, ByteAllowance, plan

TIB = MIB << 20


@pytest.mark.parametrize("size", [0, 1, MIB, 8 * MIB, 8 * MIB + 1, 1 << 30, 100 << 30, 300 << 30])
def test_a_plan_holds_what_s3_demands_and_memory_allows(size: int) -> None:
    how = plan(size)
    assert how.buffers <= BUFFERS
    assert size <= how.part * 10_000
    assert how.part >= 5 * MIB or size <= how.part


def test_the_largest_object_of_all_has_one_part_at_a_time() -> None:
    how = plan(5 * TIB)
    assert how.at_once == 1
    assert how.part * 10_000 >= 5 * TIB


async def test_an_allowance_is_never_exceeded_and_serves_in_order() -> None:
    allowance = ByteAllowance(10)
    held, most, order = 0, 0, []

    async def use(name: int, wanted: int) -> None:
        nonlocal held, most
        async with allowance.of(wanted):
            order.append(name)
            held += min(wanted, 10)
            most = max(most, held)
            await asyncio.sleep(0)
            held -= min(wanted, 10)

    await asyncio.gather(*(use(name, wanted) for name, wanted in enumerate([4, 7, 3, 99, 1, 6])))
    assert order == [0, 1, 2, 3, 4, 5]
    assert most <= 10
    assert held == 0


async def test_who_gives_up_waiting_leaves_nothing_behind() -> None:
    allowance = ByteAllowance(10)

    async def hold(wanted: int) -> None:
        async with allowance.of(wanted):
            await asyncio.Event().wait()

    first = asyncio.create_task(hold(8))
    await asyncio.sleep(0)
    waiting = [asyncio.create_task(hold(wanted)) for wanted in (5, 6)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    await asyncio.sleep(0)
    first.cancel()
    waiting[1].cancel()
    await asyncio.gather(first, *waiting, return_exceptions=True)
    async with asyncio.timeout(5), allowance.of(10):
        pass
