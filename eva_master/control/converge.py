"""Compare observed state with desired state and emit the actions that close the difference.

One job or instance at a time. Level-triggered: each function looks at the records alone, whatever
led to them, moves them on where that is possible and sends what has to be said (again). Converging
twice does nothing more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence

from eva_master.control import failures, gangs, suspending, waiting
from eva_master.control.alarms import Alarm
from eva_master.control.context import Context
from eva_master.control.features.arrays import failing
from eva_master.control.features.arrays.memory import ArrayMemory
from eva_master.control.features.budgets import settling as budgets
from eva_master.control.features.capping import stopping as capping
from eva_master.control.features.deadlines import market_choice
from eva_master.control.features.elastic import resizing
from eva_master.control.features.emptied import keeping
from eva_master.control.features.forks import epochs
from eva_master.control.features.gangs.memory import GangMemory
from eva_master.control.features.replicas import outputs, settling
from eva_master.control.features.secrets import waiting as secrets
from eva_master.control.features.standstill import running_times
from eva_master.control.features.standstill.memory import StandstillMemory
from eva_master.control.lines.memory import LineMemory
from eva_master.control.measure import learn
from eva_master.control.planning import arriving
from eva_master.control.stopping import grace
from eva_master.control.supply import availability, nodes, restored
from eva_master.control.supply.memory import SupplyMemory
from eva_master.model.actions import SyncWorker
from eva_master.model.progress import NO_PROGRESS
from eva_master.model.records import Instance, Job, Outcome, StopReason, TaskRun, untouched_state
from eva_master.model.values import replace
from eva_wire.values.ids import InstanceId, JobId, Millis, RunId
from eva_wire.values.states import (
    HOLDING,
    LIVE,
    TERMINAL_JOB,
    TERMINAL_RUN,
    InstanceState,
    JobState,
    RunState,
)

_PLACES_ON_RECORD = 8
"""How many of a task run's attempts are on record with their places."""
_ACTIVE = (RunState.STARTING, RunState.RUNNING)
_OVER = tuple(TERMINAL_RUN)
_REST_MS = 60_000
"""An array of which nothing has run for so long is pending again."""

# -- jobs ----------------------------------------------------------------------------------------


def converge_job(context: Context, job_id: JobId, members: Collection[RunId] | None = None) -> None:
    """Move a job on, and of its task runs a gang's, or those of an array that are in hand.

    Args:
        context: The present one.
        job_id: Which.
        members: Members of a gang, if nothing else of it has changed.
    """
    job = context.state.jobs.get(job_id)
    if job is None or job.state in TERMINAL_JOB:
        return
    _check_duration(context, job)
    capping.settle(context, context.state.jobs[job_id])
    budgets.settle(context, context.state.jobs[job_id])
    secrets.settle(context, context.state.jobs[job_id])
    market_choice.choose_market(context, context.state.jobs[job_id])
    job = context.state.jobs[job_id]
    if job.state is JobState.ENDING:
        _end(context, job, context.state.tasks[job_id].unsettled if members is None else members)
    elif job.waits:
        waiting.settle(context, job)
    elif job.is_gang:
        if members is None or not gangs.is_quiet(context, job):
            _converge_gang(context, job)
        else:
            for name in members:
                _say(context, context.state.runs[name])
        _follow_gang(context, context.state.jobs[job_id])
    else:
        for run in context.state.in_hand(job_id):
            now = context.state.runs[run.id]
            _converge_task(context, context.state.jobs[job_id], now, known=False)
        outputs.place(context, job_id)
        _follow_array(context, context.state.jobs[job_id])
        epochs.follow(context, job_id)


def converge_run(context: Context, run_id: RunId) -> None:
    """Move one task of an array on, and its job with it: as costly as if it were the only one."""
    run = context.state.runs.get(run_id)
    if run is None:
        return
    job = context.state.jobs[run.job]
    if job.state in TERMINAL_JOB or job.waits:
        return
    if job.state is JobState.ENDING:
        _end_run(context, job, run)
        _close(context, job)
        return
    if run.state is RunState.WAITING:
        market_choice.choose_market(context, job)
        job = context.state.jobs[run.job]
    _converge_task(context, job, run, known=True)
    _follow_array(context, context.state.jobs[run.job])
    epochs.follow(context, run.job)


