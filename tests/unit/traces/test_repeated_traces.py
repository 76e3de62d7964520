"""Generated jobs of a GPU cluster that are run again and again."""

from __future__ import annotations

from collections import defaultdict
from math import log
from pathlib import Path
from statistics import pstdev
from typing import Any

from eva_lab.simulator.scenario.earlier import taught
from eva_lab.traces import read_trace, write_trace
from eva_lab.traces.recipes import RepeatedRecipe
from eva_master.adapters.catalog import load_catalog
from eva_master.learning.knowledge import Knowledge
from eva_master.learning.runtimes import Traits
from eva_master.model.planning.estimate import Estimates
from eva_master.model.trace import Trace
from eva_wire.values.ids import Millis

CATALOG = load_catalog()


def made(seed: int = 1, **fields: Any) -> Trace:
    return RepeatedRecipe(kind="repeated", **fields).trace(seed, CATALOG)


def group(name: str) -> str:
    return name.rpartition("-")[0]


def test_the_same_seed_makes_the_same_trace_and_another_one_another() -> None:
    assert made(1) == made(1)
    assert made(1) != made(2)


def test_runs_of_a_group_have_all_in_common_but_their_time() -> None:
    trace = made(spread=0.2, jobs=300)
    common: dict[str, set[object]] = defaultdict(set)
    times: dict[str, list[float]] = defaultdict(list)
    for past in trace.past:
        common[group(past.name)].add((past.owner, past.workload, past.demand))
        times[group(past.name)].append(log(past.mean_ms))
    for job in trace.jobs:
        (demand,) = {task.demand for task in job.tasks}
        common[group(job.id)].add((job.owner, job.workload, demand))
        times[group(job.id)].append(log(job.duration_ms))
    assert 30 <= len(common) <= 40
    assert {len(it) for it in common.values()} == {1}
    assert len({owner for ((owner, *_),) in common.values()}) > 5
    within = [pstdev(it) for it in times.values() if len(it) > 20]
    assert len(within) > 5
    assert all(0.1 < it < 0.3 for it in within)
    assert pstdev([it[0] for it in times.values()]) > 1


def test_past_runs_are_as_many_as_asked_for_and_none_is_run() -> None:
    trace = made(jobs=20, past=7)
    assert (len(trace.jobs), len(trace.past)) == (20, 7)
    assert not {it.name for it in trace.past} & {it.id for it in trace.jobs}
    assert made(past=0).past == ()


def test_a_file_has_all_of_it(tmp_path: Path) -> None:
    trace = made(jobs=20, past=7)
    write_trace(trace, tmp_path / "t.json")
    found = read_trace(tmp_path / "t.json")
    assert (found.jobs, found.past) == (trace.jobs, trace.past)


def test_earlier_runs_tell_how_long_the_next_one_takes() -> None:
    trace = made(spread=0.2)
    known = taught(Knowledge(), trace.past, Millis(0), Estimates.POSTERIOR).run_times
    near = 0
    for job in trace.jobs:
        demand = job.tasks[0].demand
        assert demand is not None
        prior = known.of(job.owner).prior(Traits(job.workload, job.id, None, demand))
        near += prior is not None and abs(prior.log / 1e6 - log(job.duration_ms)) < 0.5
    assert near > 0.75 * len(trace.jobs)
