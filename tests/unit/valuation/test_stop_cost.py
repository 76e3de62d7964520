"""A suspension costs both shares of a move, at the price at which the task is worth most."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eva_master.model.planning.job_view import Delays
from eva_master.packing.valuation.job_valuation import JobValuation
from eva_master.packing.valuation.migration_cost import stop_cost
from eva_wire.values.ids import MILLION, Family
from tests.fakes.snapshots import Cluster, offer, task

CHEAP = offer("slow.1", (0, 4, 16), 0.4, family="slow")
FAST = offer("fast.1", (0, 4, 16), 1.0, family="fast")


@pytest.mark.parametrize(("rates", "usd"), [({"slow": 1, "fast": 4}, 1.0), ({}, 0.4)])
def test_a_suspension_counts_the_reservation_price_speeds_included(
    rates: dict[str, int], usd: float
) -> None:
    # An iteration costs 0.4 $h where the task is slow, and 0.25 $h where it is four times as fast.
    stated = tuple((Family(name), rate * MILLION) for name, rate in sorted(rates.items()))
    work = replace(task(slow=(0, 1, 1), fast=(0, 1, 1)), throughput=stated)
    snapshot = Cluster(CHEAP, FAST).instance("i", "slow.1").job("a", work, on=["i"]).snapshot()
    (job,) = snapshot.jobs
    job = replace(job, delays=Delays(checkpoint_ms=8_000, launch_ms=47_000))
    cost = stop_cost(job, snapshot.runs, JobValuation(snapshot.catalog, snapshot.standalone))
    assert cost == 2 * round(usd * MILLION) * 55_000