def _converge_task(context: Context, job: Job, run: TaskRun, *, known: bool) -> None:
    """Move one run of an array's task on, unless its task needs it no more.

    Args:
        context: Where it is.
        job: Its job.
        run: Which.
        known: Whether only the run has changed: then one that is in place needs nothing.
    """
    if run.extra or run.replicas:
        settled = settling.settle(context, job, run)
        run = context.state.runs[run.id]
        if settled:
            _say(context, run)
            return
    if known and run.state in _ACTIVE and run.target == run.instance:
        _say(context, run)  # it is where it should be
    elif run.state not in _OVER:
        _converge_group(context, job, [run])


def _follow_gang(context: Context, job: Job) -> None:
    """A gang runs while one of its members does, and has succeeded when all have."""
    if job.spec.elastic.least is None:
        counts = context.state.tasks[job.id].counts
        succeeded, runs = counts[RunState.SUCCEEDED] == job.spec.size, counts[RunState.RUNNING] > 0
    else:
        tasks = context.state.tasks[job.id]
        runs, succeeded = tasks.counts[RunState.RUNNING] > 0, False
        if tasks.counts[RunState.SUCCEEDED] and not tasks.holding:
            members = resizing.attempt(context, job)
            succeeded = bool(members) and all(run.state is RunState.SUCCEEDED for run in members)
    if succeeded:
        _succeed(context, job)
        return
    if runs and job.state is JobState.PENDING:
        _begin(context, job)
    elif not runs and job.state is JobState.RUNNING:
        context.put_job(suspending.at_rest(context, job.to(JobState.PENDING, context.now)))


def _follow_array(context: Context, job: Job) -> None:
    """Move an array on, which does not rest while its tasks come and go."""
    tasks, state = context.state.tasks[job.id], job.state
    if tasks.counts[RunState.SUCCEEDED] == tasks.size:
        context.memory(ArrayMemory).resting.pop(job.id, None)
        _succeed(context, job)
    elif state is not JobState.ENDING and failing.all_over(context, job):
        failing.end(context, job)
    elif state is JobState.PENDING:
        if tasks.counts[RunState.RUNNING]:
            _begin(context, job)
    elif state is not JobState.RUNNING:
        pass  # the job has begun to end
    elif tasks.holding:
        context.memory(ArrayMemory).resting.pop(job.id, None)
    else:
        since = context.memory(ArrayMemory).resting.setdefault(job.id, context.now)
        if context.now - since >= _REST_MS or job.suspension is not None:
            del context.memory(ArrayMemory).resting[job.id]
            context.put_job(suspending.at_rest(context, job.to(JobState.PENDING, context.now)))
        else:
            context.alarms.at(Millis(since + _REST_MS), Alarm.job(job.id))


def _begin(context: Context, job: Job) -> None:
    started = context.now if job.started_ms is None else job.started_ms
    job = suspending.awake(context, job)
    context.put_job(replace(job.to(JobState.RUNNING, context.now), started_ms=started))
    if job.spec.failing.max_duration_ms is not None:
        limit = Millis(started + job.rested_ms + job.spec.failing.max_duration_ms)
        context.alarms.at(limit, Alarm.job(job.id))


def _succeed(context: Context, job: Job) -> None:
    ending = job.to(JobState.ENDING, context.now)
    context.put_job(replace(ending, outcome=Outcome.SUCCEEDED, exit_code=0, reason=""))
    _end(context, context.state.jobs[job.id], context.state.tasks[job.id].unsettled)


