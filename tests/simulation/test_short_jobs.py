"""A cluster of jobs that take a minute: what is moved has to pay before it is all over."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from eva_lab.simulator.results.metrics import SimulationOutcome
from eva_lab.simulator.run import Setup, simulate
from eva_master.control.settings import Settings
from eva_master.model.catalog import InstanceType, Offering
from eva_master.model.resources import Resources
from eva_master.model.trace import Interference, Trace, TraceJob, TraceTask
from eva_master.policies.eva import POLICY
from eva_wire.values.ids import Family, Price, Workload

SIZES = ((2, 89_250), (4, 178_500), (8, 357_000), (16, 714_000))
CATALOG = tuple(
    Offering(
        InstanceType(
            f"{family}.{vcpus}", Family(family), Resources(0, vcpus * 1000, gib), 1000, 3000
        ),
        Price(round(price * times)),
    )
    for vcpus, price in SIZES
    for family, gib, times in (("c7i", 2048 * vcpus, 1.0), ("r7i", 8192 * vcpus, 1.4824))
)
"""Instances that come up within seconds, at EC2's prices."""
KINDS = (
    ("graph", 1, Resources(0, 2000, 14_336)),
    ("mlp", 1, Resources(0, 3000, 5120)),
    ("shell", 1, Resources(0, 1000, 2048)),
    ("stream", 1, Resources(0, 1000, 3584)),
    ("ring", 2, Resources(0, 2000, 3072)),
)
TRUTH = Interference({(Workload("stream"), Workload("stream")): 500_000}, 980_000)
SEEDS = range(5)
SETTINGS = Settings(round_gap_ms=2000, window_ms=8000, checkpoint_ms=1000, launch_ms=2000)


def short_jobs(seed: int) -> Trace:
    """Eight jobs in a few waves."""
    draw, at = random.Random(seed), 1000
    jobs = []
    for number in range(8):
        workload, tasks, need = draw.choice(KINDS)
        lasts = draw.randrange(25_000, 60_000)
        task = TraceTask(need, fetch_ms=100, kill_ms=700, upload_ms=300)
        jobs.append(
            TraceJob(
                f"{number}",
                Workload(workload),
                at,
                lasts,
                (task,) * tasks,
                2000,
                10_000_000,
                lasts // 100,
            )
        )
        at += draw.randrange(5_000, 40_000) if draw.random() < 0.3 else 200
    return Trace("short", tuple(jobs))


def ran(seed: int, **settings: int) -> SimulationOutcome:
    policy = POLICY.build(POLICY.config(explained=False, horizon_s=120, **settings))
    setup = Setup(short_jobs(seed), CATALOG, policy, truth=TRUTH, durations=False)
    return simulate(replace(setup, settings=SETTINGS))


def test_jobs_that_end_one_after_another_are_not_moved_back_and_forth():
    calm = [ran(seed).row() for seed in SEEDS]
    restless = [ran(seed, lasting_ppm=1_000_000_000).row() for seed in SEEDS]

    def total(rows: list[dict[str, Any]], figure: str) -> float:
        return sum(row[figure] for row in rows)

    assert total(calm, "migrations_per_job") < total(restless, "migrations_per_job")
    assert total(calm, "migrations_per_job") <= 0.6 * len(SEEDS)
    assert total(calm, "cost_usd") <= total(restless, "cost_usd")
