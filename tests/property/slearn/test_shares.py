"""Each queue in which somebody waits has its share of the room, however large its jobs are."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eva_lab.simulator.cluster.work import Work
from eva_lab.simulator.simulated_cluster import SimulatedCluster
from eva_master.control.settings import Settings
from eva_master.model.catalog import InstanceType, Offering, Purchase
from eva_master.model.fleet.nodes import NODE_ZONE, OwnedNode
from eva_master.model.job import JobSpec, Program, TaskSpec
from eva_master.model.resources import Resources
from eva_master.policies.eva import POLICY as EVA
from eva_policies.slearn import POLICY
from eva_policies.slearn.config import Config
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import Family, InstanceId, Millis, Price, RunId, Workload
from eva_wire.values.states import RunState
from tests.drawing import drawn

FAMILY, SLOT = Family("c"), Resources(0, 1_000, 1_024)
SEVEN = Offering(InstanceType("c.7", FAMILY, Resources(0, 7_000, 7_168)), Price(700_000), limit=2)
NODE = replace(SEVEN, zone=NODE_ZONE, purchase=Purchase.OWNED, limit=None, price=Price(0))
SLOTS = 14
TASK = TaskSpec(Workload("w"), Program("true"), ((FAMILY, SLOT),))
WORK_S = (9_900, 99_000, 200_000)
"""Of a job in each of three queues, in seconds of one task: more than is done by the end."""
FROM_S, TO_S = 200, 1_000
SETTINGS = Settings(round_gap_ms=1_000, round_period_ms=10**9, profile=False)


def _cluster(config: Config, each_s: tuple[int, ...], *, backed: bool) -> SimulatedCluster:
    def work_of(run: RunId) -> Work:
        number = int(run.partition("-")[0].removeprefix("q"))
        return Work(each_s[number] * 1_000, tells_steps=False)

    names = [InstanceId(f"n{it}") for it in range(2)]
    nodes = {} if backed else {it: OwnedNode(it, NODE, 10**9) for it in names}
    policy = POLICY.backed(config, EVA.build(EVA.config())) if backed else POLICY.build(config)
    cluster = SimulatedCluster(
        (SEVEN,) if backed else (),
        policy,
        settings=replace(SETTINGS, nodes=nodes),
        work_of=work_of,
    )
    for number, (seconds, work) in enumerate(zip(each_s, WORK_S, strict=True)):
        tasks = (TASK,) * (work // seconds)
        ms = seconds * 1_000
        cluster.submit(JobSpec(f"q{number}", "me", tasks, kind=JobKind.ARRAY, duration_ms=ms))
    return cluster


def _slots_had(cluster: SimulatedCluster) -> list[float]:
    """How many slots the job in each queue had, on average over the stretch."""
    found = [0.0, 0.0, 0.0]
    for run in cluster.state.runs.touched.values():
        begun = next((at for state, at in run.history if state == RunState.STARTING.value), None)
        if begun is not None:
            ended = run.history[-1][1] if run.state is RunState.SUCCEEDED else TO_S * 1_000
            had = min(ended, TO_S * 1_000) - max(begun, FROM_S * 1_000)
            number = int(run.job.partition("-")[0].removeprefix("q"))
            found[number] += max(0, had) / ((TO_S - FROM_S) * 1_000)
    return found


each = st.tuples(st.integers(10, 20), st.integers(20, 40), st.integers(40, 80))
steps = st.sampled_from([2, 3])


def _check(each_s: tuple[int, int, int], step: int, *, backed: bool) -> None:
    config = Config(queues=3, first_queue_s=10_000, weight_step=step, requeue=False, age_cap=0)
    cluster = _cluster(config, each_s, backed=backed)
    assert cluster.run(lambda: cluster.timeline.now() >= Millis(TO_S * 1_000))
    had = _slots_had(cluster)
    weights = [step**2, step, 1]
    for number, weight in enumerate(weights):
        share = SLOTS * weight / sum(weights)
        # But for the slot that it is about to be given, and the time until that is done.
        assert had[number] >= 0.85 * (share - 1), (had, share)
    assert sum(had) >= 0.85 * SLOTS, "no slot idles"


@drawn(4)
@given(each, steps)
def test_each_queue_has_its_share_of_any_stretch_that_is_long_against_a_task(
    each_s: tuple[int, int, int], step: int
) -> None:
    _check(each_s, step, backed=False)


@pytest.mark.explore
@drawn(2)
@given(each, steps)
def test_so_it_has_of_instances_that_another_policy_buys(
    each_s: tuple[int, int, int], step: int
) -> None:
    _check(each_s, step, backed=True)