def _check_duration(context: Context, job: Job) -> None:
    if job.state is not JobState.ENDING and running_times.outlasted(context, job):
        ending = job.to(JobState.ENDING, context.now)
        limit_ms = job.spec.failing.max_duration_ms or 0
        reason = f"ran for longer than its max_duration of {limit_ms / 1000:g} s"
        context.put_job(replace(ending, outcome=Outcome.FAILED, exit_code=124, reason=reason))


def _end(context: Context, job: Job, members: Collection[RunId]) -> None:
    """Stop those of its task runs that run, then close the job."""
    for name in list(members):
        _end_run(context, job, context.state.runs[name])
    _close(context, job)


def _end_run(context: Context, job: Job, run: TaskRun) -> None:
    if run.state in HOLDING:
        context.stop(run, StopReason.END)
        _say(context, context.state.runs[run.id])
    elif run.state is RunState.WAITING:
        state = untouched_state(job)
        context.put_run(replace(run.to(state, context.now), target=None, fetched=None))


def _close(context: Context, job: Job) -> None:
    """End a job of which nothing runs any more."""
    tasks = context.state.tasks[job.id]
    if tasks.holding or tasks.counts[RunState.WAITING]:
        return
    if job.outcome is not Outcome.CANCELLED and outputs.place(context, job.id):
        return  # Outputs of a cancelled job are not waited for: the store may fail for ever.
    assert job.outcome is not None
    ended = job.to(JobState(job.outcome.value), context.now)
    context.put_job(replace(ended, finished_ms=context.now, failure=None))
    if not job.waits:  # else no plan saw it
        arriving.depart(context, job)
        # Tasks that leave room in a pool have reported it.
        context.plan_wanted = context.plan_wanted or job.id not in context.memory(LineMemory).ended


def _converge_gang(context: Context, job: Job) -> None:
    """All members, or of an elastic gang those that run and those that are to join them."""
    if job.spec.elastic.least is None:
        _converge_group(context, job, list(context.state.members(job.id)))
        return
    group = resizing.settle(context, job)
    job = context.state.jobs[job.id]
    _converge_group(context, job, group, resizing.joining(context, job))


def _converge_group(
    context: Context, job: Job, group: list[TaskRun], joining: Sequence[TaskRun] = ()
) -> None:
    """Converge task runs that start together and stop together.

    Args:
        context: The state of this turn.
        job: Their job.
        group: The task runs.
        joining: New members that wait at their targets for these to stop, and start with them.
    """
    secrets.give_back(context, job, (*group, *joining))
    group = [context.state.runs[run.id] for run in group] if job.missing_secrets else group
    group = _stop_overdue_starts(context, group)
    active = [run for run in group if run.state in _ACTIVE]
    if any(run.state is RunState.WAITING for run in group):
        # A gang restarts whole from one checkpoint.
        for run in active:
            context.stop(run, StopReason.GANG)
        for run in group:
            if run.state is RunState.SUCCEEDED and job.failure is None:
                context.put_run(run.to(RunState.WAITING, context.now))
                context.plan_wanted = True
    elif (joining or any(run.target != run.instance for run in active)) and (
        _must_leave(context, active) or _may_leave(context, active, joining)
    ):
        for run in active:
            moves = run.target is not None and run.target != run.instance
            suspended = run.target is None
            reason = StopReason.SUSPEND if suspended else StopReason.GANG
            context.stop(run, StopReason.MOVE if moves else reason)
    group = [context.state.runs[run.id] for run in group]
    if job.failure is not None:
        if not any(run.state in HOLDING for run in group):
            failures.judge(context, job)  # this has the job converged again
    elif all(run.state is RunState.WAITING for run in group) and _may_start(context, job, group):
        _start(context, job, group)
    for run in (*group, *joining):
        _say(context, context.state.runs[run.id])


def _stop_overdue_starts(context: Context, group: list[TaskRun]) -> list[TaskRun]:
    """Stop starts that take too long; return the task runs as they are then.

    Starts are checked at least with each resync.
    """
    if context.now < context.memory(StandstillMemory).patient_until:
        return group
    since = context.now - context.settings.start_timeout_ms
    late = [
        starting
        for starting in group
        if starting.state is RunState.STARTING and starting.since_ms <= since
    ]
    for run in late:
        context.stop(run, StopReason.LATE)
    return [context.state.runs[run.id] for run in group] if late else group


