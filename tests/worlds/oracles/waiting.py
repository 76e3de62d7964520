"""Which task waits when: it may start, and has no attempt."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from eva_wire.text.quantities import parse_duration
from tests.worlds.life import FETCH_MS, STOP_MS
from tests.worlds.records import Attempt, Fate, Headed, Launch, Story, without
from tests.worlds.world import Job

_BACKOFF_MS = 5_000
_SLACK_MS = 1_500
_NEAR_MS = 60_000
"""A task that is tried again so soon keeps its place: a new instance would take as long."""
FOREVER = 10**15

Span = tuple[int, int]


@dataclass(frozen=True)
class Task:
    """A task of a job; of an elastic gang or any other the gang as a whole."""

    job: Job
    index: int
    members: int = 1

    @property
    def name(self) -> str:
        """The name of its job, and its number in an array."""
        return f"{self.job.name}/{self.index}" if self.job.array else self.job.name


class Waits:
    """Tasks of a story, and when each of them waits.

    Args:
        story: The story.
    """

    def __init__(self, story: Story) -> None:
        self.story = story
        self._default = next(
            (
                name
                for name, it in story.world.settings.get("partitions", {}).items()
                if it.get("default")
            ),
            "",
        )

    @cached_property
    def tasks(self) -> list[Task]:
        """Tasks that can wait: those of arrays one by one, gangs as a whole."""
        found = []
        for job in self.story.world.jobs:
            if job.array:
                found += [Task(job, it) for it in range(job.size)]
            else:
                least = job.keys["tasks"]["least"] if job.elastic else job.size
                found.append(Task(job, 0, least))
        return [it for it in found if not self.fate(it).refused and self.fate(it).id]

    def fate(self, task: Task) -> Fate:
        """The fate of a task's job."""
        return self.story.fates.get(task.job.name) or Fate(task.job.name, refused="never came")

    def attempts(self, task: Task) -> list[Attempt]:
        """Its attempts, those of all members."""
        return [
            it
            for it in self.story.of(task.job.name)
            if not it.extra and (not task.job.array or it.index == task.index)
        ]

    def ready_ms(self, task: Task) -> int:
        """When it could start for the first time, as far as other jobs are concerned."""
        fate, ready = self.fate(task), self.fate(task).submitted_ms
        for name in task.job.after:
            before = self.story.fates.get(name)
            if before is None or (before.ended_ms is None):
                return FOREVER
            ready = max(ready, before.ended_ms)
        return max(ready, fate.submitted_ms)

    @cached_property
    def _spans(self) -> dict[str, list[Span]]:
        return {task.name: list(self._waiting(task)) for task in self.tasks}

    def spans(self, task: Task) -> list[Span]:
        """When it waits, in milliseconds."""
        return self._spans[task.name]

    def waits(self, task: Task, from_ms: int, to_ms: int) -> bool:
        """Whether it waits all of the time."""
        return any(start <= from_ms and to_ms <= end for start, end in self.spans(task))

    def _waiting(self, task: Task) -> Iterator[Span]:
        fate, attempts = self.fate(task), self.attempts(task)
        end = fate.ended_ms or self.story.end_ms
        busy: list[Span] = list(self._rests(task))
        for attempt in attempts:
            to = FOREVER if attempt.to_ms is None else attempt.to_ms
            busy.append((attempt.from_ms, to))
            if attempt.code == 0 and not attempt.stopped:
                end = min(end, to) if task.job.array else end
            elif not attempt.stopped:
                # The time before the next attempt of what has failed doubles each time.
                again = _BACKOFF_MS * 2 ** sum(
                    it.to_ms is not None and it.to_ms < to and not it.stopped and it.code != 0
                    for it in attempts
                    if it.index == attempt.index
                )
                busy.append((to, to + again + _SLACK_MS))
            else:
                busy.append((to, to + _SLACK_MS))
        if not task.job.array:
            done = [
                it for it in attempts if it.code == 0 and not it.stopped and it.to_ms is not None
            ]
            if done:
                end = min(end, max(it.to_ms or 0 for it in done))
        start = self.ready_ms(task)
        if start < end:
            yield from self._within_concurrency(task, without((start, end), busy))

    def _within_concurrency(self, task: Task, spans: list[Span]) -> list[Span]:
        """Without the time in which its array has as many tasks at a time as it may."""
        most = task.job.keys.get("concurrency")
        if most is None:
            return spans
        others = [it for it in self.tasks if it.job is task.job and it.index != task.index]
        places = [span for it in others for span in self.places(it)]
        edges = sorted({edge for span in (*places, *spans) for edge in span})
        full = [
            (start, end + _SLACK_MS)
            for start, end in pairwise(edges)
            if sum(a <= start and end <= b for a, b in places) >= most
        ]
        return [part for span in spans for part in without(span, full)]

    def places(self, task: Task) -> Iterator[Span]:
        """When it has a place: where it runs, or is on its way to."""
        for attempt in self.attempts(task):
            yield attempt.from_ms, FOREVER if attempt.to_ms is None else attempt.to_ms
        for way in self.story.headed:
            if _is_of(way, task):
                yield way.from_ms, way.to_ms

    def _rests(self, task: Task) -> Iterator[Span]:
        """When its user wants it to rest, it moves, or a secret of it is missing."""
        suspended = _between(self.story, task.job, "suspend", "resume", None)
        for start, end in (*suspended, *without_secret(self.story, task.job)):
            yield start, end + STOP_MS + _SLACK_MS
        for order in self.story.orders:
            if order.subject != task.job.name:
                continue
            if order.verb == "cancel":
                yield order.at_ms, FOREVER
            elif order.verb == "move":
                yield order.at_ms, order.at_ms + STOP_MS + _SLACK_MS

    # -- where it may be -------------------------------------------------------------------------

    def partition(self, job: Job, at_ms: int) -> str:
        """The partition that a job is in at a time."""
        name = str(job.keys.get("partition", self._default))
        for order in self.story.orders:
            if order.verb == "move" and order.subject == job.name and order.at_ms <= at_ms:
                name = order.to
        return name

    def fits(self, task: Task, launch: Launch, at_ms: int) -> bool:
        """Whether one member of it could be on an empty instance, as far as that is concerned."""
        needs, kind = task.job.keys["resources"], launch.kind
        return (
            needs["cpus"] <= kind.cpus
            and int(str(needs["memory"]).removesuffix("GiB")) <= kind.memory_gib
            and needs.get("gpus", 0) <= kind.gpus
            and task.job.disk_gib <= launch.disk_gib
            and self._market(task, launch, at_ms)
            and (launch.partition or self._default) == self.partition(task.job, at_ms)
            and self._allowed(task, launch, at_ms)
        )

    def _market(self, task: Task, launch: Launch, at_ms: int) -> bool:
        spot = task.job.keys.get("spot", "never")
        if launch.spot:
            return spot != "never"
        if spot == "only":
            return False
        # With time to lose it may rather wait for the spot market.
        if spot == "allowed" and "deadline" in task.job.keys:
            return False
        wait_ms = parse_duration(str(task.job.keys.get("spot_wait", "0s")))
        began = max(
            (start for start, end in self.spans(task) if start <= at_ms <= end), default=at_ms
        )
        return not wait_ms or at_ms - began > wait_ms + _SLACK_MS

    def _allowed(self, task: Task, launch: Launch, at_ms: int) -> bool:
        """Whether quotas and limits of its user let it use one more instance."""
        world, owner = self.story.world, task.job.owner
        most = world.settings.get("limits", {}).get("instances_per_user")
        if most is not None and len(self._used_by(owner, at_ms) - {launch.id}) >= most:
            return False
        quota = world.settings.get("tenants", {}).get(owner, {}).get("quota")
        if quota is None:
            return True
        used = 0
        for other in self.tasks:
            if other.job.owner == owner and any(a <= at_ms < b for a, b in self.places(other)):
                used += other.job.keys["resources"].get("gpus", 0) * other.members
        needs = task.job.keys["resources"].get("gpus", 0) * task.members
        return bool(used + needs <= quota.get(launch.kind.family, 0))

    def _used_by(self, owner: str, at_ms: int) -> set[str]:
        jobs = {it.name for it in self.story.world.jobs if it.owner == owner}
        return {
            it.instance
            for it in self.story.attempts
            if it.job in jobs
            and min(it.from_ms, self.story.launches[it.instance].asked_ms) <= at_ms
            and (it.to_ms is None or at_ms < it.to_ms)
        }


