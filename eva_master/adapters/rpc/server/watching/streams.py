"""The stream of one caller: paced, and in bounded memory however slowly it is read."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection
from contextlib import aclosing, nullcontext

from eva_master.adapters.loop.gateway import LoopGateway
from eva_master.adapters.rpc.server.admission.pacing import Pacing
from eva_master.adapters.rpc.server.job_messages import JobMessages, SendingRoom
from eva_master.adapters.rpc.server.watching.editions import Editions
from eva_master.ports import Clock
from eva_master.ports.reading import Archive
from eva_wire.values.ids import JobId

_MANY = 20
"""A stream of more jobs than that counts as one of all."""


class JobStreams:
    """Streams of jobs for all callers.

    Args:
        gateway: Tells what changes.
        archive: Has ended jobs.
        clock: The time up to which costs are counted.
        pacing: Rates that users are granted.
    """

    def __init__(
        self, gateway: LoopGateway, archive: Archive, clock: Clock, pacing: Pacing
    ) -> None:
        self._gateway = gateway
        self._messages = JobMessages(gateway, archive, clock)
        self._editions = Editions(gateway, self._messages)
        self._pacing = pacing
        self._sending = SendingRoom()

    async def of(self, owner: str, chosen: Collection[JobId]) -> AsyncGenerator[bytes, None]:
        """Jobs, encoded, as they are and as they change; ends when all that were chosen have ended.

        Args:
            owner: The user who reads.
            chosen: Which jobs; those that have not ended, and those that come, if there is none.

        Raises:
            Busy: The user has too many streams of all jobs.
            TooSlow: The user does not read large messages.
        """
        whole = not chosen or len(chosen) > _MANY
        with self._pacing.all_jobs(owner) if whole else nullcontext():
            async with aclosing(self._named(chosen) if chosen else self._all()) as messages:
                async for data in messages:
                    await self._pacing.message(owner)
                    async with self._sending.taken(owner, len(data)):
                        yield data

    async def _all(self) -> AsyncGenerator[bytes, None]:
        with self._editions.read() as reader:
            async for data in reader:
                yield data

    async def _named(self, chosen: Collection[JobId]) -> AsyncGenerator[bytes, None]:
        with self._gateway.watch(chosen) as changes:
            due, unfinished = chosen, set(chosen)
            while True:
                async for message in self._messages.all(list(due)):
                    yield message.data
                    if message.over:
                        unfinished.discard(message.job)
                if not unfinished:
                    return
                due = await anext(changes)
