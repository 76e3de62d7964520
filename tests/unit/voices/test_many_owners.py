"""Fifty owners of one workload are as much work to plan for as one."""

from __future__ import annotations

import pytest

from benchmarks import owners
from eva_master.control.planning.snapshot_builder import snapshot
from eva_master.control.state.store import State
from eva_master.learning.colocation import key, lookup
from eva_master.learning.voices.lessons import Lessons
from eva_master.learning.voices.names import marked
from eva_master.learning.voices.resolution import is_news
from eva_master.model.planning.snapshot import Snapshot
from eva_master.packing.problem import Problem, Valuation
from eva_wire.values.ids import Family, Millis, Workload
from tests.fakes.hand_driven import JOB, SETTINGS, Cluster

W = Workload("resnet")
OWNERS, JOBS = 50, 100


def taught(number: int, neighbour: str) -> Lessons:
    """An owner's figures, each off by a little noise."""
    noise = 1 + (number % 7 - 3) / 100
    rates = Lessons().standalone.observe(W, Family("fast"), 10 * noise, Millis(0))
    rates = rates.observe(W, Family("slow"), 4 * noise, Millis(0))
    lessons = Lessons(standalone=rates)
    for others in ([W], [W, W], [marked(W, neighbour)], [W, marked(W, neighbour)]):
        ppm = round(900_000 ** len(others) / 1_000_000 ** (len(others) - 1) * (2 + noise) / 3)
        lessons = lessons.in_company([key(W, others)], ppm, Millis(0))
    return lessons


def cluster_of(owners_there: int) -> State:
    cluster = Cluster()
    for number in range(JOBS):
        owner = f"owner{number % owners_there}"
        cluster.submit(JOB + "workload: resnet\n", name=f"job{number}", owner=owner)
    state = cluster.state
    for number in range(owners_there):
        lessons = taught(number, f"owner{(number + 1) % owners_there}")
        state.teach(f"owner{number}", lessons)
    return state


def seen(state: State) -> Snapshot:
    return snapshot(state, Millis(0), SETTINGS)


def test_plans_see_no_more_classes_rates_or_pairs() -> None:
    one, many = (seen(cluster_of(number)) for number in (1, OWNERS))
    first, second = (Problem(it, Valuation()) for it in (one, many))
    assert len(first.classes) == len(second.classes) == 1
    assert len(many.standalone.measured) == len(one.standalone.measured) == 2
    assert len(many.throughput.observed) == 2, "pairs and threes of one name"
    assert {run.task.workload for run in many.runs} == {W}


def test_news_of_one_owner_makes_only_its_own_views_anew() -> None:
    state = cluster_of(OWNERS)
    seen(state)
    before, known = state.view_cache.made, state.figures.resolved
    state.teach("owner3", taught(4, "owner5"))
    assert not is_news(known, state.figures.resolve(), W), "it calls for no plan"
    state.view_cache.workload_changed(W, "owner3")
    again = seen(state)
    assert state.view_cache.made - before <= 2 * JOBS // OWNERS * 2
    assert again.standalone is known.standalone
    assert again.throughput is known.throughput


def test_bounds_of_what_was_learned_hold_once_it_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    state = cluster_of(4)
    monkeypatch.setattr("eva_master.learning.knowledge.VOICES_KEPT", 2)
    state.write_learned()
    assert list(state.learned.voices) == ["owner2", "owner3"]
    written = state.take_changes().documents()["learned"]
    assert isinstance(written, dict)
    assert isinstance(written["voices"], list)
    assert len(written["voices"]) == 2


def test_one_that_is_unlike_the_others_is_one_class_more() -> None:
    state = cluster_of(OWNERS)
    rates = Lessons().standalone.observe(W, Family("fast"), 1e6, Millis(0))
    seen(state)
    known = state.figures.resolved
    state.teach("owner7", Lessons(standalone=rates))
    assert is_news(known, state.figures.resolve(), W)
    assert len({run.task.workload for run in seen(state).runs}) == 2


@pytest.mark.parametrize(("less_ppm", "news"), [(40_000, False), (60_000, True)])
def test_company_that_is_as_good_as_plans_assumed_asks_for_no_plan(
    less_ppm: int, news: bool
) -> None:
    state = cluster_of(2)
    lessons, others = state.learned.of("owner1"), [marked(W, "owner5"), marked(W, "owner6"), W]
    known = state.figures.resolve()
    assert known.label("owner1", W) != W, "a label, and so rows, of its own"
    observed = lookup(lessons.throughput, key(W, others)) - less_ppm
    after = lessons.in_company([key(W, others)], observed, Millis(1))
    state.teach("owner1", after)
    assert state.figures.resolve().throughput is not known.throughput, (
        "plans reckon with it all the same"
    )
    assert is_news(known, state.figures.resolve(), W) is news


@pytest.mark.long
def test_fifty_owners_cost_as_much_as_one() -> None:
    cost, work = owners.ratios(owners.Load(30, 1, 1, "eva"), OWNERS, 1)
    assert cost <= owners.MOST_COST
    assert work <= owners.MOST_WORK
