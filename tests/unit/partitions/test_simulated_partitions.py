"""Partitions of a simulation are those that a master makes of the same settings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from eva_lab.partitions import division, read_partitions
from eva_lab.runs import Chosen, named_policy, prepared
from eva_lab.simulator.run import Setup
from eva_master.adapters.catalog import load_catalog
from eva_master.app.master import partitions_of
from eva_master.app.policy_registry import policies
from eva_master.app.settings import load_master_config
from eva_master.model.trace import Trace

SETTINGS = """\
partitions:
  quick:
    policy: {name: eva, short: {name: cloudcoaster, below: 45s, options: {slots: 4}}}
    rule: {duration: {below: 45s}}
    limits: {instances: 3}
  forked: {policy: {name: "hadar_published:hadare"}}
  main: {default: true, policy: {name: stratus}, budget: {usd_per_hour: 2.5}}
"""


def test_a_simulation_knows_of_its_partitions_what_a_master_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVA_STATE_DIR", str(tmp_path))
    file = tmp_path / "master.yaml"
    file.write_text(SETTINGS)
    config = load_master_config(policies=policies(), file=file)
    chosen = Chosen("eva", {})
    setup = prepared(chosen, Setup(Trace("t", ()), load_catalog(), named_policy("eva")[0]))
    divided = division(read_partitions(file, setup))(setup, None)
    # The grid of rounds is that of the simulation, which may be given one of its own.
    assert [replace(it, round_grid_ms=0) for it in divided.partitions.parts] == [
        replace(it, round_grid_ms=0) for it in partitions_of(config).parts
    ]
