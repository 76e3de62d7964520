"""Tells what happened, by comparing pictures of the cluster and reading the jobs' logs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from eva_client.cli.views.words import money, price
from eva_client.rpc.master import Client
from eva_wire.rpc.messages import Bill, ClusterState, Job, Task
from eva_wire.values.ids import number_of

ENDED = ("succeeded", "failed", "cancelled")
_NOTABLE = 0.15
"""A change of throughput that is worth a line, in parts of the throughput alone."""
_STEP = re.compile(r"step (\d+) (\w+) (\S+)")
_RESUMED = re.compile(r"resumed at step (\d+)")


class Progress:
    """How long nothing has gone on. Starts that come to nothing are no progress."""

    def __init__(self) -> None:
        self._most: dict[tuple[str, int], int] = {}
        self._ended = 0
        self._at_s = 0.0

    def none_for_s(self, picture: Picture, now_s: float) -> float:
        """The seconds since a task was further than ever before, or a job or an instance ended.

        Args:
            picture: The cluster now; the first one counts as progress.
            now_s: The time at which it was taken, on any clock.
        """
        gone = [instance.state == "gone" for instance in picture.state.instances]
        ended = sum(gone) + sum(job.state in ENDED for job in picture.jobs)
        steps = {(job.id, task.index): task.steps for job in picture.jobs for task in job.tasks}
        further = any(count > self._most.get(task, -1) for task, count in steps.items())
        if further or ended > self._ended or not self._at_s:
            self._at_s = now_s
        self._ended = max(ended, self._ended)
        self._most |= {task: max(count, self._most.get(task, 0)) for task, count in steps.items()}
        return now_s - self._at_s


@dataclass(frozen=True)
class Picture:
    """The cluster at one moment, as the API shows it.

    Attributes:
        state: Its instances, those that are gone included.
        jobs: All submitted jobs, in the order of submission.
    """

    state: ClusterState
    jobs: Sequence[Job]
    bill: Bill

    @classmethod
    def take(cls, client: Client) -> Picture:
        """Ask the master for its state."""
        jobs = list(client.jobs(ended=True))[::-1]
        # After the jobs: it then knows every instance that they name.
        state, instances, bill = client.describe(), list(client.instances()), client.cost()
        del state.instances[:]
        state.instances.extend(reversed(instances))
        bill.jobs.sort(key=lambda entry: number_of(entry.id))
        bill.instances.sort(key=lambda entry: number_of(entry.id))
        return cls(state, jobs, bill)

    @property
    def over(self) -> bool:
        """Whether all jobs have ended and no instance is left."""
        idle = all(instance.state == "gone" for instance in self.state.instances)
        return idle and all(job.state in ENDED for job in self.jobs)

    def task(self, name: str) -> Task:
        """The first task of a job, which is the only one of most jobs."""
        return next(job.tasks[0] for job in self.jobs if job.name == name)

    def type_of(self, instance: str) -> str:
        """The instance type of an instance."""
        return next(each.type for each in self.state.instances if each.id == instance)

    def named(self, instance: str) -> str:
        """The instance's name and type as text."""
        return f"{instance} ({self.type_of(instance)})"

    def beside(self, job: Job, task: Task) -> str:
        """The tasks that share the instance of a task."""
        others = self._others(job, task)
        return f"beside {', '.join(others)}" if others else "alone"

    def together(self, names: Sequence[str]) -> bool:
        """Whether the first tasks of some jobs are all on one instance."""
        return len({self.task(name).instance for name in names}) == 1

    def _others(self, job: Job, task: Task) -> list[str]:
        return [
            called(other, resident)
            for other in self.jobs
            for resident in other.tasks
            if task.instance == resident.instance != ""
            and (other.id, resident.index) != (job.id, task.index)
        ]


