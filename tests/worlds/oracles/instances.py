"""Rules for instances: given back and bought again, empty beside a waiting task, never used."""

from __future__ import annotations

from collections.abc import Iterator

from tests.worlds.life import FETCH_MS, STOP_MS
from tests.worlds.oracles.waiting import (
    Task,
    Waits,
    both,
    comes_by_move,
    comes_from_elsewhere,
    empties,
    headed,
)
from tests.worlds.records import Attempt, Finding, Launch, Story, objection

_SLACK_MS = 2_000
_MOVE_MS = FETCH_MS + STOP_MS


def bought_again(story: Story, waits: Waits) -> Iterator[Finding]:
    """Nothing is given back and bought again within its boot while a task that fits it waits.

    A task that has a place on an instance which boots already does not count. An instance bought
    again is for something that came, or was resumed, in between; `beside_boot` judges whether the
    task should have had the one that went. An instance with more disk is another one.
    """
    for launch in story.bought():
        ending = launch.ending_ms
        if ending is None or launch.drained or launch.taken or launch.failed:
            continue
        again = next(
            (
                it
                for it in story.bought()
                if it.offering == launch.offering
                and it.partition == launch.partition
                and it.disk_gib <= launch.disk_gib
                and ending <= it.asked_ms <= ending + launch.kind.boot_s * 1000
            ),
            None,
        )
        if again is None:
            continue
        for task in waits.tasks:
            if (
                waits.fits(task, launch, ending)
                and waits.waits(task, ending, again.asked_ms)
                and not headed(story, task, ending)
            ):
                yield objection(
                    story,
                    "bought-again",
                    f"{launch.id} ({launch.offering}) is given back while {task.name} waits, and"
                    f" {again.id} of the same offering is bought"
                    f" {(again.asked_ms - ending) / 1000:.1f} s later, within its boot of"
                    f" {launch.kind.boot_s} s; the reason given: {launch.why_gone!r}",
                    ending,
                    again.asked_ms,
                )
                break


def beside_boot(story: Story, waits: Waits) -> Iterator[Finding]:
    """Nothing is given back while a task waits for another of its offering that boots for longer.

    The instance that is given back is ready, or would have been before the other one.
    """
    for launch in story.bought():
        ending = launch.ending_ms
        if ending is None or launch.drained or launch.taken or launch.failed:
            continue
        due = launch.asked_ms + launch.kind.boot_s * 1000
        ready = max(ending, due if launch.ready_ms is None else launch.ready_ms)
        for other in story.bought():
            if _first_disk(story, other) > launch.disk_gib:
                continue
            users = [it.job for it in story.on(other.id)[:1]]
            task = next((it for it in waits.tasks if it.job.name in users), None)
            if (
                task is not None
                and other.offering == launch.offering
                and other.partition == launch.partition
                and other.asked_ms < ending
                and (other.ready_ms or 0) > ready + story.gap_ms + _SLACK_MS
                and waits.fits(task, launch, ending)
                and waits.waits(task, ending, ready + story.gap_ms)
            ):
                left = ((other.ready_ms or 0) - ending) / 1000
                yield objection(
                    story,
                    "beside-boot",
                    f"{launch.id} ({launch.offering}) is given back while {task.job.name} waits for"
                    f" {other.id} of the same offering, which boots for another {left:.1f} s",
                    ending,
                )


def _first_disk(story: Story, launch: Launch) -> int:
    """Disk that the tasks need together which begin first on an instance."""
    attempts = story.on(launch.id)
    first = min((attempt.from_ms for attempt in attempts), default=0)
    began = (attempt.job for attempt in attempts if attempt.from_ms == first)
    return sum(story.world.job(name).disk_gib for name in began)


def idle(story: Story, waits: Waits) -> Iterator[Finding]:
    """No task waits beside an empty instance that fits it for more than a round."""
    room = {it.id: empties(story, it) for it in story.launches.values()}
    limit = story.gap_ms + _SLACK_MS
    for launch in story.launches.values():
        if launch.pool and launch.kind.limit is None:
            continue
        for task in waits.tasks:
            for start, end in both(room[launch.id], waits.spans(task)):
                # A gang, quotas and spot_wait are looked at when the time is over.
                at = start + limit
                if (
                    at < end
                    and waits.fits(task, launch, at)
                    and _whole(story, waits, task, room, at)
                    and not headed(story, task, at)
                    and not comes_from_elsewhere(story, launch, at)
                    and not _kept(waits, task, launch, start, at)
                ):
                    yield objection(
                        story,
                        "idle",
                        f"{task.name} waits while {launch.id} ({launch.kind.name}) is empty",
                        start,
                        end,
                    )


