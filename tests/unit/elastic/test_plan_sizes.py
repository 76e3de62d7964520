"""What of the sizes that a plan gives to elastic gangs is carried out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eva_master.control.planning.validate_sizes import lawful, reconciled
from eva_master.model.planning.elastic import Elastic
from eva_master.model.planning.plan import Assign, Hold, NewInstance, Plan, Resize, Suspend
from eva_master.model.planning.sizes import with_sizes
from eva_master.model.planning.snapshot import InstanceView, RunView, Snapshot
from eva_master.testing.job_views import job_view
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import InstanceId, JobId, Millis, RunId, run_id
from tests.fakes.jobs import CATALOG, MEDIUM, SMALL, task

GANG, FIXED = JobId("g-1"), JobId("f-2")
HOME = InstanceId("i1")


def snapshot(*, pinned: bool = False) -> Snapshot:
    """A gang of 2, of 1 to 4, on an instance with room for one more, and a fixed job that waits."""
    names = [run_id(GANG, index) for index in range(2)]
    members = [RunView(it, GANG, task(1), HOME, pinned=pinned, running=True) for it in names]
    fixed = RunView(run_id(FIXED, 0), FIXED, task(1), None, pinned=False, running=False)
    return Snapshot(
        Millis(0),
        CATALOG,
        (
            job_view(FIXED, JobKind.GANG, (fixed.id,), Millis(0), 0),
            job_view(GANG, JobKind.GANG, tuple(names), Millis(0), 0, elastic=Elastic(1, 4)),
        ),
        (fixed, *members),
        (InstanceView(HOME, MEDIUM, tuple(names), ready=True),),
    )


def grown(members: int, on: InstanceId | int = HOME) -> Plan:
    joining = tuple(Assign(run_id(GANG, index), on) for index in range(2, members))
    return Plan(entries=joining, sizes=(Resize(GANG, members, "why not"),))


def test_members_join_where_there_is_room_and_leave_at_once() -> None:
    decision = reconciled(snapshot(), grown(4))
    assert [entry.members for entry in decision.sizes] == [4]
    assert decision.places == ((RunId("g-1/2"), HOME), (RunId("g-1/3"), HOME))
    smaller = reconciled(snapshot(), Plan(sizes=(Resize(GANG, 1, ""),)))
    assert ([entry.members for entry in smaller.sizes], smaller.places) == ([1], ())


def test_a_gang_that_would_not_be_whole_keeps_its_size() -> None:
    short = Plan(entries=grown(4).entries[:1], sizes=grown(4).sizes)
    small = Plan((NewInstance(0, SMALL),), grown(4, on=0).entries, sizes=grown(4).sizes)
    crowded = replace(small, entries=(*small.entries, Assign(run_id(FIXED, 0), 0)))
    assert [it.members for it in reconciled(snapshot(), small).sizes] == [4]
    for plan in (short, crowded):
        decision = reconciled(snapshot(), plan)
        assert not decision.sizes
        assert not [run for run, _ in decision.places if run.startswith(GANG)]
        assert RunId("g-1/2") in decision.dropped


def test_room_of_who_leaves_may_be_given_away() -> None:
    seen = snapshot()
    large = replace(seen.runs[0], task=task(3))
    seen = replace(seen, runs=(large, *seen.runs[1:]))
    entries = (Assign(large.id, HOME),)
    assert not reconciled(seen, Plan(entries=entries)).places
    decision = reconciled(seen, Plan(entries=entries, sizes=(Resize(GANG, 1, ""),)))
    assert decision.places == ((large.id, HOME),)


@pytest.mark.parametrize(
    ("plan", "pinned"),
    [
        (grown(4), True),
        (Plan(sizes=(Resize(GANG, 0, ""),)), False),
        (Plan(sizes=(Resize(GANG, 5, ""),)), False),
        (Plan(sizes=(Resize(FIXED, 2, ""),)), False),
        (Plan(sizes=(Resize(JobId("x-9"), 2, ""),)), False),
        (
            replace(
                grown(4),
                entries=(*grown(4).entries, *(Suspend(run_id(GANG, it), "") for it in (0, 1))),
            ),
            False,
        ),
    ],
)
def test_a_size_that_a_gang_cannot_have_is_left_out(plan: Plan, pinned: bool) -> None:
    left = lawful(snapshot(pinned=pinned), plan)
    assert not left.sizes
    assert not [entry for entry in left.entries if isinstance(entry, Assign)]


def test_other_entries_stay() -> None:
    plan = Plan(entries=(Hold(run_id(FIXED, 0), "no room"),), sizes=(Resize(GANG, 9, ""),))
    assert lawful(snapshot(), plan) == replace(plan, sizes=())


def test_a_snapshot_with_the_same_sizes_is_the_same() -> None:
    seen = snapshot()
    assert with_sizes(seen, {GANG: 2, FIXED: 3, JobId("x-9"): 1}) is seen
    larger = with_sizes(seen, {GANG: 3})
    assert [run.id for run in larger.runs] == ["f-2/0", "g-1/0", "g-1/1", "g-1/2"]
    assert larger.runs[-1].instance is None
    assert with_sizes(larger, {GANG: 2}) == seen
