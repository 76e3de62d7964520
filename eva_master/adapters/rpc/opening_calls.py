"""Limits calls of agents that have not said yet what they are for.

gRPC takes the first message of each into memory, however many an agent makes.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc

from eva_wire.rpc.errors import BadRequest
from eva_wire.values.errors import Busy
from eva_wire.values.ids import InstanceId

Context = grpc.aio.ServicerContext[Any, Any]

_AGAIN_S = 5.0


class OpeningCalls:
    """Calls of one kind before their first message, by instance. Only the asyncio thread uses it.

    Args:
        kind: The calls, for messages, such as ``sessions``.
        longest_s: How long the first message may take.
    """

    def __init__(self, kind: str, longest_s: float) -> None:
        self._kind = kind
        self._longest_s = longest_s
        self._counts: Counter[InstanceId] = Counter()

    @contextmanager
    def counted(self, instance: InstanceId, most: int) -> Iterator[None]:
        """Count a call of an instance's agent while it has said nothing.

        Raises:
            Busy: There are as many already as there may be.
        """
        if self._counts[instance] >= most:
            raise Busy.until(f"instance {instance} opens too many {self._kind}", _AGAIN_S)
        self._counts[instance] += 1
        try:
            yield
        finally:
            self._counts[instance] -= 1
            if not self._counts[instance]:
                del self._counts[instance]

    async def first(self, context: Context) -> object:
        """The first message of a call.

        Raises:
            BadRequest: The message does not come in time.
        """
        try:
            async with asyncio.timeout(self._longest_s):
                message: object = await context.read()
        except TimeoutError:
            raise BadRequest("the first message did not come in time") from None
        return message
