"""Gavel's rounds: who goes first, on which type, and what is remembered of it."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from eva_lab.runs import named_policy
from eva_master.model.planning.job_view import JobView
from eva_master.model.planning.plan import Assign, Hold, PolicyMemory, Suspend
from eva_master.model.planning.snapshot import Snapshot
from eva_master.ports import Policy
from eva_master.testing.job_views import changed
from eva_master.testing.snapshots import START, Cluster, ended, offer, task
from eva_policies.gavel.config import PRESETS
from eva_wire.values.ids import Family, Millis
from tests.fakes.policies.rounds import Trained, in_rounds


def gavel(preset: str = "max-min", **options: int) -> Policy:
    return named_policy(f"gavel:{preset}", options)[0]


FLEET = {"v100": 2, "p100": 3, "k80": 1}
JOBS = {
    "j1": Trained(3, 80, {"v100": 40, "p100": 20, "k80": 30}),
    "j2": Trained(2, 30, {"v100": 5, "p100": 15, "k80": 5}),
    "j3": Trained(2, 50, {"v100": 10, "p100": 2, "k80": 20}),
}
"""The example of section II-A of Hadar's paper."""


@pytest.mark.parametrize("preset", PRESETS)
def test_the_example_of_hadar_s_paper_takes_six_rounds(preset: str) -> None:
    told = in_rounds(gavel(preset), FLEET, JOBS)
    assert len(told) == 6, "as few as any way takes"
    # Three GPUs of one type are P100s alone, and nobody has two K80s.
    assert {types for on in told for types in on.values()} == {
        ("p100",) * 3,
        ("p100",) * 2,
        ("v100",) * 2,
    }


def test_jobs_that_are_alike_take_turns() -> None:
    jobs = {name: Trained(1, 4, {"a": 1}) for name in ("one", "two", "three")}
    told = in_rounds(gavel(), {"a": 1}, jobs)
    assert [list(on) for on in told[:6]] == [["one"], ["two"], ["three"]] * 2
    assert len(told) == 12, "and no round is lost"


def test_turns_are_as_long_as_the_parts() -> None:
    # By hand in test_gavel_division: a third of the time for two GPUs, two thirds for one.
    jobs = {
        "wide": Trained(2, 99, {"a": 1}),
        "thin": Trained(1, 99, {"a": 1}),
        "slim": Trained(1, 99, {"a": 3}),
    }
    told = in_rounds(gavel(), {"a": 2}, jobs, most=30)
    turns = Counter(name for on in told for name in on)
    assert turns == {"wide": 10, "thin": 20, "slim": 20}


def test_a_job_moves_to_a_faster_type_once_there_is_room_and_else_nobody_moves() -> None:
    jobs = {"short": Trained(1, 4, {"a": 1, "b": 0.5}), "long": Trained(1, 20, {"a": 1, "b": 0.9})}
    told = in_rounds(gavel(), {"a": 1, "b": 1}, jobs)
    assert [on["long"] for on in told] == [("b",)] * 4 + [("a",)] * 17


def test_a_job_does_not_move_for_less_than_moving_takes() -> None:
    # After four rounds 144 s are left on "a" and 160 s on "b"; to stop and start takes 60 s.
    jobs = {"short": Trained(1, 4, {"a": 1, "b": 0.5}), "long": Trained(1, 4, {"a": 1, "b": 0.9})}
    assert in_rounds(gavel(), {"a": 1, "b": 1}, jobs)[4:] == [{"long": ("b",)}]


def test_who_has_no_part_yet_takes_the_faster_of_idle_types() -> None:
    jobs = {"old": Trained(1, 9, {"c": 1}), "new": Trained(1, 9, {"a": 1, "b": 2}, arrives=1)}
    told = in_rounds(gavel(), {"a": 1, "b": 1, "c": 1}, jobs, most=2)
    assert told[1] == {"old": ("c",), "new": ("b",)}


def test_a_gang_that_no_type_holds_alone_takes_what_the_others_leave() -> None:
    jobs = {
        "gang": Trained(3, 3, {"a": 2, "b": 1}),
        "one": Trained(1, 2, {"a": 1, "b": 1}),
        "two": Trained(2, 2, {"a": 1, "b": 1}),
    }
    told = in_rounds(gavel(), {"a": 2, "b": 1}, jobs)
    assert all(set(on) == {"one", "two"} for on in told[:2])
    assert told[2:] == [{"gang": ("a", "a", "b")}] * 3


