"""Answers ``eva explain``: the rounds in which a job or an instance was placed or moved."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from heapq import nsmallest
from math import isqrt

from eva_master.adapters.rpc.bounded import bounded_pb as pb
from eva_master.adapters.rpc.server import reasons, views
from eva_master.adapters.rpc.server.references import absent, archived
from eva_master.adapters.rpc.server.shown import installed
from eva_master.adapters.rpc.server.shown.part import Asked
from eva_master.adapters.store.journal import ROUNDS_EXPLAINED
from eva_master.model.changes import Round
from eva_master.model.planning.estimate import Source
from eva_master.model.planning.reasons import Exchange, Hosting, Reasons
from eva_master.model.planning.standing import LinePlace, full_name
from eva_master.model.records import Instance, TaskRun
from eva_master.ports import RoundHistory
from eva_master.ports.reading import Archive, DagOutlook, JobRecord, LineOutlook, ReadModel
from eva_wire.rpc.errors import BadRequest
from eva_wire.values.errors import NotFound
from eva_wire.values.ids import (
    Family,
    InstanceId,
    JobId,
    Millis,
    job_of,
    number_of,
)
from eva_wire.values.states import TERMINAL_JOB, RunState

POOLS = "pools"
"""Asks for the pools in which instances stand, unless a job is named so."""
_LINES = 3
"""A job is told of so many lines; it may stand in one for each of hundreds of instances."""
_ENDED = frozenset(state.value for state in TERMINAL_JOB)
_ROUNDS_ASKED = 8
"""So many rounds are asked for the outlook of a job's fleet, since other partitions have theirs."""
NO_MACHINES: Mapping[Family, reasons.Machines] = {}
_MEMBERS = 20
"""Maximum of instances named for a line that is limited to instances."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A job or an instance that is asked about, or the pools.

    Attributes:
        kind: ``job``, ``instance`` or ``pools``.
        since_ms: When it began; earlier rounds do not mention it.
        hosted: Whether an instance concerns it; `None` if it has no place.
        moved: Whether a move concerns it; `None` if there were none.
        message: The answer so far: its state, and what there is to tell of it.
    """

    kind: str
    name: str
    since_ms: Millis
    hosted: Callable[[Hosting], bool] | None
    moved: Callable[[Exchange], bool] | None
    message: pb.Explanation = field(default_factory=pb.Explanation)


def find(
    model: ReadModel, archive: Archive, owner: str, reference: str, now: Millis
) -> Subject | int | None:
    """Find what a user asks about, which takes time.

    Args:
        model: The cluster.
        archive: Has ended jobs and gone instances.
        owner: The owner whose jobs may be named.
        reference: An instance, a round's number, a job, or `POOLS`.
        now: The time up to which the job's costs are counted.

    Returns:
        A number for a round, `None` for the newest one.

    Raises:
        NotFound: There is nothing of that name.
        BadRequest: The number is no round's.
    """
    if not reference:
        return None
    if (instance := model.instances.get(InstanceId(reference))) is not None:
        return _instance(model, instance)
    if (job := model.find(owner, reference)) is not None:
        return _job(model, model.record(job.id, now), now)
    if gone := archive.records_of_instances([InstanceId(reference)]):
        return _instance(model, gone[InstanceId(reference)].instance)
    with suppress(NotFound):
        return _job(model, archived(archive, owner, reference), now)
    if reference == POOLS:
        return Subject(POOLS, POOLS, now, hosted=None, moved=None)
    if reference.isascii() and reference.isdigit():
        if number_of(reference) < 0:
            raise BadRequest(f"no round has a number of {len(reference)} digits")
        return int(reference)
    error = NotFound(
        f"there is no job, instance or round {reference!r}",
        hint="`eva ls --all` shows all jobs, `eva nodes --all` all instances",
    )
    raise absent(model, reference, error)


def _instance(model: ReadModel, instance: Instance) -> Subject:
    return Subject(
        "instance",
        instance.id,
        instance.requested_ms,
        hosted=lambda hosting: hosting.on == instance.id,
        moved=lambda exchange: any(
            instance.id in (move.source, move.target) for move in exchange.moves
        ),
        message=pb.Explanation(
            instance=views.instance(model, instance),
            partition=views.partition_of(model, instance.partition),
        ),
    )


