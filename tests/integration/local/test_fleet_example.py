"""The example of a fleet: its settings hold, and its jobs take turns and lose no step."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from eva_lab.simulator.simulated_cluster import SimulatedCluster
from eva_master.adapters.catalog import load_catalog
from eva_master.adapters.resolving.parse import parse_job
from eva_master.app.nodes.settings import owned_nodes
from eva_master.app.policy_registry import policies
from eva_master.app.settings import load_master_config
from eva_master.control.settings import Settings
from eva_master.model.fleet.nodes import offerings
from eva_master.model.job import JobSpec
from eva_wire.values.states import JobState
from tests.fakes.examples import EXAMPLES, Agent, Task

FLEET = EXAMPLES / "fleet"
CONFIG = load_master_config(policies=policies(), file=FLEET / "master.yaml")
NODES = owned_nodes(CONFIG.nodes)


def _job(name: str) -> JobSpec:
    return parse_job(
        (FLEET / f"{name}.yaml").read_text(),
        file_name=f"{name}.yaml",
        owner="me",
        catalog=offerings(NODES.values()),
        workdir=None,
    )


def test_its_jobs_take_turns_on_three_nodes_and_all_end() -> None:
    assert not load_catalog(CONFIG.catalog.file, CONFIG.catalog.only), "nothing is for rent"
    kind = policies()[CONFIG.policy.name]
    options = kind.config(**CONFIG.policy.options)
    settings = Settings(nodes=NODES, round_gap_ms=CONFIG.round_min_interval)
    cluster = SimulatedCluster((), kind.build(options), settings=settings)

    def state_of(name: str) -> JobState:
        found = (it.state for it in cluster.state.jobs.values() if it.spec.name == name)
        return next(found, JobState.PENDING)

    names = [f"{workload}{n}" for workload in ("vision", "speech") for n in (1, 2, 3)]
    for name in names[:3]:
        cluster.submit(replace(_job("vision"), name=name))
    assert cluster.run(lambda: all(state_of(it) is JobState.RUNNING for it in names[:3]))
    for name in names[3:]:
        cluster.submit(replace(_job("speech"), name=name))
    assert cluster.run(lambda: any(it.suspension for it in cluster.state.runs.values()))
    assert cluster.run(lambda: all(state_of(it) is JobState.SUCCEEDED for it in names))
    assert set(cluster.state.live) == set(NODES), "nothing was launched"


@pytest.mark.parametrize("name", ["vision", "speech"])
def test_a_job_says_what_its_program_does(name: str) -> None:
    job = _job(name)
    env = dict(job.tasks[0].program.env)
    assert str(job.total_steps) == env["STEPS"]
    stated = {family: rate / 1_000_000 for family, rate in job.tasks[0].throughput}
    paces = {family: float(pace) for family, pace in re.findall(r"(\w+)=(\d+)", env["SPEEDS"])}
    assert stated == paces


def test_its_program_goes_on_at_the_step_where_it_was(tmp_path: Path) -> None:
    agent = Agent()
    env = {"STEPS": "60", "SPEEDS": "v100=100"}
    task = Task("fleet", tmp_path / "task", agent, env, "vision.yaml")
    stopped = task.run(stop_midway=True)
    assert "done:" not in stopped.printed
    done = stopped.report.steps
    assert 0 < done < 60
    resumed = task.run()
    assert f"resumed at step {done}\n" in resumed.printed
    assert resumed.report.steps == resumed.report.total_steps == 60 - done
    assert resumed.last_line == "done: 60 steps"
    agent.close()
