"""Use of the servers of one type, slot by slot of a round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from eva_master.model.resources import Resources
from eva_master.packing.fleet.posted_price import posted_price
from eva_master.packing.valuation.vectors import WIDTH, vector
from eva_policies.astraea_published.theta import Full
from eva_wire.values.ids import InstanceId

Ints = npt.NDArray[np.int64]
_AMPLE = 1_000_000
"""So many members of a task that needs nothing find room on a server."""


@dataclass(frozen=True, slots=True)
class CalendarServer:
    """A machine of the type.

    Attributes:
        instance: Its id; `None` if it is still to be launched.
        capacity: Its capacity when it is empty.
    """

    instance: InstanceId | None
    capacity: Resources


class Calendar:
    """The servers of one type over the slots of a round.

    Args:
        servers: The servers, in order.
        slots: The length of the round.
        ps_per_server: Number of parameter servers that each has room for.
        full: The prices when everything is in use.

    Attributes:
        servers: The servers, in order.
        slots: The length of the round.
        ps: Number of parameter servers with room, by server and slot.
    """

    def __init__(
        self, servers: Sequence[CalendarServer], slots: int, ps_per_server: int, full: Full
    ) -> None:
        self.servers = tuple(servers)
        self.slots = slots
        sizes = np.array([vector(server.capacity) for server in servers], dtype=np.int64).reshape(
            -1, WIDTH
        )
        self._free: Ints = np.repeat(sizes[:, np.newaxis, :], slots, axis=1)
        self.ps: Ints = np.full((len(servers), slots), ps_per_server, dtype=np.int64)
        self._gpus, self._all_ps = int(sizes[:, 0].sum()), ps_per_server * len(servers)
        self._full = full

    def room(self, need: Resources) -> Ints:
        """Number of members with a demand that find room, by server and slot."""
        room = np.full(self._free.shape[:2], _AMPLE, dtype=np.int64)
        for part, amount in enumerate(vector(need)):
            if amount:
                room = np.minimum(room, np.maximum(self._free[:, :, part], 0) // amount)
        return room

    def gpu_prices(self) -> Ints:
        """Price of a GPU in each slot, in micro-dollars."""
        used = self._gpus - self._free[:, :, 0].sum(axis=0)
        return self._posted(self._full.gpu, used, self._gpus)

    def ps_prices(self) -> Ints:
        """Price of a parameter server in each slot, in micro-dollars."""
        used = self._all_ps - self.ps.sum(axis=0)
        return self._posted(self._full.ps, used, self._all_ps)

    def take(self, server: int, start: int, end: int, need: Resources, members: int) -> None:
        """Use room of a server for members with a demand, from one slot up to another."""
        self._free[server, start:end] -= np.array(vector(need.times(members)), dtype=np.int64)

    def take_ps(self, server: int, start: int, end: int, count: int) -> None:
        """Use the room of so many parameter servers."""
        self.ps[server, start:end] -= count

    @staticmethod
    def _posted(full: int, used: Ints, capacity: int) -> Ints:
        price_of = {
            number: posted_price(full, max(0, number), capacity) for number in set(used.tolist())
        }
        return np.array([price_of[number] for number in used.tolist()], dtype=np.int64)


class Least:
    """The least of a series over each window of slots.

    Args:
        series: The last axis is that of slots.
    """

    def __init__(self, series: Ints) -> None:
        self._tables = [series]

    def over(self, length: int) -> Ints:
        """The least over windows of a length, by the first slot of the window."""
        level = length.bit_length() - 1
        while len(self._tables) <= level:
            last, step = self._tables[-1], 1 << (len(self._tables) - 1)
            self._tables.append(np.minimum(last[..., :-step], last[..., step:]))
        table, count = self._tables[level], self._tables[0].shape[-1] - length + 1
        return np.minimum(table[..., :count], table[..., length - (1 << level) :][..., :count])


def sums(series: Ints, length: int) -> Ints:
    """The sum over windows of a length, by the first slot of the window."""
    total = np.concatenate(([0], np.cumsum(series)))
    window_sums: Ints = total[length:] - total[:-length]
    return window_sums
