"""The epochs of forked jobs in the control loop: what is written down, and what forks are told.

Level-triggered like all that converges: `follow` compares what is written down of an epoch with the
forks that run and with the time, moves it on where that is possible, and says to each fork (again)
what it is to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from eva_master.control.alarms import Alarm
from eva_master.control.context import Context
from eva_master.control.forks import tracker
from eva_master.control.forks.tracker import Done, Runner
from eva_master.model.actions import TellMerge
from eva_master.model.events import PartGiven, PartsMerged
from eva_master.model.forks.merging import NOT_BEGUN, Merging, Part
from eva_master.model.ids import MILLION, JobId, Millis, run_id
from eva_master.model.records import Job, TaskRun
from eva_master.model.states import JobState, RunState
from eva_master.model.values import replace

GIVE_MS = 300_000
"""How long a fork may take to give its part once it is asked, beside the time between merges."""
_SOONER_MS = 15_000
"""A fork that comes in the middle of an epoch waits for so long at most."""
MERGE_MS = 900_000
"""How long a leader may take to merge, likewise."""


def follow(context: Context, name: JobId) -> None:
    """Move the epoch of a forked job on, and tell its forks."""
    job = context.state.jobs[name]
    total = job.spec.total_steps
    if job.spec.forks == 1 or total is None:
        return
    if job.state not in (JobState.PENDING, JobState.RUNNING):
        context.told_merges.pop(name, None)
        return
    runs = _running(context, job)
    before = job.merging or NOT_BEGUN
    now = _struck(before, (*runs, *_stopping(context, job)))
    now = _moved_on(context, job, now, _runners(context, runs))
    if now != before:
        began = now.share_of(0) is not None is before.share_of(0) and now.merged == before.merged
        if began or before.unforked != now.unforked:
            context.plan_wanted = True  # its own run has just come, so others may
        context.put_job(replace(job, merging=now))
        for run in context.state.in_hand(name) if now.unforked else ():
            context.touch_run(run)
    for run in runs:
        if now.part_of(run.replica) is None or run.replica == now.leader:
            _tell(context, run, now, total)  # else it waits for the leader


def given(context: Context, event: PartGiven) -> None:
    """A fork has given its part."""
    part = Part(0, event.attempt, event.steps, event.digest)
    _heard(context, event, lambda now, fork: tracker.gave(now, event.epoch, part_of(part, fork)))


def part_of(part: Part, fork: int) -> Part:
    """The part as that of a fork."""
    return replace(part, fork=fork)


def merged(context: Context, event: PartsMerged) -> None:
    """The leader of an epoch has merged its parts."""
    job = context.state.jobs.get(event.run.rpartition("/")[0])  # type: ignore[call-overload]
    if job is None:
        return

    def closed(now: Merging, fork: int) -> Merging:
        done = Done(
            event.epoch,
            fork,
            event.attempt,
            event.kept,
            event.check_merged,
            event.check_best,
        )
        return tracker.merged(now, done, job.spec.merge, context.now)

    _heard(context, event, closed)


def _heard(
    context: Context,
    event: PartGiven | PartsMerged,
    change: Callable[[Merging, int], Merging],
) -> None:
    """Take in what a worker says of a fork that runs there."""
    if event.session != context.state.sessions.get(event.instance):
        return
    run = context.state.runs.get(event.run)
    if run is None or run.attempt != event.attempt or run.instance != event.instance:
        return
    job = context.state.jobs[run.job]
    if job.merging is None or job.state not in (JobState.PENDING, JobState.RUNNING):
        return
    now = change(job.merging, run.replica)
    if now != job.merging:
        context.put_job(replace(job, merging=now))


def _struck(now: Merging, runs: Iterable[TaskRun]) -> Merging:
    """Let the epoch go on without those whose attempt is over."""
    there = {(it.replica, it.attempt) for it in runs}
    for share in now.shares:
        if (share.fork, share.attempt) not in there:
            now = tracker.struck(now, share.fork)
    return now


def _moved_on(context: Context, job: Job, now: Merging, runners: list[Runner]) -> Merging:
    total = job.spec.total_steps or 0
    now = _in_time(context, job, now, runners)
    now = tracker.led(now, runners, context.now)
    now = tracker.opened(now, total - now.steps, runners, context.now)
    if (due := _due_ms(job, now, runners)) is not None:
        context.alarms.at(Millis(max(due, context.now + 1)), Alarm.job(job.id))
    return now


def _in_time(context: Context, job: Job, now: Merging, runners: list[Runner]) -> Merging:
    """Do what the time has come for."""
    due = _due_ms(job, now, runners)
    if due is None or context.now < due:
        return now
    if now.leader is not None:
        return tracker.deposed(now)
    return tracker.overdue(now) if now.told_to_give else tracker.asked(now, context.now)


def _due_ms(job: Job, now: Merging, runners: list[Runner]) -> int | None:
    """When something is to be done though nothing happens; `None` for never.

    Who trains alone goes on for as long as nobody joins it.
    """
    every = job.spec.merge.every_ms
    if now.unforked or not now.open:
        return None
    if now.leader is not None:
        return now.since_ms + every + MERGE_MS
    if not now.shares:
        return None  # the parts wait for somebody who merges them
    if now.told_to_give:
        return now.since_ms + every + GIVE_MS
    if len(runners) < 2 and not now.parts:
        return None
    trains = {it.fork for it in now.shares} | {it.fork for it in now.parts}
    waits = any(it.fork not in trains for it in runners)
    return now.since_ms + (min(every, _SOONER_MS) if waits else every)


def _stopping(context: Context, job: Job) -> list[TaskRun]:
    """The forks whose programs are being stopped, and may still give what they have done."""
    return [it for it in context.state.in_hand(job.id) if it.state is RunState.STOPPING]


def _running(context: Context, job: Job) -> list[TaskRun]:
    """The forks whose programs run, by number."""
    own = context.state.runs[run_id(job.id, 0)]
    runs = [own, *context.state.runs.others(own)]
    return [it for it in runs if it.state is RunState.RUNNING]


def _runners(context: Context, runs: list[TaskRun]) -> list[Runner]:
    """The same with their speeds: stated or measured alone, else as they go, else as the others."""
    found: dict[int, float] = {}
    for run in runs:
        assert run.instance is not None
        family = context.state.instances[run.instance].offering.type.family
        known = dict(context.state.standalone_rates(context.state.task(run)))
        if speed := known.get(family, 0) / MILLION or run.progress.rate:
            found[run.replica] = speed
    usual = sum(found.values()) / len(found) if found else 1.0
    return [Runner(it.replica, it.attempt, found.get(it.replica, usual)) for it in runs]


def _tell(context: Context, run: TaskRun, now: Merging, total: int) -> None:
    assert run.instance is not None
    if not context.state.connected(run.instance):
        return
    told = context.told_merges.setdefault(run.job, {})
    what = run.instance, run.attempt, context.state.sessions.get(run.instance)
    order = tracker.told(now, run.replica, run.attempt, total)
    said = told.get(run.id)
    again = context.settings.worker_resend_ms
    if said is not None and said[:2] == (what, order) and context.now - said[2] < again:
        return
    told[run.id] = what, order, context.now
    context.outbox.add(TellMerge(run.instance, run.id, run.attempt, order))
