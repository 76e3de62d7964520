"""Generated DAGs that recur: their form, how their stages hang together, and their files."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from eva_client.cli import main
from eva_lab.simulator.results.dags import DagAccuracy, accuracy_of_dags, completion_ms, stages_of
from eva_lab.simulator.results.metrics import JobFigures
from eva_lab.traces import read_trace, write_trace
from eva_lab.traces.recipes import DagsRecipe
from eva_master.adapters.catalog import load_catalog
from eva_master.model.trace import SLOT, Trace, TraceJob, TraceTask
from eva_wire.values.bounds import JobKind
from eva_wire.values.errors import InvalidTrace
from eva_wire.values.ids import Workload

CATALOG = load_catalog()


def made(seed: int = 1, **fields: Any) -> Trace:
    return DagsRecipe(kind="dags", **{"dags": 60, "past": 300, **fields}).trace(seed, CATALOG)


def by_dag(trace: Trace) -> dict[str, list[TraceJob]]:
    found = defaultdict(list)
    for one in trace.jobs:
        found[one.id.rpartition("-")[2]].append(one)
    return found


def test_a_dag_is_two_to_five_arrays_of_one_owner_each_after_the_one_before() -> None:
    trace = made()
    dags = by_dag(trace)
    assert len(dags) == 60
    assert {len(stages) for stages in dags.values()} == {2, 3, 4, 5}
    for stages in dags.values():
        assert len({(it.dag, it.owner, it.arrival_ms) for it in stages}) == 1
        assert [it.after for it in stages] == [(), *((it.id,) for it in stages[:-1])]
        assert all(it.is_array and 1 <= len(it.tasks) <= 150 for it in stages)
    assert len({it.dag_number for it in trace.past}) == 300
    assert {it.dag for it in trace.jobs} <= {it.dag for it in made(past=5_000).past}
    assert made() == made()
    assert made(seed=2) != made()


def test_as_much_work_arrives_as_is_asked_for() -> None:
    trace = made(dags=200, load=0.8, slots=100)
    work = sum(task.duration_ms or 0 for one in trace.jobs for task in one.tasks)
    assert work / trace.jobs[-1].arrival_ms == pytest.approx(80, rel=0.01)


@pytest.mark.parametrize(("asked", "least", "most"), [(0.0, -0.1, 0.1), (0.8, 0.65, 0.9)])
def test_stages_hang_together_as_much_as_is_asked_for(
    asked: float, least: float, most: float
) -> None:
    """Correlation of what the logarithms of the first two stages are off from their usual ones."""
    logs = defaultdict(list)
    for one in made(correlation=asked, past=4_000, dags=1).past:
        logs[one.dag, one.dag_number].append(float(np.log(one.mean_ms)))
    by_label = defaultdict(list)
    for (label, _), values in logs.items():
        by_label[label].append(values[:2])
    off = np.concatenate([np.array(it) - np.mean(it, axis=0) for it in by_label.values()])
    assert least < np.corrcoef(off.T)[0, 1] < most


def test_a_file_has_labels_predecessors_and_past_dags(tmp_path: Path) -> None:
    trace, path = made(dags=5, past=7), tmp_path / "made.json"
    write_trace(trace, path)
    again = read_trace(path)
    assert again.past == trace.past
    assert [(it.id, it.dag, it.after) for it in again.jobs] == [
        (it.id, it.dag, it.after) for it in trace.jobs
    ]
    command = ["trace", "generate", "dags", "--dags", "5", "--past", "7", "--seed", "1"]
    told = CliRunner().invoke(main, [*command, "-o", str(tmp_path / "cli.json")])
    assert told.exit_code == 0, told.output
    assert (tmp_path / "cli.json").read_text() == path.read_text()


@pytest.mark.parametrize(
    ("after", "said"), [(["nobody"], "no job 'nobody'"), (["late"], "arrives before it")]
)
def test_who_waits_for_what_cannot_be_waited_for_is_refused(
    tmp_path: Path, after: list[str], said: str
) -> None:
    row = {"arrival_time": 0, "duration": 1, "tasks": {"0": {"demand": {"any": [0, 1, 1]}}}}
    rows = {
        "early": {"name": "a", **row, "after": after},
        "late": {"name": "a", **row, "arrival_time": 5},
    }
    path = tmp_path / "t.json"
    path.write_text(json.dumps(rows))
    with pytest.raises(InvalidTrace, match=said):
        read_trace(path)


def test_what_dags_took_and_how_far_off_their_estimates_were() -> None:
    plain = TraceJob("d", Workload("w"), 0, 1_000, (TraceTask(SLOT),) * 2, kind=JobKind.ARRAY)
    first, lone = (replace(plain, id=name, dag="x") for name in "ac")
    second = replace(first, id="b", after=("a",))
    jobs = [first, second, lone, plain]
    assert stages_of(jobs) == {"a": [first, second]}
    record = [
        JobFigures(name, "w", 1, submitted, finished, 0, 0, 0.0, 0)
        for name, submitted, finished in (("a", 10, 500), ("b", 11, 900), ("c", 0, 5_000))
    ]
    assert completion_ms(record, [first, second, lone]) == [890]
    whole_ms = 4 * 1_000
    assert accuracy_of_dags({"a": 3 * whole_ms}, jobs) == DagAccuracy(1, 1, 2.0, 2.0)
    assert accuracy_of_dags({}, jobs) == DagAccuracy(1, 0, 0.0, 0.0)
