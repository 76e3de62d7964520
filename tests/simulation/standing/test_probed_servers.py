"""Queues at servers, as Eagle has them, against a plain scheduler of such queues."""

from __future__ import annotations

import heapq
import json
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from statistics import fmean, median

import pytest

from benchmarks import short_jobs
from tests.simulation.standing.test_fixed_clusters import CUTOFF_S, lines_of

SHARED, SHORT = 20, 4
"""So few that every job asks all that hold no long task: nothing is up to chance."""
CAP = 5


@dataclass
class Job:
    """A job as a line of a trace has it, and how long each of its tasks has waited."""

    at: float
    mean: float
    durations: list[float]
    waits: list[float] = field(default_factory=list)


def jobs_of(lines: str) -> list[Job]:
    """The jobs of a trace."""
    rows = [[float(word) for word in line.split()] for line in lines.splitlines()]
    return [Job(at, mean, durations) for at, _, mean, *durations in rows]


class Queues:
    """Servers with a queue each; long jobs stand in one line for the shared ones.

    A job stands in the queues of all servers that hold no long task when it comes. What a server
    takes next is what has least left, unless somebody before it in the queue would have let others
    pass for more than five times its own estimate.
    """

    def __init__(self) -> None:
        self.long: list[Job] = []
        self._running: list[Job | None] = [None] * (SHARED + SHORT)
        self._queues: list[list[Job]] = [[] for _ in self._running]
        self._passed: list[dict[int, float]] = [{} for _ in self._running]

    def asked(self, job: Job) -> list[int]:
        """Where a short job stands from now on."""
        found = [n for n, it in enumerate(self._running) if it is None or it.mean < CUTOFF_S]
        for server in found:
            self._queues[server].append(job)
        return found

    def idle(self) -> list[int]:
        """The servers on which nothing runs."""
        return [n for n, it in enumerate(self._running) if it is None]

    def take(self, server: int) -> Job | None:
        """What runs on a server from now on."""
        queue = self._queues[server] = [it for it in self._queues[server] if _waits(it)]
        job = self._next(server, queue) if queue else None
        if job is None and server < SHARED and self.long:
            job = self.long[0]
        self._running[server] = job
        return job

    def _next(self, server: int, queue: list[Job]) -> Job:
        passed = self._passed[server]
        least = min(queue, key=_left)
        before = queue[: queue.index(least)]
        enough = (it for it in before if passed.get(id(it), 0.0) + least.mean > CAP * it.mean)
        first = next(enough, least)
        for it in queue[: queue.index(first)]:
            passed[id(it)] = passed.get(id(it), 0.0) + first.mean
        return first


def _waits(job: Job) -> bool:
    return len(job.waits) < len(job.durations)


def _left(job: Job) -> float:
    return job.mean * (len(job.durations) - len(job.waits))


def queued(jobs: list[Job]) -> None:
    """Serve the jobs of a trace."""
    queues, order = Queues(), count()
    events: list[tuple[float, int, int, Job | None]] = [
        (job.at, next(order), -1, job) for job in jobs
    ]

    def serve(now: float, servers: list[int]) -> None:
        for server in servers:
            job = queues.take(server)
            if job is not None:
                took = job.durations[len(job.waits)]
                job.waits.append(now - job.at)
                heapq.heappush(events, (now + took, next(order), server, None))
                if not _waits(job) and job in queues.long:
                    queues.long.remove(job)

    while events:
        now, _, server, job = heapq.heappop(events)
        if job is None:
            serve(now, [server])
        elif job.mean < CUTOFF_S:
            idle = set(queues.idle())
            serve(now, [it for it in queues.asked(job) if it in idle])
        else:
            queues.long.append(job)
            serve(now, queues.idle())


@pytest.mark.explore
def test_waits_are_those_of_such_queues(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ratios: dict[str, list[float]] = {"short": [], "long": []}
    for seed in range(1, 9):
        lines = lines_of(seed)
        jobs = jobs_of(lines)
        trace = tmp_path / f"{seed}.tr"
        trace.write_text(lines)
        queued(jobs)
        size = ["--servers", str(SHARED + SHORT), "--short", str(SHORT), "--provisioning", "0"]
        chosen = ["--cutoff", str(CUTOFF_S), "--policy", "eagle", "--json"]
        assert short_jobs.main([str(trace), *size, *chosen]) == 0
        found = json.loads(capsys.readouterr().out)
        for kind, those in ratios.items():
            ours = [job for job in jobs if (job.mean < CUTOFF_S) == (kind == "short")]
            waits = [it for job in ours for it in job.waits]
            assert found[f"{kind}_tasks"] == len(waits)
            those.append(found[f"{kind}_wait_mean_s"] / fmean(waits))
        assert found["reruns"] == 0
        assert found["transients_peak"] == 0
    # A quarter of a second until a job is planned for decides who is long where it comes; with so
    # few servers that may change a whole trace, to either side.
    assert 0.95 < median(ratios["short"]) < 1.05
    assert 0.95 < median(ratios["long"]) < 1.05
    assert sum(0.98 < it < 1.02 for it in ratios["short"]) >= 3
