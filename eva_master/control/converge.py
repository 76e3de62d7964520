"""Compare observed state with desired state and emit the actions that close the difference.

One job or instance at a time. Level-triggered: each function looks at the records alone, whatever
led to them, moves them on where that is possible and sends what has to be said (again). Converging
twice does nothing more.
"""

from __future__ import annotations

from collections import defaultdict

from eva_master.control import failures, gangs, waiting
from eva_master.control.alarms import Alarm
from eva_master.control.context import Context
from eva_master.control.measure import learn
from eva_master.control.supply import availability, spot
from eva_master.model.actions import SyncWorker
from eva_master.model.ids import InstanceId, JobId, Millis
from eva_master.model.records import Instance, Job, Outcome, Progress, StopReason, TaskRun
from eva_master.model.states import HOLDING, TERMINAL_JOB, InstanceState, JobState, RunState
from eva_master.model.values import replace

_PLACES_ON_RECORD = 8
"""How many of a task run's attempts are on record with their places."""
_ACTIVE = (RunState.STARTING, RunState.RUNNING)

# -- jobs ----------------------------------------------------------------------------------------


def converge_job(context: Context, job_id: JobId) -> None:
    """Move a job's task runs on, and the job with them."""
    job = context.state.jobs.get(job_id)
    if job is None or job.state in TERMINAL_JOB:
        return
    _check_duration(context, job)
    job = context.state.jobs[job_id]
    if job.state is JobState.ENDING:
        _end(context, job)
        return
    if job.waits:
        waiting.settle(context, job)
        return
    members = list(context.state.members(job_id))
    for group in [members] if job.is_gang else _that_may_move(job, members):
        _converge_group(context, job, group)
    members = list(context.state.members(job_id))
    if all(run.state is RunState.SUCCEEDED for run in members):
        ending = context.state.jobs[job_id].to(JobState.ENDING, context.now)
        context.put_job(replace(ending, outcome=Outcome.SUCCEEDED, exit_code=0, reason=""))
        _end(context, context.state.jobs[job_id])
        return
    _follow(context, context.state.jobs[job_id], members)


def _that_may_move(job: Job, members: list[TaskRun]) -> list[list[TaskRun]]:
    """The tasks of an array one by one, less those that wait for a plan: most of a long queue."""
    return [
        [run]
        for run in members
        if run.target is not None or run.state is not RunState.WAITING or job.failure is not None
    ]


def _follow(context: Context, job: Job, members: list[TaskRun]) -> None:
    """A job runs while one of its tasks does."""
    runs = any(run.state is RunState.RUNNING for run in members)
    if runs and job.state is JobState.PENDING:
        started = context.now if job.started_ms is None else job.started_ms
        context.put_job(replace(job.to(JobState.RUNNING, context.now), started_ms=started))
        if job.spec.max_duration_ms is not None:
            limit = Millis(started + job.spec.max_duration_ms)
            context.alarms.at(limit, Alarm.job(job.id))
    elif not runs and job.state is JobState.RUNNING:
        context.put_job(job.to(JobState.PENDING, context.now))


def _check_duration(context: Context, job: Job) -> None:
    limit = job.spec.max_duration_ms
    if limit is None or job.started_ms is None or job.state is JobState.ENDING:
        return
    if context.now - job.started_ms >= limit:
        ending = job.to(JobState.ENDING, context.now)
        reason = f"ran for longer than its max_duration of {limit / 1000:g} s"
        context.put_job(replace(ending, outcome=Outcome.FAILED, exit_code=124, reason=reason))


def _end(context: Context, job: Job) -> None:
    """Stop what runs, then close the job."""
    for run in list(context.state.members(job.id)):
        if run.state in HOLDING:
            context.stop(run, StopReason.END)
            _say(context, context.state.runs[run.id])
        elif run.state is RunState.WAITING:
            failed = job.outcome is Outcome.FAILED
            state = RunState.FAILED if failed else RunState.CANCELLED
            context.put_run(replace(run.to(state, context.now), target=None, fetched=None))
    if any(run.state in HOLDING for run in context.state.members(job.id)):
        return
    assert job.outcome is not None
    gangs.forget(context, job.id)
    context.failures.forget(job.id)
    ended = job.to(JobState(job.outcome.value), context.now)
    context.put_job(replace(ended, finished_ms=context.now, failure=None))
    if not job.waits:  # else no plan was about it
        context.state.count(completions=1)
        context.plan_wanted = True


