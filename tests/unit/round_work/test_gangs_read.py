"""Readers pay as much for a member of a large gang as for one of a small gang."""

from __future__ import annotations

from benchmarks.calls import Calls
from eva_lab.runs import named_policy
from eva_lab.simulator.simulated_cluster import SimulatedCluster
from eva_master.adapters.rpc.server import views
from eva_master.control.settings import Settings
from eva_master.model.job import JobSpec
from eva_master.testing.snapshots import offer, task
from tests.fakes.models import model_of


def calls_of_a_member(members: int, cpus: int) -> float:
    """Calls of functions in the answer to a user who asks for a gang that runs, per member."""
    world = SimulatedCluster(
        (offer("large", (0, cpus, 4 * cpus), 0.38, setup_s=20),),
        named_policy("fifo")[0],
        settings=Settings(),
        truth=lambda _, others: 0.99 ** len(others),
    )
    world.submit(JobSpec("g", "a", (task(any=(0, 1, 1)),) * members, duration_ms=600_000))
    world.run(lambda: world.timeline.now() > 200_000, limit_ms=300_000)
    model, now, calls = model_of(world.state), world.timeline.now(), Calls(builtins=True)
    assert model.totals.runs == {"running": members}
    (job,) = model.jobs
    with calls.counting():
        message = views.job(model, model.record(job, now), now, None)
    assert message.remaining_ms > 0
    return calls.made / members


def test_a_member_costs_the_same_in_a_large_gang() -> None:
    assert calls_of_a_member(160, cpus=8) < 1.3 * calls_of_a_member(40, cpus=8)


def test_a_member_costs_the_same_on_an_instance_with_many_others() -> None:
    assert calls_of_a_member(96, cpus=96) < 1.3 * calls_of_a_member(24, cpus=24)