def _whole(
    story: Story, waits: Waits, task: Task, room: dict[str, list[tuple[int, int]]], at: int
) -> bool:
    """Whether all members of a gang would find a place on what is empty."""
    cpus, disk, places = task.job.keys["resources"]["cpus"], task.job.disk_gib, 0
    for launch in story.launches.values():
        if any(a <= at < b for a, b in room[launch.id]) and waits.fits(task, launch, at):
            most = launch.kind.cpus // cpus
            places += min(most, launch.disk_gib // disk) if disk else most
    return places >= task.members


def _kept(waits: Waits, task: Task, launch: Launch, start: int, at: int) -> bool:
    """Whether it is kept for something more urgent, or a larger or earlier gang, that fits."""
    return any(
        other is not task
        and (
            other.job.priority > task.job.priority
            or other.members > task.members
            or (other.members > 1 and other.job.at_s < task.job.at_s)
        )
        and other.job.priority >= task.job.priority
        and any(a <= at < b for a, b in waits.spans(other))
        and waits.fits(other, launch, at)
        for other in waits.tasks
    )


def unused(story: Story, waits: Waits) -> Iterator[Finding]:
    """Nothing is billed and never used."""
    used = {it.instance for it in story.attempts}
    for launch in story.bought():
        if launch.id in used or launch.up_ms is None or launch.failed or launch.pool:
            continue
        end = launch.end_ms
        if launch.drained or launch.taken or _excused(story, waits, launch, end):
            continue
        yield objection(
            story,
            "unused",
            f"{launch.id} ({launch.offering}) is billed and never used",
            launch.asked_ms,
            end,
        )


def _excused(story: Story, waits: Waits, launch: Launch, end: int) -> bool:
    """Whether something happened meanwhile that nobody could know when it was bought.

    A gang that takes an emptied instance starts only once the other instances of its members are
    up: until then it keeps the emptied one, though the one in its place is long gone.
    """
    asked = launch.asked_ms
    if any(asked - _SLACK_MS <= it.at_ms <= end for it in story.orders):
        return True
    if _ended_meanwhile(story, launch):
        return True
    # A task that has waited since then, or was to move there, went to an instance that had emptied.
    for task in waits.tasks:
        for attempt in waits.attempts(task):
            other = story.launches[attempt.instance]
            # An elastic gang may begin with more members than it needs.
            latest = end if task.job.array else max(end, _whole_ms(story, attempt))
            waited = any(a <= asked + _SLACK_MS and b >= asked for a, b in waits.spans(task))
            moved = other.offering == launch.offering and comes_by_move(story, attempt)
            if (
                asked <= attempt.from_ms <= latest + story.gap_ms + _MOVE_MS + _SLACK_MS
                and other.asked_ms < asked
                and any(asked <= (it.to_ms or 0) <= attempt.from_ms for it in story.on(other.id))
                and (waited or moved)
            ):
                return True
    return False


def _ended_meanwhile(story: Story, launch: Launch) -> bool:
    """Whether a task ended while an instance was there, of which nobody knew when it would."""
    for attempt in story.attempts:
        to = attempt.to_ms
        if to is None or not launch.asked_ms <= to <= launch.end_ms + _SLACK_MS:
            continue
        if not attempt.stopped and (attempt.code != 0 or not _known(story, attempt.job)):
            return True
    return False


def _whole_ms(story: Story, attempt: Attempt) -> int:
    """When the last instance was ready on which members of a gang began an attempt together."""
    together = (it for it in story.of(attempt.job) if it.number == attempt.number)
    return max(story.launches[it.instance].ready_ms or 0 for it in together)


def _known(story: Story, name: str) -> bool:
    """Whether it was stated right how long the tasks of a job take alone."""
    job = story.world.job(name)
    if len(set(job.seconds)) > 1 or job.failures:
        return False
    if "total_steps" in job.keys:
        return True
    stated = str(job.keys.get("duration", "0ms"))
    mean = job.seconds[0] * 1000
    return bool(job.speeds) or abs(float(stated.removesuffix("ms")) - mean) < 0.05 * mean


def launches(story: Story, waits: Waits) -> Iterator[Finding]:
    """There are at most as many launches as attempts, moves and failed boots."""
    bought = list(story.bought())
    used = {it.instance for it in story.attempts}
    # Boots that were for nothing count as failed: a user thought better of it, or the task that
    # was to move there ended, and nobody knew when it would.
    failed = sum(
        it.failed
        or it.taken
        or (
            it.id not in used
            and (
                any(it.asked_ms <= o.at_ms <= it.end_ms for o in story.orders)
                or _ended_meanwhile(story, it)
            )
        )
        for it in bought
    )
    most = len(story.attempts) + failed + sum(it.verb == "move" for it in story.orders)
    if len(bought) > most:
        yield objection(
            story, "launches", f"{len(bought)} launches for {len(story.attempts)} attempts"
        )
