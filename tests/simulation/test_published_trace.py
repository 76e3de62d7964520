"""The 200 jobs of the paper's artifact, where there is no freedom: each task on its own.

`tests.simulation.test_accounting` has the same by hand, without the published files.
"""

from __future__ import annotations

import pytest

from eva_lab.runs import named_policy
from eva_lab.simulator.results.lower_bound import reference_bound
from eva_lab.simulator.results.metrics import usd
from eva_lab.simulator.run import Setup, simulate
from eva_lab.traces import read_interference, read_trace
from eva_master.adapters.catalog import load_catalog
from tests.fakes.traces import published

pytestmark = pytest.mark.published


def test_no_packing_is_what_the_authors_simulator_says() -> None:
    policy, gap = named_policy("no_packing")
    trace = read_trace(published() / "traces" / "pai_200.json")
    truth = read_interference(published() / "interference.json")
    it = simulate(Setup(trace, load_catalog(), policy, truth=truth, round_gap_s=gap))
    assert it.cost_usd == pytest.approx(20_736.38, rel=1e-4)
    assert it.jct_mean_h == pytest.approx(17.670, abs=0.002)
    assert it.idle_mean_h == pytest.approx(0.101, abs=0.003)
    assert it.norm_throughput_mean == pytest.approx(1.0, abs=1e-6)
    assert (it.migrations_per_job, it.instances_launched) == (0, 200)


@pytest.mark.long
def test_the_reference_bound_is_the_one_that_is_known() -> None:
    trace = read_trace(published() / "traces" / "pai_200.json")
    assert usd(reference_bound(trace, load_catalog())) == pytest.approx(11_746, rel=2e-4)
