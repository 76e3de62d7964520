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

from eva_master.model.planning.job_view import JobView
from eva_master.model.planning.standing import Line
from eva_policies.cloudcoaster.order import Key
from eva_wire.values.ids import InstanceId, JobId, Millis

PER_TASK = 2
"""How many servers a job asks for each of its tasks (Sparrow, section 3.1)."""
AT_LEAST = 20
"""Least number of servers asked, however few tasks the job has."""
Where = InstanceId | int
"""A server, by its id or, for one that the plan buys, by its key there."""
Probes = Mapping[JobId, Mapping[Where, int]]
"""The servers that each job has asked, with the milliseconds for which each has run tasks of jobs
that came later.
"""


@dataclass(frozen=True, slots=True)
class ProbedServer:
    """A server that a job may ask.

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


def asked(
    job: JobId, tasks: int, servers: Sequence[ProbedServer], seed: int = 1
) -> tuple[Where, ...]:
    """Servers that a job asks; equal for equal arguments.

    First any servers are drawn at random. Servers that hold a long task refuse, and name others, so
    as many without long tasks are drawn in their place; servers for short tasks alone never refuse.
    For each transient server a server that stays is asked, too: each waiting task keeps a place in
    line even if the cloud takes servers back.

    Args:
        job: The job whose tasks wait.
        tasks: Number of its waiting tasks.
        servers: Servers that could hold one of them if they were empty.
        seed: Seed of the draw.
    """
    dice = _Dice(f"{seed} {job}")
    count = max(AT_LEAST, PER_TASK * tasks)
    first = _some(dice, servers, count)
    chosen = {server.id: server for server in first if not server.long}
    again = [server for server in servers if not server.long and server.id not in chosen]
    chosen |= {server.id: server for server in _some(dice, again, count - len(chosen))}
    transient = sum(server.transient for server in chosen.values())
    stays = [server for server in servers if server.steady and server.id not in chosen]
    chosen |= {server.id: server for server in _some(dice, stays, transient)}
    return tuple(chosen)


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


def _some(dice: _Dice, servers: Sequence[ProbedServer], count: int) -> Sequence[ProbedServer]:
    """A random choice of so many of the servers, all if they are no more (Fisher and Yates)."""
    if count >= len(servers):
        return servers
    shuffled = list(servers)
    for place in range(count):
        other = place + dice.below(len(shuffled) - place)
        shuffled[place], shuffled[other] = shuffled[other], shuffled[place]
    return shuffled[: max(0, count)]


@dataclass(frozen=True, slots=True)
class ProbingJob:
    """A job with waiting tasks.

    Attributes:
        tasks: Number of its waiting tasks.
        each_ms: Run time of one of them.
        servers: Servers that could hold one of them if they were empty.
    """

    job: JobView
    tasks: int
    each_ms: int
    servers: Mapping[Where, ProbedServer]


def probed(waiting: Iterable[ProbingJob], before: Probes, seed: int) -> Probes:
    """Servers that each job has asked: those of the round before, while any of these exists.

    Args:
        waiting: Jobs with waiting tasks.
        before: Servers that each had asked by the round before.
        seed: See `asked`.
    """
    probes: dict[JobId, Mapping[Where, int]] = {}
    for job_waiting in waiting:
        asked_before = before.get(job_waiting.job.id, {})
        kept = {
            server: passed
            for server, passed in asked_before.items()
            if server in job_waiting.servers
        }
        if not kept:
            open_ones = tuple(
                server for server in job_waiting.servers.values() if not server.released
            )
            names = asked(
                job_waiting.job.id,
                job_waiting.tasks,
                open_ones or tuple(job_waiting.servers.values()),
                seed,
            )
            kept = dict.fromkeys(names, 0)
        probes[job_waiting.job.id] = kept
    return probes


def passed_over(
    probes: Probes,
    running: Mapping[Where, tuple[Millis, JobId]],
    submitted: Mapping[JobId, Millis],
    elapsed_ms: int,
) -> Probes:
    """Probes after servers have run tasks for some time.

    A job that asked a server before the job of the task there was submitted was passed over.

    Args:
        probes: Servers that each job has asked.
        running: The latest submitted job of which a task is on a server, behind the time at which
            it was submitted.
        submitted: When the jobs that wait were submitted.
        elapsed_ms: The time.
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
    waiting: Sequence[ProbingJob],
    probes: Probes,
    order: Callable[[JobView], Key],
    age_cap: int,
    patience_ms: int,
) -> tuple[Line, ...]:
    """The line of each server that a job has asked.

    A job that was passed over there for `age_cap` times the run time of a task goes first.

    Args:
        waiting: Jobs with waiting tasks.
        probes: Servers that each has asked.
        order: Sort key of the others.
        age_cap: Factor described above.
        patience_ms: See `Line`.
    """
    jobs: dict[tuple[Where, str], list[JobId]] = {}
    early: dict[tuple[Where, str], list[JobId]] = {}
    for job_waiting in sorted(waiting, key=lambda one: order(one.job)):
        enough = age_cap * job_waiting.each_ms
        for server, passed in probes[job_waiting.job.id].items():
            queue = jobs if passed < enough else early
            queue.setdefault((server, job_waiting.servers[server].pool), []).append(
                job_waiting.job.id
            )
    came = {
        job_waiting.job.id: (job_waiting.job.submitted_ms, job_waiting.job.id)
        for job_waiting in waiting
    }
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