def _say(context: Context, run: TaskRun) -> None:
    """Send what the worker should know of this task run."""
    if run.state is RunState.STARTING:
        context.outbox.start(run)
    elif run.state is RunState.STOPPING:
        context.outbox.stop(run, grace.stop_ms(context, run))
    elif run.target not in (None, run.instance):
        assert run.target is not None
        comes = run.state is RunState.RUNNING or suspending.waits_for_room(context, run)
        comes = comes or resizing.joins(context, run)
        if comes and gangs.is_ready(context, run.target) and run.fetched != run.target:
            context.outbox.fetch(run)


def _may_start(context: Context, job: Job, group: list[TaskRun]) -> bool:
    """Whether every member has its place, ready and with room, and its checkpoint is known."""
    if context.closing_down or context.state.jobs[job.id].missing_secrets:
        return False
    if restored.holds(context, group):
        return False
    if job.spec.has_mates and gangs.stored(context, job) is None:
        return False
    if context.now < job.not_before_ms:
        context.alarms.at(job.not_before_ms, Alarm.job(job.id))
        return False
    if context.now < group[0].not_before_ms:
        context.alarms.at(group[0].not_before_ms, Alarm.run(group[0].id))
        return False
    # Instances are mostly ready in the order of members: the last one is awaited longest.
    awaited = next((run for run in reversed(group) if not gangs.is_in_reach(context, run)), None)
    if awaited is not None:
        if job.is_gang:
            context.memory(GangMemory).awaited_members[job.id] = awaited.id
        return False
    arriving: defaultdict[InstanceId, list[TaskRun]] = defaultdict(list)
    for run in group:
        assert run.target is not None
        arriving[run.target].append(run)
    return all(
        (context.state.company.taken(place) + context.state.demand(runs, instance)).fits(
            instance.offering.type.capacity
        )
        for place, runs in arriving.items()
        for instance in [context.state.instances[place]]
    )


def _start(context: Context, job: Job, group: list[TaskRun]) -> None:
    """Write down a new attempt, bound to its instance for good."""
    if job.spec.has_mates:
        _start_gang(context, job, group)
        return
    (run,) = group
    if job.is_gang:
        attempt = restored.next_attempt(context, job, job.attempt, group)
        context.put_job(replace(job, attempt=attempt))
    attempt = restored.next_attempt(context, job, run.attempt, group)
    context.put_run(_started(context, run, attempt, run.generation))


def _start_gang(context: Context, job: Job, group: list[TaskRun]) -> None:
    """Start members that meet, all from one checkpoint."""
    stored = gangs.stored(context, job)
    meeting = gangs.meet(context, group[0])
    context.memory(GangMemory).awaited_members.pop(job.id, None)
    assert stored is not None
    if meeting is None:
        gangs.hold(context, job.id, gangs.NO_PORT)
        return
    origins = gangs.begin(context, job, [run.id for run in group], stored)
    shares = gangs.batch_shares(context, job, group)
    attempt = restored.next_attempt(context, job, job.attempt, group)
    latest = {run.id for run in resizing.attempt(context, job)}
    context.put_job(replace(job, attempt=attempt, meeting=meeting, resume=None))
    context.memory(GangMemory).forget(context, job.id)
    first = group[0]
    plain = 0
    if job.resume is None and not any(stored.values()):
        # Checkpoints without a generation are of a program without the SDK: agents choose the copy.
        plain = max(run.generation for run in group)
    for run, share in zip(group, shares, strict=True):
        origin = origins[run.id]
        # A new member continues from the others' work, as the first member reported it.
        teller = first if latest and run.id not in latest else run
        resumed = replace(run, progress=teller.progress, work_ms=teller.work_ms)
        context.put_run(
            replace(
                _started(context, resumed, attempt, plain or origin.resume),
                resume=origin.resume,
                checkpoint_of=origin.checkpoint_of,
                batch_ppm=share,
            )
        )


