"""The law of policies that suspend tasks so that others have their turn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from eva_master.model.planning.job_view import JobView
from eva_master.model.planning.plan import Assign, Hold, Plan, PolicyMemory, Suspend
from eva_master.model.planning.snapshot import Snapshot
from eva_master.ports import Policy
from eva_master.testing.plan_checks import check, quiet
from eva_master.testing.snapshots import carried_out
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import Millis, RunId

_TURNS = 4
_ROUNDS_PER_LEASE = 3
_FEW = 5
"""Rounds in which a cluster has to come to rest in which everybody has a place."""


def lease_ms(config: Any) -> int:
    """For how long a task keeps a place that it was given.

    Raises:
        AssertionError: The policy's config does not say.
    """
    lease = getattr(config, "lease_s", getattr(config, "slot_s", None))
    assert lease is not None, "a policy that time-shares has an option lease_s or slot_s"
    assert lease > 0, "no lease has no length"
    return int(lease * 1000)


def check_turns(policy: Policy, snapshot: Snapshot, lease: int, *, event: bool) -> None:
    """Check that a policy rests while everybody has a place, and else keeps to its leases.

    Args:
        policy: Plans the rounds.
        snapshot: Where they begin. The leases of those who have a place begin there too.
        lease: Its length in milliseconds.
        event: Whether a job comes and goes between any two rounds.

    Raises:
        AssertionError: The policy breaks the law.
    """
    memory: PolicyMemory | None = None
    began = {run.id: snapshot.now_ms for run in snapshot.runs if run.instance is not None}
    snapshot = _leased(snapshot, began)
    seated = 0
    for _ in range(_TURNS * _ROUNDS_PER_LEASE + _FEW):
        plan, memory = policy.plan(snapshot, memory)
        check(snapshot, plan)
        waiting = any(run.instance is None and not run.pinned for run in snapshot.runs)
        seated = 0 if waiting else seated + 1
        assert seated <= _FEW or quiet(plan), f"everybody has a place, and yet: {plan}"
        if waiting:
            _check_leases(snapshot, plan, began, lease)
        else:
            bored = [entry for entry in plan.entries if isinstance(entry, Suspend)]
            assert not bored, f"everybody has a place, and yet: {bored}"
        began.update(
            (entry.run, snapshot.now_ms) for entry in plan.entries if isinstance(entry, Assign)
        )
        snapshot = _leased(_next(snapshot, plan, lease // _ROUNDS_PER_LEASE, event=event), began)


def _check_leases(snapshot: Snapshot, plan: Plan, began: dict[RunId, Millis], lease: int) -> None:
    live = {view.id for view in snapshot.instances}
    placed = {run.id for run in snapshot.runs if run.instance in live}
    for entry in plan.entries:
        if isinstance(entry, Hold) or entry.run not in placed:
            continue
        had = snapshot.now_ms - began[entry.run]
        assert had >= lease, f"{entry.run} had its place for {had} of {lease} ms: {entry}"


def _leased(snapshot: Snapshot, began: Mapping[RunId, Millis]) -> Snapshot:
    """The snapshot with what policies see of leases that began at certain times."""
    runs = tuple(
        replace(run, running_since_ms=began[run.id]) if run.running and run.id in began else run
        for run in snapshot.runs
    )
    since = {run.id: run.running_since_ms for run in runs}

    def lease(job: JobView) -> Millis | None:
        times = [at for run in job.runs if (at := since.get(run)) is not None]
        latest = max if job.spec.kind is JobKind.GANG else min
        return latest(times) if times else None

    jobs = tuple(
        replace(job, progress=replace(job.progress, lease_ms=lease(job))) for job in snapshot.jobs
    )
    return replace(snapshot, runs=runs, jobs=jobs)


def _next(snapshot: Snapshot, plan: Plan, after_ms: int, *, event: bool) -> Snapshot:
    done = carried_out(snapshot, plan)
    return replace(
        done,
        now_ms=Millis(done.now_ms + after_ms),
        arrivals=done.arrivals + event,
        completions=done.completions + event,
    )
