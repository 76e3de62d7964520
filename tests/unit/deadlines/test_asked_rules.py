"""Policies say how jobs with deadlines choose: masters and comparisons follow, unless told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from eva_client.cli import main
from eva_master.app.master import control_settings
from eva_master.app.policy_registry import policies
from eva_master.app.sections.policies import shown_settings
from eva_master.app.settings import load_master_config
from tests.fakes.traces import job, task, write_jobs

DIVIDED = """
policy: {name: fifo}
partitions:
  usual: {default: true, policy: {name: "eva:on_demand"}}
  other: {policy: {name: "eva:uniform_progress"}}
"""
MARKET = """type,zone,from_s,to_s,capacity,price
*,us-west-2a,0,36000,50,30%
"""


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", "learned"),
        ("policy: {name: fifo}\n", "learned"),
        ("policy: {name: 'eva:spot_until_safety_net'}\n", "until_safety_net"),
        ("policy: {name: 'eva:uniform_progress'}\n", "uniform_progress"),
        ("policy: {name: eva, options: {spot_choice: on_demand}}\n", "on_demand"),
        ("policy: {name: 'eva:on_demand'}\nspot_choice: learned\n", "learned"),
        (DIVIDED, "on_demand"),
    ],
)
def test_a_master_has_them_choose_as_its_usual_policy_asks(
    tmp_path: Path, text: str, rule: str
) -> None:
    file = tmp_path / "master.yaml"
    file.write_text(f"state_dir: {tmp_path}\n{text}")
    config = load_master_config(policies=policies(), file=file)
    assert control_settings(config).spot_choice == rule
    assert shown_settings(config)["spot_choice"] == rule


def test_a_simulation_compares_presets(tmp_path: Path) -> None:
    many = {"0": task(demand={"any": [0, 2, 4]})}
    late = {**job(duration=7_200, tasks=many), "deadline": 4 * 7_200, "spot": "allowed"}
    write_jobs(tmp_path / "jobs.json", _0=late)
    (tmp_path / "market.csv").write_text(MARKET)
    arguments = ["simulate", str(tmp_path / "jobs.json"), "--market", str(tmp_path / "market.csv")]
    for name in ("eva", "eva:on_demand"):
        arguments += ["--policy", name]
    done = CliRunner().invoke(main, [*arguments, "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    on_spot, dear = _costs(done.stdout)
    assert on_spot == pytest.approx(0.3 * dear, rel=0.02)
    told = CliRunner().invoke(main, [*arguments, "--spot-choice", "on_demand", "--json"])
    assert _costs(told.stdout) == [dear, dear]


def _costs(text: str) -> list[float]:
    return [it["cost_usd"] for it in json.loads(text)]
