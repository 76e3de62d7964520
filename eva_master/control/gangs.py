"""Gangs of several: which checkpoint all members begin from, where they meet, who does how much."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from eva_master.control.alarms import Alarm
from eva_master.control.context import Context
from eva_master.control.features.gangs.memory import GangMemory
from eva_master.control.state.records import crew
from eva_master.control.supply import restored
from eva_master.learning.speeds import batch_shares as shares
from eva_master.model.actions import ListCheckpoints
from eva_master.model.events import CheckpointsListed
from eva_master.model.records import Job, Meeting, TaskRun
from eva_wire.values.ids import InstanceId, JobId, Millis, RunId, run_id
from eva_wire.values.states import InstanceState, RunState

NO_PORT = "every port for gangs is taken; the setting gang_ports says which there are"
NOTHING_IN_COMMON = "its members have no checkpoint in common, so it started over"


@dataclass(frozen=True, slots=True)
class MemberOrigin:
    """Checkpoint that one member of an attempt begins from.

    Attributes:
        resume: A generation, 0 for none.
        checkpoint_of: The task run that stored it, `None` for the member itself.
    """

    resume: int
    checkpoint_of: RunId | None = None


def common_generation(stored: Mapping[RunId, Collection[int]]) -> int:
    """The newest generation that all who publish have stored, 0 if there is none.

    A member that has stored nothing does not publish. In most gangs only rank 0 does.
    """
    published = [set(generations) for generations in stored.values() if generations]
    return max(set.intersection(*published), default=0) if published else 0


def origins(
    members: Sequence[RunId], stored: Mapping[RunId, Collection[int]], generation: int
) -> dict[RunId, MemberOrigin]:
    """Checkpoint of each member, so that all of them begin from one generation.

    Args:
        members: In order of rank.
        stored: The complete generations of each member of the attempt before, after all of it is
            over. Some of these may no longer be members.
        generation: The one to begin from, 0 for none.

    Returns:
        Its own checkpoint for a member that publishes one, that of the first such member for all
        others.
    """
    owners = [member for member in (*members, *stored) if generation in stored.get(member, ())]
    if generation == 0 or not owners:
        return dict.fromkeys(members, MemberOrigin(0))
    return {
        member: MemberOrigin(generation, None if member in owners else owners[0])
        for member in members
    }


def free_port(first: int, last: int, taken: Collection[int], start: int) -> int | None:
    """The `start`-th port of a range, going round, or the next one after it that is free."""
    size = last - first + 1
    candidates = (first + (start + step) % size for step in range(size))
    return next((port for port in candidates if port not in taken), None)


# -- in a turn -----------------------------------------------------------------------------------


def stored(context: Context, job: Job) -> dict[RunId, tuple[int, ...]] | None:
    """Stored checkpoints of a job at rest, up to the generation that it goes back to.

    `None`, with a question to the store, while they are unknown. Workers' reports are no
    substitute: a worker that was cut off may have stored generations, and deleted older ones, that
    the master never learned of.

    Generations after the one that the gang goes back to are removed before it starts. Otherwise one
    of an abandoned attempt would be taken for a companion of another member's of the same number
    from a later attempt. The decision is journalled before the removal: half removed, the rest
    might look like another decision.
    """
    if job.attempt == 0 and not _origins(job) and not restored.predates(context, job):
        return {}
    answer = context.memory(GangMemory).listed.get(job.id)
    if answer is None:
        ask(context, job)
        return None
    generations = dict(answer.generations)
    if any(generations.get(run) for run in _returning(context, job)):
        # The answer does not include these returning members.
        context.memory(GangMemory).forget(context, job.id)
        ask(context, job)
        return None
    generations = {run.id: generations.get(run.id, ()) for run in _latest(context, job)}
    resume = decided(context, job, generations)
    if all(generation <= resume for those in generations.values() for generation in those):
        return generations
    del context.memory(GangMemory).listed[job.id]
    reason = job.reason if resume else NOTHING_IN_COMMON
    # The job is converged again, and the store is asked again.
    context.put_job(replace(job, resume=resume, reason=reason))
    return None


def ask(context: Context, job: Job) -> None:
    """Ask what the object store holds of a job's checkpoints, once what is given up is gone.

    One question at a time: one that was still being carried out when the next attempt stores
    its first checkpoint might remove that.
    """
    interval = context.settings.worker_resend_ms
    returning = _returning(context, job)
    command = ("list", str(job.resume), *returning)
    asked = context.memory(GangMemory).asked
    if job.id not in asked and context.outbox.due(job.id, command, interval):
        number = asked[job.id] = context.state.count(listings=1).listings
        runs = tuple(run.id for run in context.state.members(job.id))
        context.outbox.add(
            ListCheckpoints(number, job.id, runs, job.resume, returning, _origins(job))
        )


def _origins(job: Job) -> tuple[RunId, ...]:
    """The members of ended jobs from whose checkpoints this one may begin, the latest job first."""
    if job.spec.retry is None:
        return ()
    return tuple(
        run_id(origin.job, index) for origin in job.spec.retry.origins for index in origin.tasks
    )


def begin(
    context: Context, job: Job, members: Sequence[RunId], stored: Mapping[RunId, tuple[int, ...]]
) -> dict[RunId, MemberOrigin]:
    """Origin of each member of the attempt, see `origins`.

    A job that repeats an ended one begins from that one's checkpoint while it has none.
    """
    origins_of = origins(members, stored, decided(context, job, stored))
    if job.spec.retry is None or any(origin_of.resume for origin_of in origins_of.values()):
        return origins_of
    generations = dict(context.memory(GangMemory).listed[job.id].generations)
    for origin in job.spec.retry.origins:
        names = [run_id(origin.job, index) for index in origin.tasks]
        earlier = {name: generations.get(name, ()) for name in names}
        if generation := common_generation(earlier):
            owners = [name for name, those in earlier.items() if generation in those]
            return {
                member: MemberOrigin(generation, own if own in owners else owners[0])
                for member in members
                for own in [RunId(f"{origin.job}{member.removeprefix(job.id)}")]
            }
    return origins_of


def decided(context: Context, job: Job, stored: Mapping[RunId, tuple[int, ...]]) -> int:
    """The generation that the next attempt begins from, 0 for none.

    A member that joined an elastic gang began from another's checkpoint, which counts as its own
    although it has not stored it.

    Args:
        context: The present one.
        job: Of which all is at rest.
        stored: The complete generations of each who was in the last attempt.
    """
    if job.resume is not None:
        return job.resume
    if job.spec.elastic.least is None:
        return common_generation(stored)
    latest = _latest(context, job)
    began = {run.id: run.resume for run in latest if run.checkpoint_of is not None}
    return common_generation(
        {
            run: (*those, began[run] or 0) if those and run in began else those
            for run, those in stored.items()
        }
    )


def _latest(context: Context, job: Job) -> list[TaskRun]:
    """Members of the last attempt, since the members of an elastic gang change."""
    members = context.state.members(job.id)
    return [run for run in members if run.attempt == job.attempt or job.spec.elastic.least is None]


def _returning(context: Context, job: Job) -> tuple[RunId, ...]:
    """Members of an elastic gang that rested in the last attempt.

    Their stored generations are of an earlier attempt, and would be taken for companions of the
    present ones.
    """
    if job.spec.elastic.least is None:
        return ()
    present = crew(context.state, job.id)
    return tuple(run.id for run in present if 0 < run.attempt != job.attempt)


def listed(context: Context, event: CheckpointsListed) -> None:
    """The object store has answered."""
    job = context.state.jobs.get(event.job)
    if job is None or context.memory(GangMemory).asked.get(job.id) != event.number:
        return
    del context.memory(GangMemory).asked[job.id]
    if event.error:
        hold(context, job.id, f"its checkpoints cannot be listed: {event.error}")
        again = Millis(context.now + context.settings.worker_resend_ms)
        context.alarms.at(again, Alarm.job(job.id))
        return
    context.memory(GangMemory).listed[job.id] = event
    context.touch_job(job.id)


def meet(context: Context, first: TaskRun) -> Meeting | None:
    """A place for an attempt's members to meet, `None` if every port is taken.

    Ports are taken in turn: by the time one comes up again nothing of its last gang is left. The
    job's own last one may linger, and is taken again only if there is no other.

    Args:
        context: The present one.
        first: The member of rank 0, which has a target.
    """
    low, high = context.settings.gang_ports
    active = map(context.state.jobs.__getitem__, context.state.active)
    taken = {job.meeting.port: job.id for job in active if job.meeting is not None}
    others = {port for port, job in taken.items() if job != first.job}
    number = context.state.counters.meetings
    port = free_port(low, high, taken, number) or free_port(low, high, others, number)
    if port is None:
        return None
    context.state.count(meetings=1)
    assert first.target is not None
    return Meeting(context.state.instances[first.target].address, port)


def batch_shares(context: Context, job: Job, group: Sequence[TaskRun]) -> tuple[int, ...]:
    """The part of each batch for each member in the attempt that begins, in millionths.

    The parts stay for the whole attempt, even if more is learned. 0 where members do equal parts.
    """
    if not job.spec.training.split_batch:
        return (0,) * len(group)
    rates = []
    for run in group:
        assert run.target is not None
        family = context.state.instances[run.target].offering.type.family
        rates_of = dict(context.state.prices.rates(job.spec, context.state.task(run)))
        rates.append(rates_of.get(family, 0))
    return shares.batch_shares(rates)


def hold(context: Context, job: JobId, reason: str) -> None:
    """Say why a job's members wait."""
    for run in list(crew(context.state, job)):
        if run.state is RunState.WAITING and run.waiting_for != reason:
            context.explain(run, reason)


