"""Runs coroutines at once, without `asyncio.TaskGroup`.

A group of which a member has failed leaves its task marked as being cancelled. Before Python 3.11.3
no time-out of that task then ends as one: it ends the task, as a cancellation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

_PARALLEL = 8
"""Files of one task that are transferred at a time, however many others want."""
_T = TypeVar("_T")
_R = TypeVar("_R")


async def together(work: Iterable[Coroutine[Any, Any, _T]]) -> list[_T]:
    """Run all at once and return their results; the first failure cancels the rest."""
    tasks = [asyncio.ensure_future(coroutine) for coroutine in work]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


def failure_of(task: asyncio.Task[Any]) -> BaseException | None:
    """Why a task that has ended did not do all of its work: an error, or that it was cancelled."""
    if task.cancelled():
        return RuntimeError(f"{task.get_name()} was cancelled")
    return task.exception()


async def each(items: Iterable[_T], what: Callable[[_T], Coroutine[Any, Any, _R]]) -> list[_R]:
    """Do something with every item, some at a time; the first failure cancels the rest."""
    waiting = iter(items)
    done: list[_R] = []

    async def work() -> None:
        for item in waiting:
            done.append(await what(item))

    await together(work() for _ in range(_PARALLEL))
    return done
