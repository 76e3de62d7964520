"""Policies say what run times are to be estimated from: masters follow, unless settings say it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from eva_client.cli import main
from eva_lab.experiments.schema import load_experiment
from eva_master.app.config import MasterConfig
from eva_master.app.master import control_settings
from eva_master.app.policy_registry import policies
from eva_master.app.sections.policies import estimate_doubts, estimates_in
from eva_master.app.settings import load_master_config
from eva_wire.values.errors import InvalidConfig, Problem
from tests.fakes.traces import job, task, write_jobs

BOTH = "partitions: {fast: {policy: {name: slearn:point}}, rest: {default: true}}\n"
FAST = "partitions: {fast: {default: true, policy: {name: slearn:point}}, rest: {}}\n"


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("EVA_")]:
        monkeypatch.delenv(name)


def load(tmp_path: Path, text: str) -> MasterConfig:
    file = tmp_path / "master.yaml"
    file.write_text(f"state_dir: {tmp_path}\n{text}")
    return load_master_config(policies=policies(), file=file)


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        ("", "posterior"),
        ("policy: {name: eva}\n", "posterior"),
        ("policy: {name: slearn}\n", "posterior"),
        ("policy: {name: 'slearn:published'}\n", "pilots"),
        ("policy: {name: slearn, options: {estimator: 3sigma}}\n", "3sigma"),
        ("policy: {name: 'slearn:published'}\nestimates: history\n", "history"),
        (BOTH, "posterior"),
        (FAST, "point"),
        (f"policy: {{name: 'slearn:published'}}\n{BOTH}", "pilots"),
    ],
)
def test_a_master_estimates_as_its_usual_policy_asks(tmp_path: Path, text: str, mode: str) -> None:
    config = load(tmp_path, text)
    assert estimates_in(config) == mode
    assert control_settings(config).estimates == mode


@pytest.mark.parametrize(
    ("text", "differing"),
    [
        ("policy: {name: eva}\nestimates: history\n", []),
        ("policy: {name: 'slearn:published'}\n", []),
        ("policy: {name: 'slearn:published'}\nestimates: posterior\n", [""]),
        (BOTH, ["fast"]),
    ],
)
def test_it_is_told_of_policies_that_ask_for_others(
    tmp_path: Path, text: str, differing: list[str]
) -> None:
    config = load(tmp_path, text)
    found = {
        name: list(estimate_doubts(section, estimates_in(config)))
        for name, section in config.policy_sections.items()
    }
    assert [name for name, told in found.items() if told] == differing
    for name in differing:
        (told,) = found[name]
        assert "slearn asks for estimates: p" in told
        assert "run times are estimated from posterior" in told


def refused(tmp_path: Path, text: str) -> Problem:
    with pytest.raises(InvalidConfig) as failure:
        load(tmp_path, text)
    assert str(tmp_path / "master.yaml") in failure.value.message
    (problem,) = failure.value.problems
    return problem


@pytest.mark.parametrize(
    ("text", "key", "line"),
    [
        ("policy:\n  name: slearn\n  preset: oracle\n", "policy.preset", 4),
        ("policy:\n  name: slearn:oracle\n", "policy.name", 3),
        ("policy: {name: slearn,\n options: {estimator: oracle}}\n", "policy.options.estimator", 3),
        (
            "policy:\n  short: {name: 'slearn:oracle', below: 90s}\n",
            "policy.short.name",
            3,
        ),
        (
            "partitions:\n  fast: {policy: {name: 'slearn:oracle'}}\n  rest: {default: true}\n",
            "partitions.fast.policy.name",
            3,
        ),
    ],
)
def test_a_live_master_has_no_oracle(tmp_path: Path, text: str, key: str, line: int) -> None:
    problem = refused(tmp_path, text)
    assert (str(problem.key), problem.line) == (key, line)
    assert "'slearn': oracle knows how long every task takes" in problem.message
    assert "estimator: posterior" in problem.hint


def test_simulations_have_one_only_if_durations_are_stated(tmp_path: Path) -> None:
    demand = {"any": [0, 2, 4]}
    trace = write_jobs(tmp_path / "t.json", _0=job(tasks={"0": task(demand=demand)}))
    options = ["simulate", str(trace), "-p", "slearn:oracle", "--no-reference", "--json"]
    hidden = CliRunner().invoke(main, [*options, "--hide-durations"])
    assert hidden.exit_code != 0
    assert "oracle knows how long every task takes" in hidden.output
    assert CliRunner().invoke(main, options).exit_code == 0


def test_so_do_experiments(tmp_path: Path) -> None:
    text = """
name: tiny
traces: {t: {kind: recurrent, jobs: 3}}
policies: [slearn, {name: "slearn:oracle", stated_durations: STATED}]
baseline: slearn
cluster: {servers: 8}
stated_durations: false
"""
    (tmp_path / "e.yaml").write_text(text.replace("STATED", "true"))
    load_experiment(tmp_path / "e.yaml")
    (tmp_path / "e.yaml").write_text(text.replace("STATED", "false"))
    with pytest.raises(InvalidConfig) as failure:
        load_experiment(tmp_path / "e.yaml")
    (problem,) = failure.value.problems
    assert str(problem.key) == "policies[1]"
    assert "oracle knows how long every task takes" in problem.message
