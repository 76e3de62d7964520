"""Tasks have what they need: room on their instance, and the secrets that their jobs name."""

from __future__ import annotations

from collections.abc import Iterator

from tests.worlds.oracles.waiting import Waits, without_secret
from tests.worlds.records import Attempt, Finding, Launch, Story, objection
from tests.worlds.world import Job


def room(story: Story, waits: Waits) -> Iterator[Finding]:
    """Tasks on an instance never need more than it has, of anything."""
    for launch in story.launches.values():
        attempts = story.on(launch.id)
        for attempt in attempts:
            at = attempt.from_ms
            beside = [other for other in attempts if _takes_room(other, at)]
            needs = _sum(story.world.job(other.job) for other in beside)
            has = _capacity(launch)
            lacking = [name for name, amount in needs.items() if amount > has[name]]
            if lacking:
                names = ", ".join(sorted(other.run for other in beside))
                what = ", ".join(f"{needs[name]} of {has[name]} {name}" for name in lacking)
                yield objection(story, "room", f"{names} on {launch.id} need {what}", at)


def _takes_room(attempt: Attempt, at: int) -> bool:
    return attempt.from_ms <= at and (attempt.to_ms is None or at < attempt.to_ms)


def _sum(jobs: Iterator[Job]) -> dict[str, int]:
    needs = {"cpus": 0, "GiB of memory": 0, "gpus": 0, "GiB of disk": 0}
    for job in jobs:
        stated = job.keys["resources"]
        needs["cpus"] += stated["cpus"]
        needs["GiB of memory"] += int(str(stated["memory"]).removesuffix("GiB"))
        needs["gpus"] += stated.get("gpus", 0)
        needs["GiB of disk"] += job.disk_gib
    return needs


def _capacity(launch: Launch) -> dict[str, int]:
    kind = launch.kind
    return {
        "cpus": kind.cpus,
        "GiB of memory": kind.memory_gib,
        "gpus": kind.gpus,
        "GiB of disk": launch.disk_gib,
    }


def secrets(story: Story, waits: Waits) -> Iterator[Finding]:
    """No attempt begins while a secret of its job is not set."""
    for job in story.world.jobs:
        for since, until in without_secret(story, job):
            for attempt in story.of(job.name):
                if since < attempt.from_ms < until:
                    said = f"{attempt.run} begins, and its secret is missing"
                    yield objection(story, "secret", said, attempt.from_ms)