def placed(context: Context, run: TaskRun) -> TaskRun:
    """A waiting task run of an array that was given its place, with its attempt if it may start."""
    job = context.state.jobs[run.job]
    alone = not (job.is_gang or run.extra or run.replicas) and run.state is RunState.WAITING
    if alone and job.failure is None and _may_start(context, job, [run]):
        attempt = restored.next_attempt(context, job, run.attempt, [run])
        return _started(context, run, attempt, run.generation)
    return run


def _started(context: Context, run: TaskRun, attempt: int, generation: int) -> TaskRun:
    """The task run once an attempt was handed out that goes on from a checkpoint, 0 for none."""
    assert run.target is not None
    return replace(
        run,
        history=run.entering(RunState.STARTING, context.now),
        attempt=attempt,
        instance=run.target,
        places=(*run.places, (attempt, run.target))[-_PLACES_ON_RECORD:],
        waiting_for="",
        suspension=None,
        generation=generation,
        progress=run.progress.resumed() if generation else NO_PROGRESS,
        work_ms=run.work_ms if generation else 0,
    )


def _must_leave(context: Context, active: list[TaskRun]) -> bool:
    """Whether an instance is being taken away, so that its tasks must store their work.

    A task does not wait for its next place to be ready: that may be later than the instance lasts.
    """
    places = (context.state.instances[run.instance] for run in active if run.instance is not None)
    return any(place.leaving_ms is not None for place in places)


def _may_leave(context: Context, active: list[TaskRun], joining: Sequence[TaskRun] = ()) -> bool:
    """Whether moving task runs' targets are ready and their room is free, or is being freed.

    So are those of whoever joins them.
    """
    movers = [run for run in (*active, *joining) if run.target not in (None, run.instance)]
    if any(run.state is RunState.STARTING for run in active):
        return False
    return all(_prepared(context, run) for run in movers) and _has_room(context, active, joining)


def _prepared(context: Context, run: TaskRun) -> bool:
    target = run.target
    return target is not None and gangs.is_ready(context, target) and run.fetched == target


def _has_room(context: Context, leaving: list[TaskRun], joining: Sequence[TaskRun] = ()) -> bool:
    """Whether all that has to leave the targets first is able to leave, in turn.

    Tasks may be waiting for each other in a ring, so this starts from "all can leave" and takes
    away those that cannot until nothing changes: rings stay, blocked chains go.
    """
    going = {run.job for run in leaving}
    leaving = [*leaving, *joining]
    if not _blocked(context, leaving, dict.fromkeys(going, leaving)):
        return True  # whoever else can leave
    able = {job: runs for job, runs in _candidates(context).items() if job not in going}
    able.update(dict.fromkeys(going, leaving))
    if _blocked(context, leaving, able):
        return False
    while True:
        stuck = [job for job, runs in able.items() if _blocked(context, runs, able)]
        if not stuck:
            break
        for job in stuck:
            del able[job]
    return all(run.job in able for run in leaving)


def _candidates(context: Context) -> dict[JobId, list[TaskRun]]:
    """Moving task runs by job, of jobs whose targets are all prepared."""
    moving: defaultdict[JobId, list[TaskRun]] = defaultdict(list)
    for run in context.state.places.moving():
        moving[run.job].append(run)
    for name, runs in moving.items():
        runs.extend(resizing.joining(context, context.state.jobs[name]))
    return {
        job: runs for job, runs in moving.items() if all(_prepared(context, run) for run in runs)
    }


def _blocked(context: Context, runs: list[TaskRun], able: dict[JobId, list[TaskRun]]) -> bool:
    for place in {run.target for run in runs if run.target not in (None, run.instance)}:
        assert place is not None
        instance = context.state.instances[place]
        staying = [
            run
            for run in context.state.occupants(place)
            if run.target != place and run.state is not RunState.STOPPING and run.job not in able
        ]
        final = context.state.demand((*context.state.places.targeting(place), *staying), instance)
        if not final.fits(instance.offering.type.capacity):
            return True
    return False


