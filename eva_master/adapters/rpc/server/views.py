"""Converts the master's state to messages for users; pure functions, for any thread."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from eva_master.adapters.rpc.bounded import bounded_pb as pb
from eva_master.adapters.rpc.server import reasons
from eva_master.adapters.rpc.server.shown import installed
from eva_master.adapters.rpc.server.shown.part import Asked
from eva_master.adapters.rpc.server.shown.states import SUSPENDED, jobs_by_state
from eva_master.model.accounting.per_hour import billed_per_hour
from eva_master.model.catalog import Purchase
from eva_master.model.job import TaskSpec
from eva_master.model.planning.standing import full_name
from eva_master.model.planning.suspension import Suspension
from eva_master.model.records import Instance, Job, TaskRun, rests
from eva_master.model.resources import Resources
from eva_master.ports.instances import NOTHING_HOSTED, Hosted
from eva_master.ports.previews import Foreseen
from eva_master.ports.reading import (
    SMALL_JOB,
    JobRecord,
    Outlook,
    Pause,
    ReadModel,
)
from eva_wire.rpc import job_fields
from eva_wire.text.moments import date_of
from eva_wire.values.ids import JobId, Millis, RunId, micro_usd, run_id, run_order
from eva_wire.values.states import (
    TERMINAL_JOB,
    TERMINAL_RUN,
    InstanceState,
    JobState,
    RunState,
    shell_code,
)

_METRICS_BYTES = 64 << 10
"""Bytes of metrics in the message of one job: all that one task may have, or some of each task."""
_REASONS = 10
"""Reasons for which tasks of one job wait that are told of at most."""
_METRIC_BYTES = 13
"""Size of a metric besides its name."""


def job(model: ReadModel, record: JobRecord, now: Millis, pause: Pause | None = None) -> pb.Job:
    """A job with its tasks and its cost.

    Args:
        model: The cluster.
        record: The job, from the model or from the archive.
        now: The present time.
        pause: Why the control loop stands still; told of jobs that have not ended.
    """
    job, account = record.job, record.account
    whole, outlooks = model.outlooks(record, now)
    others, runs = _others(model, job), zip(record.runs, outlooks, strict=True)
    suspension = _suspended(record)
    room = _METRICS_BYTES // max(len(record.runs), min(job.spec.size, SMALL_JOB))
    message = pb.Job(
        id=job.id,
        **job_fields.message_values(job.spec),
        partition=partition_of(model, job.partition),
        state=state_of(record),
        reason=job.reason,
        submitted_ms=job.submitted_ms,
        started_ms=job.started_ms or 0,
        finished_ms=job.finished_ms or 0,
        now_ms=now,
        exit_code=None if job.exit_code is None else shell_code(job.exit_code),
        failures=job.failures,
        tasks=[task(model, job, run, outlook, now) for run, outlook in runs],
        task_count=job.spec.size,
        tasks_by_state={state.value: count for state, count in record.states.items()},
        cost_micro_usd=micro_usd(account.charged),
        max_cost_micro_usd=job.max_cost,
        no_packing_micro_usd=micro_usd(account.alone),
        handed_priority=0 if record.handed is None else record.handed.priority,
        handed_by="" if record.handed is None else record.handed.by,
        remaining_ms=whole.left_ms,
        remaining_estimated=whole.estimated,
        eta_ms=whole.eta_ms,
        waits_for=others,
        unmet="" if job.unmet is None else job.unmet.job,
        unmet_origin="" if job.unmet is None else job.unmet.origin,
        pause=None if job.state in TERMINAL_JOB else _pause(pause),
        eta_earliest_ms=whole.earliest_ms,
        eta_latest_ms=whole.latest_ms,
        suspension=_suspension(suspension),
        replicas_micro_usd=micro_usd(account.replicas),
    )
    asked = Asked(model, record, whole, now)
    for part in installed.JOB:
        if (more := part(asked)) is not None:
            message.MergeFrom(more)
    for task_message, run in zip(message.tasks, record.runs, strict=True):
        task_message.metrics.update(metrics_within(run.progress.metrics, room))
    if job.suspension is not None and job.state is JobState.PENDING:
        _tell(message, job.suspension.words)
    elif others:
        _tell(message, _after(others))
    elif waits := next(filter(None, (part(model, job) for part in installed.WAITS)), ""):
        _tell(message, waits)
    elif job.state not in TERMINAL_JOB:
        message.waiting_for.extend(_why_others_wait(model, record, now))
    return message


def _tell(message: pb.Job, why: str) -> None:
    """Give all tasks that wait one reason."""
    message.waiting_for.append(why)
    for task_message in message.tasks:
        if task_message.state == RunState.WAITING.value:
            task_message.waiting_for = why


def _why_others_wait(model: ReadModel, record: JobRecord, now: Millis) -> list[str]:
    """Why those tasks of an array wait that never had a place."""
    spec, limit = record.job.spec, record.job.spec.array.concurrency
    if not record.states.get(RunState.WAITING):
        return []
    if limit is not None and record.in_hand >= limit:
        return [f"{limit} tasks have a place, and the job asks for no more at a time (concurrency)"]
    explanations = (_waiting_for(model, spec.tasks[run.index], run, now) for run in record.reasons)
    return list(dict.fromkeys(explanations))[:_REASONS]


def _suspended(record: JobRecord) -> Suspension | None:
    """Why a job is suspended as a whole: by a user, or since plans have suspended all its tasks."""
    job = record.job
    if job.state not in (JobState.PENDING, JobState.RUNNING) or job.suspension is not None:
        return job.suspension if job.state not in TERMINAL_JOB else None
    return record.suspension


def state_of(record: JobRecord) -> str:
    """A job's state, as users see it: one that is suspended is so once none of its tasks runs."""
    rests = _suspended(record) is not None and record.job.state is JobState.PENDING
    return SUSPENDED if rests else record.job.state.value


