"""The rules that every plan keeps to."""

from __future__ import annotations

from collections import Counter

from eva_master.control.planning.validate_plan import reconcile
from eva_master.model.planning.plan import Assign, Hold, Plan, Suspend
from eva_master.model.planning.snapshot import Snapshot
from eva_master.model.resources import NOTHING
from eva_master.testing.snapshots import carried_out
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import InstanceId, OfferingId, RunId


def check(snapshot: Snapshot, plan: Plan, *, explained: bool = True) -> None:
    """Check that a plan is one that a correct policy may make.

    Args:
        snapshot: The cluster.
        plan: For it.
        explained: Whether every place is to have a reason.

    Raises:
        AssertionError: The plan is unlawful; the message says which rule it breaks.
    """
    runs = {run.id: run for run in snapshot.runs}
    named = [entry.run for entry in plan.entries]
    assert len(named) == len(set(named)), "at most one entry per task run"
    assert not [run for run in named if runs[run].pinned], "pinned runs are left alone"
    live = {instance.id for instance in snapshot.instances}
    for entry in plan.entries:
        match entry:
            case Assign(run=run, on=host):
                assert host != runs[run].instance, "only what changes something"
            case Hold(run=run, reason=reason):
                assert runs[run].instance is None
                assert reason
            case Suspend(run=run, reason=reason):
                mates = (other for other in snapshot.runs if other.job == runs[run].job)
                assert any(mate.instance in live for mate in mates)
                assert reason
    waiting = {run.id for run in snapshot.runs if not run.pinned and run.instance is None}
    in_line = {job for line in plan.lines for job in line.jobs}
    waiting = {run for run in waiting if runs[run].job not in in_line}
    assert waiting <= set(named), "every waiting run is placed, stands in a line, or is held"
    _check_standing(snapshot, plan)
    _check_launches(snapshot, plan)
    _check_room(carried_out(snapshot, plan), snapshot)
    _check_gangs(snapshot, plan)
    assert not reconcile(snapshot, plan).dropped, "all of it can be carried out"
    if explained:
        _check_reasons(snapshot, plan)


def _check_launches(snapshot: Snapshot, plan: Plan) -> None:
    used = {e.on for e in plan.entries if isinstance(e, Assign) and isinstance(e.on, int)}
    used |= {member for pool in plan.pools for member in pool.members if isinstance(member, int)}
    assert used == {launch.key for launch in plan.launches}, "each new instance is used"
    assert len(plan.launches) == len(used)
    counts: Counter[OfferingId] = Counter(i.offering.id for i in snapshot.instances)
    for launch in plan.launches:
        assert launch.offering in snapshot.catalog
        assert launch.offering.available(snapshot.now_ms)
        counts[launch.offering.id] += 1
        # An instance is launched before another one is freed: both count.
        limit = launch.offering.limit
        assert limit is None or counts[launch.offering.id] <= limit, launch.offering.id


def _check_standing(snapshot: Snapshot, plan: Plan) -> None:
    members = [member for pool in plan.pools for member in pool.members]
    assert len(members) == len(set(members)), "an instance stands in one pool"
    live = {view.id for view in (*snapshot.instances, *snapshot.draining)}
    assert {member for member in members if isinstance(member, str)} <= live, (
        "members are there, or are bought"
    )
    names = [pool.name for pool in plan.pools]
    assert len(names) == len(set(names)), "a pool is stated once"
    for pool in plan.pools:
        assert pool.name
        assert pool.reason, "users are told why instances stay"
        assert set(pool.closed) <= set(pool.members)
    jobs = {job.id: job for job in snapshot.jobs}
    for job, indexes in plan.pilots:
        assert jobs[job].stands_in_line, "gangs have no pilots"
        assert len(indexes) == len(set(indexes)), "a task is a pilot once"
        assert all(0 <= index < jobs[job].array.size for index in indexes), "the job has that task"
    for line in plan.lines:
        assert line.pools, "a line claims room somewhere"
        assert set(line.pools) <= set(names), "a line claims room in pools that are there"
        assert set(line.only) <= set(members)
        assert line.weight_ppm >= 1
        assert all(size >= 1 for _, size in line.sizes)
        assert {job for job, _ in line.sizes} <= set(line.jobs)
        assert len(line.jobs) == len(set(line.jobs)), "a job stands in a line once"
        assert {job for job, _ in line.at_most} <= set(line.jobs)
        for job, indexes in line.chosen:
            assert job in line.jobs, "tasks are chosen of jobs that stand in the line"
            assert len(indexes) == len(set(indexes)), "a task is chosen once"
            assert all(0 <= index < jobs[job].array.size for index in indexes), (
                "the job has that task"
            )
        for job in line.jobs:
            gang = jobs[job].spec.kind is JobKind.GANG and len(jobs[job].runs) > 1
            assert not gang, "gangs of several are placed by plans alone"


def _check_room(after: Snapshot, before: Snapshot) -> None:
    specs = {run.id: run.task for run in after.runs}
    for instance in after.instances:
        used = NOTHING
        for run in instance.residents:
            need = specs[run].demand_on(instance.offering.type.family)
            assert need is not None, f"{run} cannot run on {instance.id}"
            used += need
        assert used.fits(instance.offering.type.capacity), instance.id
    finish = {run for view in after.draining for run in view.residents}
    assert {run.id for run in after.runs} | finish >= {run.id for run in before.runs}


def _check_gangs(snapshot: Snapshot, plan: Plan) -> None:
    placed = {entry.run for entry in plan.entries if isinstance(entry, Assign)}
    held = {entry.run for entry in plan.entries if isinstance(entry, Hold)}
    suspended = {entry.run for entry in plan.entries if isinstance(entry, Suspend)}
    for job in snapshot.jobs:
        if job.spec.kind is JobKind.GANG:
            members = set(job.runs)
            assert not (members & placed and members & (held | suspended)), f"{job.id} is split"
            assert not members & suspended or members <= suspended


def _check_reasons(snapshot: Snapshot, plan: Plan) -> None:
    live = {instance.id for instance in snapshot.instances}
    before = {run.id: run.instance for run in snapshot.runs if run.instance in live}
    entries = {entry.run: entry for entry in plan.entries}
    places: dict[RunId, InstanceId | int] = {
        **{run: host for run, host in before.items() if run not in entries},
        **{entry.run: entry.on for entry in plan.entries if isinstance(entry, Assign)},
    }
    explained_places = [
        (occupant.run, hosting.on)
        for hosting in plan.reasons.hostings
        for occupant in hosting.occupants
    ]
    assert sorted(explained_places) == sorted(places.items()), "every place has a reason"
    for hosting in plan.reasons.hostings:
        values = sum(occupant.value_micro_usd_per_hour for occupant in hosting.occupants)
        assert abs(values - hosting.value_micro_usd_per_hour) <= len(hosting.occupants), (
            "but for rounding"
        )
    running = {run.id for run in snapshot.runs if run.running}
    moves = [move for exchange in plan.reasons.exchanges for move in exchange.moves]
    assert sorted((move.run, move.source, move.target) for move in moves) == sorted(
        (run, before[run], places[run])
        for run in entries.keys() & running & before.keys() & places.keys()
    ), "every move has a reason"


def quiet(plan: Plan) -> bool:
    """Whether a plan starts, moves and stops nothing."""
    return not plan.launches and all(isinstance(entry, Hold) for entry in plan.entries)