# -- instances -----------------------------------------------------------------------------------


def converge_instance(context: Context, instance_id: InstanceId) -> None:
    """Emit the actions that an instance's state calls for."""
    instance = context.state.instances.get(instance_id)
    if instance is None:
        return
    if instance.owned:
        _converge_node(context, instance)
        return
    if instance.state is InstanceState.UP and instance_id in context.state.sessions:
        ready = instance.to(InstanceState.READY, context.now)
        context.put_instance(replace(ready, ready_ms=context.now))
        instance = context.state.instances[instance_id]
        learn.from_boot(context.state, instance, context.now)
    if reason := _why_unwanted(context, instance):
        context.dismiss(instance, reason)
        instance = context.state.instances[instance_id]
    match instance.state:
        case InstanceState.LAUNCHING:
            context.outbox.launch(instance)
        case InstanceState.TERMINATING:
            context.outbox.terminate(instance_id)
        case InstanceState.READY:
            availability.outlived(context, instance)
            _say_all(context, instance_id)
        case _:
            pass


def _say_all(context: Context, instance: InstanceId) -> None:
    """Send what the worker should know of those who are there, or are about to be."""
    for run in context.state.occupants(instance):
        _say(context, run)
    for run in context.state.places.coming(instance):
        _say(context, run)


def _converge_node(context: Context, node: Instance) -> None:
    """Converge an owned node, about which no cloud is asked."""
    if node.state is InstanceState.UP and node.id in context.state.sessions:
        node = replace(node.to(InstanceState.READY, context.now), ready_ms=context.now)
        context.put_instance(node)
    if node.state is not InstanceState.GONE:
        nodes.converge(context, node)
    if context.state.instances[node.id].state is InstanceState.READY:
        _say_all(context, node.id)


def _why_unwanted(context: Context, instance: Instance) -> str:
    if not _is_empty(context, instance):
        keeping.end(context, instance.id)
    elif not keeping.stays(context, instance):
        taken = instance.leaving_ms is not None or instance.at_risk
        drained = "empty" if instance.drain is None else instance.drain.reason
        return instance.reason if taken else drained
    match instance.state:
        case InstanceState.UP if instance.up_ms is not None:
            limit = context.settings.register_timeout_ms
            if _overdue(context, instance, instance.up_ms, limit):
                return availability.never_registered(context, instance)
        case InstanceState.READY if instance.id not in context.state.sessions:
            since = context.memory(SupplyMemory).silent.setdefault(instance.id, context.now)
            limit = capping.silence_ms(context, instance, since)
            if _overdue(context, instance, since, limit):
                silent = f"its worker has been silent for {limit / 1000:g} s"
                availability.note_end(context, instance, silent, reclaimed=False)
                return silent
        case _:
            pass
    return ""


def _is_empty(context: Context, instance: Instance) -> bool:
    """Whether no task is on a live instance or on its way there, and no pool has it."""
    state = context.state
    taken = state.occupants(instance.id) or state.places.targeting(instance.id)
    return instance.state in LIVE and not taken and not instance.stands


def _overdue(context: Context, instance: Instance, since: Millis, limit: int) -> bool:
    at = Millis(max(since + limit, context.memory(StandstillMemory).patient_until))
    if context.now >= at:
        return True
    context.alarms.at(at, Alarm.instance(instance.id))
    return False


def resync(context: Context) -> None:
    """Look at everything, and ask the busy workers what is true."""
    for job in context.state.active:
        context.touch_job(job)
    for instance in context.state.live:
        context.touch_instance(instance)
        busy = context.state.occupants(instance) or restored.awaits(context, instance)
        if busy and instance in context.state.sessions:
            context.outbox.add(SyncWorker(instance))
