"""The report of an experiment on a fleet."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from eva_client.cli import main
from eva_lab.experiments.fleet import ServersSection, fleet_curves, fleet_figures
from eva_lab.simulator.cluster.attempt_log import Occupancy
from eva_lab.simulator.results.metrics import JobFigures, RunRecord, SimulationOutcome
from eva_master.model.resources import Resources
from eva_master.model.trace import Trace, TraceJob, TraceTask
from eva_wire.values.ids import InstanceId, JobId, Workload, run_id

HOUR_MS = 3_600_000
FLEET = {"k80": ServersSection(servers=1, gpus=2), "v100": ServersSection(servers=1, gpus=4)}


def outcome(jobs: tuple[JobFigures, ...], *occupancies: Occupancy) -> SimulationOutcome:
    """Of figures that nobody here reads, and this record."""
    made = object.__new__(SimulationOutcome)
    object.__setattr__(made, "record", RunRecord(jobs=jobs, occupancies=occupancies))
    return made


def ended(name: str, hours: int, moves: int = 0) -> JobFigures:
    end = HOUR_MS * (1 + hours)
    return JobFigures(name, "w", 1, HOUR_MS, end, 0, 0, 0.0, moves, id=f"{name}-1")


def held(name: str, attempt: int, place: str, start_h: float, end_h: float) -> Occupancy:
    """An attempt on an instance, in hours from the first arrival."""
    times = (round(HOUR_MS * (1 + hours)) for hours in (start_h, end_h))
    run = run_id(JobId(f"{name}-1"), 0)
    return Occupancy(run, attempt, InstanceId(f"{place}-00000"), *times, 0, 0)


def job(name: str, gpus: int) -> TraceJob:
    return TraceJob(
        name, Workload("w"), HOUR_MS, HOUR_MS, (TraceTask(Resources(gpus, 1000, 1024)),)
    )


def test_rounds_change_where_a_task_starts_or_gives_way() -> None:
    jobs = (ended("a", 10, 1), ended("b", 2), ended("c", 3))
    # Job a is stopped in the fourth of ten hours, and goes on elsewhere in the sixth.
    run = outcome(
        jobs,
        held("a", 1, "v100", 0, 3.5),
        held("a", 2, "k80", 5.25, 10),
        held("b", 1, "k80", 0.5, 2),
        held("c", 1, "v100", 0, 3),
    )
    trace = Trace("t", (job("a", 1), job("b", 2), job("c", 2)))
    figures = fleet_figures(run, trace, FLEET, HOUR_MS)
    assert figures["changed_rounds"] == pytest.approx(3 / 10)
    assert (figures["mean_h"], figures["median_h"]) == (5, 3)
    assert figures["moves_per_job"] == pytest.approx(1 / 3)
    assert "changed_rounds" not in fleet_figures(run, trace, FLEET)


def test_gpus_in_use_are_those_of_the_tasks_on_each_type() -> None:
    jobs = (ended("a", 10), ended("b", 5))
    run = outcome(jobs, held("a", 1, "v100", 0, 10), held("b", 1, "k80", 2.5, 5))
    gpus = fleet_curves(run, Trace("t", (job("a", 3), job("b", 2))), FLEET)["gpus"]
    assert gpus["there"] == {"k80": 2, "v100": 4}
    assert set(gpus["types"]["v100"]) == {3}
    # A span is 10 h / 400.
    assert gpus["types"]["k80"] == [0] * 100 + [2] * 100 + [0] * 200
    assert (gpus["hours"][0], gpus["hours"][-1]) == (0.0125, 9.9875)


# Both jobs take 3,600 s on the V100s, twice as long on the K80s, and 36 s to start.
JOBS = "job,workload,gpus,iterations,v100,k80\n0,a,2,7200,1,0.5\n1,b,2,7200,1,0.5\n"
EXPERIMENT = """
name: tiny
traces: {t: {kind: gpus, file: t.csv, move: 36s}}
policies: [fifo]
baseline: fifo
fleet: {v100: {servers: 1, gpus: 2}, k80: {servers: 1, gpus: 2}}
round_gap: 360s
interference: {pairwise: 1}
"""


def test_the_page_shows_how_a_fleet_was_used(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(JOBS)
    (tmp_path / "e.yaml").write_text(EXPERIMENT)
    arguments = ["experiment", str(tmp_path / "e.yaml"), "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(main, [*arguments, "-j", "1", "--backend", "sequential"])
    assert result.exit_code == 0, result.output
    head, line = (it.split() for it in result.stdout.splitlines()[:2])
    after = head.index("TOTAL")
    assert head[after : after + 5] == ["TOTAL", "OVER", "LEAST", "MOVED", "CHANGED"]
    # All starts are in the first of 21 rounds.
    total, _, *changes = line[line.index("2.01h") :]
    assert (total, changes[:2]) == ("2.01h", ["0.00", "4.8%"])
    page = (tmp_path / "out" / "report.html").read_text()
    sections = re.findall(r'<section id="([^"]+)">', page)
    wanted = ["total", "mean-jct", "median-jct", "changed", "gpus", "completion"]
    assert sections == wanted
    assert page.count("<svg ") == len(wanted)
    assert {it.stem for it in (tmp_path / "out" / "figures").glob("*.png")} == set(wanted)
    # The V100s were in use for half of the time. Letters are drawn; their text is beside them.
    assert "<!-- fifo: k80 100 %, v100 50 % -->" in page
    assert "<!-- fifo (mean 1.51 h, median 1.51 h) -->" in page
    assert '<th class="more">over least</th>' in page
    assert "rounds that change, %" in page
    (row,) = json.loads((tmp_path / "out" / "summary.json").read_text())["rows"]
    assert row["figures"]["changed_rounds"]["mean"] == pytest.approx(1 / 21)
    assert row["figures"]["median_h"]["mean"] == pytest.approx(1.51)
