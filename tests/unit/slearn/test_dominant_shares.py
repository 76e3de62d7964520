"""What a task counts for in the share of its queue."""

from __future__ import annotations

from dataclasses import replace

from eva_master.model.catalog import Offering, Purchase
from eva_master.model.planning.estimate import Estimate
from eva_master.model.planning.standing import Line
from eva_master.testing.job_views import changed
from eva_policies.slearn import POLICY
from eva_policies.slearn.config import Config
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import JobId
from tests.fakes.snapshots import Cluster, offer, task

NODE: Offering = replace(offer("n.4", (4, 16, 64), 0.1), purchase=Purchase.OWNED, limit=2)
SURE = Config(sure_ppm=100_000_000)
HOUR_MS = 3_600_000


def stated(**needs: tuple[int, int, int]) -> tuple[Line, ...]:
    """The lines for two nodes of 4 GPUs, 16 CPUs and 64 GiB, and jobs whose tasks need so much."""
    cluster = Cluster(NODE).instance("n1", "n.4").instance("n2", "n.4")
    for name, need in needs.items():
        cluster.job(name, *[task("w", any=need)] * 5, kind=JobKind.ARRAY)
    snapshot = cluster.snapshot()
    estimate = Estimate.stated(HOUR_MS)
    jobs = tuple(changed(job, size=5, estimate=estimate) for job in snapshot.jobs)
    plan, _ = POLICY.build(SURE).plan(replace(snapshot, jobs=jobs), None)
    return plan.lines


def test_it_is_the_resource_of_which_it_takes_most() -> None:
    (line,) = stated(learns=(1, 2, 8), counts=(0, 2, 4), remembers=(0, 1, 32))
    # Of 8 GPUs, 32 CPUs and 128 GiB an eighth, a sixteenth and a quarter.
    sizes = dict(line.sizes)
    assert sizes[JobId("learns")] == 2 * sizes[JobId("counts")]
    assert sizes[JobId("remembers")] == 2 * sizes[JobId("learns")]


def test_tasks_that_need_the_same_are_counted() -> None:
    (line,) = stated(one=(1, 2, 8), other=(1, 4, 8))
    assert line.sizes == ()
