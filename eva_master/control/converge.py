"""What is compared with what should be, one job or instance at a time.

Level-triggered: each function looks at the records alone, whatever led to them, moves them on where
that is possible and sends what has to be said (again). Settling twice does nothing more.
"""

from __future__ import annotations

from collections import defaultdict

from eva_master.control import availability, gangs, spot
from eva_master.control.context import Turn
from eva_master.control.handlers import is_gang, judge_failure
from eva_master.control.measure import learn
from eva_master.model.actions import SyncWorker
from eva_master.model.ids import InstanceId, JobId, Millis
from eva_master.model.records import Instance, Job, Outcome, StopReason, TaskRun
from eva_master.model.states import ENDED, HOLDING, InstanceState, JobState, RunState
from eva_master.model.values import replace

_PLACES = 8
"""How many of a task run's attempts are on record with their places."""
_ACTIVE = (RunState.STARTING, RunState.RUNNING)

# -- jobs ----------------------------------------------------------------------------------------


def settle_job(turn: Turn, job_id: JobId) -> None:
    """Move a job's task runs on, and the job with them."""
    job = turn.state.jobs.get(job_id)
    if job is None or job.state in ENDED:
        return
    _check_duration(turn, job)
    job = turn.state.jobs[job_id]
    if job.state is JobState.ENDING:
        _end(turn, job)
        return
    members = list(turn.state.members(job_id))
    for unit in [members] if is_gang(job) else [[member] for member in members]:
        _settle_unit(turn, job, unit)
    members = list(turn.state.members(job_id))
    if all(run.state is RunState.SUCCEEDED for run in members):
        ending = turn.state.jobs[job_id].to(JobState.ENDING, turn.now)
        turn.put_job(replace(ending, outcome=Outcome.SUCCEEDED, exit_code=0, reason=""))
        _end(turn, turn.state.jobs[job_id])
        return
    _follow(turn, turn.state.jobs[job_id], members)


def _follow(turn: Turn, job: Job, members: list[TaskRun]) -> None:
    """A job runs while one of its tasks does."""
    runs = any(run.state is RunState.RUNNING for run in members)
    if runs and job.state is JobState.PENDING:
        started = turn.now if job.started_ms is None else job.started_ms
        turn.put_job(replace(job.to(JobState.RUNNING, turn.now), started_ms=started))
        if job.spec.max_duration_ms is not None:
            limit = Millis(started + job.spec.max_duration_ms)
            turn.alarms.at(limit, ("job", job.id))
    elif not runs and job.state is JobState.RUNNING:
        turn.put_job(job.to(JobState.PENDING, turn.now))


def _check_duration(turn: Turn, job: Job) -> None:
    limit = job.spec.max_duration_ms
    if limit is None or job.started_ms is None or job.state is JobState.ENDING:
        return
    if turn.now - job.started_ms >= limit:
        ending = job.to(JobState.ENDING, turn.now)
        reason = f"ran for longer than its max_duration of {limit / 1000:g} s"
        turn.put_job(replace(ending, outcome=Outcome.FAILED, exit_code=124, reason=reason))


def _end(turn: Turn, job: Job) -> None:
    """Stop what runs, then close the job."""
    for run in list(turn.state.members(job.id)):
        if run.state in HOLDING:
            turn.stop(run, StopReason.END)
            _say(turn, turn.state.runs[run.id])
        elif run.state is RunState.WAITING:
            failed = job.outcome is Outcome.FAILED
            state = RunState.FAILED if failed else RunState.CANCELLED
            turn.put_run(replace(run.to(state, turn.now), target=None, fetched=None))
    if any(run.state in HOLDING for run in turn.state.members(job.id)):
        return
    assert job.outcome is not None
    turn.forget_list(job.id)
    ended = job.to(JobState(job.outcome.value), turn.now)
    turn.put_job(replace(ended, finished_ms=turn.now, failure=None))
    turn.state.count(completions=1)
    turn.plan_wanted = True


