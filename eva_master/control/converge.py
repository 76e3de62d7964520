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
from eva_master.model.records import Instance, Job, Outcome, StopReason, TaskCopy
from eva_master.model.states import ENDED, HOLDING, CopyState, InstanceState, JobState
from eva_master.model.values import replace

_PLACES = 8
"""How many of a copy's attempts are on record with their places."""
_ACTIVE = (CopyState.STARTING, CopyState.RUNNING)

# -- jobs ----------------------------------------------------------------------------------------


def settle_job(turn: Turn, job_id: JobId) -> None:
    """Move a job's copies on, and the job with them."""
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
    if all(copy.state is CopyState.SUCCEEDED for copy in members):
        ending = turn.state.jobs[job_id].to(JobState.ENDING, turn.now)
        turn.put_job(replace(ending, outcome=Outcome.SUCCEEDED, exit_code=0, reason=""))
        _end(turn, turn.state.jobs[job_id])
        return
    _follow(turn, turn.state.jobs[job_id], members)


def _follow(turn: Turn, job: Job, members: list[TaskCopy]) -> None:
    """A job runs while one of its tasks does."""
    runs = any(copy.state is CopyState.RUNNING for copy in members)
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
    for copy in list(turn.state.members(job.id)):
        if copy.state in HOLDING:
            turn.stop(copy, StopReason.END)
            _say(turn, turn.state.copies[copy.id])
        elif copy.state is CopyState.WAITING:
            failed = job.outcome is Outcome.FAILED
            state = CopyState.FAILED if failed else CopyState.CANCELLED
            turn.put_copy(replace(copy.to(state, turn.now), target=None, fetched=None))
    if any(copy.state in HOLDING for copy in turn.state.members(job.id)):
        return
    assert job.outcome is not None
    turn.forget_list(job.id)
    ended = job.to(JobState(job.outcome.value), turn.now)
    turn.put_job(replace(ended, finished_ms=turn.now, failure=None))
    turn.state.count(completions=1)
    turn.plan_wanted = True


def _settle_unit(turn: Turn, job: Job, unit: list[TaskCopy]) -> None:
    """Copies that start together and stop together."""
    active = [copy for copy in unit if copy.state in _ACTIVE]
    if any(copy.state is CopyState.WAITING for copy in unit):
        # A gang restarts whole from one checkpoint.
        for copy in active:
            turn.stop(copy, StopReason.GANG)
        for copy in unit:
            if copy.state is CopyState.SUCCEEDED and job.failure is None:
                turn.put_copy(copy.to(CopyState.WAITING, turn.now))
                turn.plan_wanted = True
    elif any(copy.target != copy.instance for copy in active) and _may_leave(turn, active):
        for copy in active:
            moves = copy.target is not None and copy.target != copy.instance
            suspended = copy.target is None
            reason = StopReason.SUSPEND if suspended else StopReason.GANG
            turn.stop(copy, StopReason.MOVE if moves else reason)
    unit = [turn.state.copies[copy.id] for copy in unit]
    if job.failure is not None:
        if not any(copy.state in HOLDING for copy in unit):
            judge_failure(turn, job)  # which has the job settled again
    elif all(copy.state is CopyState.WAITING for copy in unit) and _may_start(turn, job, unit):
        _start(turn, job, unit)
    for copy in unit:
        _say(turn, turn.state.copies[copy.id])


def _say(turn: Turn, copy: TaskCopy) -> None:
    """Send what the worker should know of this copy."""
    if copy.state is CopyState.STARTING:
        turn.send_start(copy)
    elif copy.state is CopyState.STOPPING:
        assert copy.instance is not None
        place = turn.state.instances[copy.instance]
        grace = turn.state.jobs[copy.job].spec.grace_period_ms
        grace = spot.in_time(place, grace, turn.now)
        turn.send_stop(copy, 0 if copy.stop is StopReason.LOST else grace)
    elif copy.state is CopyState.RUNNING and copy.target not in (None, copy.instance):
        assert copy.target is not None
        if _ready(turn, copy.target) and copy.fetched != copy.target:
            turn.send_fetch(copy)


def _ready(turn: Turn, instance: InstanceId) -> bool:
    known = turn.state.instances.get(instance)
    ready = known is not None and known.state is InstanceState.READY
    return ready and turn.state.connected(instance)


