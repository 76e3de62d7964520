"""Hooks and CI run the tools and the script of this repository."""

from __future__ import annotations

from pathlib import Path

import yaml

ROOT = Path(__file__).parents[3]


def test_hooks_need_no_network() -> None:
    """Each is local and a tool of `.venv`, which has the locked versions."""
    repositories = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert [repository["repo"] for repository in repositories] == ["local"]
    hooks = repositories[0]["hooks"]
    assert {hook["id"] for hook in hooks} >= {"ruff", "ruff-format", "mypy"}
    for hook in hooks:
        assert hook["language"] == "system"
        assert hook["entry"].startswith(".venv/bin/")


def test_ci_runs_the_script() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    assert ".ci/run" in [step.get("run") for step in steps]
