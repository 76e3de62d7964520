"""Rounds of a policy on a small fleet, without the control loop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from eva_master.model.job import TaskSpec
from eva_master.model.planning.job_view import GpuTime
from eva_master.model.planning.plan import PolicyMemory
from eva_master.model.planning.snapshot import Snapshot
from eva_master.ports import Policy
from eva_master.testing.job_views import changed
from eva_master.testing.plan_checks import check
from eva_master.testing.snapshots import START, Cluster, carried_out, offer, task
from eva_wire.values.ids import MILLION, Family, Millis

ROUND_S = 360


@dataclass(frozen=True)
class Trained:
    """A job.

    Attributes:
        gpus: A task for each of them.
        work: Work to do.
        rates: How much of it is done in a round, by type; on several types, that of the slowest.
        had_gpu_s: GPU time that it has had before.
        arrives: The round in which it does.
    """

    gpus: int
    work: float
    rates: Mapping[str, float]
    had_gpu_s: int = 0
    arrives: int = 0


def in_rounds(
    policy: Policy, fleet: Mapping[str, int], jobs: Mapping[str, Trained], most: int = 60
) -> list[dict[str, tuple[str, ...]]]:
    """Run jobs until all have ended or there were so many rounds.

    Args:
        policy: Plans at the beginning of each round.
        fleet: How many GPUs there are of each type, on one instance.
        jobs: By name, in the order of their submission.
        most: How many rounds there may be.

    Returns:
        For each round the types on which jobs were, one for each GPU, in order.
    """
    left = {name: job.work for name, job in jobs.items()}
    places: dict[str, list[str | None]] = {name: [None] * job.gpus for name, job in jobs.items()}
    since: dict[str, int] = {}
    had = {name: 1000 * job.had_gpu_s for name, job in jobs.items()}
    memory: PolicyMemory | None = None
    told: list[dict[str, tuple[str, ...]]] = []
    while any(work > 0 for work in left.values()) and len(told) < most:
        now = START + 1000 * ROUND_S * len(told)
        there = {
            name: it for name, it in jobs.items() if left[name] > 0 and it.arrives <= len(told)
        }
        snapshot = _snapshot(fleet, there, left, places, since, had, now)
        plan, memory = policy.plan(snapshot, memory)
        check(snapshot, plan)
        after = carried_out(snapshot, plan)
        on: dict[str, tuple[str, ...]] = {}
        for name in there:
            mine = [it.instance for it in after.runs if it.job == name]
            if mine != places[name]:
                since[name] = now
            places[name] = [None if it is None else str(it) for it in mine]
            if None not in mine:
                on[name] = tuple(sorted(str(it) for it in mine))
                left[name] -= min(jobs[name].rates[it] for it in on[name])
                had[name] += 1000 * ROUND_S * jobs[name].gpus
        told.append(on)
    return told


def _snapshot(
    fleet: Mapping[str, int],
    jobs: Mapping[str, Trained],
    left: Mapping[str, float],
    places: Mapping[str, list[str | None]],
    since: Mapping[str, int],
    had: Mapping[str, int],
    now: int,
) -> Snapshot:
    cluster = Cluster(
        *(
            offer(name, (size, size, size), 1.0, family=name, limit=1)
            for name, size in fleet.items()
        )
    )
    cluster.now_ms = Millis(now)
    for name in fleet:
        cluster.instance(name, name)
    for name, job in jobs.items():
        seconds = left[name] / max(job.rates.values()) * ROUND_S
        on = places[name] if None not in places[name] else ()
        cluster.job(name, *[_task(name, job)] * job.gpus, on=on, left_s=round(seconds))
    snapshot = cluster.snapshot()
    order = {name: number for number, name in enumerate(jobs)}
    views = tuple(
        changed(
            view,
            submitted_ms=Millis(START - 1000 + order[view.id]),
            lease_ms=None if None in places[view.id] else Millis(since[view.id]),
            attained=GpuTime(had[view.id]),
        )
        for view in snapshot.jobs
    )
    return replace(snapshot, jobs=views)


def _task(name: str, job: Trained) -> TaskSpec:
    alone = task(name, **dict.fromkeys(job.rates, (1, 1, 1)))
    rates = tuple((Family(it), round(MILLION * rate)) for it, rate in sorted(job.rates.items()))
    return replace(alone, throughput=rates)
