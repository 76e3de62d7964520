"""The state as messages to users; pure functions, called in the control loop's thread."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime

from eva_master.adapters.rpc._proto import api_pb2 as pb
from eva_master.adapters.rpc.server import reasons
from eva_master.control.measure import ledger
from eva_master.control.measure.throughput import normalised
from eva_master.control.planning.preview import PREVIEW
from eva_master.control.state.store import State
from eva_master.model.catalog import Offering
from eva_master.model.changes import InstanceAccount
from eva_master.model.ids import InstanceId, Millis, RunId, micro_usd
from eva_master.model.planning.plan import Hold, Place, Plan, Suspend
from eva_master.model.planning.snapshot import Snapshot
from eva_master.model.records import Instance, Job, TaskRun
from eva_master.model.resources import Resources
from eva_master.model.states import InstanceState, RunState

_NO_PACKING_STATES = (RunState.STARTING, RunState.RUNNING)


def job(state: State, record: Job, now: Millis) -> pb.Job:
    """A job with its tasks, and what it owes as of `now`."""
    account = ledger.job_account(state, record.id, now)
    return pb.Job(
        id=record.id,
        name=record.spec.name,
        owner=record.spec.owner,
        state=record.state.value,
        reason=record.reason,
        submitted_ms=record.submitted_ms,
        started_ms=record.started_ms or 0,
        finished_ms=record.finished_ms or 0,
        exit_code=record.exit_code,
        failures=record.failures,
        tasks=[task(state, run, now) for run in state.members(record.id)],
        cost_micro_usd=micro_usd(account.charged),
        no_packing_micro_usd=micro_usd(account.alone),
        priority=record.spec.priority,
    )


def task(state: State, run: TaskRun, now: Millis) -> pb.Task:
    """A task as its task run has it."""
    spec = state.task(run)
    return pb.Task(
        index=run.index,
        name=spec.name,
        state=run.state.value,
        instance=run.instance or "",
        target=run.target or "",
        attempt=run.attempt,
        moves=run.moves,
        generation=run.generation,
        steps=run.progress.steps,
        total_steps=run.progress.total_steps or state.jobs[run.job].spec.total_steps or 0,
        rate=run.progress.rate,
        normalised=normalised(state, run) or 0.0,
        metrics=dict(run.progress.metrics),
        workload=spec.workload,
        waiting_for=_waiting_for(state, run, now),
    )


def _waiting_for(state: State, run: TaskRun, now: Millis) -> str:
    """Why a task run waits, for the cloud perhaps."""
    told = _refusal(state, run, now)
    target = None if run.target is None else state.instances[run.target].state
    if run.state is RunState.WAITING and target in (None, InstanceState.LAUNCHING):
        told = _with_trouble(state, told)
    return told


def _with_trouble(state: State, told: str) -> str:
    """What is told of something that the cloud has to do, and what is wrong with the cloud."""
    trouble = state.trouble
    if trouble.since_ms is None:
        return told
    since = f"since {_clock_time(trouble.since_ms)} {trouble.reason}"
    return f"{told}; {since}" if told else since


def _clock_time(at: Millis) -> str:
    return f"{datetime.fromtimestamp(at / 1000, UTC):%H:%M:%S} UTC"


def _refusal(state: State, run: TaskRun, now: Millis) -> str:
    """Why a task run waits, and when a refused offering is tried again if it waits for that."""
    if not run.waiting_for or run.target is not None or run.state is not RunState.WAITING:
        return run.waiting_for
    spec = state.task(run)
    suitable = [
        offering
        for offering in state.catalog
        if (need := spec.demand_on(offering.type.family)) is not None
        and need.fits(offering.type.capacity)
    ]
    if not suitable or any(offering.available(now) for offering in suitable):
        return run.waiting_for
    refused = [it.unavailable_until for it in suitable if it.unavailable_until is not None]
    return f"{run.waiting_for}; tried again at {_clock_time(min(refused))}"


def cluster(
    state: State, now: Millis, *, name: str, policy: str, version: str, gone: bool
) -> pb.ClusterState:
    """The cluster as a whole.

    Args:
        state: What to describe.
        now: Time of the description.
        name: The cluster's.
        policy: Name of the policy in force.
        version: The master's.
        gone: Whether to list instances that exist no longer.
    """
    listed = state.instances if gone else state.live
    return pb.ClusterState(
        cluster=name,
        policy=policy,
        instances=[instance(state, state.instances[key]) for key in listed],
        jobs_by_state=Counter(record.state.value for record in state.jobs.values()),
        tasks_by_state=Counter(run.state.value for run in state.runs.values()),
        now_ms=now,
        price_micro_usd_per_hour=price_per_hour(state),
        no_packing_micro_usd_per_hour=no_packing_price_per_hour(state),
        rounds=state.counters.rounds,
        version=version,
        workers_connected=len(state.sessions),
    )


def price_per_hour(state: State) -> int:
    """Micro-dollars per hour of the instances that are billed at this moment."""
    live = (state.instances[key] for key in state.live)
    return sum(record.offering.price for record in live if record.up_ms is not None)


def no_packing_price_per_hour(state: State) -> int:
    """Micro-dollars per hour of one instance per task, for tasks that run or start now."""
    return sum(
        state.reservation(run).price
        for key in state.active
        for run in state.members(key)
        if run.state in _NO_PACKING_STATES
    )


def instance(state: State, record: Instance) -> pb.Instance:
    """An instance with who is on it."""
    occupants = state.occupants(record.id)
    offering, reason = record.offering, record.reason
    if record.state in (InstanceState.LAUNCHING, InstanceState.TERMINATING):
        reason = _with_trouble(state, reason)
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
        capacity=_resources(offering.type.capacity),
        used=_resources(state.demand(occupants, on=record)),
        tasks=[run.id for run in occupants],
        reason=reason,
        connected=state.connected(record.id),
    )


def bill(state: State, now: Millis) -> pb.Bill:
    """Every account as of `now`; the totals are rounded once, not the sum of rounded parts."""
    accounts = ledger.bill(state, now)
    return pb.Bill(
        cost_micro_usd=micro_usd(accounts.charged),
        idle_micro_usd=micro_usd(accounts.idle),
        no_packing_micro_usd=micro_usd(accounts.alone),
        migrations=sum(run.moves for run in state.runs.values()),
        instances=[
            _instance_cost(state.instances[key], account)
            for key, account in accounts.instances.items()
        ],
        jobs=[
            pb.JobCost(
                id=key,
                name=state.jobs[key].spec.name,
                cost_micro_usd=micro_usd(account.charged),
                no_packing_micro_usd=micro_usd(account.alone),
            )
            for key, account in accounts.jobs.items()
        ],
        now_ms=now,
    )


def _instance_cost(record: Instance, account: InstanceAccount) -> pb.InstanceCost:
    up_ms = account.until_ms if record.up_ms is None else record.up_ms
    least_ms = record.offering.minimum_ms if account.closed else 0
    return pb.InstanceCost(
        id=record.id,
        type=record.offering.type.name,
        price_micro_usd_per_hour=record.offering.price,
        billed_ms=max(account.until_ms - up_ms, least_ms),
        cost_micro_usd=micro_usd(account.charged),
        idle_micro_usd=micro_usd(account.idle),
        closed=account.closed,
    )


def plan(snapshot: Snapshot, decided: Plan, alone: int) -> pb.PlanResponse:
    """What a plan would do for the job `PREVIEW`.

    Args:
        snapshot: What the policy was shown.
        decided: Its plan.
        alone: Price of one instance per task of the job, in micro-dollars per hour.
    """
    places: dict[RunId, InstanceId | int] = {
        view.id: view.instance for view in snapshot.runs if view.instance is not None
    }
    before = dict(places)
    waiting: dict[RunId, str] = {}
    for entry in decided.entries:
        match entry:
            case Place(run=run, on=on):
                places[run] = on
            case Hold(run=run, reason=reason) | Suspend(run=run, reason=reason):
                places.pop(run, None)
                waiting[run] = reason
    offerings: dict[InstanceId | int, Offering] = {
        **{view.id: view.offering for view in snapshot.instances},
        **{new.key: new.offering for new in decided.launches},
    }
    kept = set(places.values())
    runs = next(view.runs for view in snapshot.jobs if view.id == PREVIEW)
    return pb.PlanResponse(
        placements=[
            _placement(index, run, places, waiting, offerings) for index, run in enumerate(runs)
        ],
        price_before_micro_usd_per_hour=sum(it.offering.price for it in snapshot.instances),
        price_after_micro_usd_per_hour=sum(
            it.price for key, it in offerings.items() if key in kept
        ),
        alone_micro_usd_per_hour=alone,
        moves=sum(key in places and places[key] != place for key, place in before.items()),
        hostings=[
            reasons.hosting(one) for one in decided.reasons.hostings if reasons.hosts(one, runs)
        ],
        exchanges=map(reasons.exchange, decided.reasons.exchanges),
    )


def _placement(
    index: int,
    run: RunId,
    places: Mapping[RunId, InstanceId | int],
    waiting: Mapping[RunId, str],
    offerings: Mapping[InstanceId | int, Offering],
) -> pb.Placement:
    place = places.get(run)
    if place is None:
        return pb.Placement(task=index, waiting_for=waiting.get(run, "the next round"))
    return pb.Placement(
        task=index,
        instance_type=offerings[place].type.name,
        instance=place if isinstance(place, str) else "",
        beside=sorted(other for other, at in places.items() if at == place and other != run),
    )


def _resources(amount: Resources) -> pb.Resources:
    return pb.Resources(
        gpus=amount.gpus, milli_cpus=amount.milli_cpus, memory_mib=amount.memory_mib
    )
