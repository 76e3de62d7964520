"""Servers, and how many GPUs are free on them, as the search has them: those that are alike count.

Two servers of one type, with as many GPUs of which as many are free, are the same to everybody. So
what is free is a few numbers, however many servers there are, and two ways to fill different ones
of the same kind are one way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from eva_wire.values.ids import Family

Free = tuple[tuple[int, ...], ...]
"""By kind of server: how many servers have no GPU free, how many have one, and so on."""


class Kind(NamedTuple):
    """Servers that differ in what is free on them at most."""

    family: Family
    capacity: int


class Take(NamedTuple):
    """GPUs of one server.

    Attributes:
        kind: The number of its kind.
        free: How many were free there.
        tasks: How many tasks come there.
        gpus: How many GPUs these take.
    """

    kind: int
    free: int
    tasks: int
    gpus: int


@dataclass(frozen=True, slots=True)
class Server:
    """One of the servers.

    Attributes:
        name: Different ones differ.
        free: How many of its GPUs nobody has who keeps them.
    """

    name: str
    kind: Kind
    free: int


def kinds(servers: Iterable[Server]) -> tuple[Kind, ...]:
    """The kinds of some servers, in an order that does not depend on theirs."""
    return tuple(sorted({server.kind for server in servers}))


def free_of(servers: Iterable[Server], known: tuple[Kind, ...]) -> Free:
    """Free GPUs on servers of known kinds."""
    counts = [[0] * (kind.capacity + 1) for kind in known]
    number = {kind: index for index, kind in enumerate(known)}
    for server in servers:
        counts[number[server.kind]][server.free] += 1
    return tuple(tuple(row) for row in counts)


def taken(free: Free, takes: Iterable[Take]) -> Free:
    """Free GPUs after some have been taken, each take from another server."""
    rows: dict[int, list[int]] = {}
    for take in takes:
        row = rows.get(take.kind)
        if row is None:
            row = rows[take.kind] = list(free[take.kind])
        row[take.free] -= 1
        row[take.free - take.gpus] += 1
    return tuple(tuple(rows[kind]) if kind in rows else row for kind, row in enumerate(free))


def is_full(free: Free) -> bool:
    """Whether no GPU is free."""
    return not any(any(row[1:]) for row in free)


Chosen = tuple[str, tuple[Take, ...]]
"""Name of an ask, and the free GPUs that it takes after the asks before it."""


def seats(
    chosen: Iterable[Chosen],
    servers: Iterable[Server],
    homes: Mapping[str, Mapping[str, int]],
) -> dict[str, dict[str, int]]:
    """Choose the servers for takes, which name only kinds.

    A task that may stay where it is stays: among suitable servers the one with most of the ask's
    own tasks comes first, then one that is no other ask's home.

    Args:
        chosen: Takes of each ask, in the order of the decisions.
        servers: All servers.
        homes: Number of each ask's tasks on each server at present.

    Returns:
        Number of each ask's tasks for each server.
    """
    chosen = list(chosen)
    at_home = {server for name, _ in chosen for server in homes.get(name, ())}
    rooms: dict[tuple[Kind, int], list[str]] = {}
    kind_of = {server.name: server.kind for server in servers}
    for server in sorted(servers, key=lambda it: it.name):
        rooms.setdefault((server.kind, server.free), []).append(server.name)
    ordered_kinds = tuple(sorted(set(kind_of.values())))
    placements: dict[str, dict[str, int]] = {}
    for name, takes in chosen:
        home = homes.get(name, {})
        placed = placements[name] = {}
        returned = []
        for take in takes:
            room = rooms[ordered_kinds[take.kind], take.free]
            where = min(room, key=lambda it: (-min(home.get(it, 0), take.tasks), it in at_home, it))
            room.remove(where)
            placed[where] = take.tasks
            returned.append((ordered_kinds[take.kind], take.free - take.gpus, where))
        for kind, free, where in returned:
            rooms.setdefault((kind, free), []).append(where)
    return placements
