"""Results of an experiment, in a sentence, and a page that fits."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from eva_lab.experiments.runs import Results, cells
from eva_lab.experiments.schema import load_experiment
from eva_lab.experiments.summary import Summary, summarise
from eva_lab.experiments.verdict import verdict
from eva_lab.reports import page as pages
from eva_lab.reports.figures import MEASURES, measured

EXPERIMENT = """
name: small
traces:
  short: {kind: production, jobs: 8, durations: short}
policies: [no_packing, synergy, stratus]
seeds: [1, 2, 3, 4, 5, 6]
"""
COST = {"no_packing": 100.0, "synergy": 80.0, "stratus": 70.0}
NAMES = {
    *(measure.key for measure in MEASURES if not measure.key.endswith("_share")),
    *("allocation_gpu", "allocation_cpu", "allocation_memory", "full_share", "jct_mean_h"),
    *("jct_p95_h", "idle_mean_h", "instances_launched", "planning_mean_s"),
}


@pytest.fixture
def summary(tmp_path: Path) -> Summary:
    """Stratus is cheapest by the mean, and dearer than synergy on one of six traces."""
    (tmp_path / "e.yaml").write_text(EXPERIMENT)
    plan = load_experiment(tmp_path / "e.yaml", ())
    found, results = cells(plan), Results(tmp_path / "runs")
    for cell in found:
        cost = COST.get(cell.label, 50.0) + (15 if (cell.label, cell.seed) == ("stratus", 6) else 0)
        figures = {**dict.fromkeys(NAMES, 1.0), "full_share": 0.0, "cost_usd": cost}
        results.keep({"digest": cell.digest, "figures": figures, "made": {"code": "c"}})
    return summarise(plan, found, results)


def test_the_result_names_the_best_policy_and_the_pairs_that_it_won(summary: Summary) -> None:
    assert verdict(summary) == [
        "short: stratus is cheapest (72.5 % of no_packing); cheaper than synergy in 5 of 6, "
        "than no_packing in 6 of 6."
    ]
    shape = next(row for row in summary.shape()["rows"] if row["policy"] == "stratus")
    assert shape["better_in"] == {
        "no_packing": {"pairs": 6, "won": 6},
        "synergy": {"pairs": 6, "won": 5},
    }


def test_a_plot_of_zeros_is_not_drawn(summary: Summary) -> None:
    names = [picture.name for picture in measured(summary)]
    assert "full" not in names
    assert {"cost", "jct", "moves"} <= set(names)


def test_the_page_begins_with_the_result_and_a_short_table(summary: Summary) -> None:
    page = pages._page(summary, ())
    assert page.index("<h2>Result</h2>") < page.index("<h2>Figures of each policy</h2>")
    assert "cheaper than synergy in 5 of 6" in page
    short, _, rest = page.partition("<details>")
    heads = re.findall(r"<th[^>]*>([^<]*)</th>", short)
    assert heads[:2] == ["trace", "policy"]
    assert len(heads) <= 2 + 7
    every = re.findall(r"<th[^>]*>([^<]*)</th>", rest.partition("</details>")[0])
    assert set(heads) < set(every)
    # On a phone only the first two figures are shown.
    assert len(re.findall(r"<th>[^<]*</th>", short)) == 2
