"""A sweep of small tasks costs about half of one instance per task."""

from __future__ import annotations

import pytest

from eva_lab.simulator.run import Setup, simulate
from eva_master.model.resources import Resources
from eva_master.model.trace import Trace, TraceJob, TraceTask
from eva_master.policies.eva import POLICY
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import MILLION, MILLIS_PER_HOUR, Millis, Workload
from tests.fakes.jobs import CATALOG, SMALL

TASKS = 30


@pytest.mark.parametrize("seconds", [60, 600])
def test_a_sweep_of_30_tasks_costs_at_most_055_of_one_instance_per_task(seconds: int) -> None:
    sweep = TraceJob(
        id="sweep",
        workload=Workload("sweep"),
        arrival_ms=Millis(0),
        duration_ms=seconds * 1_000,
        init_ms=0,
        steps_per_s=MILLION,
        total_steps=seconds,
        tasks=(TraceTask(Resources(0, 1_000, 1_024)),) * TASKS,
        kind=JobKind.ARRAY,
    )
    outcome = simulate(Setup(Trace("sweep", (sweep,)), CATALOG, POLICY.build(POLICY.config())))
    each_ms = seconds * 1_000 + SMALL.type.setup_ms
    alone_usd = TASKS * SMALL.price * each_ms / MILLIS_PER_HOUR / MILLION
    assert outcome.cost_usd <= 0.55 * alone_usd
