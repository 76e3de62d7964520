"""YARN's capacity scheduler: in order, wherever there is room, to the end."""

from __future__ import annotations

from eva_lab.runs import named_policy
from eva_master.model.planning.plan import Hold
from eva_master.testing.snapshots import Cluster, offer, task
from tests.fakes.policies.rounds import Trained, in_rounds

RATES = {"a": 1.0, "b": 0.5}


def test_a_gang_that_waits_holds_up_who_comes_after_and_nobody_is_moved() -> None:
    jobs = {
        "first": Trained(2, 2, RATES),
        "wide": Trained(3, 1, RATES),
        "thin": Trained(1, 1, RATES),
    }
    policy = named_policy("yarn_cs", {})[0]
    # The first takes the type with most room. The second would need one GPU more than there is.
    told = in_rounds(policy, {"a": 2, "b": 2}, jobs)
    assert told == [
        {"first": ("a", "a")},
        {"first": ("a", "a")},
        {"wide": ("a", "a", "b"), "thin": ("b",)},
        {"wide": ("a", "a", "b"), "thin": ("b",)},
    ]


def test_a_job_takes_the_type_with_most_room() -> None:
    policy = named_policy("yarn_cs", {})[0]
    assert in_rounds(policy, {"a": 1, "b": 2}, {"one": Trained(1, 1, RATES)}, most=1) == [
        {"one": ("b",)}
    ]


def test_who_waits_is_told_for_whom() -> None:
    cluster = Cluster(offer("box", (2, 8, 32), 1.0, limit=1)).instance("i", "box")
    cluster.job("a", task(any=(1, 1, 1)), on=["i"])
    cluster.job("b", task(any=(1, 1, 1)), task(any=(1, 1, 1))).job("c", task(any=(1, 1, 1)))
    entries = named_policy("yarn_cs", {})[0].plan(cluster.snapshot(), None)[0].entries
    assert [(it.run, it.reason) for it in entries if isinstance(it, Hold)] == [
        ("b/0", "it is first in line and waits for room for all of it"),
        ("b/1", "it is first in line and waits for room for all of it"),
        ("c/0", "b came first and waits for room"),
    ]
