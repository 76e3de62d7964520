"""Short tasks in the queues of servers that their job has asked, as Eagle and CloudCoaster have it.

A server's queue is a line that is limited to it. A job stays in the queues of the servers that it
has asked as long as its tasks wait, so that a server that finishes one takes the next one of the
same job if none goes before it ("divide and stick to your probes"); the first start of a task
removes it from all queues.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from eva_master.model.ids import InstanceId, JobId, Millis
from eva_master.model.planning.snapshot import JobView
from eva_master.model.planning.standing import Line
from eva_master.policies.cloudcoaster.order import Key

PER_TASK = 2
"""How many servers a job asks for each of its tasks (Sparrow, section 3.1)."""
AT_LEAST = 20
"""It asks so many however few tasks it has."""
Where = InstanceId | int
"""A server, or one that the plan buys by its key there."""
Probes = Mapping[JobId, Mapping[Where, int]]
"""The servers that each job has asked, with the milliseconds for which each has run tasks of jobs
that came later."""


@dataclass(frozen=True, slots=True)
class Server:
    """What a job may ask.

    Attributes:
        pool: The pool by which lines claim its room.
        transient: Whether it is for short tasks alone, and the cloud may take it back.
        steady: Whether it is for short tasks alone, and stays.
        long: Whether a task of another job is on it.
        released: Whether it only finishes what stands in its queue.
    """

    id: Where
    pool: str
    transient: bool = False
    steady: bool = False
    long: bool = False
    released: bool = False


def asked(job: JobId, tasks: int, servers: Sequence[Server], seed: int = 1) -> tuple[Where, ...]:
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
    dice = _Dice(f"{seed} {job}")
    count = max(AT_LEAST, PER_TASK * tasks)
    first = _some(dice, servers, count)
    found = {it.id: it for it in first if not it.long}
    again = [it for it in servers if not it.long and it.id not in found]
    found |= {it.id: it for it in _some(dice, again, count - len(found))}
    transient = sum(it.transient for it in found.values())
    stays = [it for it in servers if it.steady and it.id not in found]
    found |= {it.id: it for it in _some(dice, stays, transient)}
    return tuple(found)


class _Dice:
    """Numbers that depend on a text alone."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._thrown = 0

    def below(self, sides: int) -> int:
        """The next number, from 0 on and below `sides`."""
        self._thrown += 1
        digest = blake2b(f"{self._text} {self._thrown}".encode(), digest_size=8).digest()
        return int.from_bytes(digest) % sides


def _some(dice: _Dice, servers: Sequence[Server], count: int) -> Sequence[Server]:
    """So many of them by chance, all if they are no more (Fisher and Yates)."""
    if count >= len(servers):
        return servers
    left = list(servers)
    for place in range(count):
        other = place + dice.below(len(left) - place)
        left[place], left[other] = left[other], left[place]
    return left[: max(0, count)]


@dataclass(frozen=True, slots=True)
class Waiting:
    """A job of which tasks wait.

    Attributes:
        tasks: How many.
        each_ms: How long one of them runs.
        servers: Those that could hold one if nobody were there.
    """

    job: JobView
    tasks: int
    each_ms: int
    servers: Mapping[Where, Server]


def probed(waiting: Iterable[Waiting], before: Probes, seed: int) -> Probes:
    """Which servers each job has asked: those of the round before, while any of them is there.

    Args:
        waiting: Jobs of which tasks wait.
        before: Which servers each had asked by the round before.
        seed: See `asked`.
    """
    found: dict[JobId, Mapping[Where, int]] = {}
    for one in waiting:
        there = before.get(one.job.id, {})
        kept = {server: passed for server, passed in there.items() if server in one.servers}
        if not kept:
            open_ones = tuple(it for it in one.servers.values() if not it.released)
            names = asked(one.job.id, one.tasks, open_ones or tuple(one.servers.values()), seed)
            kept = dict.fromkeys(names, 0)
        found[one.job.id] = kept
    return found


def passed_over(
    probes: Probes,
    running: Mapping[Where, tuple[Millis, JobId]],
    submitted: Mapping[JobId, Millis],
    elapsed_ms: int,
) -> Probes:
    """The same once servers have run tasks for some time.

    Who has asked a server, and came before the job of the task there, was passed over.

    Args:
        probes: Which servers each job has asked.
        running: The latest submitted job of which a task is on a server, behind the time at which
            it was submitted.
        submitted: When the jobs that wait were submitted.
        elapsed_ms: For how long.
    """
    return {
        job: {
            server: passed + elapsed_ms * ((submitted[job], job) < running.get(server, (0, job)))
            for server, passed in those.items()
        }
        for job, those in probes.items()
        if job in submitted
    }


def queues(
    waiting: Sequence[Waiting],
    probes: Probes,
    order: Callable[[JobView], Key],
    age_cap: int,
    patience_ms: int,
) -> tuple[Line, ...]:
    """The line of each server that somebody has asked.

    Who was passed over there for `age_cap` times the run time of a task goes first.

    Args:
        waiting: Jobs of which tasks wait.
        probes: Which servers each has asked.
        order: Who goes first among the others.
        age_cap: See above.
        patience_ms: See `Line`.
    """
    jobs: dict[tuple[Where, str], list[JobId]] = {}
    early: dict[tuple[Where, str], list[JobId]] = {}
    for one in sorted(waiting, key=lambda one: order(one.job)):
        enough = age_cap * one.each_ms
        for server, passed in probes[one.job.id].items():
            there = jobs if passed < enough else early
            there.setdefault((server, one.servers[server].pool), []).append(one.job.id)
    came = {one.job.id: (one.job.submitted_ms, one.job.id) for one in waiting}
    return tuple(
        Line(
            (pool,),
            (
                *sorted(early.get((server, pool), ()), key=came.__getitem__),
                *jobs.get((server, pool), ()),
            ),
            only=(server,),
            patience_ms=patience_ms,
        )
        for server, pool in sorted(jobs.keys() | early.keys(), key=_known_first)
    )


def _known_first(queue: tuple[Where, str]) -> tuple[bool, int, str]:
    server, _ = queue
    return (True, server, "") if isinstance(server, int) else (False, 0, server)
