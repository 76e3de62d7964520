"""Where `astraea` is the default: all nodes are owned, and tenants have quotas."""

from __future__ import annotations

from pathlib import Path

import pytest

from eva_master.app.policy_registry import policies
from eva_master.app.settings import load_master_config

NODES = "nodes: {one: {type: v100.x, capacity: {gpus: 2, gpu: V100, cpus: 2, memory: 1GiB}}}\n"
TENANTS = "tenants: {vision: {owners: [ana], quota: {v100: 1}}}\n"
NO_QUOTAS = "tenants: {vision: {owners: [ana]}}\n"
ALONE = "catalog: {only: []}\n"


@pytest.mark.parametrize(
    ("settings", "policy"),
    [
        (ALONE + NODES + TENANTS, "astraea"),
        (ALONE + NODES + NO_QUOTAS, "eva"),
        (ALONE + NODES, "eva"),
        (NODES + TENANTS, "eva"),
        (ALONE + NODES + TENANTS + "policy: {name: hived}\n", "hived"),
    ],
)
def test_the_default_policy_of_tenants(tmp_path: Path, settings: str, policy: str) -> None:
    file = tmp_path / "master.yaml"
    file.write_text(settings)
    assert load_master_config(policies=policies(), file=file).policy.name == policy
