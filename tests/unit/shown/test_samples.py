"""Figures over time are bounded, and always reach from their beginning to now."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from eva_master.adapters.rpc.server import views
from eva_master.adapters.rpc.server.overview.samples import POINTS, Samples, Series
from eva_master.control.state.store import State
from eva_wire.values.ids import Millis
from tests.fakes.models import model_of


@pytest.mark.parametrize("count", [1, 49, 50, 51, 1_000, 40_000])
def test_a_series_is_bounded_and_reaches_back_to_its_beginning(count: int) -> None:
    series = Series(50)
    for number in range(count):
        series.add(5_000 * number, float(number))
    curve = series.curve("loss")
    assert len(curve.at_ms) == len(curve.values) <= 50
    assert curve.at_ms[0] == 0
    assert list(curve.at_ms) == sorted(curve.at_ms)
    # At most a twelfth of the whole time is missing at the end.
    assert curve.at_ms[-1] >= 5_000 * (count - 1) * 11 / 12
    assert [at_ms / 5_000 for at_ms in curve.at_ms] == list(curve.values)


@pytest.mark.parametrize(
    ("cost", "bound", "shown"),
    [(70_000_000, 55_000_000, 37_700_000), (50_000_000, 55_000_000, 52_700_000), (70, None, None)],
)
def test_the_proven_bound_is_below_the_price_by_what_the_plan_may_cost_too_much(
    monkeypatch: pytest.MonkeyPatch, cost: int, bound: int | None, shown: int | None
) -> None:
    """Cost and bound of a plan hold slowdowns, the price does not."""
    weighing = SimpleNamespace(cost_micro_usd_per_hour=cost, lower_bound_micro_usd_per_hour=bound)
    newest = SimpleNamespace(reasons=SimpleNamespace(weighing=weighing))
    history = SimpleNamespace(explained=lambda: newest)
    monkeypatch.setattr(views, "price_per_hour", lambda model: 52_700_000)
    samples = Samples(history)  # type: ignore[arg-type]
    samples.take(model_of(State(())), Millis(0))
    (point,) = samples.prices()
    assert (point.bound if point.HasField("bound") else None) == shown


def test_points_of_a_plot_are_few() -> None:
    assert POINTS == 300
