"""The epochs of forked jobs in the control loop: what is written down, and what forks are told.

Level-triggered like all that converges: `follow` compares what is written down of an epoch with the
forks that run and with the time, moves it on where that is possible, and says to each fork (again)
what it is to do.

A fork that was to merge and no longer is gets stopped: it may have averaged, and would train on
from weights that no other fork has. Its next attempt begins with the merge that counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from eva_master.control.alarms import Alarm
from eva_master.control.context import Context
from eva_master.control.features.forks import tracker
from eva_master.control.features.forks.memory import ForkMemory
from eva_master.control.features.forks.tracker import Done, Runner
from eva_master.control.supply.memory import SupplyMemory
from eva_master.learning.speeds.first_rates import expected_rates
from eva_master.model.actions import TellMerge
from eva_master.model.catalog import Gpu
from eva_master.model.events import PartGiven, PartsMerged
from eva_master.model.forks.merging import NOT_BEGUN, GivenWeights, Merging
from eva_master.model.job import Training
from eva_master.model.records import Job, StopReason, TaskRun
from eva_master.model.values import replace
from eva_wire.values.ids import MILLION, InstanceId, JobId, Millis, run_id
from eva_wire.values.states import JobState, RunState

_SOONER_MS = 15_000
"""A fork that comes in the middle of an epoch waits for so long at most."""
_CUT_OFF_MS = 60_000
"""The others go on without a fork whose worker has had no session for so long."""


def follow(context: Context, name: JobId) -> None:
    """Move the epoch of a forked job on, and tell its forks."""
    job = context.state.jobs[name]
    total = job.spec.total_steps
    if not job.spec.forked or total is None:
        return
    if job.state not in (JobState.PENDING, JobState.RUNNING):
        context.memory(ForkMemory).told_merges.pop(name, None)
        return
    runs = _running(context, job)
    before = job.merging or NOT_BEGUN
    runners = _runners(context, runs, job.spec.training)
    attempts = (*runs, *_stopping(context, job))
    now = tracker.without(before, _present(context, attempts, others=bool(runners)))
    now = _moved_on(
        context, job, now, runners, [run for run in attempts if not _here(context, run)]
    )
    if now != before:
        began = now.share_of(0) is not None is before.share_of(0) and now.merged == before.merged
        if began or before.unforked != now.unforked:
            context.plan_wanted = True  # its own run has just come, so others may
        _keep(context, job, now)
        for run in context.state.in_hand(name) if now.unforked else ():
            context.touch_run(run)
        _stop_former_leader(context, before, now, runs)
    for run in runs:
        if now.part_of(run.replica) is None or run.replica == now.leader:
            _tell(context, run, now, total)  # else it waits for the leader


def cut_off(context: Context, instance: InstanceId) -> None:
    """A worker has no session: the forked jobs that have forks there are looked at."""
    for run in context.state.occupants(instance):
        if context.state.jobs[run.job].spec.forked:
            context.touch_job(run.job)


def given(context: Context, event: PartGiven) -> None:
    """A fork has given its part."""
    part = GivenWeights(0, event.attempt, event.steps, event.digest)
    _heard(context, event, lambda now, fork: tracker.gave(now, event.epoch, part_of(part, fork)))


def part_of(part: GivenWeights, fork: int) -> GivenWeights:
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
            event.digest,
        )
        return tracker.merged(now, done, job.spec.forking.merge, context.now)

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
        _keep(context, job, now)


def _keep(context: Context, job: Job, now: Merging) -> None:
    """Write down what there is of a job's merges; with a new one, how far its own run was."""
    if now.merged != (job.merging or NOT_BEGUN).merged:
        now = replace(now, own=context.state.runs[run_id(job.id, 0)].progress.steps)
    context.put_job(replace(job, merging=now))


def _here(context: Context, run: TaskRun) -> bool:
    """Whether the worker of a fork has a session."""
    return run.instance is not None and run.instance in context.state.sessions


def _present(context: Context, runs: Sequence[TaskRun], *, others: bool) -> set[tuple[int, int]]:
    """Forks that an epoch can have, each with its attempt.

    Args:
        context: The state of this turn.
        runs: Runs whose attempts are not over.
        others: Whether any of them is connected: if so, forks that have been cut off for long are
            left out.
    """
    attempts = set()
    for run in runs:
        if others and run.instance is not None and not _here(context, run):
            until = Millis(
                context.memory(SupplyMemory).silent.get(run.instance, context.now) + _CUT_OFF_MS
            )
            if until <= context.now:
                continue
            context.alarms.at(until, Alarm.job(run.job))
        attempts.add((run.replica, run.attempt))
    return attempts