def _suspension(known: Suspension | None) -> pb.Suspension | None:
    if known is None:
        return None
    return pb.Suspension(
        by=known.by.value, since_ms=known.since_ms, reason=known.words, job=known.job or ""
    )


def _others(model: ReadModel, known: Job) -> Sequence[JobId]:
    """The jobs that have to succeed, or to end, before a job runs, as far as they have not."""
    if not known.waits or known.id not in model.active:
        return ()
    return [name for name in known.spec.stage.depends_on if name in model.active]


def _after(others: Sequence[JobId]) -> str:
    """Reason of a task whose job waits for others."""
    more = len(others) - 1
    rest = f" and {more} other job{'' if more == 1 else 's'}" if more else ""
    return f"runs after {others[0]}{rest}"


def _pause(pause: Pause | None) -> pb.Pause | None:
    if pause is None:
        return None
    return pb.Pause(since_ms=pause.since_ms, reason=pause.reason, hint=pause.hint)


def task(model: ReadModel, of: Job, run: TaskRun, outlook: Outlook, now: Millis) -> pb.Task:
    """A task with the state of its task run, without metrics."""
    spec = of.spec.tasks[run.index]
    resting = rests(of, run)
    steps, total = run.progress.steps, run.progress.total_steps or of.spec.total_steps or 0
    if of.merging is not None and of.spec.total_steps is not None:
        total = of.spec.total_steps
        steps = of.merging.done(total, 0 if run.extra else steps)
    return pb.Task(
        index=run.index,
        name=of.spec.name_of(run.index),
        state=run.state.value,
        instance=run.instance or "",
        target=run.target or "",
        attempt=run.attempt,
        moves=run.moves,
        generation=run.generation,
        steps=steps,
        total_steps=0 if resting else total,
        rate=run.progress.rate,
        normalised=model.normalised(run) or 0.0,
        workload=spec.workload,
        waiting_for=resting or _waiting_for(model, spec, run, now),
        remaining_ms=outlook.left_ms,
        remaining_estimated=outlook.estimated,
        eta_ms=outlook.eta_ms,
        eta_earliest_ms=outlook.earliest_ms,
        eta_latest_ms=outlook.latest_ms,
        suspension=None if run.state in TERMINAL_RUN else _suspension(run.suspension),
        pool=run.pool,
        replica=run.replica,
        why="; ".join(filter(None, (run.why, *(part(of, run) for part in installed.WHY)))),
        outputs_of=run.outputs_of,
        not_stored=run.not_stored,
        failures=run.failures,
        reason=run.reason,
        exit_code=None if run.exit_code is None else shell_code(run.exit_code),
    )


def metrics_within(metrics: Iterable[tuple[str, float]], room: int) -> dict[str, float]:
    """The first metrics, as many as so many bytes hold."""
    shown: dict[str, float] = {}
    for name, value in metrics:
        room -= len(name.encode()) + _METRIC_BYTES
        if room < 0:
            break
        shown[name] = value
    return shown


