"""What plans is loaded by who plans: a master that checks its settings starts sooner without."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.fakes.traces import job, write_jobs

PROGRAM = """
import sys
from eva_master.app.policy_registry import policies
kind = policies()["eva"]
config = kind.config(horizon_s=60)
heavy = {"highspy", "eva_master.packing"}
assert not heavy & sys.modules.keys(), heavy & sys.modules.keys()
kind.build(config)
assert heavy < sys.modules.keys()
assert "scipy" not in sys.modules, "few rounds need it"
"""


def test_options_are_known_without_what_plans() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


SIMULATION = """
import sys
from click.testing import CliRunner
from eva_lab.cli.simulate import simulate
options = ["--policy", "no_packing", "--json", "--no-reference"]
done = CliRunner().invoke(simulate, [*sys.argv[1:], *options])
assert done.exit_code == 0, done.output
heavy = {"scipy", "highspy", "sqlalchemy", "boto3", "matplotlib", "pyarrow"}
heavy |= {"pydantic_settings", "asyncio", "eva_master.app.config", "eva_master.control.readside"}
assert not heavy & sys.modules.keys(), heavy & sys.modules.keys()
"""


def test_a_simulation_loads_what_its_policy_needs(tmp_path: Path) -> None:
    write_jobs(tmp_path / "t.json", _0=job())
    done = subprocess.run(
        [sys.executable, "-c", SIMULATION, str(tmp_path / "t.json")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