def _settle_unit(turn: Turn, job: Job, unit: list[TaskRun]) -> None:
    """Task runs that start together and stop together."""
    active = [run for run in unit if run.state in _ACTIVE]
    if any(run.state is RunState.WAITING for run in unit):
        # A gang restarts whole from one checkpoint.
        for run in active:
            turn.stop(run, StopReason.GANG)
        for run in unit:
            if run.state is RunState.SUCCEEDED and job.failure is None:
                turn.put_run(run.to(RunState.WAITING, turn.now))
                turn.plan_wanted = True
    elif any(run.target != run.instance for run in active) and _may_leave(turn, active):
        for run in active:
            moves = run.target is not None and run.target != run.instance
            suspended = run.target is None
            reason = StopReason.SUSPEND if suspended else StopReason.GANG
            turn.stop(run, StopReason.MOVE if moves else reason)
    unit = [turn.state.runs[run.id] for run in unit]
    if job.failure is not None:
        if not any(run.state in HOLDING for run in unit):
            judge_failure(turn, job)  # which has the job settled again
    elif all(run.state is RunState.WAITING for run in unit) and _may_start(turn, job, unit):
        _start(turn, job, unit)
    for run in unit:
        _say(turn, turn.state.runs[run.id])


def _say(turn: Turn, run: TaskRun) -> None:
    """Send what the worker should know of this task run."""
    if run.state is RunState.STARTING:
        turn.send_start(run)
    elif run.state is RunState.STOPPING:
        assert run.instance is not None
        place = turn.state.instances[run.instance]
        grace = turn.state.jobs[run.job].spec.grace_period_ms
        grace = spot.in_time(place, grace, turn.now)
        turn.send_stop(run, 0 if run.stop is StopReason.LOST else grace)
    elif run.state is RunState.RUNNING and run.target not in (None, run.instance):
        assert run.target is not None
        if _ready(turn, run.target) and run.fetched != run.target:
            turn.send_fetch(run)


def _ready(turn: Turn, instance: InstanceId) -> bool:
    known = turn.state.instances.get(instance)
    ready = known is not None and known.state is InstanceState.READY
    return ready and turn.state.connected(instance)


def _may_start(turn: Turn, job: Job, unit: list[TaskRun]) -> bool:
    """Whether every member has its place, ready and with room, and its checkpoint is known."""
    if len(unit) > 1 and gangs.stored(turn, job) is None:
        return False
    if turn.now < job.not_before_ms:
        turn.alarms.at(job.not_before_ms, ("job", job.id))
        return False
    arriving: defaultdict[InstanceId, list[TaskRun]] = defaultdict(list)
    for run in unit:
        if run.target is None or not _ready(turn, run.target):
            return False
        arriving[run.target].append(run)
    return all(
        turn.state.demand((*turn.state.holders(place), *runs), instance).fits(
            instance.offering.type.capacity
        )
        for place, runs in arriving.items()
        for instance in [turn.state.instances[place]]
    )


def _start(turn: Turn, job: Job, unit: list[TaskRun]) -> None:
    """Write down a new attempt, bound to its instance for good."""
    if len(unit) > 1:
        _start_gang(turn, job, unit)
        return
    attempt = job.attempt + 1
    turn.put_job(replace(job, attempt=attempt))
    for run in unit:
        turn.put_run(_started(turn, run, attempt))


def _start_gang(turn: Turn, job: Job, unit: list[TaskRun]) -> None:
    """The same for members that meet, all from one checkpoint."""
    stored = gangs.stored(turn, job)
    meeting = gangs.meet(turn, unit[0])
    assert stored is not None
    if meeting is None:
        gangs.hold(turn, job.id, gangs.NO_PORT)
        return
    resume = gangs.common_generation(stored) if job.resume is None else job.resume
    origins = gangs.origins([run.id for run in unit], stored, resume)
    attempt = job.attempt + 1
    turn.put_job(replace(job, attempt=attempt, meeting=meeting, resume=None))
    turn.forget_list(job.id)
    for run in unit:
        origin = origins[run.id]
        turn.put_run(
            replace(
                _started(turn, run, attempt),
                generation=origin.resume,
                resume=origin.resume,
                checkpoint_of=origin.checkpoint_of,
            )
        )


def _started(turn: Turn, run: TaskRun, attempt: int) -> TaskRun:
    assert run.target is not None
    return replace(
        run.to(RunState.STARTING, turn.now),
        attempt=attempt,
        instance=run.target,
        places=(*run.places, (attempt, run.target))[-_PLACES:],
        waiting_for="",
        progress=run.progress.at_rate(0.0),
    )


def _may_leave(turn: Turn, active: list[TaskRun]) -> bool:
    """Whether moving task runs' targets are ready and their room is free, or is being freed."""
    movers = [run for run in active if run.target not in (None, run.instance)]
    if any(run.state is RunState.STARTING for run in active):
        return False
    return all(_prepared(turn, run) for run in movers) and _has_room(turn, active)


