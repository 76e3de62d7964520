"""Rules for Prometheus that come with the project: right, and each tried with series."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

DEPLOY = Path(__file__).parents[3] / "deploy"
pytestmark = pytest.mark.skipif(
    shutil.which("promtool") is None and "CI" not in os.environ, reason="needs promtool"
)


def promtool(*arguments: str) -> str:
    result = subprocess.run(
        ["promtool", *arguments], cwd=DEPLOY, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_the_configuration_and_the_rules_are_right() -> None:
    assert "SUCCESS" in promtool("check", "config", "--syntax-only", "prometheus.yml")
    assert "SUCCESS" in promtool("check", "rules", "--lint-fatal", "prometheus-rules.yml")


def test_rules_fire_when_they_should() -> None:
    assert "SUCCESS" in promtool("test", "rules", "prometheus-rules-test.yml")


def test_each_rule_is_tried_in_trouble_and_in_peace() -> None:
    rules = yaml.safe_load((DEPLOY / "prometheus-rules.yml").read_text())
    names = [rule["alert"] for group in rules["groups"] for rule in group["rules"]]
    tried: dict[str, set[bool]] = {}
    for test in yaml.safe_load((DEPLOY / "prometheus-rules-test.yml").read_text())["tests"]:
        for case in test["alert_rule_test"]:
            tried.setdefault(case["alertname"], set()).add(bool(case["exp_alerts"]))
    assert tried == {name: {True, False} for name in names}
