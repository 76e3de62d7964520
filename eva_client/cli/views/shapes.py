"""The output of ``--json``. Field names are stable. Unknown values are null, never left out.

Money is given in dollars (``..._usd``) and exactly in micro-dollars (``..._micro_usd``). Times are
milliseconds since the epoch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eva_client.cli.views import job_tasks, shared_limits
from eva_wire.rpc import job_fields
from eva_wire.values.ids import MILLION

if TYPE_CHECKING:
    from eva_wire.rpc.messages import (
        Bill,
        ClusterState,
        CostShare,
        Instance,
        InstanceCost,
        Job,
        JobCost,
        JobWorth,
        Node,
        Placement,
        PlanResponse,
        PoolCost,
        Resources,
        Task,
        Token,
    )

Shape = dict[str, Any]
OF_INSTANCES = ("type", "partition", "part")
"""Properties by which the instances of the bill are divided."""


def money(name: str, micro_usd: int) -> Shape:
    """An amount, in dollars and exactly."""
    return {f"{name}_usd": micro_usd / MILLION, f"{name}_micro_usd": micro_usd}


def hourly(name: str, micro_usd: int) -> Shape:
    """A price per hour, in dollars and exactly."""
    return {
        f"{name}_usd_per_hour": micro_usd / MILLION,
        f"{name}_micro_usd_per_hour": micro_usd,
    }


def job(message: Job) -> Shape:
    """A job with its tasks."""
    return {
        "id": message.id,
        **job_fields.json_values(message),
        "partition": message.partition or None,
        "state": message.state,
        "reason": message.reason or None,
        "handed_priority": message.handed_priority or None,
        "handed_by": message.handed_by or None,
        "waits_for": list(message.waits_for),
        "unmet": message.unmet or None,
        "unmet_origin": message.unmet_origin or None,
        "submitted_ms": message.submitted_ms,
        "started_ms": message.started_ms or None,
        "finished_ms": message.finished_ms or None,
        "exit_code": message.exit_code if message.HasField("exit_code") else None,
        "failures": message.failures,
        **money("cost", message.cost_micro_usd),
        "max_cost_micro_usd": (
            message.max_cost_micro_usd if message.HasField("max_cost_micro_usd") else None
        ),
        **money("no_packing", message.no_packing_micro_usd),
        **money("replicas", message.replicas_micro_usd),
        **_outlook(message),
        "estimate": _estimate(message),
        "contradicted_duration": _contradicted(message),
        "suspension": _suspension(message),
        "buying": _buying(message),
        "markets": _markets(message),
        "pause": _pause(message),
        "task_count": job_tasks.number(message),
        "tasks_by_state": dict(job_tasks.counted(message)),
        "waiting_for": list(message.waiting_for),
        "tasks": [task(task_message) for task_message in message.tasks],
    }


def task(message: Task) -> Shape:
    """A task of a job."""
    return {
        "index": message.index,
        "replica": message.replica or None,
        "why": message.why or None,
        "outputs_of": message.outputs_of or None,
        "name": message.name or None,
        "state": message.state,
        "workload": message.workload,
        "instance": message.instance or None,
        "target": message.target or None,
        "waiting_for": message.waiting_for or None,
        "attempt": message.attempt,
        "failures": message.failures,
        "reason": message.reason or None,
        "exit_code": message.exit_code if message.HasField("exit_code") else None,
        "moves": message.moves,
        "checkpoint": message.generation or None,
        "not_stored": message.not_stored or None,
        "steps": message.steps,
        "total_steps": message.total_steps or None,
        "steps_per_second": message.rate or None,
        "normalised_throughput": message.normalised or None,
        "metrics": dict(message.metrics),
        "pool": message.pool or None,
        **_outlook(message),
        "suspension": _suspension(message),
    }


def _outlook(message: Job | Task) -> Shape:
    """How long a job or a task still takes."""
    return {
        "remaining_ms": message.remaining_ms if message.HasField("remaining_ms") else None,
        "remaining_estimated": message.remaining_estimated,
        "eta_ms": message.eta_ms if message.HasField("eta_ms") else None,
        "eta_earliest_ms": (
            message.eta_earliest_ms if message.HasField("eta_earliest_ms") else None
        ),
        "eta_latest_ms": message.eta_latest_ms if message.HasField("eta_latest_ms") else None,
    }


def _estimate(message: Job | PlanResponse) -> Shape | None:
    """How long the job's longest task runs alone."""
    if not message.HasField("estimate"):
        return None
    estimate = message.estimate
    return {
        "mean_ms": estimate.mean_ms or None,
        "least_ms": estimate.least_ms,
        "most_ms": estimate.most_ms,
        "source": estimate.source,
        "tasks": estimate.tasks,
    }


