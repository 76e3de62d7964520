"""The figures of a report, as they are drawn."""

from __future__ import annotations

from pathlib import Path

import pytest
from matplotlib.axes import Axes

from eva_lab.experiments.runs import Results, cells
from eva_lab.experiments.schema import load_experiment
from eva_lab.experiments.summary import Summary, summarise
from eva_lab.reports.figures import MEASURES, measured

EXPERIMENT = """
name: small
traces:
  short: {kind: production, jobs: 8, durations: short}
policies: [no_packing, {name: synergy, label: best fit}]
seeds: [1, 2, 3]
"""
NAMES = {
    *(measure.key for measure in MEASURES if not measure.key.endswith("_share")),
    *("allocation_gpu", "allocation_cpu", "allocation_memory", "full_share"),
    *("cost_usd", "jct_mean_h"),
}


@pytest.fixture
def summary(tmp_path: Path) -> Summary:
    """Policies whose results differ much from seed to seed, and that use all they have."""
    (tmp_path / "e.yaml").write_text(EXPERIMENT)
    plan = load_experiment(tmp_path / "e.yaml", ())
    found, results = cells(plan), Results(tmp_path / "runs")
    for cell in found:
        figures = {name: float(1 + 9 * (cell.seed % 2)) for name in NAMES}
        full = dict.fromkeys((name for name in NAMES if name.startswith("allocation_")), 1.0)
        results.keep({"digest": cell.digest, "figures": {**figures, **full}, "made": {"code": "c"}})
    return summarise(plan, found, results)


def labels(axes: Axes) -> list[tuple[float, float]]:
    """Where the values of bars are written, from left to right."""
    return sorted((text.xy[0], text.xy[1]) for text in axes.texts)  # type: ignore[attr-defined]


def ends(axes: Axes) -> list[tuple[float, float]]:
    """Where bars end, from left to right."""
    return sorted(
        (bar.get_x() + bar.get_width() / 2, bar.get_height())
        for bar in axes.patches
        if bar.get_height()  # type: ignore[attr-defined]
    )


def test_values_stand_where_bars_end(summary: Summary) -> None:
    """Not where the interval ends, which is elsewhere for results that differ much."""
    assert any(row.figures["tasks_per_instance"].half for row in summary.rows)
    checked = 0
    for picture in measured(summary):
        for axes in picture.figure.axes:
            for label, end in zip(labels(axes), ends(axes), strict=True):
                assert label == pytest.approx(end)
            checked += len(axes.texts)
    assert checked > len(MEASURES)


def test_the_value_of_a_full_bar_is_below_the_title(summary: Summary) -> None:
    (picture,) = [one for one in measured(summary) if one.name == "allocation"]
    picture.figure.draw_without_rendering()
    for axes in picture.figure.axes:
        assert [height for _, height in ends(axes)] == [100.0] * len(axes.texts)
        for text in axes.texts:
            assert text.get_window_extent().y1 < axes.get_window_extent().y1
