"""What `deploy/` has for Prometheus and Grafana asks for what there is."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from prometheus_client.core import CollectorRegistry
from prometheus_client.metrics_core import Metric

from eva_master.adapters.http.metrics import MasterMetrics
from eva_master.control.state.store import State
from eva_master.ports.reading import ReadModel
from eva_wire.rpc.names import MASTER_NAME
from eva_wire.values.ids import Millis
from eva_wire.values.states import InstanceState
from eva_worker.orders import Phase
from eva_worker.process.metrics import Metrics
from tests.fakes.models import model_of

DEPLOY = Path(__file__).parents[3] / "deploy"
_NAME = re.compile(r"\b(?:eva_[a-z_]+|up)\b")
_MATCHER = re.compile(r'(\w+)="([^"]*)"')
_SUFFIXES = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}
_SUFFIXES["summary"] = ["_sum", "_count"]


class LoopGateway:
    """An empty cluster, for whoever asks."""

    def observe(self, told: Any) -> None: ...

    def planning(self) -> str:
        return ""

    def latest(self, timeout_s: float) -> ReadModel:
        return model_of(State(()))


def families() -> Iterator[Metric]:
    """Of the master and of a worker."""
    master = MasterMetrics(
        gateway=LoopGateway(),  # type: ignore[arg-type]
        inbox=SimpleNamespace(received=0),  # type: ignore[arg-type]
        sessions=SimpleNamespace(heartbeats=0, boots={}),  # type: ignore[arg-type]
        clock=SimpleNamespace(now=lambda: Millis(0)),
    )
    worker = Metrics()
    worker.watch_tasks(lambda phase: len(Phase))
    registries: list[CollectorRegistry] = [master.registry, worker.registry]
    for registry in registries:
        yield from registry.collect()


def exported() -> set[str]:
    """Names of series."""
    names = {"up"}
    for family in families():
        names |= {family.name + suffix for suffix in _SUFFIXES.get(family.type, [""])}
    return names


def rules() -> list[dict[str, Any]]:
    document = yaml.safe_load((DEPLOY / "prometheus-rules.yml").read_text())
    return [rule for group in document["groups"] for rule in group["rules"]]


def expressions() -> list[str]:
    board = json.loads((DEPLOY / "grafana" / "eva.json").read_text())
    panels = [target["expr"] for it in board["panels"] for target in it.get("targets", ())]
    return [*panels, *(rule["expr"] for rule in rules())]


@pytest.mark.parametrize("expression", expressions())
def test_only_what_is_exported_is_asked_for(expression: str) -> None:
    names = set(_NAME.findall(expression))
    assert names
    assert names <= exported()
    for label, value in _MATCHER.findall(expression):
        assert label in ("state", "job"), label
        assert label == "job" or value in set(InstanceState)


def test_alerts_say_what_is_wrong_and_since_when() -> None:
    names = [rule["alert"] for rule in rules()]
    assert len(names) == len(set(names)) >= 6
    for rule in rules():
        assert rule.keys() | {"for"} == {"alert", "expr", "for", "labels", "annotations"}
        assert re.fullmatch(r"[0-9]+[mh]", rule.get("for", "0m"))
        assert rule["labels"]["severity"] in ("page", "warn", "info")
        assert rule["annotations"]["summary"].endswith(".")


def test_prometheus_finds_the_rules_and_the_master() -> None:
    document = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())
    assert all((DEPLOY / name).exists() for name in document["rule_files"])
    (scrape,) = document["scrape_configs"]
    assert scrape["scheme"] == "https"
    assert scrape["tls_config"]["server_name"] == MASTER_NAME
    ((target,),) = [it["targets"] for it in scrape["static_configs"]]
    unit = (DEPLOY / "systemd" / "eva-master.service").read_text()
    assert f"--metrics-port {target.rpartition(':')[2]}" in unit