def without_secret(story: Story, job: Job) -> Iterator[Span]:
    """The time in which a secret of a job is not set; none is at first."""
    if "secrets" in job.keys:
        yield from _between(story, job, "unset", "set", -1)


def _between(story: Story, job: Job, begin: str, end: str, since: int | None) -> Iterator[Span]:
    """The time from orders about a job until others; `since` if it has begun before all orders."""
    for order in story.orders:
        if not story.concerns(order, job):
            continue
        if order.verb == begin and since is None:
            since = order.at_ms
        elif order.verb == end and since is not None:
            yield since, order.at_ms
            since = None
    if since is not None:
        yield since, FOREVER


def empties(story: Story, launch: Launch) -> list[Span]:
    """When an instance was ready, and nothing was there."""
    if launch.ready_ms is None:
        return []
    ends = [launch.end_ms, story.end_ms]
    ends += [
        it.at_ms
        for it in story.orders
        if it.verb in ("drain", "interrupt", "node-drain") and it.subject == launch.id
    ]
    span = (launch.ready_ms, min(ends))
    there = story.on(launch.id)
    taken = [(it.from_ms, FOREVER if it.to_ms is None else it.to_ms) for it in there]
    rests = (_between_tries(story, it) for it in there)
    taken += [rest for rest in rests if rest is not None]
    return without(span, taken) if span[0] < span[1] else []