def _job(model: ReadModel, record: JobRecord, now: Millis) -> Subject:
    job, runs = record.job, record.runs
    placed = {run.id for run in runs if job.state in TERMINAL_JOB or _has_place(run)}
    moved = any(run.moves or _moving(run) for run in runs)
    shown, latency = views.job(model, record, now), ""
    short = model.partitions.home(job.partition).short
    if short is not None and job.state not in TERMINAL_JOB:
        task_ms = _usual_ms(shown.estimate) if shown.HasField("estimate") else None
        latency = short.explain(job.spec.latency, task_ms)
    lines, more = _lines(model, record, now)
    message = pb.Explanation(
        job=shown,
        partition=views.partition_of(model, job.partition),
        lines=lines,
        more_lines=more,
        latency=latency,
        dag=_dag(model.dag_outlook(job)) if job.spec.stage.dag else None,
        notes=[] if record.handed is None or job.state in TERMINAL_JOB else [record.handed.words],
    )
    outlook, _ = model.outlooks(record, now)
    asked = Asked(model, record, outlook, now)
    for part in installed.EXPLANATION:
        if (addition := part(asked)) is not None:
            message.MergeFrom(addition)
    if job.state not in TERMINAL_JOB:
        message.notes.extend(model.partitions.home(job.partition).unread(job.spec))
        message.market.extend(_purchases(model, record))
    return Subject(
        "job",
        job.id,
        job.submitted_ms,
        hosted=(lambda hosting: reasons.hosts(hosting, placed)) if placed else None,
        moved=(lambda exchange: _moves(exchange, job.id)) if moved else None,
        message=message,
    )


def _purchases(model: ReadModel, record: JobRecord) -> Iterator[str]:
    """Unusual facts about the instances that a job's tasks are on, or are about to be on."""
    places = dict.fromkeys(
        place for run in record.runs for place in (run.instance, run.target) if place
    )
    for name in places:
        instance = model.live.get(name)
        if instance is not None and instance.reason and not (instance.stands or instance.owned):
            yield f"{name}: {instance.reason}"


def _usual_ms(known: pb.RunTimeEstimate) -> int:
    """See `Estimate.usual_ms`: it lies in the middle of the two, on the scale of logarithms."""
    stated = known.source == Source.STATED
    return known.mean_ms if stated else isqrt(known.least_ms * known.most_ms)


def _dag(found: DagOutlook | None) -> pb.DagOutlook | None:
    return None if found is None else pb.DagOutlook(**asdict(found))


def _lines(
    model: ReadModel, record: JobRecord, now: Millis
) -> tuple[tuple[pb.LinePlace, ...], int]:
    """Where the waiting tasks of a job stand in line, least behind, and in how many more lines."""
    job = record.job.id
    every = model.queued.get(job, ())
    some = (*record.runs, *record.telling)
    waits = any(run.state is RunState.WAITING and run.target is None for run in some)
    if not every or not waits:
        return (), 0
    first = nsmallest(_LINES, every, key=lambda it: (it.line.rank, it.place))
    shown = zip(first, model.ahead(job, first, now), strict=True)
    places = tuple(_line(model, job, place, ahead) for place, ahead in shown)
    return places, len(every) - len(first)


def _line(model: ReadModel, job: JobId, place: LinePlace, ahead: LineOutlook) -> pb.LinePlace:
    line = place.line
    before = [other for other in line.jobs[: place.place] if other in model.active]
    return pb.LinePlace(
        pools=line.pools,
        rank=line.rank,
        before=len(before),
        first=before[0] if before else "",
        at_most=dict(line.at_most).get(job),
        only=map(str, line.only[:_MEMBERS]),
        more_only=max(0, len(line.only) - _MEMBERS),
        tasks_before=ahead.tasks,
        work_ms=ahead.work_ms,
        slots=ahead.slots,
        latest_start_ms=ahead.latest_ms,
        no_bound=ahead.no_bound,
        others_first=ahead.others_first,
        reason=line.reason,
        note=dict(line.notes).get(job, ""),
    )