def _waiting_for(model: ReadModel, spec: TaskSpec, run: TaskRun, now: Millis) -> str:
    """Why a task run waits, the cloud's reason included."""
    refusal = _refusal(model, spec, run, now)
    if run.suspension is not None and run.state not in TERMINAL_RUN:
        why = run.suspension.words
        news = refusal not in ("", why, run.suspension.reason)
        refusal = f"{why}; {refusal}" if news else why
    if run.state is RunState.WAITING:
        for extra in range(1, run.replicas + 1):
            other = model.runs.get(run_id(run.job, run.index, extra))
            if other is not None and other.in_hand:
                return f"{other.id} runs in its place"
        if run.target is None and run.job in model.queued:
            places = model.queued[run.job]
            pools = dict.fromkeys(pool for place in places for pool in place.line.pools)
            return _in_line(tuple(pools), run.waiting_for)
        target = None if run.target is None else model.instances[run.target].state
        if target in (None, InstanceState.LAUNCHING):
            refusal = _with_trouble(model, refusal)
    return refusal


def _in_line(pools: Sequence[str], told: str) -> str:
    """Reason of a task that stands in lines for room in pools."""
    text = f"in line for room in pool{'s' if len(pools) > 1 else ''} {', '.join(pools)}"
    return f"{text}: {told}" if told else text


def _with_trouble(model: ReadModel, told: str) -> str:
    """Add the cloud's troubles to a reason that depends on the cloud."""
    trouble = model.trouble
    if trouble.since_ms is None:
        return told
    since = f"since {_clock_time(model.wall.of(trouble.since_ms))} {trouble.reason}"
    return f"{told}; {since}" if told else since


def _clock_time(at: Millis) -> str:
    return f"{date_of(at):%H:%M:%S} UTC"


def _refusal(model: ReadModel, spec: TaskSpec, run: TaskRun, now: Millis) -> str:
    """Why a task run waits, and when a refused offering is tried again if it waits for that."""
    if not run.waiting_for or run.target is not None or run.state is not RunState.WAITING:
        return run.waiting_for
    suitable = [
        offering
        for offering in model.catalog
        if (need := spec.demand_on(offering.type.family)) is not None
        and need.fits(offering.type.capacity)
    ]
    if not suitable or any(offering.available(now) for offering in suitable):
        return run.waiting_for
    times = (offering.unavailable_until for offering in suitable)
    again = min(time for time in times if time is not None)
    return f"{run.waiting_for}; tried again at {_clock_time(model.wall.of(again))}"


def cluster(
    model: ReadModel,
    now: Millis,
    listed: Iterable[Instance],
    *,
    name: str,
    policy: str,
    version: str,
    pause: Pause | None = None,
    planning: str = "",
) -> pb.ClusterState:
    """The cluster as a whole.

    Args:
        model: Model to describe.
        now: Time of the description.
        listed: The instances to list.
        name: The cluster's.
        policy: Name of the policy.
        version: The master's.
        pause: Why the control loop stands still.
        planning: Note about a plan that takes long; empty if none does.
    """
    hosted = model.hosted()
    message = pb.ClusterState(
        cluster=name,
        policy=policy,
        instances=[
            instance(model, record, hosted.get(record.id, NOTHING_HOSTED)) for record in listed
        ],
        jobs_by_state=jobs_by_state(model.totals.jobs, sum(model.totals.suspended.values())),
        tasks_by_state={state.value: count for state, count in model.totals.runs.items()},
        now_ms=now,
        price_micro_usd_per_hour=price_per_hour(model),
        no_packing_micro_usd_per_hour=sum(host.alone for host in hosted.values()),
        rounds=model.rounds,
        version=version,
        workers_connected=model.connected,
        planning=planning,
        pause=_pause(pause),
        catalog_listing=_catalog_listing(model),
    )
    for part in installed.CLUSTER:
        if (more := part(model, now)) is not None:
            message.MergeFrom(more)
    return message


def _catalog_listing(model: ReadModel) -> pb.CatalogListing | None:
    listing = model.listing
    if not listing.next_ms:
        return None
    asked, error = listing.asked_ms or 0, listing.error
    return pb.CatalogListing(asked_ms=asked, next_ms=listing.next_ms, error=error)


def price_per_hour(model: ReadModel) -> int:
    """Micro-dollars per hour of the instances that are billed at this moment."""
    return billed_per_hour(model.live.values())


def no_packing_price_per_hour(model: ReadModel) -> int:
    """Micro-dollars per hour of one instance per task, for tasks that run or start now."""
    return sum(host.alone for host in model.hosted().values())


