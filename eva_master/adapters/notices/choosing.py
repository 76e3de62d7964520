"""Which notices events make. Pure functions."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from eva_master.model.feed import FeedEvent, FeedKind
from eva_master.model.notices import Notice, Wanted
from eva_master.model.records import Job
from eva_wire.values.ids import Millis
from eva_wire.values.notices import Topic

_ENDS = frozenset({FeedKind.SUCCEEDED, FeedKind.CANCELLED})
_OF_JOBS = {
    FeedKind.LATE: Topic.LATE,
    FeedKind.CAPPED: Topic.CAPPED,
    FeedKind.SUSPENDED: Topic.SUSPENDED,
}
_OF_CLUSTER = {
    FeedKind.BUDGET: Topic.BUDGET,
    FeedKind.REFUSED: Topic.REFUSED,
    FeedKind.REVOKED: Topic.REVOKED,
    FeedKind.LEADER: Topic.LEADER,
}
_ID_DIGITS = 32
_LONGEST_TEXT = 1_000
"""Characters of a sentence that are sent."""

_EACH_ITS_OWN = frozenset({FeedKind.BUDGET, FeedKind.CAPPED})
"""Kinds of which two sentences are two pieces of news."""
_Subject = tuple[str, Topic, int, str]
"""Job, topic, failure and sentence, if that is news: a receiver gets one notice of each."""


@dataclass(frozen=True, slots=True)
class JobFacts:
    """Facts about the jobs that events are about.

    Attributes:
        cluster: Name of the cluster.
        job: The job of an id; `None` if it ended too long ago.
        tasks: How many of a job's tasks are in each state; empty for jobs of one task.
        wall_ms: The wall clock's time of a time of the loop.
        repeated: Whether an earlier event was about the same, so that it was told already.
    """

    cluster: str
    job: Callable[[str], Job | None]
    tasks: Callable[[Job], Mapping[str, int]]
    wall_ms: Callable[[Millis], Millis]
    repeated: Callable[[FeedEvent], bool]


@dataclass(slots=True)
class _Group:
    """Events of which one notice tells.

    Attributes:
        first: The first of them.
        topics: Its topics: the end of a failed job is an end and a failure.
        count: How many they are.
    """

    first: FeedEvent
    topics: frozenset[Topic]
    count: int = 0
    receivers: set[str] = field(default_factory=set)


def notices(
    events: Iterable[FeedEvent], receivers: Mapping[str, Wanted], around: JobFacts
) -> list[Notice]:
    """The notices of some events that follow each other, in order.

    A receiver is told once of a job's failure of one number, however many of its tasks have it,
    and not at all of it where it is told of the job's end at once.

    Args:
        events: In order.
        receivers: Wishes of the receivers, by name.
        around: Facts about their jobs.
    """
    groups = _groups(events)
    made: list[Notice] = []
    ended = {group.first.job: group for group in groups.values() if Topic.END in group.topics}
    for group in groups.values():
        job = around.job(group.first.job) if group.first.job else None
        names = set(_wanting(group, job, receivers))
        if group.first.failure and (end := ended.get(group.first.job)) is not None:
            names -= set(_wanting(end, job, receivers))
        once = group.first.failure or group.first.kind is FeedKind.LATE
        if names and not (once and around.repeated(group.first)):
            made += (_notice(group, job, name, around) for name in sorted(names))
    return made


def _groups(events: Iterable[FeedEvent]) -> dict[_Subject, _Group]:
    groups: dict[_Subject, _Group] = {}
    for event in events:
        topics = _topics(event)
        if not topics:
            continue
        news = event.text if event.kind in _EACH_ITS_OWN else ""
        key = event.job, min(topics), event.failure, news
        groups.setdefault(key, _Group(event, topics)).count += 1
    return groups


def _topics(event: FeedEvent) -> frozenset[Topic]:
    """Topics of an event; none if no notice tells of it."""
    if not event.job:
        topic = _OF_CLUSTER.get(event.kind)
        return frozenset() if topic is None else frozenset({topic})
    if event.kind is FeedKind.FAILED:
        if event.failure:
            return frozenset({Topic.FAILURE})
        return frozenset({Topic.END, Topic.FAILURE})
    if event.task:
        return frozenset()  # Many tasks of a job rest when a plan has it so.
    if event.kind in _ENDS:
        return frozenset({Topic.END})
    topic = _OF_JOBS.get(event.kind)
    return frozenset() if topic is None else frozenset({topic})


def _wanting(group: _Group, job: Job | None, receivers: Mapping[str, Wanted]) -> Iterator[str]:
    asked = frozenset(job.spec.notify) if job is not None else frozenset()
    for name, wanted in receivers.items():
        if not group.first.job:
            wants = wanted.of_cluster(group.topics, group.first.owner)
        else:
            wants = wanted.of_job(group.topics, group.first.owner, asked)
        if wants:
            yield name


def _notice(group: _Group, job: Job | None, receiver: str, around: JobFacts) -> Notice:
    first = group.first
    return Notice(
        id=_delivery(around.cluster, receiver, first),
        receiver=receiver,
        at_ms=around.wall_ms(first.at_ms),
        topic=min(group.topics),
        kind=first.kind,
        text=first.text[:_LONGEST_TEXT],
        count=group.count,
        job=first.job,
        name="" if job is None else job.spec.name,
        owner=first.owner,
        tenant="" if job is None else job.spec.tenant,
        task=first.task,
        instance=first.instance,
        tasks={} if job is None else around.tasks(job),
    )


def _delivery(cluster: str, receiver: str, event: FeedEvent) -> str:
    """The id of a delivery: it is the same if the event is read again."""
    about = f"{cluster}\n{receiver}\n{event.number}\n{event.at_ms}"
    return hashlib.sha256(about.encode()).hexdigest()[:_ID_DIGITS]