def _converge_group(context: Context, job: Job, group: list[TaskRun]) -> None:
    """Task runs that start together and stop together."""
    active = [run for run in group if run.state in _ACTIVE]
    if any(run.state is RunState.WAITING for run in group):
        # A gang restarts whole from one checkpoint.
        for run in active:
            context.stop(run, StopReason.GANG)
        for run in group:
            if run.state is RunState.SUCCEEDED and job.failure is None:
                context.put_run(run.to(RunState.WAITING, context.now))
                context.plan_wanted = True
    elif any(run.target != run.instance for run in active) and _may_leave(context, active):
        for run in active:
            moves = run.target is not None and run.target != run.instance
            suspended = run.target is None
            reason = StopReason.SUSPEND if suspended else StopReason.GANG
            context.stop(run, StopReason.MOVE if moves else reason)
    group = [context.state.runs[run.id] for run in group]
    if job.failure is not None:
        if not any(run.state in HOLDING for run in group):
            failures.judge(context, job)  # which has the job converged again
    elif all(run.state is RunState.WAITING for run in group) and _may_start(context, job, group):
        _start(context, job, group)
    for run in group:
        _say(context, context.state.runs[run.id])


def _say(context: Context, run: TaskRun) -> None:
    """Send what the worker should know of this task run."""
    if run.state is RunState.STARTING:
        context.outbox.start(run)
    elif run.state is RunState.STOPPING:
        assert run.instance is not None
        place = context.state.instances[run.instance]
        grace = context.state.jobs[run.job].spec.grace_period_ms
        grace = spot.in_time(place, grace, context.now)
        context.outbox.stop(run, 0 if run.stop is StopReason.LOST else grace)
    elif run.state is RunState.RUNNING and run.target not in (None, run.instance):
        assert run.target is not None
        if _ready(context, run.target) and run.fetched != run.target:
            context.outbox.fetch(run)


def _ready(context: Context, instance: InstanceId) -> bool:
    known = context.state.instances.get(instance)
    ready = known is not None and known.state is InstanceState.READY
    return ready and context.state.connected(instance)


def _may_start(context: Context, job: Job, group: list[TaskRun]) -> bool:
    """Whether every member has its place, ready and with room, and its checkpoint is known."""
    if context.closing_down:
        return False
    if len(group) > 1 and gangs.stored(context, job) is None:
        return False
    if context.now < job.not_before_ms:
        context.alarms.at(job.not_before_ms, Alarm.job(job.id))
        return False
    arriving: defaultdict[InstanceId, list[TaskRun]] = defaultdict(list)
    for run in group:
        if run.target is None or not _ready(context, run.target):
            return False
        arriving[run.target].append(run)
    return all(
        context.state.demand((*context.state.occupants(place), *runs), instance).fits(
            instance.offering.type.capacity
        )
        for place, runs in arriving.items()
        for instance in [context.state.instances[place]]
    )


def _start(context: Context, job: Job, group: list[TaskRun]) -> None:
    """Write down a new attempt, bound to its instance for good."""
    if len(group) > 1:
        _start_gang(context, job, group)
        return
    (run,) = group
    context.put_job(replace(job, attempt=job.attempt + 1))
    context.put_run(_started(context, run, run.attempt + 1, run.generation))


def _start_gang(context: Context, job: Job, group: list[TaskRun]) -> None:
    """The same for members that meet, all from one checkpoint."""
    stored = gangs.stored(context, job)
    meeting = gangs.meet(context, group[0])
    assert stored is not None
    if meeting is None:
        gangs.hold(context, job.id, gangs.NO_PORT)
        return
    resume = gangs.common_generation(stored) if job.resume is None else job.resume
    origins = gangs.origins([run.id for run in group], stored, resume)
    attempt = job.attempt + 1
    context.put_job(replace(job, attempt=attempt, meeting=meeting, resume=None))
    gangs.forget(context, job.id)
    for run in group:
        origin = origins[run.id]
        context.put_run(
            replace(
                _started(context, run, attempt, origin.resume),
                resume=origin.resume,
                checkpoint_of=origin.checkpoint_of,
            )
        )