def instance(model: ReadModel, record: Instance, hosted: Hosted | None = None) -> pb.Instance:
    """An instance with its tasks.

    Args:
        model: The cluster.
        record: The instance.
        hosted: Its tasks, if they are known.
    """
    live, kept = record.state is not InstanceState.GONE, model.kept.get(record.id)
    if hosted is None:
        hosted = model.hosted(record.id)[record.id] if live else NOTHING_HOSTED
    offering, reason, drain = record.offering, record.reason, record.drain
    if record.stands:
        reason = model.pool_reasons.get(full_name(record.partition, record.pool), reason)
    if record.state in (InstanceState.LAUNCHING, InstanceState.TERMINATING):
        reason = _with_trouble(model, reason)
    return pb.Instance(
        id=record.id,
        type=offering.type.name,
        zone=offering.zone,
        purchase=offering.purchase.value,
        state=record.state.value,
        price_micro_usd_per_hour=offering.price,
        requested_ms=record.requested_ms,
        up_ms=record.up_ms or 0,
        gone_ms=record.gone_ms or 0,
        capacity=resources(offering.type.capacity),
        used=resources(hosted.used),
        tasks=[run.id for run in hosted.runs],
        reason=reason,
        connected=model.is_connected(record.id),
        pool=record.pool,
        draining="" if drain is None else drain.reason,
        drain_moves=drain is not None and drain.moves,
        confinement=record.confinement,
        partition=partition_of(model, record.partition),
        expected_micro_usd_per_hour=model.expected_price(offering)
        if live and offering.purchase is Purchase.SPOT
        else None,
        empty_ms=0 if kept is None else kept.since_ms,
        kept_for="" if kept is None else kept.job or "",
        kept_until_ms=0 if kept is None else kept.until_ms,
    )


def partition_of(model: ReadModel, name: str) -> str:
    """The partition of a job or instance; empty if the cluster is not divided and never was."""
    return name or model.partitions.default.name


def plan(foreseen: Foreseen, alone: int) -> pb.PlanResponse:
    """Outlook of a job that is not submitted.

    Args:
        foreseen: The whole of it.
        alone: Price of one instance per task of the job, in micro-dollars per hour.
    """
    places, offerings = foreseen.places, foreseen.offerings
    kept = set(places.values()) | foreseen.stays
    kept |= {key for key, offering in offerings.items() if offering.purchase is Purchase.OWNED}
    before = foreseen.before
    message = pb.PlanResponse(
        placements=[_placement(run_order(run)[2], run, foreseen) for run in foreseen.runs],
        price_before_micro_usd_per_hour=sum(
            offering.price for key, offering in offerings.items() if isinstance(key, str)
        ),
        price_after_micro_usd_per_hour=sum(
            offering.price for key, offering in offerings.items() if key in kept
        ),
        alone_micro_usd_per_hour=alone,
        moves=sum(key in places and places[key] != place for key, place in before.items()),
        hostings=[
            reasons.hosting(hosting, reasons.billed(offerings.get(hosting.on)))
            for hosting in foreseen.reasons.hostings
            if any(places.get(run) == hosting.on for run in foreseen.runs)
        ],
        exchanges=map(reasons.exchange, foreseen.reasons.exchanges),
        suspended=[
            pb.Preempted(
                task=suspend.run, instance=before.get(suspend.run, ""), reason=suspend.reason
            )
            for suspend in foreseen.suspends
        ],
        standing=[
            offerings[key].type.name
            for key in sorted(member for member in foreseen.stays if isinstance(member, int))
        ],
    )
    for part in installed.PLAN:
        if (more := part(foreseen)) is not None:
            message.MergeFrom(more)
    return message


def _placement(
    index: int,
    run: RunId,
    foreseen: Foreseen,
) -> pb.Placement:
    places, offerings = foreseen.places, foreseen.offerings
    place = places.get(run)
    if place is None or place not in offerings:
        waits = foreseen.waiting.get(run) or "the next round"
        return pb.Placement(task=index, waiting_for=waits)
    return pb.Placement(
        task=index,
        instance_type=offerings[place].type.name,
        instance=place if isinstance(place, str) else "",
        beside=sorted(other for other, at in places.items() if at == place and other != run),
    )


def resources(amount: Resources) -> pb.Resources:
    """A demand or a capacity."""
    return pb.Resources(
        gpus=amount.gpus,
        milli_cpus=amount.milli_cpus,
        memory_mib=amount.memory_mib,
        disk_mib=amount.disk_mib,
    )
