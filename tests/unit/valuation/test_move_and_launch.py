"""What moves and launches cost, and how far the estimate may be from it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eva_master.model.planning.job_view import JobView
from eva_master.packing.valuation import task_shapes
from eva_master.packing.valuation.migration_cost import (
    expected_migration_cost,
    launch_cost,
    migration_cost,
    share,
)
from eva_master.packing.valuation.reservation_price import relative_speed
from eva_master.testing.job_views import job_view
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import Family, JobId, Millis
from tests.fakes.snapshots import Cluster, offer, task


def view(checkpoint_ms: int, launch_ms: int) -> JobView:
    return job_view(
        JobId("a"), JobKind.GANG, (), Millis(0), 0, checkpoint_ms=checkpoint_ms, launch_ms=launch_ms
    )


def test_a_move_as_the_paper_reckons_it() -> None:
    # Half of an instance of 3 $/h, then all of one of 0.8 $/h, for 10 + 50 s: 3.83 cents.
    cost = migration_cost(view(10_000, 50_000), share(3_000_000, 1, 2), 800_000)
    assert cost == (1_500_000 + 800_000) * 60_000


def test_a_launch_is_paid_for_until_tasks_can_run() -> None:
    boot = offer("box", (0, 4, 8), 0.6, setup_s=100, acquisition_s=20)
    assert launch_cost(boot) == 600_000 * 120_000


prices = st.integers(1, 10**8)


@given(
    own=prices,
    others=st.lists(prices, max_size=5),
    there=st.lists(prices, max_size=5),
    slack=st.tuples(st.integers(0, 10**8), st.integers(0, 10**8)),
)
def test_the_estimate_is_never_below_the_cost_on_instances_that_pay(
    own: int, others: list[int], there: list[int], slack: tuple[int, int]
) -> None:
    """An instance pays if its tasks are worth its price; the estimate errs by what it saves."""
    job = view(8_000, 47_000)
    everyone, elsewhere = own + sum(others), own + sum(there)
    source = max(1, everyone - slack[0])
    target = max(1, elsewhere - slack[1])
    cost = migration_cost(job, share(source, own, everyone), share(target, own, elsewhere))
    estimate = expected_migration_cost(job, own)
    assert cost <= estimate
    # The error is the task's part of what both instances save, and a rounded micro-dollar each.
    saved = own * (everyone - source) / everyone + own * (elsewhere - target) / elsewhere
    assert estimate - cost <= (saved + 2) * 55_000 * (1 + 1e-9)


def test_where_instances_save_nothing_the_estimate_is_the_cost() -> None:
    job = view(1_000, 2_000)
    held = share(700, 300, 700)
    assert expected_migration_cost(job, 300) == migration_cost(job, held, 300)


def test_a_task_that_nothing_hosts_is_as_fast_everywhere() -> None:
    pace = (Family("c7i"), 1), (Family("p3"), 30)
    assert relative_speed(Family("p3"), None, pace) == 1


def test_traits_of_task_runs_that_are_gone_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a policy asks for one task run at a time."""
    monkeypatch.setattr(task_shapes, "_TASKS_REMEMBERED", 5)
    shapes = task_shapes.TaskShapes()
    for number in range(40):
        cluster = Cluster(offer("box", (0, 4, 8), 1)).job(f"j{number}", task(any=(0, 1, 1)))
        shapes.of_run(cluster.snapshot().runs[0])
    assert len(shapes._by_run) <= 6