def _started(context: Context, run: TaskRun, attempt: int, generation: int) -> TaskRun:
    """The task run once an attempt was handed out that goes on from a checkpoint, 0 for none."""
    assert run.target is not None
    return replace(
        run.to(RunState.STARTING, context.now),
        attempt=attempt,
        instance=run.target,
        places=(*run.places, (attempt, run.target))[-_PLACES_ON_RECORD:],
        waiting_for="",
        generation=generation,
        progress=run.progress.at_rate(0.0) if generation else Progress(),
        work_ms=run.work_ms if generation else 0,
    )


def _may_leave(context: Context, active: list[TaskRun]) -> bool:
    """Whether moving task runs' targets are ready and their room is free, or is being freed."""
    movers = [run for run in active if run.target not in (None, run.instance)]
    if any(run.state is RunState.STARTING for run in active):
        return False
    return all(_prepared(context, run) for run in movers) and _has_room(context, active)


def _prepared(context: Context, run: TaskRun) -> bool:
    target = run.target
    return target is not None and _ready(context, target) and run.fetched == target


def _has_room(context: Context, leaving: list[TaskRun]) -> bool:
    """Whether all that has to leave the targets first is able to leave, in turn.

    Tasks may be waiting for each other in a ring, so this starts from "all can leave" and takes
    away those that cannot until nothing changes: rings stay, blocked chains go.
    """
    if not _blocked(context, leaving, {run.job: leaving for run in leaving}):
        return True  # whoever else can leave
    going = {run.job for run in leaving}
    able = {job: runs for job, runs in _candidates(context).items() if job not in going}
    able.update({run.job: leaving for run in leaving})
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
    for run in context.state.moving():
        moving[run.job].append(run)
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
        final = context.state.demand((*context.state.targeting(place), *staying), instance)
        if not final.fits(instance.offering.type.capacity):
            return True
    return False


# -- instances -----------------------------------------------------------------------------------


def converge_instance(context: Context, instance_id: InstanceId) -> None:
    """Emit the actions that an instance's state calls for."""
    instance = context.state.instances.get(instance_id)
    if instance is None:
        return
    if instance.state is InstanceState.UP and context.state.connected(instance_id):
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
            for run in context.state.occupants(instance_id):
                _say(context, run)
            for run in context.state.targeting(instance_id):
                if run.instance != instance_id:
                    _say(context, run)
        case _:
            pass


def _why_unwanted(context: Context, instance: Instance) -> str:
    occupants = context.state.occupants(instance.id)
    match instance.state:
        case InstanceState.LAUNCHING | InstanceState.UP | InstanceState.READY if not (
            occupants or context.state.targeting(instance.id)
        ):
            taken = instance.leaving_ms is not None or instance.at_risk
            return instance.reason if taken else "empty"
        case InstanceState.UP if instance.up_ms is not None:
            limit = context.settings.register_timeout_ms
            if _overdue(context, instance, instance.up_ms, limit):
                return availability.never_registered(context, instance)
        case InstanceState.READY if not context.state.connected(instance.id):
            since = context.silent.setdefault(instance.id, context.now)
            limit = context.settings.lost_worker_ms
            if _overdue(context, instance, since, limit):
                silent = f"its worker has been silent for {limit / 1000:g} s"
                availability.note_end(context, instance, silent, reclaimed=False)
                return silent
        case _:
            pass
    return ""


def _overdue(context: Context, instance: Instance, since: Millis, limit: int) -> bool:
    if context.now - since >= limit:
        return True
    context.alarms.at(Millis(since + limit), Alarm.instance(instance.id))
    return False


def resync(context: Context) -> None:
    """Look at everything, and ask the busy workers what is true."""
    for job in context.state.active:
        context.touch_job(job)
    for instance in context.state.live:
        context.touch_instance(instance)
        if context.state.occupants(instance) and context.state.connected(instance):
            context.outbox.add(SyncWorker(instance))
