"""What lies are made of, and that trials go on where they were stopped."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.misreports import lied, main
from eva_lab.experiments.tenant_worlds import world_setup
from eva_lab.simulator.run import Simulation
from eva_lab.traces.fleets.recipes import WorldRecipe
from eva_wire.values.ids import MILLION
from tests.unit.worlds.small import world, written

JOBS = ({"g": 40.0}, {"tenant": 1}, {"tenant": 1, "k": -9.0})


def test_a_lie_is_one_tenant_s_and_about_value_and_work_alone(tmp_path: Path) -> None:
    path = written(tmp_path, world(*JOBS))
    trace = WorldRecipe.model_validate({"kind": "world", "file": path}).trace(0, ())
    for number in range(20):
        played, told = lied(trace, number)
        for true, said in zip(trace.jobs, played.jobs, strict=True):
            assert true.worth is not None
            assert said.worth is not None
            if true.tenant != told["tenant"]:
                assert said == true
                continue
            assert said.duration_ms == true.duration_ms
            factor = said.worth.amount / true.worth.amount
            assert factor == pytest.approx(told["value"], rel=1e-3)
            assert 0.19 < factor < 20.1
            assert said.told_ppm / MILLION == pytest.approx(told["work"], rel=1e-3)


def test_a_lie_about_work_reaches_the_scheduler_and_not_the_job(tmp_path: Path) -> None:
    """A job that is said to take a quarter as long takes as long as it does."""
    path = written(tmp_path, world({}))
    trace = WorldRecipe.model_validate({"kind": "world", "file": path}).trace(0, ())
    liar = replace(trace, jobs=tuple(replace(job, told_ppm=250_000) for job in trace.jobs))
    ends, stated = [], []
    for played in (trace, liar):
        simulation = Simulation(world_setup(played, "astraea", {}, 3600))
        outcome = simulation.run()
        ends.append(outcome.record.jobs[0].finished_ms)
        (job,) = simulation.cluster.state.jobs.values()
        stated.append(job.spec.duration_ms)
    assert ends[0] == ends[1]
    assert stated[0] is not None
    assert stated[1] == stated[0] // 4


def test_trials_go_on_where_they_were_stopped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, kept = written(tmp_path, world(*JOBS)), tmp_path / "kept.jsonl"
    arguments = [str(path), "--guarantee", "off", "--results", str(kept), "--json"]
    assert main([*arguments, "--count", "1"]) == 0
    first = kept.read_text()
    capsys.readouterr()
    assert main([*arguments, "--count", "2"]) == 0
    assert kept.read_text().startswith(first)
    assert len(kept.read_text().splitlines()) == 2
    found = json.loads(capsys.readouterr().out)
    assert (found["trials"], found["guarantee"]) == (2, False)