def _contradicted(message: Job) -> Shape | None:
    """Why the job's stated duration is not believed."""
    if not message.HasField("contradicted"):
        return None
    contradiction = message.contradicted
    return {
        "workload": contradiction.workload,
        "stated_ms": contradiction.stated_ms,
        "took_ms": list(contradiction.took_ms),
    }


def _buying(message: Job) -> Shape | None:
    """The purchases allowed for a job, and when it is due."""
    if not message.HasField("buying"):
        return None
    buying = message.buying
    return {
        "what": buying.what,
        "since_ms": buying.since_ms or None,
        "until_ms": buying.until_ms if buying.HasField("until_ms") else None,
        "due_ms": buying.due_ms if buying.HasField("due_ms") else None,
        "fails": buying.fails,
        "late_chance": buying.late_ppm / MILLION if buying.HasField("late_ppm") else None,
    }


def _markets(message: Job) -> Shape | None:
    """Where it has run, and what that cost."""
    if not message.HasField("markets"):
        return None
    markets = message.markets
    return {
        **money("spot", markets.spot_micro_usd),
        **money("listed", markets.listed_micro_usd),
        "spot_ms": markets.spot_ms,
        "other_ms": markets.other_ms,
        "waiting_ms": markets.waiting_ms,
        "interruptions": markets.interruptions,
    }


def _suspension(message: Job | Task) -> Shape | None:
    """Why a job or a task is suspended."""
    if not message.HasField("suspension"):
        return None
    suspension = message.suspension
    return {
        "by": suspension.by,
        "since_ms": suspension.since_ms,
        "reason": suspension.reason,
        "job": suspension.job or None,
    }


def _pause(message: Job | ClusterState) -> Shape | None:
    """Why the control loop stands still."""
    if not message.HasField("pause"):
        return None
    pause = message.pause
    return {"since_ms": pause.since_ms, "reason": pause.reason, "hint": pause.hint}


def cluster(message: ClusterState) -> Shape:
    """The cluster and its instances."""
    return {
        "cluster": message.cluster,
        "policy": message.policy,
        "version": message.version,
        "now_ms": message.now_ms,
        "rounds": message.rounds,
        "workers_connected": message.workers_connected,
        "jobs_by_state": dict(message.jobs_by_state),
        "tasks_by_state": dict(message.tasks_by_state),
        **hourly("price", message.price_micro_usd_per_hour),
        **hourly("no_packing", message.no_packing_micro_usd_per_hour),
        "pause": _pause(message),
        "clock": message.clock or None,
        "planning": message.planning or None,
        "catalog": _catalog_listing(message),
        "shared_limits": [
            shared_limits.shape(shared_limit) for shared_limit in message.shared_limits
        ],
        "instances": [instance(instance_message) for instance_message in message.instances],
    }


def _catalog_listing(message: ClusterState) -> Shape | None:
    if not message.HasField("catalog_listing"):
        return None
    listing = message.catalog_listing
    return {
        "asked_ms": listing.asked_ms or None,
        "next_ms": listing.next_ms,
        "error": listing.error or None,
    }


def instance(message: Instance) -> Shape:
    """An instance of the cluster with its tasks."""
    return {
        "id": message.id,
        "type": message.type,
        "zone": message.zone,
        "purchase": message.purchase,
        "partition": message.partition or None,
        "state": message.state,
        "connected": message.connected,
        "reason": message.reason or None,
        "requested_ms": message.requested_ms,
        "up_ms": message.up_ms or None,
        "gone_ms": message.gone_ms or None,
        **hourly("price", message.price_micro_usd_per_hour),
        **hourly(
            "expected_price",
            message.expected_micro_usd_per_hour
            if message.HasField("expected_micro_usd_per_hour")
            else message.price_micro_usd_per_hour,
        ),
        "capacity": _resources(message.capacity),
        "used": _resources(message.used),
        "tasks": list(message.tasks),
        "pool": message.pool or None,
        "draining": message.draining or None,
        "drain_moves": message.drain_moves,
        "confinement": message.confinement or None,
        "empty_ms": message.empty_ms or None,
        "kept_for": message.kept_for or None,
        "kept_until_ms": message.kept_until_ms or None,
    }


def node(message: Node) -> Shape:
    """An owned node as declared; `None` for the instance that it is not while it is not here."""
    return {
        "name": message.name,
        "type": message.type,
        "capacity": _resources(message.capacity),
        **hourly("price", message.price_micro_usd_per_hour),
        "fence_ms": message.fence_ms,
        "joined": message.joined,
        "instance": message.instance.id or None,
        "partition": message.partition or None,
    }