# -- one round -----------------------------------------------------------------------------------


def _crowd(*, running: str = "", **priorities: int) -> Snapshot:
    """Jobs of one GPU each for two boxes of one GPU; the two that run do so for an hour."""
    cluster = Cluster(offer("box", (1, 4, 16), 1.0, limit=2))
    cluster.instance("i0", "box").instance("i1", "box")
    for name, priority in priorities.items():
        on = [f"i{running.index(name)}"] if name in running else []
        cluster.job(name, task(any=(1, 4, 16)), on=on, priority=priority)
    snapshot = cluster.snapshot()

    def leased(job: JobView) -> JobView:
        since = Millis(START - 3_600_000) if job.id in running else None
        return changed(job, lease_ms=since)

    return replace(snapshot, jobs=tuple(map(leased, snapshot.jobs)))


def _done(policy: Policy, snapshot: Snapshot, memory: PolicyMemory | None = None) -> dict[str, str]:
    entries = policy.plan(snapshot, memory)[0].entries
    return {it.run: type(it).__name__ for it in entries}


def test_who_stays_on_a_type_keeps_the_place_that_another_would_have_been_given() -> None:
    plan, _ = gavel().plan(_crowd(a=0, b=0, c=0, running="bc"), None)
    assert [entry for entry in plan.entries if isinstance(entry, Assign)] == [Assign("a/0", "i1")]
    assert [it.run for it in plan.entries if isinstance(it, Suspend)] == ["c/0"]


def test_who_stays_on_a_type_moves_there_if_another_finds_no_room_else() -> None:
    cluster = Cluster(offer("box", (2, 4, 16), 1.0, limit=2))
    cluster.instance("i0", "box").instance("i1", "box").job("a", task(any=(2, 2, 2)))
    cluster.job("b", task(any=(1, 1, 1)), on=["i0"]).job("c", task(any=(1, 1, 1)), on=["i1"])
    entries = gavel().plan(cluster.snapshot(), None)[0].entries
    assert entries == (Assign("a/0", "i0"), Assign("b/0", "i1"))


def test_nobody_gives_up_a_place_before_its_lease_is_over() -> None:
    assert _done(gavel(lease_s=3_601), _crowd(a=0, b=0, c=0, running="bc")) == {"a/0": "Hold"}


def _with_gang(crowd: Snapshot, **leases: int) -> Snapshot:
    """The same beside a gang of two that comes first, where leases began at given times."""
    wide = Cluster(*crowd.catalog).job("a", *[task(any=(1, 4, 16))] * 2, priority=1).snapshot()
    begun = tuple(
        changed(job, lease_ms=Millis(leases[job.id])) if job.id in leases else job
        for job in (*wide.jobs, *crowd.jobs)
    )
    return replace(crowd, jobs=begun, runs=(*wide.runs, *crowd.runs))


def test_who_waits_for_leases_to_end_is_not_kept_out_by_others_that_begin_some() -> None:
    crowd = _with_gang(_crowd(b=0, c=0, d=0, running="cd"), d=START)
    # The gang needs both boxes and d has just begun on one: c goes on, and b gets nothing.
    assert _done(gavel(), crowd) == {"a/0": "Hold", "a/1": "Hold", "b/0": "Hold"}
    done = _done(gavel(), replace(crowd, now_ms=Millis(START + 300_000)))
    assert done == {"a/0": "Assign", "a/1": "Assign", "b/0": "Hold"} | dict.fromkeys(
        ("c/0", "d/0"), "Suspend"
    )


def test_who_waits_for_others_that_come_first_keeps_nobody_out() -> None:
    crowd = _with_gang(_crowd(b=0, c=0, d=2, running="cd"))
    done = {"a/0": "Hold", "a/1": "Hold", "b/0": "Assign", "c/0": "Suspend"}
    assert _done(gavel(), crowd) == done


def test_a_gang_that_lost_a_member_gets_it_back_on_its_type() -> None:
    cluster = Cluster(offer("slow", (1, 4, 16), 1.0, family="slow", limit=2))
    cluster.catalog = (*cluster.catalog, offer("fast", (2, 8, 32), 1.0, family="fast", limit=1))
    cluster.instance("s0", "slow").instance("s1", "slow").instance("f", "fast")
    member = replace(
        task(slow=(1, 1, 1), fast=(1, 1, 1)),
        throughput=((Family("fast"), 5_000_000), (Family("slow"), 1_000_000)),
    )
    snapshot = cluster.job("g", member, member, on=["s0", "gone"]).snapshot()
    assert gavel().plan(snapshot, None)[0].entries == (Assign("g/1", "s1"),)


