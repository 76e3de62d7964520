"""Snapshots of parts of the cluster, and what their plans come to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import replace

from eva_master.model.catalog import Offering
from eva_master.model.planning.job_view import JobView
from eva_master.model.planning.plan import Again, Assign, ExtraRun, Loans, Plan, PlanEntry
from eva_master.model.planning.reasons import Reasons
from eva_master.model.planning.snapshot import InstanceView, Snapshot
from eva_master.model.planning.standing import Line, Pool
from eva_master.packing.room import by_offering, with_lower_limits
from eva_wire.values.ids import InstanceId, JobId

_Members = tuple[InstanceId | int, ...]
_NONE = Reasons()


def part(
    snapshot: Snapshot,
    belongs: Callable[[JobView | InstanceView], bool],
    sells: Callable[[Offering], bool],
) -> Snapshot:
    """The part of a snapshot that a partition's policy sees.

    Args:
        snapshot: Snapshot of the cluster.
        belongs: Whether a job or an instance belongs to the part. A job and the instances that it
            is on must not be divided.
        sells: Whether an offering is launched for the part.

    Returns:
        The part. Limits of offerings are lower by the live instances of others.
    """
    jobs = tuple(filter(belongs, snapshot.jobs))
    instances, others = list[InstanceView](), list[InstanceView]()
    for view in snapshot.instances:
        (instances if belongs(view) else others).append(view)
    elsewhere = by_offering(tuple(others))
    names = {job.id for job in jobs}
    return replace(
        snapshot,
        catalog=with_lower_limits(tuple(filter(sells, snapshot.catalog)), elsewhere),
        jobs=jobs,
        runs=tuple(run for run in snapshot.runs if run.job in names),
        instances=tuple(instances),
        draining=tuple(filter(belongs, snapshot.draining)),
    )


def divide(
    snapshot: Snapshot, jobs: Set[JobId], rooms: Set[InstanceId]
) -> tuple[Snapshot, Snapshot]:
    """The part of a snapshot with some jobs and instances, and the rest of it.

    Both sell everything. If the part has nothing, the rest is the snapshot itself.

    Args:
        snapshot: Of the cluster, or of a part of it.
        jobs: The jobs of the part; none is divided from the instances that it is on.
        rooms: The instances of the part, draining ones included.
    """
    inner = replace(
        snapshot,
        jobs=tuple([job for job in snapshot.jobs if job.id in jobs]),
        runs=tuple([run for run in snapshot.runs if run.job in jobs]),
        instances=tuple([view for view in snapshot.instances if view.id in rooms]),
        draining=tuple([view for view in snapshot.draining if view.id in rooms]),
    )
    ours = by_offering(inner.instances)
    others = by_offering(snapshot.instances) - ours
    inner = replace(inner, catalog=with_lower_limits(snapshot.catalog, others))
    if not inner.jobs and not inner.instances and not inner.draining:
        return inner, snapshot
    rest = replace(
        snapshot,
        catalog=with_lower_limits(snapshot.catalog, ours),
        jobs=tuple([job for job in snapshot.jobs if job.id not in jobs]),
        runs=tuple([run for run in snapshot.runs if run.job not in jobs]),
        instances=tuple([view for view in snapshot.instances if view.id not in rooms]),
        draining=tuple([view for view in snapshot.draining if view.id not in rooms]),
    )
    return inner, rest


def without_launched(snapshot: Snapshot, plan: Plan) -> Snapshot:
    """A snapshot of which another part's plan buys some: the limits are lower by as many."""
    bought = Counter(launch.offering.id for launch in plan.launches)
    return (
        replace(snapshot, catalog=with_lower_limits(snapshot.catalog, bought))
        if bought
        else snapshot
    )


def merge(plans: Iterable[Plan]) -> Plan:
    """Plans of parts of one snapshot as one plan: the keys of new instances are numbered anew.

    Their pools must have different names. Figures of one name, and the weighing, are those of the
    last plan that has them. If only one plan decides anything, or gives reasons, the result is that
    plan.
    """
    every = list(plans)
    said = [plan for plan in every if plan != Plan(figures=plan.figures) or plan.reasons != _NONE]
    if len(said) < 2:
        return (said or every or [Plan()])[-1]
    merged, times = Plan(), [plan.again.at_ms for plan in said]
    for plan in said:
        first = len(merged.launches)
        keys = {launch.key: first + n for n, launch in enumerate(plan.launches)}
        merged = Plan(
            (
                *merged.launches,
                *(replace(launch, key=keys[launch.key]) for launch in plan.launches),
            ),
            (*merged.entries, *(_renumbered(entry, keys) for entry in plan.entries)),
            {**merged.figures, **plan.figures},
            merged.reasons.merged_with(plan.reasons, keys),
            (*merged.pools, *(_pool(pool, keys) for pool in plan.pools)),
            (*merged.lines, *(_line(line, keys) for line in plan.lines)),
            (*merged.sizes, *plan.sizes),
            Again(
                min((time for time in times if time is not None), default=None),
                (*merged.again.milestones, *plan.again.milestones),
            ),
            (*merged.pilots, *plan.pilots),
            Loans(
                (*merged.loans.terms, *plan.loans.terms),
                (*merged.loans.transfers, *plan.loans.transfers),
            ),
        )
    return replace(merged, entries=tuple(sorted(merged.entries, key=lambda entry: entry.run)))


def _renumbered(entry: PlanEntry, keys: Mapping[int, int]) -> PlanEntry:
    if isinstance(entry, Assign | ExtraRun) and isinstance(entry.on, int):
        return replace(entry, on=keys[entry.on])
    return entry


def _members(members: _Members, keys: Mapping[int, int]) -> _Members:
    if not keys:
        return members
    return tuple(keys[member] if isinstance(member, int) else member for member in members)


def _pool(pool: Pool, keys: Mapping[int, int]) -> Pool:
    return replace(pool, members=_members(pool.members, keys), closed=_members(pool.closed, keys))


def _line(line: Line, keys: Mapping[int, int]) -> Line:
    return replace(line, only=_members(line.only, keys))
