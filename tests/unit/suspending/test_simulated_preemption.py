"""Priorities of traces, and what a simulated cluster makes of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from eva_client.cli import main
from eva_lab.traces import read_trace, write_trace
from eva_wire.values.errors import InvalidTrace

CATALOG = "types: {box.one: {cpus: 4, memory: 16GiB, price: $0.40/h, limit: 1}}\n"


def _row(name: str, at_s: int, minutes: int, **more: object) -> dict[str, object]:
    task = {"demand": {"any": [0, 4, 8]}, "image_id": "i"}
    timing = {"arrival_time": at_s, "duration": minutes * 60}
    return {"name": name, **timing, "tasks": {"0": task}, **more}


def _trace(folder: Path, *rows: dict[str, object]) -> Path:
    file = folder / "trace.json"
    file.write_text(json.dumps({str(number): row for number, row in enumerate(rows)}))
    return file


def test_priorities_survive_a_file(tmp_path: Path) -> None:
    trace = read_trace(_trace(tmp_path, _row("a", 0, 1), _row("b", 0, 1, priority=7)))
    assert [job.priority for job in trace.jobs] == [0, 7]
    other = tmp_path / "other.json"
    write_trace(trace, other)
    assert read_trace(other).jobs == trace.jobs


@pytest.mark.parametrize("priority", [-1, 1_000_001, 0.5, "high"])
def test_a_priority_is_a_whole_number(tmp_path: Path, priority: object) -> None:
    with pytest.raises(InvalidTrace):
        read_trace(_trace(tmp_path, _row("a", 0, 1, priority=priority)))


def test_the_urgent_are_done_sooner_where_they_may_suspend_others(tmp_path: Path) -> None:
    catalog = tmp_path / "catalog.yaml"
    catalog.write_text(CATALOG)
    trace = _trace(tmp_path, _row("a", 0, 600), _row("b", 600, 10, priority=1))

    def jct_h(preemption: str) -> float:
        options = ("--catalog", str(catalog), "--only", "box", "--no-reference", "--json")
        more = ("--preemption", preemption, "--round-gap", "0s")
        result = CliRunner().invoke(main, ["simulate", str(trace), *options, *more])
        assert result.exit_code == 0, result.output
        (row,) = json.loads(result.stdout)
        return float(row["jct_mean_h"])

    # One waits for ten hours, or the other for ten minutes.
    assert jct_h("never") > 10
    assert jct_h("suspend") < 6
