"""The example of two tenants: its settings and jobs hold, and the documentation has the same."""

from __future__ import annotations

import pytest
import yaml

from eva_master.adapters.jobfile import parse_job
from eva_master.app.nodes.settings import owned_nodes
from eva_master.app.policy_registry import policies
from eva_master.app.settings import load_master_config
from eva_master.model.fleet.nodes import offerings
from tests.fakes.examples import EXAMPLES

TENANTS = EXAMPLES / "tenants"


def test_the_documentation_has_the_same_settings() -> None:
    page = (EXAMPLES.parent / "docs" / "howto" / "lending.md").read_text()
    block = page.split("## Live", 1)[1].split("```yaml\n", 1)[1].split("```")[0]
    assert yaml.safe_load(block) == yaml.safe_load((TENANTS / "master.yaml").read_text())


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
