"""Elastic gangs under the policies that share a fleet of several GPU types."""

from __future__ import annotations

import pytest

from eva_lab.runs import named_policy
from eva_lab.simulator.cluster.delays import EqualDelays
from eva_lab.simulator.cluster.work import Work
from eva_lab.simulator.scenario.fleet import Servers, fleet_nodes
from eva_lab.simulator.simulated_cluster import SimulatedCluster
from eva_master.control.settings import Settings
from eva_master.model.job import ElasticGang, JobSpec, Program, Restarts, TaskSpec
from eva_master.model.resources import Resources
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import Family, Workload
from eva_wire.values.states import JobState

POLICIES = ("hadar", "hadar_published", "gavel", "gavel:makespan", "tiresias", "yarn_cs")
FAST, SLOW = Family("fast"), Family("slow")
MINUTE_MS, HOUR_MS = 60_000, 3_600_000
SPEEDS = {FAST: 1.0, SLOW: 0.25}


def gang(name: str, most: int, least: int | None, minutes: int = 30) -> JobSpec:
    """A gang of tasks with a GPU each, that are four times as fast on the fast type."""
    need = Resources(1, 1000, 1024)
    task = TaskSpec(
        Workload(name),
        Program("true"),
        ((FAST, need), (SLOW, need)),
        tuple((family, round(1e6 * speed)) for family, speed in SPEEDS.items()),
    )
    return JobSpec(
        name,
        "o",
        (task,) * most,
        kind=JobKind.GANG,
        duration_ms=minutes * MINUTE_MS,
        elastic=ElasticGang(least=least),
        restarts=Restarts(checkpoint_ms=0, launch_ms=10_000),
    )


def world(policy: str, fast: int, slow: int) -> SimulatedCluster:
    kinds = [Servers(it, number, 1) for it, number in ((FAST, fast), (SLOW, slow)) if number]
    return SimulatedCluster(
        (),
        named_policy(policy, {})[0],
        settings=Settings(nodes={it.name: it for it in fleet_nodes(kinds)}, round_gap_ms=360_000),
        delays=EqualDelays(fetch_ms=0, start_ms=10_000, stop_ms=0, report_ms=10_000),
        work_of=lambda run: Work(30.0 * MINUTE_MS),
        speed_of=lambda run, family: SPEEDS[family],
        latency_ms=0,
    )


def ended(there: SimulatedCluster, *specs: JobSpec) -> dict[str, int]:
    """Run jobs to their ends; returns how many members each had at last."""
    there.run(lambda: there.timeline.now() > 720_000)  # all nodes are there
    for spec in specs:
        there.submit(spec)
    assert there.run(there.quiet, limit_ms=100 * HOUR_MS)
    jobs = there.state.jobs.values()
    assert all(job.state is JobState.SUCCEEDED for job in jobs)
    return {job.spec.name: job.members for job in jobs}


@pytest.mark.parametrize("policy", POLICIES)
def test_elastic_gangs_share_a_fleet_with_others(policy: str) -> None:
    others = [gang(f"plain-{number}", 2, None) for number in range(3)]
    found = ended(world(policy, 4, 4), gang("wide", 6, 2), *others, gang("other", 3, 1))
    # Six on both types would all be as slow as those on the slower one.
    assert (found["wide"], found["other"]) == (4, 3)


@pytest.mark.parametrize("policy", POLICIES)
def test_one_that_no_type_has_room_for_with_its_least_number_runs_on_both(policy: str) -> None:
    found = ended(world(policy, 2, 2), gang("wide", 6, 3), gang("plain", 1, None))
    assert 3 <= found["wide"] <= 4
