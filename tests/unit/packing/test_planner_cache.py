"""What a planner remembers is bounded, and makes no difference to what it plans."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import pytest

import eva_master
from eva_master.model.planning.snapshot import Snapshot, ThroughputTable
from eva_master.packing.interference.throughput import ThroughputModel
from eva_master.packing.planner_cache import PlannerCache
from eva_master.packing.problem import Problem, Valuation
from eva_master.packing.valuation import task_shapes
from eva_wire.values.ids import Price, Workload
from tests.fakes.snapshots import Cluster, offer, table, task

A, B = Workload("a"), Workload("b")


def snapshot(jobs: int = 3, usd: float = 1.0, first: int = 0) -> Snapshot:
    made = Cluster(offer("box", (0, 8, 32), usd))
    for number in range(first, first + jobs):
        made.job(f"j{number}", task(f"w{number}", any=(0, 1 + number % 4, 8)))
    made.throughput = table({("a", ("b",)): 0.5})
    return made.snapshot()


def test_the_models_that_were_asked_for_last_are_kept() -> None:
    cache, learned = PlannerCache(), table({("a", ("b",)): 0.5})
    models: list[ThroughputModel] = []
    for default in range(900_000, 900_020):
        models.append(cache.throughput(learned, frozenset({A, B}), default))
        first = cache.throughput(learned, frozenset({A, B}), 900_000)
    assert first is models[0], "it was asked for all the time"
    assert cache.throughput(learned, frozenset({A, B}), 900_019) is models[-1]
    assert cache.throughput(learned, frozenset({A, B}), 900_001) is not models[1]
    assert len(cache._models) == 16


def test_a_model_of_the_same_table_is_the_same_and_of_another_another() -> None:
    cache, learned = PlannerCache(), table({("a", ("b",)): 0.5})
    model = cache.exact_throughput(learned, 950_000)
    assert cache.exact_throughput(learned, 950_000) is model
    assert cache.exact_throughput(learned, 900_000) is not model
    assert cache.exact_throughput(ThroughputTable(), 950_000) is not model


def test_offerings_are_indexed_again_only_when_they_change() -> None:
    cache, known = PlannerCache(), []
    for cents in (100, 101, 102, 103, 104, 100):
        now = snapshot(usd=cents / 100)
        known.append(cache.offerings(now.catalog, {}))
        assert cache.offerings(now.catalog, {}) is known[-1]
    assert known[0] is not known[-1], "four others were asked for meanwhile"
    gone = replace(known[0].offerings[0], price=Price(7))
    again = cache.offerings((), {gone.id: gone})
    assert again.offerings == (gone,)
    assert not again.listed


def test_task_runs_that_are_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_shapes, "_TASKS_REMEMBERED", 8)
    cache = PlannerCache()
    for first, jobs in enumerate((5, 9, 12, 3, 3, 4, 3, 5, 3, 4, 5, 6)):
        now = snapshot(jobs, first=100 * first)
        problem = Problem(now, Valuation(), cache)
        assert problem.classes == Problem(now, Valuation()).classes
        assert len(cache.shapes._by_run) <= 3 * 12


def test_a_run_whose_task_has_changed_is_looked_at_anew() -> None:
    cache, now = PlannerCache(), snapshot(1)
    (run,) = now.runs
    first = cache.shapes.of_run(run)
    assert cache.shapes.of_run(run) is first
    assert cache.shapes.of_run(replace(run, task=replace(run.task))) is first
    other = task("other", any=(0, 2, 8))
    assert cache.shapes.of_run(replace(run, task=other)).workload == "other"


def test_values_are_made_once_and_bounded_by_purpose() -> None:
    cache, made = PlannerCache(), list[tuple[str, int]]()

    def value(purpose: str, key: int) -> int:
        def make() -> int:
            made.append((purpose, key))
            return key * 2

        return cache.remembered(purpose, key, make, limit=2)

    assert [value("a", key) for key in (1, 1, 2, 1)] == [2, 2, 4, 2]
    assert value("b", 1) == 2
    assert made == [("a", 1), ("a", 2), ("b", 1)]
    assert [value("a", key) for key in (3, 1)] == [6, 2]
    assert made[3:] == [("a", 3), ("a", 1)], "the third made the cache forget the first two"


def test_nothing_is_remembered_by_a_module() -> None:
    """What planners remember is in their cache: no memoised function, no dictionary by identity."""
    root = Path(eva_master.__file__).parent
    found = set[tuple[str, str]]()
    for folder in ("packing", "policies"):
        for path in sorted((root / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.FunctionDef):
                    names = {ast.unparse(one).partition("(")[0] for one in node.decorator_list}
                    if names & {"cache", "lru_cache", "functools.cache", "functools.lru_cache"}:
                        found.add((path.name, node.name))
                if isinstance(node, ast.Subscript | ast.Call) and "id(" in ast.unparse(node):
                    words = [n.func for n in ast.walk(node) if isinstance(n, ast.Call)]
                    if any(isinstance(word, ast.Name) and word.id == "id" for word in words):
                        found.add((path.name, "id"))
    # Compiled loops are programs; what the kernel knows of loads goes with their cache.
    assert found == {
        ("library.py", "library"),
        ("search.py", "compiled"),
    }