def _prepared(turn: Turn, run: TaskRun) -> bool:
    target = run.target
    return target is not None and _ready(turn, target) and run.fetched == target


def _has_room(turn: Turn, leaving: list[TaskRun]) -> bool:
    """Whether all that has to leave the targets first is able to leave, in turn.

    Tasks may be waiting for each other in a ring, so this starts from "all can leave" and takes
    away those that cannot until nothing changes: rings stay, blocked chains go.
    """
    if not _blocked(turn, leaving, {run.job: leaving for run in leaving}):
        return True  # whoever else can leave
    going = {run.job for run in leaving}
    able = {job: runs for job, runs in _candidates(turn).items() if job not in going}
    able.update({run.job: leaving for run in leaving})
    if _blocked(turn, leaving, able):
        return False
    while True:
        stuck = [job for job, runs in able.items() if _blocked(turn, runs, able)]
        if not stuck:
            break
        for job in stuck:
            del able[job]
    return all(run.job in able for run in leaving)


def _candidates(turn: Turn) -> dict[JobId, list[TaskRun]]:
    """Moving task runs by job, of jobs whose targets are all prepared."""
    moving: defaultdict[JobId, list[TaskRun]] = defaultdict(list)
    for run in turn.state.moving():
        moving[run.job].append(run)
    return {job: runs for job, runs in moving.items() if all(_prepared(turn, run) for run in runs)}


def _blocked(turn: Turn, runs: list[TaskRun], able: dict[JobId, list[TaskRun]]) -> bool:
    for place in {run.target for run in runs if run.target not in (None, run.instance)}:
        assert place is not None
        instance = turn.state.instances[place]
        staying = [
            run
            for run in turn.state.holders(place)
            if run.target != place and run.state is not RunState.STOPPING and run.job not in able
        ]
        final = turn.state.demand((*turn.state.aimed(place), *staying), instance)
        if not final.fits(instance.offering.type.capacity):
            return True
    return False


# -- instances -----------------------------------------------------------------------------------


def settle_instance(turn: Turn, instance_id: InstanceId) -> None:
    """Move an instance on."""
    instance = turn.state.instances.get(instance_id)
    if instance is None:
        return
    if instance.state is InstanceState.UP and turn.state.connected(instance_id):
        ready = instance.to(InstanceState.READY, turn.now)
        turn.put_instance(replace(ready, ready_ms=turn.now))
        instance = turn.state.instances[instance_id]
        learn.from_boot(turn.state, instance, turn.now)
    if reason := _why_unwanted(turn, instance):
        turn.dismiss(instance, reason)
        instance = turn.state.instances[instance_id]
    match instance.state:
        case InstanceState.LAUNCHING:
            turn.send_launch(instance)
        case InstanceState.TERMINATING:
            turn.send_terminate(instance_id)
        case InstanceState.READY:
            for run in turn.state.holders(instance_id):
                _say(turn, run)
            for run in turn.state.aimed(instance_id):
                if run.instance != instance_id:
                    _say(turn, run)
        case _:
            pass


def _why_unwanted(turn: Turn, instance: Instance) -> str:
    holders = turn.state.holders(instance.id)
    match instance.state:
        case InstanceState.LAUNCHING | InstanceState.UP | InstanceState.READY if not (
            holders or turn.state.aimed(instance.id)
        ):
            taken = instance.leaving_ms is not None or instance.at_risk
            return instance.reason if taken else "empty"
        case InstanceState.UP if instance.up_ms is not None:
            limit = turn.settings.register_timeout_ms
            if _overdue(turn, instance, instance.up_ms, limit):
                return availability.stillborn(turn, instance)
        case InstanceState.READY if not turn.state.connected(instance.id):
            since = turn.silent.setdefault(instance.id, turn.now)
            limit = turn.settings.lost_worker_ms
            if _overdue(turn, instance, since, limit):
                return f"its worker has been silent for {limit / 1000:g} s"
        case _:
            pass
    return ""


def _overdue(turn: Turn, instance: Instance, since: Millis, limit: int) -> bool:
    if turn.now - since >= limit:
        return True
    turn.alarms.at(Millis(since + limit), ("instance", instance.id))
    return False


def sweep(turn: Turn) -> None:
    """Look at everything, and ask the busy workers what is true."""
    for job in turn.state.active:
        turn.touch(("job", job))
    for instance in turn.state.live:
        turn.touch(("instance", instance))
        if turn.state.holders(instance) and turn.state.connected(instance):
            turn.actions.append(SyncWorker(instance))