def bill(message: Bill) -> Shape:
    """The costs of the cluster, with the jobs and instances that the bill lists."""
    return {
        **bill_sums(message),
        "jobs": [job_cost(entry) for entry in message.jobs],
        "instances": [instance_cost(entry) for entry in message.instances],
    }


def of_jobs(by: str) -> bool:
    """Whether jobs have a property of the bill, so that idle instances belong to no part."""
    return by not in (*OF_INSTANCES, "day")


def cost_share(by: str, message: CostShare) -> Shape:
    """A part of the bill that is divided by a property; `name` is `None` for the rest."""
    rest = {} if of_jobs(by) else money("idle", message.idle_micro_usd)
    if by not in OF_INSTANCES:
        rest.update(money("no_packing", message.no_packing_micro_usd))
    return {"name": message.name or None, **money("cost", message.cost_micro_usd), **rest}


def bill_sums(message: Bill) -> Shape:
    """The bill of all jobs and instances."""
    return {
        "now_ms": message.now_ms,
        **money("cost", message.cost_micro_usd),
        **money("idle", message.idle_micro_usd),
        **money("kept", message.kept_micro_usd),
        **money("volumes", message.volumes_micro_usd),
        **money("addresses", message.addresses_micro_usd),
        **money("no_packing", message.no_packing_micro_usd),
        **money("saved", message.no_packing_micro_usd - message.cost_micro_usd),
        "migrations": message.migrations,
        "pools": [pool_cost(pool) for pool in message.pools],
    }


def pool_cost(message: PoolCost) -> Shape:
    """The cost of a pool's members, and of its spot members on demand."""
    return {
        "pool": message.pool,
        **money("cost", message.cost_micro_usd),
        **money("idle", message.idle_micro_usd),
        **money("spot", message.spot_micro_usd),
        **money("on_demand", message.on_demand_micro_usd),
        **money("saved", message.on_demand_micro_usd - message.spot_micro_usd),
        **money("spot_unpriced", message.unpriced_micro_usd),
    }


def job_cost(message: JobCost) -> Shape:
    """The cost of a job with its parts."""
    return {
        "id": message.id,
        "name": message.name,
        **money("cost", message.cost_micro_usd),
        **money("no_packing", message.no_packing_micro_usd),
    }


def instance_cost(message: InstanceCost) -> Shape:
    """The cost of an instance with its parts."""
    return {
        "id": message.id,
        "type": message.type,
        **hourly("price", message.price_micro_usd_per_hour),
        "billed_ms": message.billed_ms,
        **money("cost", message.cost_micro_usd),
        **money("idle", message.idle_micro_usd),
        "closed": message.closed,
    }


def plan(message: PlanResponse) -> Shape:
    """The preview of a job's plan."""
    return {
        "placements": [_placement(placement) for placement in message.placements],
        "moves": message.moves,
        "standing": list(message.standing),
        "suspended": [
            {
                "task": suspended.task,
                "instance": suspended.instance or None,
                "reason": suspended.reason,
            }
            for suspended in message.suspended
        ],
        **hourly("price_before", message.price_before_micro_usd_per_hour),
        **hourly("price_after", message.price_after_micro_usd_per_hour),
        **hourly("alone", message.alone_micro_usd_per_hour),
        "estimate": _estimate(message),
        "worth": _worth(message.worth) if message.HasField("worth") else None,
        "notes": list(message.notes),
    }


def _worth(message: JobWorth) -> Shape:
    bounded = message.HasField("done_micro_usd")
    done = message.done_micro_usd if bounded else None
    return {
        **money("at_once", message.at_once_micro_usd),
        "done_usd": None if done is None else done / MILLION,
        "done_micro_usd": done,
        "length_ms": message.length_ms if bounded else None,
        **hourly("loss", message.loss_micro_usd_per_hour),
    }


def token(message: Token) -> Shape:
    """A user's token, without the secret."""
    return {
        "id": message.id,
        "owner": message.owner,
        "role": message.role,
        "created_ms": message.created_ms,
        "expires_ms": message.expires_ms or None,
        "revoked_ms": message.revoked_ms or None,
    }


def _placement(message: Placement) -> Shape:
    return {
        "task": message.task,
        "instance_type": message.instance_type or None,
        "instance": message.instance or None,
        "beside": list(message.beside),
        "waiting_for": message.waiting_for or None,
    }


def _resources(message: Resources) -> Shape:
    return {
        "gpus": message.gpus,
        "cpus": message.milli_cpus / 1000,
        "memory_mib": message.memory_mib,
        "disk_mib": message.disk_mib,
    }
