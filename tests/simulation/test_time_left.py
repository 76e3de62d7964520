"""What a policy learns of how long a job will still run, on virtual time."""

from __future__ import annotations

from eva_lab.simulator.simulated_cluster import SimulatedCluster
from eva_master.control.measure import ledger
from eva_master.control.planning.snapshot_builder import snapshot
from eva_master.control.settings import Settings
from eva_master.model.planning.snapshot import RemainingWork
from eva_master.policies.no_packing import POLICY as NO_PACKING
from eva_wire.values.ids import JobId, Millis, RunId
from tests.fakes.jobs import CATALOG, job

HOUR = 3_600_000


def _view(world: SimulatedCluster, name: str) -> RemainingWork:
    seen = snapshot(world.state, world.timeline.now(), Settings())
    work = next(view.remaining for view in seen.runs if view.job == name)
    assert work is not None
    return work


def _started(world: SimulatedCluster, name: str) -> Millis:
    run = world.state.runs[RunId(f"{name}/0")]
    return Millis(next(at for state, at in run.history if state == "running"))


def _world() -> SimulatedCluster:
    return SimulatedCluster(CATALOG, NO_PACKING.build(NO_PACKING.config()))


def test_time_that_a_job_has_run_is_taken_off_though_nothing_has_happened_since() -> None:
    world = _world()
    world.submit(job("a", 2, minutes=60))
    assert world.run(lambda: bool(world.state.jobs) and _view(world, "a-1").since_ms is not None)
    start = _started(world, "a-1")
    assert _view(world, "a-1").standalone_ms(start) == HOUR
    assert _view(world, "a-1").standalone_ms(Millis(start + HOUR // 2)) == HOUR // 2
    assert _view(world, "a-1").standalone_ms(Millis(start + 2 * HOUR)) == 0


def test_time_before_the_last_booking_is_not_taken_off_twice() -> None:
    world = _world()
    world.submit(job("a", 2, minutes=60))
    assert world.run(lambda: bool(world.state.jobs) and _view(world, "a-1").since_ms is not None)
    start = _started(world, "a-1")
    later = Millis(start + HOUR // 4)
    assert world.run(lambda: world.timeline.now() >= later)
    (instance,) = world.state.live
    ledger.book(world.state, instance, later)
    assert _view(world, "a-1").standalone_ms(later) == HOUR - HOUR // 4
    world.state.view_cache.job_changed(JobId("a-1"))
    assert _view(world, "a-1").standalone_ms(later) == HOUR - HOUR // 4
    assert _view(world, "a-1").standalone_ms(Millis(start + HOUR // 2)) == HOUR // 2


def test_a_job_that_waits_has_all_of_its_time_left() -> None:
    world = _world()
    world.submit(job("a", 2, minutes=60))
    assert world.run(lambda: bool(world.state.jobs))
    view = _view(world, "a-1")
    assert view.since_ms is None
    assert view.standalone_ms(Millis(world.timeline.now() + HOUR)) == HOUR