def is_quiet(context: Context, job: Job) -> bool:
    """Whether what happened to members of a gang calls for nothing but what they are told.

    That is while all of them are done or where they should be, or wait for one that is not ready.
    So an event of a member takes no longer in a large gang. Late starts are found with each resync.
    """
    if job.failure is not None:
        return False
    tasks = context.state.tasks[job.id]
    counts, resting = tasks.counts, job.spec.size - job.members
    if counts[RunState.WAITING] == job.spec.size:
        awaited_members = context.memory(GangMemory).awaited_members
        awaited = context.state.runs.get(awaited_members.get(job.id, RunId("")))
        return (
            awaited is not None
            and awaited.index < job.members
            and not is_in_reach(context, awaited)
        )
    going_on = sum(
        counts[state] for state in (RunState.STARTING, RunState.RUNNING, RunState.SUCCEEDED)
    )
    return going_on == job.members and counts[RunState.WAITING] == resting and not tasks.moving


def is_in_reach(context: Context, run: TaskRun) -> bool:
    """Whether a waiting task run has a target that is ready."""
    return run.target is not None and is_ready(context, run.target)


def is_ready(context: Context, instance: InstanceId) -> bool:
    """Whether the worker of an instance is registered and connected."""
    record = context.state.instances.get(instance)
    ready = record is not None and record.state is InstanceState.READY
    return ready and instance in context.state.sessions