def standing(model: ReadModel) -> list[pb.StandingPool]:
    """The pools in which instances stand, and why they stay, by name."""
    members: dict[str, list[str]] = {}
    for instance in model.live.values():
        if instance.stands:
            name = full_name(instance.partition, instance.pool)
            members.setdefault(name, []).append(instance.id)
    return [
        pb.StandingPool(name=pool, reason=model.pool_reasons.get(pool, ""), instances=instances)
        for pool, instances in sorted(members.items())
    ]


def _has_place(run: TaskRun) -> bool:
    return run.instance is not None or run.target is not None


def _moving(run: TaskRun) -> bool:
    return run.instance is not None and run.target not in (None, run.instance)


def _moves(exchange: Exchange, job: JobId) -> bool:
    return any(job_of(move.run) == job for move in exchange.moves)


def explain(
    history: RoundHistory,
    subject: Subject | int | None,
    now: Millis,
    machines: Mapping[Family, reasons.Machines] = NO_MACHINES,
) -> pb.Explanation:
    """Explain a job, an instance or a round; reads the journal, which takes time.

    Args:
        history: The rounds.
        subject: Result of `find`.
        now: The time.
        machines: The machines that are there, by type.

    Raises:
        NotFound: The round's reasons are not kept.
    """
    if isinstance(subject, Subject):
        return _subject(history, subject, now, machines)
    record = history.explained(subject)
    if record is None or record.reasons is None or subject not in (None, record.number):
        what = "any round" if subject is None else f"round {subject}"
        raise NotFound(
            f"there are no reasons of {what}",
            hint=f"those of the newest {ROUNDS_EXPLAINED} rounds are kept; "
            "`eva explain` shows the newest",
        )
    return pb.Explanation(
        kind="round",
        subject=str(record.number),
        round=record.number,
        at_ms=record.at_ms,
        now_ms=now,
        hostings=map(reasons.hosting, record.reasons.hostings),
        exchanges=map(reasons.exchange, record.reasons.exchanges),
        moved_in_round=record.number if record.reasons.exchanges else 0,
        moved_ms=record.at_ms if record.reasons.exchanges else 0,
        weighing=reasons.weighing(record.reasons.weighing),
        partition=str(record.figures.get("partition", "")),
        fleet=reasons.fleet(record, machines),
    )


def _subject(
    history: RoundHistory,
    subject: Subject,
    now: Millis,
    machines: Mapping[Family, reasons.Machines],
) -> pb.Explanation:
    message = pb.Explanation(kind=subject.kind, subject=subject.name, now_ms=now)
    message.MergeFrom(subject.message)
    hosted, moved = subject.hosted, subject.moved
    asks = message.HasField("job") and message.job.state not in _ENDED
    for number, (record, why) in enumerate(_rounds(history, subject.since_ms)):
        if asks and record.figures.get("partition", "") == message.partition:
            asks, fleet = False, reasons.fleet(record, machines)
            if fleet is not None:
                message.fleet.CopyFrom(fleet)
        if not message.round or (hosted and any(map(hosted, why.hostings))):
            message.round, message.at_ms = record.number, record.at_ms
        if hosted and any(map(hosted, why.hostings)):
            message.hostings.extend(map(reasons.hosting, filter(hosted, why.hostings)))
            hosted = None
        if moved and any(map(moved, why.exchanges)):
            message.exchanges.extend(map(reasons.exchange, filter(moved, why.exchanges)))
            message.moved_in_round, message.moved_ms = record.number, record.at_ms
            moved = None
        if not hosted and not moved and (not asks or number >= _ROUNDS_ASKED):
            break
    return message


def _rounds(history: RoundHistory, since: Millis) -> Iterator[tuple[Round, Reasons]]:
    """Rounds with reasons from the newest back, as long as they may know of something."""
    record = history.explained()
    while record is not None and record.at_ms + record.planned_ms >= since:
        if record.reasons is not None:
            yield record, record.reasons
        record = history.explained(record.number - 1)