def _may_start(turn: Turn, job: Job, unit: list[TaskCopy]) -> bool:
    """Whether every member has its place, ready and with room, and its checkpoint is known."""
    if len(unit) > 1 and gangs.stored(turn, job) is None:
        return False
    if turn.now < job.not_before_ms:
        turn.alarms.at(job.not_before_ms, ("job", job.id))
        return False
    arriving: defaultdict[InstanceId, list[TaskCopy]] = defaultdict(list)
    for copy in unit:
        if copy.target is None or not _ready(turn, copy.target):
            return False
        arriving[copy.target].append(copy)
    return all(
        turn.state.demand((*turn.state.holders(place), *copies), instance).fits(
            instance.offering.type.capacity
        )
        for place, copies in arriving.items()
        for instance in [turn.state.instances[place]]
    )


def _start(turn: Turn, job: Job, unit: list[TaskCopy]) -> None:
    """Write down a new attempt, bound to its instance for good."""
    if len(unit) > 1:
        _start_gang(turn, job, unit)
        return
    attempt = job.attempt + 1
    turn.put_job(replace(job, attempt=attempt))
    for copy in unit:
        turn.put_copy(_started(turn, copy, attempt))


def _start_gang(turn: Turn, job: Job, unit: list[TaskCopy]) -> None:
    """The same for members that meet, all from one checkpoint."""
    stored = gangs.stored(turn, job)
    meeting = gangs.meet(turn, unit[0])
    assert stored is not None
    if meeting is None:
        gangs.hold(turn, job.id, gangs.NO_PORT)
        return
    resume = gangs.common_generation(stored) if job.resume is None else job.resume
    origins = gangs.origins([copy.id for copy in unit], stored, resume)
    attempt = job.attempt + 1
    turn.put_job(replace(job, attempt=attempt, meeting=meeting, resume=None))
    turn.forget_list(job.id)
    for copy in unit:
        origin = origins[copy.id]
        turn.put_copy(
            replace(
                _started(turn, copy, attempt),
                generation=origin.resume,
                resume=origin.resume,
                checkpoint_of=origin.checkpoint_of,
            )
        )


def _started(turn: Turn, copy: TaskCopy, attempt: int) -> TaskCopy:
    assert copy.target is not None
    return replace(
        copy.to(CopyState.STARTING, turn.now),
        attempt=attempt,
        instance=copy.target,
        places=(*copy.places, (attempt, copy.target))[-_PLACES:],
        waiting_for="",
        progress=copy.progress.at_rate(0.0),
    )


def _may_leave(turn: Turn, active: list[TaskCopy]) -> bool:
    """Whether moving copies' targets are ready and their room is free, or is being freed."""
    movers = [copy for copy in active if copy.target not in (None, copy.instance)]
    if any(copy.state is CopyState.STARTING for copy in active):
        return False
    return all(_prepared(turn, copy) for copy in movers) and _has_room(turn, active)


def _prepared(turn: Turn, copy: TaskCopy) -> bool:
    target = copy.target
    return target is not None and _ready(turn, target) and copy.fetched == target


def _has_room(turn: Turn, leaving: list[TaskCopy]) -> bool:
    """Whether all that has to leave the targets first is able to leave, in turn.

    Tasks may be waiting for each other in a ring, so this starts from "all can leave" and takes
    away those that cannot until nothing changes: rings stay, blocked chains go.
    """
    if not _blocked(turn, leaving, {copy.job: leaving for copy in leaving}):
        return True  # whoever else can leave
    going = {copy.job for copy in leaving}
    able = {job: copies for job, copies in _candidates(turn).items() if job not in going}
    able.update({copy.job: leaving for copy in leaving})
    if _blocked(turn, leaving, able):
        return False
    while True:
        stuck = [job for job, copies in able.items() if _blocked(turn, copies, able)]
        if not stuck:
            break
        for job in stuck:
            del able[job]
    return all(copy.job in able for copy in leaving)


def _candidates(turn: Turn) -> dict[JobId, list[TaskCopy]]:
    """Moving copies by job, of jobs whose targets are all prepared."""
    moving: defaultdict[JobId, list[TaskCopy]] = defaultdict(list)
    for copy in turn.state.moving():
        moving[copy.job].append(copy)
    return {
        job: copies
        for job, copies in moving.items()
        if all(_prepared(turn, copy) for copy in copies)
    }


def _blocked(turn: Turn, copies: list[TaskCopy], able: dict[JobId, list[TaskCopy]]) -> bool:
    for place in {copy.target for copy in copies if copy.target not in (None, copy.instance)}:
        assert place is not None
        instance = turn.state.instances[place]
        staying = [
            copy
            for copy in turn.state.holders(place)
            if copy.target != place
            and copy.state is not CopyState.STOPPING
            and copy.job not in able
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
            for copy in turn.state.holders(instance_id):
                _say(turn, copy)
            for copy in turn.state.aimed(instance_id):
                if copy.instance != instance_id:
                    _say(turn, copy)
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