def test_higher_priority_goes_first_whatever_others_have_had() -> None:
    done = _done(gavel(), _crowd(a=0, b=1, c=1, d=0, running="bc"))
    assert done == {"a/0": "Hold", "d/0": "Hold"}


def test_who_waits_is_told_why_and_when_its_turn_is_expected() -> None:
    """A turn lasts a round of six minutes; of those of higher priority, an hour on each box."""

    def told(**priorities: int) -> list[str]:
        plan, _ = gavel().plan(_crowd(running="bc", **priorities), None)
        return [it.reason for it in plan.entries if isinstance(it, Hold | Suspend)]

    why = "others have had less of what is due to them on any, or it has no room"
    turn = "its turn is expected within"
    assert told(a=0, b=1, c=1) == [f"{why}; {turn} 2 hours"]
    # Two are ahead of c, one on each box.
    assert told(a=0, b=0, c=0) == [f"{why}; {turn} 20 minutes"]


# -- memory --------------------------------------------------------------------------------------


def _parts(memory: PolicyMemory | None) -> dict[str, Any]:
    assert memory is not None
    jobs = memory.data["jobs"]
    assert isinstance(jobs, dict)
    return dict(jobs)


def test_what_was_received_counts_and_jobs_that_have_ended_are_forgotten() -> None:
    policy, crowd = gavel(), _crowd(a=0, b=0, c=0, running="bc")
    _, memory = policy.plan(crowd, None)
    third = {"any": 666_667}
    assert _parts(memory) == {name: [third, {}] for name in ("a/0", "b/0", "c/0")}
    later = replace(ended(crowd, "c"), now_ms=Millis(START + 400_000))
    _, memory = policy.plan(later, memory)
    # It is too soon to divide the fleet anew. While b ran it was seen for 400 s.
    assert _parts(memory) == {"a/0": [third, {}], "b/0": [third, {"any": 400_000}]}
    assert memory is not None
    assert memory.data["stale"] is True
    _, memory = policy.plan(replace(later, now_ms=Millis(START + 1_000_000)), memory)
    assert _parts(memory) == {"a/0": [{"any": 1_000_000}, {}], "b/0": [{"any": 1_000_000}, {}]}


def test_only_time_on_the_present_place_counts_and_none_twice() -> None:
    policy, crowd = gavel(), _crowd(a=0, b=0, c=0, running="bc")
    _, memory = policy.plan(crowd, None)
    begun = tuple(
        changed(job, lease_ms=Millis(START + 100_000) if job.id == "b" else job.progress.lease_ms)
        for job in crowd.jobs
    )
    for at_ms, of_b, of_c in ((400_000, 300_000, 400_000), (500_000, 400_000, 500_000)):
        later = replace(crowd, jobs=begun, now_ms=Millis(START + at_ms))
        _, memory = policy.plan(later, memory)
        had = [received for _, received in map(tuple, _parts(memory).values())]
        assert had == [{}, {"any": of_b}, {"any": of_c}]


def test_a_job_that_has_come_waits_for_a_division_but_takes_idle_room() -> None:
    policy = gavel()
    _, memory = policy.plan(_crowd(b=0, c=0, running="bc"), None)
    crowd = replace(_crowd(a=0, b=0, c=0, running="bc"), now_ms=Millis(START + 400_000))
    assert _done(policy, crowd, memory) == {"a/0": "Hold"}
    assert _done(policy, ended(crowd, "c"), memory) == {"a/0": "Assign"}
    late = replace(crowd, now_ms=Millis(START + 1_000_000))
    assert _done(policy, late, memory)["a/0"] == "Assign"


def test_a_memory_of_another_form_is_as_none() -> None:
    policy, crowd = gavel(), _crowd(a=0, b=0, c=0, running="bc")
    plan, memory = policy.plan(crowd, None)
    assert memory is not None
    for other in (
        replace(memory, version=0),
        replace(memory, policy="hadar"),
        replace(memory, data={"divided": "now"}),
        replace(memory, data={}),
    ):
        assert policy.plan(crowd, other) == (plan, memory)


def test_the_memory_has_a_few_bytes_of_each_job() -> None:
    _, memory = gavel().plan(_crowd(**{f"j{number}": 0 for number in range(40)}), None)
    assert memory is not None
    assert len(json.dumps(dict(memory.data))) < 40 * 60