def _stop_former_leader(
    context: Context, before: Merging, now: Merging, runs: Sequence[TaskRun]
) -> None:
    """Stop whoever was to merge an epoch that is still to be merged by another."""
    former = before.leader, before.leader_attempt
    if former != (now.leader, now.leader_attempt):
        for run in runs:
            if (run.replica, run.attempt) == former:
                context.stop(context.state.runs[run.id], StopReason.MERGE)


def _moved_on(
    context: Context, job: Job, now: Merging, runners: list[Runner], away: Sequence[TaskRun]
) -> Merging:
    total = job.spec.total_steps or 0
    former = now.leader, now.leader_attempt
    now = _in_time(context, job, now, runners, away)
    if now.leader is None:  # the former leader is stopped
        runners = [runner for runner in runners if (runner.fork, runner.attempt) != former]
    now = tracker.led(now, runners, context.now)
    if not now.open:
        last = job.spec.forking.merge.at_last_fastest and _is_last(context, job)
        now = tracker.opened(now, total - now.steps, runners, context.now, last=last)
    due = _due_ms(job, now, runners)
    if due is not None and due > context.now:  # else it waits for forks that are cut off
        context.alarms.at(Millis(due), Alarm.job(job.id))
    return now


def _is_last(context: Context, job: Job) -> bool:
    """Whether its partition has no other active job."""
    state, home = context.state, context.settings.partitions.home
    others = (state.jobs[name] for name in state.active if name != job.id)
    return not any(home(other.partition) is home(job.partition) for other in others)


def _in_time(
    context: Context, job: Job, now: Merging, runners: list[Runner], away: Sequence[TaskRun]
) -> Merging:
    """Take the steps that are due by now."""
    due = _due_ms(job, now, runners)
    if due is None or context.now < due:
        return now
    if now.leader is None and not now.told_to_give:
        return tracker.asked(now, context.now)
    if any(run.replica == now.leader or now.share_of(run.replica) is not None for run in away):
        # a disconnected fork cannot answer, and will soon be connected again or left out
        return now
    return tracker.overdue(now) if now.leader is None else tracker.deposed(now)


def _due_ms(job: Job, now: Merging, runners: list[Runner]) -> int | None:
    """When to act though nothing happens; `None` for never.

    A fork that trains alone continues until another joins it.
    """
    rule = job.spec.forking.merge
    if now.unforked or not now.open:
        return None
    if now.leader is not None:
        return now.since_ms + rule.lead_ms
    if not now.shares:
        return None  # the parts wait for a fork to merge them
    if now.told_to_give:
        return now.since_ms + rule.give_ms
    if len(runners) < 2 and not now.parts:
        return None
    trains = {share.fork for share in now.shares} | {part.fork for part in now.parts}
    waits = not now.last and any(runner.fork not in trains for runner in runners)
    return now.since_ms + (min(rule.every_ms, _SOONER_MS) if waits else rule.every_ms)


def _stopping(context: Context, job: Job) -> list[TaskRun]:
    """Forks whose programs are being stopped, and may still give their parts."""
    return [run for run in context.state.in_hand(job.id) if run.state is RunState.STOPPING]


def _running(context: Context, job: Job) -> list[TaskRun]:
    """The forks whose programs run, by number."""
    own = context.state.runs[run_id(job.id, 0)]
    runs = [own, *context.state.runs.others(own)]
    return [run for run in runs if run.state is RunState.RUNNING]


def _runners(context: Context, runs: list[TaskRun], training: Training) -> list[Runner]:
    """Connected runs with their speeds.

    Speeds are stated or measured alone, else as currently reported, else expected.
    """
    runs = [run for run in runs if _here(context, run)]
    measured: dict[int, float] = {}
    gpus: dict[int, Gpu | None] = {}
    for run in runs:
        assert run.instance is not None
        kind = context.state.instances[run.instance].offering.type
        state = context.state
        rates = dict(state.prices.rates(state.jobs[run.job].spec, state.task(run)))
        gpus[run.replica] = kind.gpu
        if speed := rates.get(kind.family, 0) / MILLION or run.progress.rate:
            measured[run.replica] = speed
    speeds = expected_rates(measured, gpus, training)
    return [Runner(run.replica, run.attempt, speeds[run.replica]) for run in runs]


def _tell(context: Context, run: TaskRun, now: Merging, total: int) -> None:
    if run.instance is None or run.instance not in context.state.sessions:
        return
    orders = context.memory(ForkMemory).told_merges.setdefault(run.job, {})
    what = run.instance, run.attempt, context.state.sessions.get(run.instance)
    order = tracker.instructions(now, run.replica, run.attempt, total)
    said = orders.get(run.id)
    again = context.settings.worker_resend_ms
    if said is None or said[:2] != (what, order) or context.now - said[2] >= again:
        said = orders[run.id] = what, order, context.now
        context.outbox.add(TellMerge(run.instance, run.id, run.attempt, order))
    # The message or its answer may be lost.
    context.alarms.at(Millis(said[2] + again), Alarm.job(run.job))
