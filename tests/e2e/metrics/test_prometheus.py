"""Prometheus scrapes a master and an agent: each figure that we show and watch has data."""

from __future__ import annotations

import json
import os
import re
import shutil
import ssl
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.cluster import Cluster, until
from tests.e2e.conftest import Keep
from tests.fakes.patience import DEADLINE_S
from tests.fakes.rpc.ports import free_port

DEPLOY = Path(__file__).parents[3] / "deploy"
pytestmark = pytest.mark.skipif(
    shutil.which("prometheus") is None and "CI" not in os.environ, reason="needs Prometheus"
)

BIG = {"e2e.big": {"cpus": 8, "memory": "32GiB", "price": "$0.40/h"}}
SETTINGS = {
    "limits": {"instances": 1},
    "tenants": {"vision": {"owners": ["*"], "budget": {"usd_per_month": 100}}},
    "partitions": {
        "batch": {"default": True, "budget": {"usd_per_month": 50}},
        "other": {},
    },
}

NOT_HERE = {"Boot, mean by stage": "stages of a boot are told by agents on EC2 alone"}
"""Panels without data on this machine, and why."""


class Watched(Cluster):
    """A cluster whose agent serves metrics; there is one instance, since there is one port."""

    def environment(self) -> dict[str, str]:
        return {**super().environment(), "EVA_WORKER_METRICS_PORT": str(self.agent_port)}

    agent_port = 0


class Prometheus:
    """A Prometheus of the test's own."""

    def __init__(self, port: int) -> None:
        self.port = port

    def ask(self, path: str, **query: str) -> Any:
        """The data of an answer; `None` while it does not serve."""
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        try:
            with urllib.request.urlopen(url, timeout=DEADLINE_S) as answer:
                return json.load(answer)["data"]
        except OSError:
            return None

    def values(self, expression: str) -> list[float]:
        """The values of an expression; those that are no numbers are left out."""
        answer = self.ask("query", query=expression) or {"result": []}
        values = [float(series["value"][1]) for series in answer["result"]]
        return [value for value in values if value == value]


@contextmanager
def prometheus(cluster: Watched) -> Iterator[Prometheus]:
    """Run it with our configuration, at other ports, every second."""
    home = cluster.home / "prometheus"
    home.mkdir()
    shutil.copy(DEPLOY / "prometheus-rules.yml", home)
    document = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())
    (scrape,) = document["scrape_configs"]
    trust = {"ca_file": str(cluster.state_dir / "pki" / "ca.pem")}
    scrape["tls_config"].update(trust)
    scrape["scrape_interval"] = "1s"
    scrape["static_configs"] = [{"targets": [f"127.0.0.1:{cluster.metrics_port}"]}]
    agents = {
        **scrape,
        "job_name": "agents",
        "tls_config": trust,
        "static_configs": [{"targets": [f"127.0.0.1:{cluster.agent_port}"]}],
    }
    document["scrape_configs"].append(agents)
    document["global"] = {"evaluation_interval": "1s"}
    file = home / "prometheus.yml"
    file.write_text(yaml.safe_dump(document))
    port = free_port("127.0.0.1")
    command = [
        "prometheus",
        f"--config.file={file}",
        f"--storage.tsdb.path={home / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=home, stdout=log, stderr=log)
    try:
        running = Prometheus(port)
        until(lambda: running.ask("targets"), "Prometheus serves")
        yield running
    finally:
        process.terminate()
        process.wait(DEADLINE_S)


def dashboard() -> dict[str, str]:
    """The expressions of the dashboard, with the titles of their panels."""
    panels = json.loads((DEPLOY / "grafana" / "eva.json").read_text())["panels"]
    return {target["expr"]: panel["title"] for panel in panels for target in panel["targets"]}


def test_prometheus_has_all_that_dashboard_and_rules_ask_for(
    make_home: Callable[[], Path], keep: Keep
) -> None:
    gone = free_port("127.0.0.1")
    settings = {**SETTINGS, "notify": [{"url": f"http://127.0.0.1:{gone}/x", "on": ["end"]}]}
    cluster = Watched(make_home(), settings=settings, catalog={"types": BIG, "only": ["e2e"]})
    cluster.agent_port = free_port("127.0.0.1")
    keep(cluster)
    job = cluster.submit("due", deadline={"within": "1s"}, max_cost="$1000", notify=["end"])
    cluster.until_running(job)
    waiting = cluster.submit("waiting", resources={"cpus": 8, "memory": "20GiB"})
    with prometheus(cluster) as running:
        for expression in ('up{job="eva"}', 'up{job="agents"}'):
            until(lambda asked=expression: running.values(asked) == [1.0], expression)  # type: ignore[misc]
        # A rate of rounds needs one between two scrapes, and none is due for minutes by itself.
        short = cluster.submit("short")
        cluster.until_running(short)
        cluster.finish(short)
        cluster.until_ended(short)
        for expression, title in dashboard().items():
            if title in NOT_HERE:
                continue
            until(lambda asked=expression: running.values(asked), f"{title}: {expression}")  # type: ignore[misc]
        assert running.values("eva_late_jobs") == [1.0]
        until(lambda: running.values("eva_notices_waiting") == [1.0], "a notice waits")
        until(lambda: running.values("eva_notices_failing") == [1.0], "a receiver fails")
        assert sorted(running.values("eva_budget_usd")) == [50.0, 100.0]
        until(lambda: running.values("sum(eva_worker_tasks)") == [1.0], "one task is left")
        assert running.values("eva_worker_session_up") == [1.0]
        check_rules(running)
        names = running.ask("label/__name__/values")
    assert {"eva_tenant_jobs", "eva_partition_cost_usd_total", "eva_worker_tasks"} <= set(names)
    check_text(cluster)
    cluster.client.cancel(waiting)
    cluster.finish(job)
    cluster.until_ended(job)


def check_rules(running: Prometheus) -> None:
    """All rules are evaluated, each metric that they ask for is there, and one fires."""

    def evaluated() -> list[dict[str, Any]]:
        (group,) = (running.ask("rules") or {"groups": [{"rules": []}]})["groups"]
        rules: list[dict[str, Any]] = group["rules"]
        return rules if all(rule["health"] == "ok" for rule in rules) else []

    rules = until(evaluated, "all rules are evaluated")
    for rule in rules:
        for metric in set(re.findall(r"\b(?:eva_\w+|up)\b", rule["query"])):
            assert running.values(f"count({metric})"), f"{rule['name']}: there is no {metric}"

    def firing() -> list[str]:
        return [rule["name"] for rule in evaluated() if rule.get("state") == "firing"]

    until(lambda: "EvaJobsLate" in firing(), "the alarm of late jobs fires")


def check_text(cluster: Cluster) -> None:
    """The text of a scrape is as Prometheus wants it."""
    trust = ssl.create_default_context(cadata=cluster.authorities().decode())
    url = f"https://127.0.0.1:{cluster.metrics_port}/metrics"
    with urllib.request.urlopen(url, timeout=DEADLINE_S, context=trust) as answer:
        text = answer.read()
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=text, capture_output=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