def _between_tries(story: Story, attempt: Attempt) -> Span | None:
    """The time after a failure in which a task keeps its place, since its next try is near."""
    if attempt.stopped or attempt.code in (0, None) or attempt.to_ms is None:
        return None
    again = next((it for it in story.of(attempt.job) if _follows(it, attempt)), None)
    if again is None or again.instance != attempt.instance:
        return None
    near = again.from_ms - attempt.to_ms <= _NEAR_MS
    return (attempt.to_ms, again.from_ms) if near else None


def _follows(attempt: Attempt, other: Attempt) -> bool:
    return attempt.run == other.run and attempt.number == other.number + 1


def comes_from_elsewhere(story: Story, launch: Launch, at: int) -> bool:
    """Whether a task is about to stop elsewhere for an instance that is empty."""
    return any(
        at <= it.from_ms <= at + STOP_MS + FETCH_MS and comes_by_move(story, it)
        for it in story.on(launch.id)
    )


def comes_by_move(story: Story, attempt: Attempt) -> bool:
    """Whether an attempt goes on with what was stopped elsewhere for it."""
    return any(
        _follows(attempt, it) and it.stopped and it.instance != attempt.instance
        for it in story.of(attempt.job)
    )


def both(one: Iterable[Span], other: Iterable[Span]) -> Iterator[Span]:
    """The time that two lists of spans have in common."""
    second = list(other)
    for start, end in one:
        for a, b in second:
            if max(start, a) < min(end, b):
                yield max(start, a), min(end, b)


def headed(story: Story, task: Task, at: int) -> bool:
    """Whether the task, or a member of its gang, has a place on an instance that boots."""
    return any(
        _is_of(it, task) and it.from_ms <= at < it.to_ms and boots(story.launches[it.instance], at)
        for it in story.headed
    )


def _is_of(way: Headed, task: Task) -> bool:
    return way.job == task.job.name and (not task.job.array or way.index == task.index)


def boots(launch: Launch, at: int) -> bool:
    """Whether an instance has been ordered, and is not ready yet."""
    ready = FOREVER if launch.ready_ms is None else launch.ready_ms
    return launch.asked_ms <= at < min(ready, launch.end_ms) and not launch.owned
