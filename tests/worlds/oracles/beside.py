"""Rules for a world beside the same world under another policy, or with equal priorities."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tests.worlds.oracles.costs import boots
from tests.worlds.oracles.waiting import Task, Waits
from tests.worlds.records import Finding, Story, objection, without
from tests.worlds.world import World

_MOST = 1.05
_SLACK_MS = 15_000
"""Time that stops, starts and ends of instances take."""


def dearer(story: Story, alone: Story) -> Iterator[Finding]:
    """The whole costs at most a twentieth more than one instance for each task, and a boot a job.

    Args:
        alone: Story of the world under ``no_packing``.
    """
    if story.pools or not (story.quiet and alone.quiet):
        return
    refused = {it.name for it in alone.fates.values() if it.refused}
    if refused != {it.name for it in story.fates.values() if it.refused}:
        return
    bound = _MOST * alone.cost() + boots(story, Waits(story))
    if story.cost() > bound + 1e-9:
        said = f"${story.cost():.4f}, and ${alone.cost():.4f} with an instance for each task"
        yield objection(story, "dearer", said)


def equal(world: World) -> World:
    """A world like this one with equal priorities."""
    jobs = tuple(
        replace(job, keys={name: it for name, it in job.keys.items() if name != "priority"})
        for job in world.jobs
    )
    return replace(world, jobs=jobs)


def urgent(story: Story, alike: Story) -> Iterator[Finding]:
    """The most urgent never wait longer than equal ones would, but for a round and a boot.

    The time does not count in which others that are as urgent have room for which it waits: with
    other priorities another one of them may be the first.

    Args:
        alike: Story of the world with equal priorities.
    """
    highest = max(job.priority for job in story.world.jobs)
    if not highest or all(job.priority == highest for job in story.world.jobs):
        return
    boot = max(kind.boot_s for kind in story.world.kinds) * 1000
    waits, others = Waits(story), Waits(alike)
    for task in waits.tasks:
        if task.job.priority != highest:
            continue
        other = next((it for it in others.tasks if it.name == task.name), None)
        now = _waited(waits, task, _peers(waits, task))
        then = None if other is None else _waited(others, other)
        if now is None or then is None:
            continue
        if now > then + story.gap_ms + boot + _SLACK_MS:
            ready = waits.ready_ms(task)
            said = (
                f"{task.name} of priority {highest} waits {now / 1000:.0f} s until it starts, and"
                f" {then / 1000:.0f} s where all have the same priority"
            )
            yield objection(story, "urgent", said, ready, ready + now)


def _peers(waits: Waits, task: Task) -> list[tuple[int, int]]:
    """When tasks that are as urgent as one have room that would serve it, and there is no more."""
    story = waits.story
    limited = "limits" in story.world.settings
    spans = []
    for other in waits.tasks:
        if other.name == task.name or other.job.priority != task.job.priority:
            continue
        for attempt in waits.attempts(other):
            launch = story.launches[attempt.instance]
            scarce = limited or launch.owned or launch.kind.limit is not None
            if scarce and waits.fits(task, launch, attempt.from_ms):
                to_ms = attempt.to_ms or story.end_ms
                spans.append((min(attempt.from_ms, max(launch.asked_ms, 1)), to_ms))
    return spans


def _waited(waits: Waits, task: Task, peers: list[tuple[int, int]] | None = None) -> int | None:
    """How long it waited until its first start; `None` if it never started."""
    attempts = waits.attempts(task)
    if not attempts:
        return None
    first = min(it.from_ms for it in attempts)
    spans = [(start, min(end, first)) for start, end in waits.spans(task) if start < first]
    rest = [part for span in spans for part in without(span, peers or ())]
    return sum(end - start for start, end in rest)
