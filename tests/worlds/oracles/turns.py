"""A task that was refused for a limit that others share gets its turn, and so do urgent ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tests.worlds.oracles.waiting import Task, Waits, empties, headed
from tests.worlds.records import Attempt, Finding, Launch, Story, objection

_SLACK_MS = 2_000


def turns(story: Story, waits: Waits) -> Iterator[Finding]:
    """Nothing of another partition that came later, and is no more urgent, is bought for first."""
    for task in waits.tasks:
        # A gang takes room at once or not at all, and has to wait until there is enough of it.
        if task.members > 1 or not _free(story, task):
            continue
        for start, end in waits.spans(task):
            for launch in story.bought():
                asked = launch.asked_ms
                if launch.kind.limit is None or launch.failed:
                    continue
                if not start + story.gap_ms + _SLACK_MS < asked < end - story.gap_ms - _SLACK_MS:
                    continue
                other = _first_user(waits, launch)
                if other is None or headed(story, task, asked):
                    continue
                if _overtakes(waits, task, other, launch, start):
                    said = (
                        f"{task.name} waits since {start / 1000:.1f} s, and {launch.id}"
                        f" ({launch.offering}) is bought for {other.name}, which came later"
                    )
                    yield objection(story, "turn", said, asked, end)
                    break


def overtaken(story: Story, waits: Waits) -> Iterator[Finding]:
    """Nothing less urgent begins on an empty instance while a task that fits it waits."""
    if story.pools:
        return
    room = {it.id: empties(story, it) for it in story.launches.values()}
    for task in waits.tasks:
        if task.members > 1 or not task.job.priority or "deadline" in task.job.keys:
            continue
        for start, end in waits.spans(task):
            for other in waits.tasks:
                if other.job.priority >= task.job.priority or "deadline" in other.job.keys:
                    continue
                first = _begun_before(waits, task, other, (start, end), room)
                if first is not None:
                    said = (
                        f"{task.name} of priority {task.job.priority} waits since"
                        f" {start / 1000:.1f} s, and {other.name} of priority"
                        f" {other.job.priority} begins on {first.instance}"
                    )
                    yield objection(story, "urgent", said, first.from_ms, end)
                    break


def _begun_before(
    waits: Waits,
    task: Task,
    other: Task,
    span: tuple[int, int],
    room: Mapping[str, list[tuple[int, int]]],
) -> Attempt | None:
    """The first attempt of a less urgent task on what was empty, after a round of waiting."""
    story, round_ms = waits.story, waits.story.gap_ms + _SLACK_MS
    for attempt in waits.attempts(other):
        at, launch = attempt.from_ms, story.launches[attempt.instance]
        if not span[0] + round_ms < at < span[1] - round_ms:
            continue
        emptied = any(a <= at - 1 < b for a, b in room[launch.id])
        had = any(
            it.run == attempt.run and it.instance == launch.id and it.from_ms < span[0] + round_ms
            for it in story.headed
        )
        if emptied and not had and waits.fits(task, launch, at) and not headed(story, task, at):
            return attempt
    return None


def _free(story: Story, task: Task) -> bool:
    """Whether nothing but the limits of offerings keeps its partition from buying for it."""
    parts = story.world.settings.get("partitions", {})
    limited = any("limits" in it or "budget" in it for it in parts.values())
    more = "limits" in story.world.settings and set(story.world.settings["limits"]) - {"priority"}
    return bool(parts) and not limited and not more


def _first_user(waits: Waits, launch: Launch) -> Task | None:
    on = waits.story.on(launch.id)
    if not on:
        return None
    first = min(on, key=lambda it: it.from_ms)
    return next(
        (
            it
            for it in waits.tasks
            if it.job.name == first.job and (not it.job.array or it.index == first.index)
        ),
        None,
    )


def _overtakes(waits: Waits, task: Task, other: Task, launch: Launch, start: int) -> bool:
    at = launch.asked_ms
    needs, kind = task.job.keys["resources"], launch.kind
    fits = (
        needs["cpus"] <= kind.cpus
        and needs.get("gpus", 0) <= kind.gpus
        and task.job.disk_gib <= kind.disk_gib
        and int(str(needs["memory"]).removesuffix("GiB")) <= kind.memory_gib
        and (task.job.keys.get("spot", "never") != "never" if launch.spot else True)
        and (launch.spot or task.job.keys.get("spot") != "only")
    )
    began = max((a for a, b in waits.spans(other) if a <= at), default=waits.ready_ms(other))
    return (
        fits
        and waits.partition(task.job, at) != waits.partition(other.job, at)
        and other.job.priority <= task.job.priority
        and began > start + waits.story.gap_ms
        and "deadline" not in task.job.keys
    )
