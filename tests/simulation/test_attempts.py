"""How attempts are numbered."""

from __future__ import annotations

from eva_lab.runs import named_policy
from eva_lab.simulator.cluster.work import Work
from eva_lab.simulator.simulated_cluster import SimulatedCluster
from eva_wire.values.ids import RunId
from tests.fakes.jobs import CATALOG, job


def test_each_task_of_an_array_counts_its_own_attempts() -> None:
    """A task that was tried once is at its first attempt, however many others were tried."""
    broken = RunId("a-1/2")

    def work_of(run: RunId) -> Work:
        return Work(600_000, failures=[1, 1] if run == broken else [])

    cluster = SimulatedCluster(CATALOG, named_policy("no_packing")[0], work_of=work_of)
    cluster.submit(job("a", 2, 2, 2, 2, array=True))
    cluster.submit(job("gang", 2, 2))
    assert cluster.run(cluster.quiet)
    attempts = {run.id: run.attempt for run in cluster.state.runs.values()}
    assert attempts == {
        "a-1/0": 1,
        "a-1/1": 1,
        "a-1/2": 3,
        "a-1/3": 1,
        "gang-2/0": 1,
        "gang-2/1": 1,
    }
