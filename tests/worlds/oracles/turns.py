"""A task that was refused for a limit that others share gets its turn."""

from __future__ import annotations

from collections.abc import Iterator

from tests.worlds.oracles.waiting import Task, Waits, headed
from tests.worlds.records import Finding, Launch, Story, objection

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
