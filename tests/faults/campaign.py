"""One episode of the campaign: a cluster of test hosts that is given no rest, then checked."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import psutil
from docker.errors import DockerException

from eva_wire.values.errors import Unreachable
from tests.e2e.accounts import check_accounts, check_bill
from tests.e2e.cluster import until
from tests.e2e.kill_matrix import matrix
from tests.fakes.hosts.cluster import HostCluster

T = TypeVar("T")

PATIENCE_S = 900.0
"""For whatever is waited for; such a run may share its machine."""

_JOBS = 4
_LONGEST_PAUSE_S = 12.0
_CATALOG: dict[str, Any] = {
    "types": {
        "e2e.pair": {"cpus": 4, "memory": "8GiB", "price": "$0.20/h"},
        "e2e.one": {"cpus": 2, "memory": "4GiB", "price": "$0.12/h"},
    },
    "only": ["e2e"],
}
_SHAPES: list[dict[str, Any]] = [
    {},
    {},
    {"kind": "array", "tasks": 2},
    {"kind": "gang", "tasks": 2},
]

KILLS = ("kill master", "kill agent", "kill supervisor", "kill engine", "kill task")
PAUSES = ("pause master", "pause agent", "pause supervisor", "pause engine", "pause task")


@dataclass
class Result:
    """What an episode came to.

    Attributes:
        faults: How many of each kind there were.
        jobs: How many jobs were submitted.
        attempts: How many attempts their tasks took.
        again: Tasks that ran again after they had finished.
        wrong: What else must not be.
    """

    faults: dict[str, int] = field(default_factory=dict)
    jobs: int = 0
    attempts: int = 0
    again: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    seconds: float = 0.0


class Episode:
    """A cluster under fire.

    Args:
        cluster: Started.
        rng: Decides everything that can be decided.
    """

    def __init__(self, cluster: HostCluster, rng: random.Random) -> None:
        self._cluster = cluster
        self._rng = rng
        self._paused: list[psutil.Process] = []
        self._away = False
        self._shapes: dict[str, dict[str, Any]] = {}
        self._open: list[str] = []
        self._places: dict[str, list[str]] = {}
        self.result = Result()

    def run(self, count: int) -> Result:
        """Let `count` faults happen, then let everything end, and look at what has become of it."""
        began = time.monotonic()
        while sum(self.result.faults.values()) < count:
            self._keep_busy()
            self._look()
            for _ in range(self._rng.randint(1, 3)):
                self._strike()
                if self._rng.random() < 0.4:
                    self._finish_one()
                time.sleep(self._rng.uniform(0, 2))
            time.sleep(self._rng.uniform(0, _LONGEST_PAUSE_S))
            self._relent()
        self._end()
        self.result.seconds = round(time.monotonic() - began, 1)
        return self.result

    def logs(self) -> list[tuple[str, str]]:
        """Titles and ends of the logs that tell why something went wrong."""
        return self._cluster.logs()

    # -- load ------------------------------------------------------------------------------------

    def _keep_busy(self) -> None:
        while len(self._open) < _JOBS:
            shape = self._rng.choice(_SHAPES)
            name = f"j{len(self._shapes)}"
            job = ask(
                lambda name=name, shape=shape: matrix.submit(
                    self._cluster, name, retries=1000, **shape
                )
            )
            self._shapes[job] = shape
            self._open.append(job)
            self.result.jobs += 1

    def _look(self) -> None:
        """Note where tasks are; nobody can be asked while the master is away."""
        for job in self._open:
            tasks = ask(lambda job=job: self._cluster.job(job).tasks)
            self._places[job] = [task.instance for task in tasks if task.state == "running"]

    def _finish_one(self) -> None:
        """Have a program come to its end, whoever is dead or paused at the moment."""
        if self._open:
            job = self._open.pop(self._rng.randrange(len(self._open)))
            self._cluster.finish(job)

    # -- faults ----------------------------------------------------------------------------------

    def _strike(self) -> None:
        what = self._rng.choice(KILLS + PAUSES)
        verb, _, whom = what.partition(" ")
        try:
            done = self._strike_master(verb) if whom == "master" else self._strike_at(verb, whom)
        except (psutil.NoSuchProcess, ValueError, IndexError, OSError, DockerException):
            return  # It is dead, or just not there, or an engine that is paused was asked for it.
        if done:
            self.result.faults[what] = self.result.faults.get(what, 0) + 1

    def _strike_master(self, verb: str) -> bool:
        if self._away:
            return False
        self._away = True
        if verb == "kill":
            self._cluster.kill()
        else:
            self._pause(self._cluster.master())
        return True

    def _strike_at(self, verb: str, whom: str) -> bool:
        cluster = self._cluster
        if whom == "task":
            # A task that is coming to its end may be done when the signal arrives.
            jobs = [job for job in self._open if self._places.get(job)]
            if self._away or not jobs:
                return False
            target = cluster.container(f"{self._rng.choice(jobs)}/0")
        else:
            instances = sorted({it for places in self._places.values() for it in places if it})
            find: Callable[[str], psutil.Process] = getattr(cluster, whom)
            target = find(self._rng.choice(instances))
        if verb == "kill":
            target.kill()
        else:
            self._pause(target)
        return True

    def _pause(self, process: psutil.Process) -> None:
        process.suspend()
        self._paused.append(process)

    def _relent(self) -> None:
        """Have everything that is paused or dead go on, in any order."""
        self._rng.shuffle(self._paused)
        for process in self._paused:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()
            time.sleep(self._rng.uniform(0, 0.5))
        self._paused.clear()
        if self._away:
            if not self._cluster.runs():
                self._cluster.start()
            self._away = False

    # -- the end ---------------------------------------------------------------------------------

    def _end(self) -> None:
        cluster = self._cluster
        cluster.finish(*self._open)
        for job in self._shapes:
            ended = f"{job} ends"
            finished = lambda job=job: ask(lambda: cluster.job(job).finished_ms)  # noqa: E731
            until(finished, ended, within_s=PATIENCE_S)
        gone = "instances go"
        left = lambda: ask(lambda: cluster.client.describe().instances)  # noqa: E731
        until(lambda: not left(), gone, within_s=PATIENCE_S)
        until(lambda: not cluster.leftovers(), "nothing is left of them", within_s=PATIENCE_S)
        for job, shape in self._shapes.items():
            self._check_job(job, shape)
        self._check("the bill", lambda: check_bill(cluster))
        cluster.stop()
        self._check("the books", lambda: check_accounts(cluster))

    def _check(self, what: str, check: Callable[[], None]) -> None:
        try:
            check()
        except AssertionError as error:
            self.result.wrong.append(f"{what}: {error}")

    def _check_job(self, job: str, shape: dict[str, Any]) -> None:
        ended = self._cluster.job(job)
        if ended.state != "succeeded":
            self.result.wrong.append(f"{job} has {ended.state}: {ended.reason}")
        for index in range(shape.get("tasks", 1)):
            lines = self._cluster.lines(job, index)
            attempts = [line.attempt for line in lines]
            self.result.attempts += len(set(attempts))
            if any(line.event == "overlap" for line in lines) or attempts != sorted(attempts):
                self.result.wrong.append(f"{job}/{index} ran twice at a time")
            # A gang starts over as a whole, with the members that had finished.
            if shape.get("kind") != "gang":
                finished = self._finished(f"{job}/{index}")
                if finished != [max(attempts)]:
                    story = [
                        f"{it.event} {it.attempt} step {it.step} at {it.at_ms}"
                        for it in lines
                        if it.event not in ("step", "checkpoint")
                    ]
                    told = f"{job}/{index} finished in attempts {finished}: {', '.join(story)}"
                    self.result.again.append(told)

    def _finished(self, run: str) -> list[int]:
        """The attempts whose log has the word that only a shell that was not stopped writes."""
        logs = self._cluster.state_dir / "objects" / "jobs" / run / "logs"
        said = {
            int(attempt.name): b"".join(it.read_bytes() for it in sorted(attempt.iterdir()))
            for attempt in sorted(logs.iterdir())
        }
        return [attempt for attempt, text in said.items() if b"over" in text.splitlines()]


def ask(question: Callable[[], T]) -> T:
    """Ask a master that may just have been started on a busy machine; repeated without harm."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return question()
        except Unreachable:
            if time.monotonic() > deadline:
                raise
            time.sleep(1)


@contextlib.contextmanager
def cluster_of(seed: int) -> Iterator[HostCluster]:
    """A cluster of test hosts, whose containers outlive their engine every other time."""
    settings = matrix.settings(round_min_interval="500ms", resend_interval="5s")
    cluster = HostCluster(settings=settings, catalog=_CATALOG, live_restore=seed % 2 == 0)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()
