"""The example of two tenants: its settings and jobs hold."""

from __future__ import annotations

import pytest

from eva_master.adapters.resolving.parse import parse_job
from eva_master.app.nodes.settings import owned_nodes
from eva_master.app.policy_registry import policies
from eva_master.app.settings import load_master_config
from eva_master.model.fleet.nodes import offerings
from tests.fakes.examples import EXAMPLES

TENANTS = EXAMPLES / "tenants"


@pytest.mark.parametrize(("name", "owner"), [("vision", "ana"), ("speech", "bo")])
def test_its_jobs_fit_its_nodes_and_belong_to_its_tenants(name: str, owner: str) -> None:
    config = load_master_config(policies=policies(), file=TENANTS / "master.yaml")
    assert config.tenant_rules.of(owner) == name
    job = parse_job(
        (TENANTS / f"{name}.yaml").read_text(),
        file_name=f"{name}.yaml",
        owner=owner,
        catalog=offerings(owned_nodes(config.nodes).values()),
        workdir=None,
    )
    assert job.worth is not None
    assert str(job.total_steps) == dict(job.tasks[0].program.env)["STEPS"]
