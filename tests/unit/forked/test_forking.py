"""Jobs that a policy has forked into as many copies as there are nodes (HadarE)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from eva_lab.runs import Chosen, named_policy, prepared
from eva_lab.simulator.run import Setup, simulate
from eva_lab.simulator.scenario.fleet import Servers, fleet_nodes
from eva_master.app.master import control_settings
from eva_master.app.policy_registry import policies
from eva_master.app.sections.base import OnePolicySection
from eva_master.app.sections.policies import forking_by
from eva_master.app.settings import load_master_config
from eva_master.control.features.forks.tracker import Runner, opened, soonest
from eva_master.model.fleet.forking import Forking, forkable, why_unforked
from eva_master.model.forks.merging import MergeRule, Merging
from eva_master.model.job import JobSpec, Program, TaskSpec
from eva_master.model.resources import Resources
from eva_master.model.trace import Trace, TraceJob, TraceTask
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import Family, Millis, Workload

RULE = Forking(360_000)
TASK = TaskSpec(Workload("w"), Program("true"), ((Family("a"), Resources(1, 1_000, 1_024)),))
JOB = JobSpec("j", "me", (TASK,), total_steps=100)
MAY = replace(
    JOB, kind=JobKind.ARRAY, forking=replace(JOB.forking, forks=2, merge=MergeRule(60_000, "loss"))
)


def test_a_job_that_may_be_forked_is_into_as_many_copies_as_nodes_and_no_merge_is_judged() -> None:
    forked = RULE.applied(MAY, 5)
    assert forked.forking.forks == 5
    assert forked.forking.merge == MergeRule(360_000, "", at_last_fastest=True)
    assert RULE.applied(MAY, 100).forking.forks == 64


def test_others_stay_as_they_are_and_are_told_why() -> None:
    assert RULE.applied(JOB, 5) is JOB
    assert RULE.applied(MAY, 1) is MAY
    assert "does not say `forks`" in why_unforked(JOB, RULE)
    gang = replace(JOB, tasks=(TASK, TASK))
    assert "only a job of one task" in why_unforked(gang, RULE)
    assert not why_unforked(MAY, RULE)
    assert not why_unforked(JOB, None)


def test_in_simulations_every_job_of_one_task_with_known_steps_may_be_forked() -> None:
    assert (forkable(JOB).forking.forks, forkable(JOB).kind) == (2, JobKind.ARRAY)
    for other in (
        replace(JOB, total_steps=None),
        replace(JOB, tasks=(TASK, TASK)),
        replace(JOB, kind=JobKind.ARRAY),
        replace(JOB, tasks=(replace(TASK, reports_steps=False),)),
    ):
        assert forkable(other) is other


def test_hadare_is_hadar_as_published_with_forks() -> None:
    assert forking_by(OnePolicySection(name="hadar_published:hadare")) == RULE
    policy, gap_s = named_policy("hadar_published:hadare")
    assert (policy.name, gap_s) == ("hadar_published", 360)
    assert forking_by(OnePolicySection(name="hadar_published")) is None


def test_a_master_and_its_partitions_fork_by_their_own_policies(tmp_path: Path) -> None:
    file = tmp_path / "master.yaml"
    file.write_text(
        "state_dir: s\n"
        "policy: {name: hadar_published, preset: hadare, options: {round_gap_s: 90}}\n"
    )
    settings = control_settings(load_master_config(policies=policies(), file=file))
    assert settings.partitions.default.forking == Forking(90_000)
    file.write_text(
        "state_dir: s\npartitions:\n"
        "  a: {default: true}\n"
        "  b: {policy: {name: 'hadar_published:hadare'}}\n"
    )
    parts = control_settings(load_master_config(policies=policies(), file=file)).partitions
    assert [parts.home(it).forking for it in "ab"] == [None, RULE]


# -- the last round --------------------------------------------------------------------------------

FAST, MEAN, SLOW = Runner(1, 1, 10.0), Runner(2, 1, 4.0), Runner(0, 1, 1.0)


def test_the_fastest_ends_alone_if_another_merge_would_take_longer() -> None:
    there = [SLOW, FAST, MEAN]
    assert soonest(there, left=1_000, merge_ms=20_000) == [FAST, MEAN, SLOW]
    # 60 steps: 6 s alone, and 4 s with 20 s for a merge together.
    assert soonest(there, left=60, merge_ms=20_000) == [FAST]
    assert len(soonest(there, left=60, merge_ms=0)) == 3
    assert soonest([], left=60, merge_ms=0) == []


def test_others_rest_in_the_last_epoch_alone() -> None:
    now = Merging(steps=40, took_ms=20_000)
    last = opened(now, 60, [SLOW, FAST, MEAN], Millis(7), last=True)
    assert [(it.fork, it.steps) for it in last.shares] == [(1, 60)]
    assert last.last
    plain = opened(now, 60, [SLOW, FAST, MEAN], Millis(7))
    assert len(plain.shares) == 3
    assert not plain.last


# -- a whole trace ---------------------------------------------------------------------------------


def _setup(jobs: int) -> Setup:
    demand = Resources(1, 1_000, 1_024)
    task = TraceTask(demand, speed_by_family=((Family("k"), 250_000), (Family("v"), 1_000_000)))
    trace = Trace(
        "t",
        tuple(
            TraceJob(f"j{number}", Workload("w"), 400_000, 3_600_000, (task,))
            for number in range(jobs)
        ),
    )
    nodes = fleet_nodes([Servers(Family("v"), 1, 1), Servers(Family("k"), 4, 1)])
    return Setup(trace, (), named_policy("fifo")[0], nodes=nodes)


def test_a_trace_is_forked_as_a_whole_and_a_lone_job_is_done_sooner() -> None:
    """An hour on one v, half an hour on it and on four k of a quarter of its speed each."""
    alone = simulate(prepared(Chosen("hadar_published", {}), _setup(1))).jct_mean_h
    forked = simulate(prepared(Chosen("hadar_published:hadare", {}), _setup(1))).jct_mean_h
    assert alone - forked == pytest.approx(0.5, abs=0.1)
