"""Tiresias: who has had least GPU time goes first, in two queues."""

from __future__ import annotations

from dataclasses import replace

from eva_lab.runs import named_policy
from eva_master.model.planning.job_view import GpuTime
from eva_master.model.planning.plan import Assign, Suspend
from eva_master.ports import Policy
from eva_master.testing.job_views import changed
from eva_master.testing.snapshots import Cluster, offer, task
from tests.fakes.policies.rounds import ROUND_S, Trained, in_rounds


def tiresias(**options: int) -> Policy:
    return named_policy("tiresias", options)[0]


ONE = {"a": 1.0}


def test_whoever_has_had_the_first_queue_s_time_gives_way() -> None:
    jobs = {name: Trained(1, 6, ONE) for name in ("one", "two", "three")}
    told = in_rounds(tiresias(first_queue_gpu_s=3 * ROUND_S), {"a": 1}, jobs)
    # Each has three rounds in the first queue; then they run to their ends as they came.
    turns = [next(iter(on)) for on in told]
    assert turns == [name for _ in range(2) for name in jobs for _ in range(3)]


def test_time_counts_times_gpus() -> None:
    jobs = {"wide": Trained(2, 4, ONE), "thin": Trained(1, 4, ONE)}
    told = in_rounds(tiresias(first_queue_gpu_s=2 * ROUND_S), {"a": 2}, jobs)
    # After a round the wide job has had as much as the thin one will have had after two.
    assert [list(on) for on in told[:4]] == [["wide"], ["thin"], ["thin"], ["wide"]]


def test_a_job_that_has_had_more_waits_though_it_came_first() -> None:
    jobs = {"old": Trained(1, 1, ONE, had_gpu_s=9_999), "new": Trained(1, 1, ONE)}
    assert in_rounds(tiresias(), {"a": 1}, jobs) == [{"new": ("a",)}, {"old": ("a",)}]


def test_types_are_not_told_apart_and_who_runs_stays() -> None:
    # "slow" would be ten times as fast where "first" was, and nobody asks.
    rates = {"a": 1.0, "b": 10.0}
    jobs = {"slow": Trained(1, 40, rates), "first": Trained(1, 10, rates)}
    told = in_rounds(tiresias(), {"a": 1, "b": 1}, jobs)
    assert told[0] == {"slow": ("a",), "first": ("b",)}
    assert len(told) == 40
    assert {on["slow"] for on in told} == {("a",)}


def test_only_the_last_gives_way() -> None:
    cluster = Cluster(offer("box", (1, 4, 16), 1.0, limit=2))
    cluster.instance("i0", "box").instance("i1", "box").job("a", task(any=(1, 1, 1)))
    cluster.job("b", task(any=(1, 1, 1)), on=["i0"]).job("c", task(any=(1, 1, 1)), on=["i1"])
    snapshot = cluster.snapshot()
    had = {"a": 0, "b": 9_000_000, "c": 9_000_000}
    jobs = tuple(changed(it, attained=GpuTime(had[it.id])) for it in snapshot.jobs)
    entries = tiresias().plan(replace(snapshot, jobs=jobs), None)[0].entries
    assert entries == (Assign("a/0", "i1"), Suspend("c/0", "others have had less GPU time"))


BOTH = {"a": 1.0, "b": 1.0}


def test_the_last_give_way_and_the_others_stay_where_they_are() -> None:
    jobs = {
        **{f"old{n}": Trained(1, 9, BOTH, had_gpu_s=9_000) for n in range(4)},
        "new": Trained(2, 2, BOTH, arrives=1),
    }
    told = in_rounds(tiresias(), {"a": 2, "b": 2}, jobs, most=4)
    old = {"old0": ("a",), "old1": ("a",)}
    everybody = old | {"old2": ("b",), "old3": ("b",)}
    assert told == [everybody, *[old | {"new": ("b", "b")}] * 2, everybody]


def test_who_need_not_have_given_way_stays() -> None:
    jobs = {
        "old": Trained(2, 9, BOTH, had_gpu_s=9_000),
        "brief": Trained(1, 1, BOTH, had_gpu_s=9_000),
        "thin": Trained(1, 9, BOTH, had_gpu_s=9_000),
        "new": Trained(2, 2, BOTH, arrives=1),
    }
    told = in_rounds(tiresias(), {"a": 1, "b": 3}, jobs, most=2)
    assert told[0] == {"old": ("b", "b"), "brief": ("a",), "thin": ("b",)}
    assert told[1] == {"new": ("b", "b"), "thin": ("b",)}


def test_a_gang_may_be_on_several_types_only_if_none_holds_it() -> None:
    jobs = {"gang": Trained(3, 2, {"a": 1, "b": 1}), "pair": Trained(2, 1, {"a": 1, "b": 1})}
    told = in_rounds(tiresias(), {"a": 2, "b": 1}, jobs)
    assert told == [{"gang": ("a", "a", "b")}] * 2 + [{"pair": ("a", "a")}]


def test_the_last_give_way_for_a_gang_that_needs_several_types() -> None:
    jobs = {
        **{f"old{n}": Trained(1, 9, BOTH, had_gpu_s=9_000) for n in range(4)},
        "wide": Trained(3, 2, BOTH, arrives=1),
    }
    told = in_rounds(tiresias(), {"a": 2, "b": 2}, jobs, most=4)
    everybody = {"old0": ("a",), "old1": ("a",), "old2": ("b",), "old3": ("b",)}
    assert told[0] == told[3] == everybody
    assert told[1] == told[2] == {"old0": ("a",), "wide": ("a", "b", "b")}


def test_nobody_gives_way_for_a_gang_that_all_types_together_do_not_hold() -> None:
    jobs = {
        "old": Trained(1, 3, BOTH, had_gpu_s=9_000),
        "wide": Trained(4, 2, BOTH, arrives=1),
    }
    told = in_rounds(tiresias(), {"a": 2, "b": 1}, jobs, most=3)
    assert told == [{"old": ("a",)}] * 3 or told == [{"old": ("b",)}] * 3
