"""Forecasts that users are told come true."""

from __future__ import annotations

from collections.abc import Iterator

from tests.worlds.oracles.waiting import Waits
from tests.worlds.records import Finding, Story, objection
from tests.worlds.world import Job

_FACTOR = 1.5
_MEASURED_MS = 15_000
_SLACK_MS = 5_000
"""Time that starts, stops and reports take."""


def previews(story: Story, waits: Waits) -> Iterator[Finding]:
    """A preview says what the submission then does, if nothing else happens meanwhile."""
    for preview in story.previews:
        if not preview.became or story.fates[preview.job].refused:
            continue
        for run, told in preview.places.items():
            became = preview.became.get(run, "nothing")
            if told != became:
                said = f"{preview.job}: foreseen {told!r}, became {became!r}"
                yield objection(story, "preview", said, preview.at_ms)
                break


def etas(story: Story, waits: Waits) -> Iterator[Finding]:
    """The end is told within a factor of a half more, where it can be known."""
    for told in story.etas:
        job = story.world.job(told.job)
        # Of members of a gang one is enough.
        if not _can_be_known(job) or (not job.array and not told.run.endswith("/0")):
            continue
        own = [it for it in story.of(told.job) if it.run == told.run]
        last = max(own, key=lambda it: it.number)
        if last.number != told.number or last.code != 0 or last.stopped or last.to_ms is None:
            continue
        # Nothing is measured before a program has reported twice.
        if told.at_ms - (last.ran_ms or 0) < _MEASURED_MS:
            continue
        if _disturbed(story, told.at_ms, last.to_ms, last.instance, job):
            continue
        left = last.to_ms - told.at_ms
        if told.eta_ms is None and left <= _SLACK_MS:
            continue
        if told.eta_ms is None:
            said = (
                f"{told.job} is {told.part:.0%} done, {left / 1000:.0f} s are left; nothing is told"
            )
            yield objection(story, "eta", said, told.at_ms)
            continue
        expected = told.eta_ms - told.at_ms
        if not (left - _SLACK_MS) / _FACTOR <= expected <= (left + _SLACK_MS) * _FACTOR:
            said = (
                f"{told.job} is {told.part:.0%} done, {left / 1000:.0f} s are left, and"
                f" {expected / 1000:.0f} s are told"
            )
            yield objection(story, "eta", said, told.at_ms)


def _can_be_known(job: Job) -> bool:
    """Whether its duration is stated right, or its steps and their total are known."""
    if len(set(job.seconds)) > 1 or job.failures or (job.elastic and not job.tells_steps):
        return False
    if "duration" in job.keys:
        stated = float(str(job.keys["duration"]).removesuffix("ms"))
        # The time is that on the family which sets the job's reservation price, be it slow or fast.
        true = [job.seconds[0] * 1000 / speed for speed in (1.0, *job.speeds.values())]
        return any(abs(stated - it) < 0.05 * stated for it in true)
    return ("total_steps" in job.keys or job.tells_total) and job.tells_steps


def _disturbed(story: Story, at: int, end: int, instance: str, job: Job) -> bool:
    """Whether what it shares its instance with changed, or its number of members.

    The time that others cost a task which tells no steps is not known either.
    """
    others = [it for it in story.on(instance) if it.job != job.name]
    if story.world.shared == 1:
        others = []
    elif not (job.tells_steps and "total_steps" in job.keys):
        return True
    if job.elastic:
        others += story.of(job.name)
    return any(at <= edge < end for it in others for edge in (it.from_ms, it.to_ms or 0))