@dataclass
class Story:
    """Turns pictures into lines.

    Attributes:
        measured: Names of the jobs whose throughput is worth telling: of the others it depends
            on how busy this machine is.
    """

    measured: Sequence[str]
    _types: dict[str, dict[int, str]] = field(default_factory=dict)
    _told: dict[str, object] = field(default_factory=dict)
    _speeds: dict[str, float] = field(default_factory=dict)

    def lines(self, picture: Picture) -> Iterator[str]:
        """Lines on what changed: first what ended, then what follows from it."""
        for job in picture.jobs:
            if self._new(f"{job.id} state", job.state) and job.state in ENDED:
                metrics = figures(job.tasks[0])
                yield f"{job.name} {job.state} ({metrics}); cost {money(job.cost_micro_usd)}"
        for job in picture.jobs:
            if job.name in self.measured:
                yield from self._speed(picture, job)
        for instance in picture.state.instances:
            if self._new(instance.id, instance.state) and instance.state in (
                "launching",
                "ready",
                "gone",
            ):
                cost = price(instance.price_micro_usd_per_hour)
                yield f"{instance.id} ({instance.type}, {cost}) is {instance.state}"
        for job in picture.jobs:
            self._locate(picture, job)
            for task in job.tasks:
                yield from self._place(picture, job, task)

    def places(self, job: Job) -> list[str]:
        """The instance types on which a job's first task has run, one per attempt."""
        types = self._types.get(job.id, {})
        return [types.get(attempt, "?") for attempt in range(1, job.tasks[0].attempt + 1)]

    def _locate(self, picture: Picture, job: Job) -> None:
        """Note where the first task is and where it goes: a short attempt may be on no picture."""
        task, types = job.tasks[0], self._types.setdefault(job.id, {})
        if task.instance:
            types[task.attempt] = picture.type_of(task.instance)
        if task.target not in ("", task.instance):
            types[task.attempt + 1] = picture.type_of(task.target)

    def _place(self, picture: Picture, job: Job, task: Task) -> Iterator[str]:
        name = called(job, task)
        if task.state == "running" and task.target not in ("", task.instance):
            if self._new(f"{name} moves", task.attempt):
                source, target = picture.named(task.instance), picture.named(task.target)
                yield f"{name} is to move from {source} to {target}"
        elif task.state == "running" and self._new(f"{name} attempt", task.attempt):
            verb = "resumes" if task.generation else "runs"
            yield f"{name} {verb} on {picture.named(task.instance)} {picture.beside(job, task)}"

    def _speed(self, picture: Picture, job: Job) -> Iterator[str]:
        task = job.tasks[0]
        before = self._speeds.get(job.id)
        if task.normalised and (before is None or abs(task.normalised - before) > _NOTABLE):
            self._speeds[job.id] = task.normalised
            yield (
                f"{job.name} makes {task.rate:.3g} it/s, {task.normalised:.0%} of what it makes "
                f"on its own, {picture.beside(job, task)}"
            )

    def _new(self, what: str, value: object) -> bool:
        """Whether a line was not told before."""
        news = self._told.get(what) != value
        self._told[what] = value
        return news


@dataclass(frozen=True)
class Point:
    """A line of a job's log that says how far it has come.

    Attributes:
        metric: The first metric that it reports, such as ``loss``.
    """

    step: int
    metric: str
    value: float

    def __str__(self) -> str:
        return f"step {self.step:,} {self.metric} {self.value:g}"


@dataclass(frozen=True)
class Resumption:
    """A restart from a checkpoint, as the job's log tells it.

    Attributes:
        job: Its name.
        before: The last point before the stop, `None` if there was none.
        step: The step of the checkpoint.
        after: The first point after the restart, `None` if it was stopped again before.
    """

    job: str
    before: Point | None
    step: int
    after: Point | None

    @property
    def continued(self) -> bool:
        """Whether the count of steps continued from the checkpoint."""
        before = self.before.step if self.before else 1
        after = self.after.step if self.after else self.step
        return before <= self.step <= after


def resumptions(job: str, log: str) -> list[Resumption]:
    """Every restart from a checkpoint in a job's log.

    Args:
        job: Its name.
        log: Output of all of its attempts, one after the other.
    """
    parts = _RESUMED.split(log)
    # Text and step of the checkpoint take turns.
    texts, steps = parts[::2], [int(step) for step in parts[1::2]]
    points = [[Point(int(at), what, float(x)) for at, what, x in _STEP.findall(t)] for t in texts]
    return [
        Resumption(
            job,
            before=next(reversed(points[index]), None),
            step=step,
            after=next(iter(points[index + 1]), None),
        )
        for index, step in enumerate(steps)
    ]


def called(job: Job, task: Task) -> str:
    """The name of a task for people: its job, and its number if there are several."""
    return job.name if len(job.tasks) == 1 else f"{job.name}/{task.index}"


def figures(task: Task) -> str:
    """The metrics that a task reported last."""
    return ", ".join(f"{name} {value:.4g}" for name, value in task.metrics.items()) or "no metrics"
