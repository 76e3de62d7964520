"""The template of a policy outside the package: installed, found, tested, simulated."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.fakes import plugins
from tests.fakes.patience import DEADLINE_S
from tests.fakes.traces import job, task, write_jobs

UNSHRUNK = """
from hypothesis import Phase, settings
settings.register_profile("unshrunk", phases=[Phase.explicit, Phase.generate])
settings.load_profile("unshrunk")
"""
"""A plug-in of pytest: what fails is not made smaller, which takes far longer than to find it."""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of the import path that the template is installed in, and nothing else is."""
    target = tmp_path_factory.mktemp("site")
    plugins.install(target)
    return target


def python(folder: Path, *arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": plugins.path_with(folder)},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )


def eva(folder: Path, *arguments: str | Path, cwd: Path) -> str:
    done = python(folder, "eva_client.cli", *arguments, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout


def suite(folder: Path, *more: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    quiet = ("-q", "-p", "no:cacheprovider", "-p", "no:xdist")
    return python(folder, "eva_master.testing", "--policy", "first_fit", *quiet, *more, cwd=cwd)


def test_it_is_found(installed: Path, tmp_path: Path) -> None:
    listed = {
        one["name"]: one for one in json.loads(eva(installed, "policies", "--json", cwd=tmp_path))
    }
    assert listed["first_fit"] == {
        "name": "first_fit",
        "presets": ["pairs"],
        "distribution": "eva-first-fit 0.1.0",
        "fault": "",
    }
    settings = tmp_path / "master.yaml"
    settings.write_text("policy: {name: first_fit, preset: pairs, options: {most_tasks: 3}}\n")
    checked = json.loads(eva(installed, "config", "--check", settings, "--json", cwd=tmp_path))
    assert checked["settings"]["policy"]["name"] == "first_fit"


@pytest.mark.explore
def test_it_passes_the_whole_suite(installed: Path, tmp_path: Path) -> None:
    done = suite(installed, cwd=tmp_path)
    assert done.returncode == 0, done.stdout


@pytest.mark.long
def test_it_passes_its_own_tests(installed: Path, tmp_path: Path) -> None:
    own = shutil.copytree(plugins.TEMPLATE / "tests", tmp_path / "tests")
    done = python(installed, "pytest", "-q", own, cwd=tmp_path)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("of", "instead", "broken"),
    [
        # It no longer asks whether there is room.
        (
            "np.flatnonzero(instances.fitting(instances.priced(run))).tolist()",
            "range(len(instances.offerings))",
            "test_plans_are_lawful_over_a_cluster_s_life",
        ),
        # Its second plan is another one than its first.
        pytest.param(
            "groups = waiting(snapshot)",
            "groups = waiting(snapshot)[:: -1 if hasattr(self, '_seen') else 1]\n"
            "        self._seen = True",
            "test_the_same_cluster_gets_the_same_plan_in_whatever_order_it_was_built",
            marks=pytest.mark.explore,
        ),
    ],
)
def test_the_suite_finds_what_is_wrong_with_it(
    installed: Path, tmp_path: Path, of: str, instead: str, broken: str
) -> None:
    site = shutil.copytree(installed, tmp_path / "site")
    policy = site / "eva_first_fit" / "policy.py"
    assert of in policy.read_text()
    policy.write_text(policy.read_text().replace(of, instead))
    (site / "unshrunk.py").write_text(UNSHRUNK)
    done = suite(site, "-p", "unshrunk", "-k", broken, cwd=tmp_path)
    assert done.returncode == 1
    assert f"::{broken}[first_fit]" in done.stdout


def test_it_is_simulated(installed: Path, tmp_path: Path) -> None:
    small = task(demand={"any": [0, 0.5, 1]}, fetch_delay=2, upload_delay=1)
    rows = {f"_{n}": job(arrival_time=n, duration=3_600, tasks={"0": small}) for n in range(6)}
    trace = write_jobs(tmp_path / "trace.json", **rows)
    asked = ("-p", "first_fit", "-p", "first_fit:pairs", "-p", "no_packing", "--json")
    told = eva(installed, "simulate", trace, *asked, "--no-reference", cwd=tmp_path)
    most = {row["policy"]: row for row in json.loads(told)}
    assert {row["jobs_finished"] for row in most.values()} == {6}
    # An instance for up to four, for up to two, for each.
    launched = [row["instances_launched"] for row in most.values()]
    assert launched == sorted(set(launched))


@pytest.mark.explore
def test_it_takes_part_in_experiments_and_is_run_anew_when_it_changes(
    installed: Path, tmp_path: Path
) -> None:
    site = shutil.copytree(installed, tmp_path / "site")
    plan = tmp_path / "plan.yaml"
    trace = {"kind": "production", "jobs": 5}
    policies = ["no_packing", "first_fit:pairs"]
    whole = {"name": "two", "traces": {"t": trace}, "policies": policies, "seeds": [1, 2]}
    plan.write_text(yaml.safe_dump({**whole, "reference": False}))

    def runs() -> set[str]:
        out = tmp_path / "out"
        eva(site, "experiment", plan, "--out", out, "-j", "2", cwd=tmp_path)
        return {file.name for file in (out / "runs").glob("*.json")}

    first = runs()
    assert len(first) == 4
    assert runs() == first
    policy = site / "eva_first_fit" / "policy.py"
    policy.write_text(policy.read_text() + "# Another version.\n")
    assert len(runs() - first) == 2
