"""The settings of owned nodes: what is declared, and what is refused with line and key."""

from __future__ import annotations

from pathlib import Path

import pytest

from eva_master.app.nodes.settings import owned_nodes
from eva_master.app.nodes.simulated import nodes_of
from eva_master.app.policy_registry import policies
from eva_master.app.settings import load_master_config
from eva_master.model.catalog import Purchase
from eva_master.model.fleet.nodes import offerings, taken_for_empty_ms
from eva_wire.jobfile import check_job
from eva_wire.values.errors import InvalidConfig

EXAMPLE = Path(__file__).parents[3] / "examples" / "own_node"
GOOD = "  rack1: {type: rack.large, capacity: {cpus: 4, memory: 8GiB}"


def _load(path: Path) -> object:
    return load_master_config(policies=policies(), file=path)


def test_the_example_declares_a_node() -> None:
    config = load_master_config(policies=policies(), file=EXAMPLE / "master.yaml")
    (node,) = owned_nodes(config.nodes).values()
    assert (node.name, node.offering.price, node.fence_ms) == ("rack1", 0, 60_000)
    assert node.offering.purchase is Purchase.OWNED
    assert [it.limit for it in offerings([node])] == [1]


def test_the_example_is_a_job() -> None:
    check_job((EXAMPLE / "mine.yaml").read_text(), file_name="mine.yaml")


@pytest.mark.parametrize(
    ("text", "key", "line"),
    [
        ("  i00012: {type: a.b, capacity: {cpus: 1, memory: 1GiB}}", "nodes.i00012", 2),
        ("  Rack: {type: a.b, capacity: {cpus: 1, memory: 1GiB}}", "nodes.Rack", 2),
        (f"{GOOD}, usd_per_hour: -1}}", "nodes.rack1.usd_per_hour", 2),
        (f"{GOOD}, usd_per_hour: free}}", "nodes.rack1.usd_per_hour", 2),
        (f"{GOOD}, fence_after: 1s}}", "nodes.rack1.fence_after", 2),
        (f"{GOOD}, fence_after: soon}}", "nodes.rack1.fence_after", 2),
        (f"{GOOD}, price: $1/h}}", "nodes.rack1.price", 2),
        ("  rack1: {capacity: {cpus: 1, memory: 1GiB}}", "nodes.rack1.type", 2),
        ("  rack1: {type: 'a b', capacity: {cpus: 1, memory: 1GiB}}", "nodes.rack1.type", 2),
        ("  rack1: {type: a.b, capacity: {cpus: 0, memory: 1GiB}}", "nodes.rack1.capacity.cpus", 2),
        ("  rack1: {type: a.b, capacity: {memory: 1GiB}}", "nodes.rack1.capacity.cpus", 2),
        ("  - rack1", "nodes", 1),
        (
            f"{GOOD}}}\n  rack2: {{type: rack.large, capacity: {{cpus: 8, memory: 8GiB}}}}",
            "nodes.rack2.capacity",
            3,
        ),
        (
            f"{GOOD}}}\n  rack2: {{type: rack.large, capacity: {{cpus: 4, memory: 8GiB}},"
            " usd_per_hour: 2}",
            "nodes.rack2.usd_per_hour",
            3,
        ),
        (
            "  rack1: {type: c7i.large, capacity: {cpus: 64, memory: 8GiB}}",
            "nodes.rack1.type",
            2,
        ),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, text: str, key: str, line: int) -> None:
    path = tmp_path / "master.yaml"
    path.write_text(f"nodes:\n{text}\n")
    with pytest.raises(InvalidConfig) as refused:
        _load(path)
    found = [(problem.key, problem.line) for problem in refused.value.problems]
    assert any(told.startswith(key) and at == line for told, at in found), found


@pytest.mark.parametrize(
    ("fence", "heartbeat", "told"),
    [
        ("14s", "5s", "less than 3 heartbeats of 5s"),
        ("15s", "5s", ""),
        ("10s", "4s", "less than 3 heartbeats of 4s"),
        ("1d", "5s", ""),
        ("86401s", "5s", "between 10s and 1d"),
    ],
)
def test_a_node_is_fenced_after_three_heartbeats_and_within_a_day(
    tmp_path: Path, fence: str, heartbeat: str, told: str
) -> None:
    path = tmp_path / "master.yaml"
    path.write_text(f"heartbeat: {heartbeat}\nnodes:\n{GOOD}, fence_after: {fence}}}\n")
    if not told:
        _load(path)
        return
    with pytest.raises(InvalidConfig) as refused:
        _load(path)
    (problem,) = refused.value.problems
    assert (problem.key, problem.line) == ("nodes.rack1.fence_after", 3)
    assert told in problem.message
    assert problem.hint


def test_prices_are_exact(tmp_path: Path) -> None:
    path = tmp_path / "nodes.yaml"
    path.write_text(f"nodes:\n{GOOD}, usd_per_hour: 0.1}}\n")
    (node,) = nodes_of((), path, ())
    assert node.offering.price == 100_000


@pytest.mark.parametrize("text", ["rack1", "rack1=", "=c7i.large", "rack1=nothing"])
def test_a_simulated_node_is_of_a_known_type(text: str) -> None:
    with pytest.raises(InvalidConfig, match="NAME=TYPE"):
        nodes_of([text], None, ())


def test_the_margin_is_a_tenth_and_ten_seconds_at_least() -> None:
    assert taken_for_empty_ms(10_000) == 20_000
    assert taken_for_empty_ms(600_000) == 660_000
