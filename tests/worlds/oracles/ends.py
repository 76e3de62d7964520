"""Everything ends, once each, and in time."""

from __future__ import annotations

from collections.abc import Iterator

from tests.worlds.life import serial_ms
from tests.worlds.oracles.waiting import Waits
from tests.worlds.records import Finding, Story, objection


def ends(story: Story, waits: Waits) -> Iterator[Finding]:
    """Everything ends well, once each, no later than if it ran one after another."""
    world, bound = story.world, serial_ms(story.world, story.gap_ms)
    cancelled = {it.subject for it in story.orders if it.verb == "cancel"}
    for fate in story.fates.values():
        job = world.job(fate.name)
        if fate.refused:
            continue
        if fate.ended_ms is None:
            yield objection(
                story, "ends", f"{fate.name} never ends", fate.submitted_ms, story.end_ms
            )
        elif fate.ended_ms > bound:
            said = f"{fate.name} ends after {bound / 1000:.0f} s, one after another"
            yield objection(story, "ends", said, fate.ended_ms)
        if fate.state not in ("succeeded", "") and fate.ended_ms is not None:
            if not _doomed(story, fate.name, cancelled):
                yield objection(story, "ends", f"{fate.name} is {fate.state}", fate.ended_ms)
        elif fate.ended_ms is not None and job.array:
            for index in range(job.size):
                done = [it for it in story.of(job.name) if it.index == index and _well(it)]
                if len(done) != 1:
                    said = f"{job.name}/{index} ended well {len(done)} times"
                    yield objection(story, "ends", said, fate.ended_ms)
    missing = [job.name for job in world.jobs if job.name not in story.fates]
    if missing:
        yield objection(story, "ends", f"never submitted: {', '.join(missing)}", story.end_ms)
    elif not story.quiet and all(it.ended_ms is not None for it in story.fates.values()):
        live = [it.id for it in story.bought() if it.gone_ms is None and not it.failed]
        yield objection(story, "ends", f"still there at the end: {', '.join(live)}", story.end_ms)


def _well(attempt: object) -> bool:
    return getattr(attempt, "code", None) == 0 and not getattr(attempt, "stopped", False)


def _doomed(story: Story, name: str, cancelled: set[str]) -> bool:
    """Whether a job, or one that it runs after, was cancelled."""
    job = story.world.job(name)
    return name in cancelled or any(_doomed(story, it, cancelled) for it in job.after)
