"""The schedule of a job that pays best at posted prices (Astraea, algorithms 3 to 5)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from eva_policies.astraea_published.calendar import Calendar, Ints, Least, sums
from eva_policies.astraea_published.requests import Bandwidth, Request, Schedule
from eva_wire.values.ids import Family

_NEVER = -(1 << 62)
_MANY = 1 << 30


@dataclass(frozen=True, slots=True)
class TypeLimit:
    """Upper limit of a job's use of one type in each slot, free or not.

    Attributes:
        gpus: GPUs by slot. ps: Parameter servers by slot.
    """

    gpus: Ints
    ps: Ints


def best(
    request: Request,
    calendars: Mapping[Family, Calendar],
    limits: Mapping[Family, TypeLimit],
    bandwidth: Bandwidth,
    first: int = 0,
    *,
    priced: bool = True,
) -> Schedule | None:
    """The schedule of a job with the largest payoff.

    Args:
        request: The job.
        calendars: Use of the fleet, by type.
        limits: Limits of its tenant.
        bandwidth: Bandwidth between servers.
        first: The first slot in which a job can start.
        priced: Whether prices count; otherwise the earliest end is best.

    Returns:
        The schedule, of equals with the fewest members, then the earliest; `None` if none fits.
    """
    chosen: Schedule | None = None
    for family in sorted(request.need):
        if family not in calendars or family not in limits:
            continue
        search = _ScheduleSearch(
            request, family, (calendars[family], limits[family]), bandwidth, first
        )
        schedule = search.best(priced=priced)
        if schedule is not None and (chosen is None or schedule.payoff > chosen.payoff):
            chosen = schedule
    return chosen


class _ScheduleSearch:
    """Tries all starts and numbers of members on one type."""

    def __init__(
        self,
        request: Request,
        family: Family,
        room: tuple[Calendar, TypeLimit],
        bandwidth: Bandwidth,
        first: int,
    ) -> None:
        calendar, limit = room
        self._request = request
        self._family = family
        self._calendar = calendar
        self._bandwidth = bandwidth
        self._first = first
        self._gpus = request.need[family].gpus
        self._room = Least(calendar.room(request.need[family]))
        self._ps = Least(calendar.ps)
        self._gpu_limit, self._ps_limit = Least(limit.gpus), Least(limit.ps)
        self._gpu_prices, self._ps_prices = calendar.gpu_prices(), calendar.ps_prices()
        self._worth = np.array(request.worth, dtype=np.int64)

    def best(self, *, priced: bool) -> Schedule | None:
        """The schedule that pays best here."""
        chosen: tuple[int, int, int, bool] | None = None  # Payoff, members, start, together.
        for members in range(self._request.least, self._request.most + 1):
            for together in (True, False):
                if not together and members < 2:
                    continue
                length = self._request.lengths(self._family, members, not together)
                if length > self._calendar.slots - self._first:
                    continue
                payoffs = self._payoffs(members, length, together=together, priced=priced)
                start = int(np.argmax(payoffs))
                payoff = int(payoffs[start])
                # Of equals all on one server is better (line 6 of algorithm 3).
                if payoff > _NEVER and (chosen is None or payoff > chosen[0]):
                    chosen = payoff, members, start, together
        return None if chosen is None else self._schedule(*chosen)

    def _payoffs(self, members: int, length: int, *, together: bool, priced: bool) -> Ints:
        """By start."""
        worth = self._worth[length - 1 :]
        ps = self._servers(members, length, together=together)
        possible = self._gpu_limit.over(length) >= members * self._gpus
        possible &= ps.max(axis=0, initial=-1) >= 0
        if self._request.trains:
            possible &= self._ps_limit.over(length) >= 1
        possible[: self._first] = False
        if priced:
            fewest = np.where(ps >= 0, ps, _MANY).min(axis=0, initial=_MANY)
            worth = worth - self._costs(members, length, np.where(possible, fewest, 0))
        else:
            worth = -np.arange(length, length + len(worth))
        return np.where(possible, worth, _NEVER)

    def _costs(self, members: int, length: int, ps: Ints | int) -> Ints:
        gpus = members * self._gpus * sums(self._gpu_prices, length)
        costs: Ints = gpus + ps * sums(self._ps_prices, length)
        return costs

    def _servers(self, members: int, length: int, *, together: bool) -> Ints:
        """How many parameter servers each server would have, by start; -1 where it cannot be."""
        room = self._room.over(length)
        if together:
            own = room >= members
            if self._request.trains:
                own &= self._ps.over(length) >= 1
            return np.where(own, int(self._request.trains), -1)
        here = np.minimum(members - 1, room)
        apart = members - here
        possible = room.sum(axis=0) - room >= apart
        if not self._request.trains:
            return np.where(possible, 0, -1)
        link = self._bandwidth
        wanted = -(-apart * link.worker_mbps // link.ps_mbps)
        least = np.minimum(self._ps.over(length), self._ps_limit.over(length))
        count = np.minimum(wanted, least)
        # After being cut to what is free they have to carry the bandwidth all the same.
        carried = apart * link.worker_mbps <= count * link.ps_mbps
        return np.where(possible & (count >= 1) & carried, count, -1)

    def _schedule(self, payoff: int, members: int, start: int, together: bool) -> Schedule:
        length = self._request.lengths(self._family, members, not together)
        ps = self._servers(members, length, together=together)[:, start]
        candidates = np.flatnonzero(ps >= 0)
        home = int(candidates[np.argmin(ps[candidates])])
        room = self._room.over(length)[:, start]
        if together:
            # Any server will do; the fullest leaves room for others.
            home = int(candidates[np.argmin(room[candidates])])
        placed = {home: members if together else min(members - 1, int(room[home]))}
        missing = members - placed[home]
        others = sorted((int(free), number) for number, free in enumerate(room) if number != home)
        for free, number in others:
            count = min(free, missing)
            if count > 0:
                placed[number] = count
                missing -= count
        count = int(ps[home])
        costs = self._costs(members, length, count)
        return Schedule(
            self._family,
            start,
            start + length,
            tuple(sorted((number, count) for number, count in placed.items() if count)),
            (home, count) if self._request.trains else None,
            int(costs[start]),
            payoff,
        )
