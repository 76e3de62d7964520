"""Short tasks in the queues of servers that their job has asked, as Eagle and CloudCoaster have it.

A server's queue is a line that is limited to it. A job stays in the queues of the servers that it
has asked as long as its tasks wait, so that a server that finishes one takes the next one of the
same job if none goes before it ("divide and stick to your probes"); the first start of a task
removes it from all queues.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from eva_master.model.ids import InstanceId, JobId
from eva_master.model.planning.snapshot import JobView
from eva_master.model.planning.standing import Line
from eva_master.policies.cloudcoaster.order import Key

PER_TASK = 2
"""How many servers a job asks for each of its tasks (Sparrow, section 3.1)."""
AT_LEAST = 20
"""It asks so many however few tasks it has."""


@dataclass(frozen=True, slots=True)
class Server:
    """What a job may ask.

    Attributes:
        pool: The pool by which lines claim its room.
        transient: Whether it is for short tasks alone, and the cloud may take it back.
        steady: Whether it is for short tasks alone, and stays.
        long: Whether a task of another job is on it.
    """

    id: InstanceId
    pool: str
    transient: bool = False
    steady: bool = False
    long: bool = False


def asked(
    job: JobId, tasks: int, servers: Sequence[Server], seed: int = 1
) -> tuple[InstanceId, ...]:
    """Which servers a job asks; the same for the same servers.

    First any of them, at random. Those that hold a long task refuse, and say which others do, so
    that in their place as many are asked that hold none, as those for short tasks alone never do.
    For each transient server one that stays is asked, too: what waits has a place in line whatever
    the cloud takes back.

    Args:
        job: Whose tasks wait.
        tasks: How many of them.
        servers: Those that could hold one if nobody were there.
        seed: Which of them chance takes.
    """
    dice = Random(f"{seed} {job}")  # noqa: S311 - nothing secret
    count = max(AT_LEAST, PER_TASK * tasks)
    first = _some(dice, servers, count)
    found = {it.id: it for it in first if not it.long}
    again = [it for it in servers if not it.long and it.id not in found]
    found |= {it.id: it for it in _some(dice, again, count - len(found))}
    transient = sum(it.transient for it in found.values())
    stays = [it for it in servers if it.steady and it.id not in found]
    found |= {it.id: it for it in _some(dice, stays, transient)}
    return tuple(found)


def _some(dice: Random, servers: Sequence[Server], count: int) -> Sequence[Server]:
    if count >= len(servers):
        return servers
    return dice.sample(servers, max(0, count))


@dataclass(frozen=True, slots=True)
class Waiting:
    """A job of which tasks wait.

    Attributes:
        tasks: How many.
        servers: Those that could hold one if nobody were there.
    """

    job: JobView
    tasks: int
    servers: Mapping[InstanceId, Server]


def probed(
    waiting: Iterable[Waiting], before: Mapping[JobId, Sequence[InstanceId]], seed: int
) -> dict[JobId, tuple[InstanceId, ...]]:
    """Which servers each job has asked: those of the round before, while any of them is there.

    Args:
        waiting: Jobs of which tasks wait.
        before: Which servers each had asked by the round before.
        seed: See `asked`.
    """
    found = {}
    for one in waiting:
        kept = tuple(it for it in before.get(one.job.id, ()) if it in one.servers)
        found[one.job.id] = kept or asked(one.job.id, one.tasks, tuple(one.servers.values()), seed)
    return found


def queues(
    waiting: Sequence[Waiting],
    probes: Mapping[JobId, Sequence[InstanceId]],
    order: Callable[[JobView], Key],
    patience_ms: int,
) -> tuple[Line, ...]:
    """The line of each server that somebody has asked.

    Args:
        waiting: Jobs of which tasks wait.
        probes: Which servers each has asked.
        order: Who goes first.
        patience_ms: See `Line`.
    """
    jobs: dict[tuple[InstanceId, str], list[JobId]] = {}
    for one in sorted(waiting, key=lambda one: order(one.job)):
        for server in probes[one.job.id]:
            jobs.setdefault((server, one.servers[server].pool), []).append(one.job.id)
    return tuple(
        Line((pool,), tuple(there), only=(server,), patience_ms=patience_ms)
        for (server, pool), there in sorted(jobs.items())
    )
