"""The example of a job with a deadline: settings and job hold, and the how-to has the same."""

from __future__ import annotations

import yaml

from eva_master.adapters.resolving.parse import parse_job
from eva_master.app.policy_registry import policies
from eva_master.app.settings import load_master_config
from eva_master.model.job import Deadline
from eva_master.model.planning.spot_choice import SpotChoice
from tests.fakes.examples import EXAMPLES
from tests.fakes.jobs import CATALOG
from tests.unit.deadlines.test_job_deadlines import on_spot

DEADLINE = EXAMPLES / "deadline"


def test_the_how_to_has_the_same_settings() -> None:
    page = (EXAMPLES.parent / "docs" / "howto" / "spot-and-deadlines.md").read_text()
    block = page.split("## Try it", 1)[1].split("```yaml\n", 1)[1].split("```")[0]
    assert yaml.safe_load(block) == yaml.safe_load((DEADLINE / "master.yaml").read_text())
    config = load_master_config(policies=policies(), file=DEADLINE / "master.yaml")
    assert config.spot_choice is SpotChoice.LEARNED


def test_its_job_is_due_and_counts_as_far_as_it_says() -> None:
    job = parse_job(
        (DEADLINE / "nightly.yaml").read_text(),
        file_name="nightly.yaml",
        owner="me",
        catalog=(*CATALOG, *on_spot(CATALOG)),
        workdir=None,
    )
    assert job.deadline == Deadline(within_ms=1_800_000)
    assert str(job.total_steps) == dict(job.tasks[0].program.env)["STEPS"]
