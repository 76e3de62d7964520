"""Experiments on a fixed cluster: what a file may say, and what its report has."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from eva_lab.cli.experiment import OF_SHORT, table
from eva_lab.experiments.execution import execute
from eva_lab.experiments.runs import Results, cells
from eva_lab.experiments.schema import load_experiment
from eva_lab.experiments.summary import summarise
from eva_lab.reports.page import write_report
from eva_wire.values.errors import InvalidConfig

TRACE = "".join(
    f"{at} {tasks} {seconds} {' '.join([str(seconds)] * tasks)}\n"
    for at, tasks, seconds in [(0, 8, 300), (10, 30, 10), (200, 30, 20), (400, 8, 400)]
)
TEXT = """
name: tiny
traces: {t: {kind: hawk, files: [t.tr]}}
policies:
  - {name: fifo, label: alone}
  - name: fifo
    label: pair
    short:
      name: cloudcoaster
      below: 90s
      options: {slots: 4, slot_milli_cpus: 1000, slot_memory_mib: 1024}
baseline: alone
cluster: {servers: 12, short: 4, spot_ratio: 3, provisioning: 20s}
estimates: "off"
reference: false
vary: {cluster.spot_ratio: [1, 3]}
"""


def refusal(folder: Path, wrong: str, right: str) -> list[tuple[str, str]]:
    (folder / "t.tr").write_text(TRACE)
    path = folder / "e.yaml"
    assert right in TEXT
    path.write_text(TEXT.replace(right, wrong))
    with pytest.raises(InvalidConfig) as refused:
        load_experiment(path)
    return [(str(one.key), one.message) for one in refused.value.problems]


@pytest.mark.explore
def test_the_report_has_the_waits_of_short_and_long_tasks(tmp_path: Path) -> None:
    (tmp_path / "t.tr").write_text(TRACE)
    (tmp_path / "e.yaml").write_text(TEXT)
    plan = load_experiment(tmp_path / "e.yaml")
    found, results = cells(plan), Results(tmp_path / "results")
    assert len({cell.digest for cell in found}) == 4, "each price ratio is a run of its own"
    for cell in found:
        result = execute(cell.run)
        assert "error" not in result, result
        results.keep(result)
    summary = summarise(plan, found, results)
    assert summary.missing == 0
    alone, pair = (row.figures for row in summary.rows if dict(row.values).popitem()[1] == 3)
    assert (alone["short_tasks"].mean, alone["long_tasks"].mean) == (60, 16)
    # Alone the short ones come after the long ones that hold all eight servers.
    assert alone["short_wait_mean_s"].mean > 100 > pair["short_wait_mean_s"].mean
    assert pair["transients_peak"].mean <= 6, "what two servers on demand cost"
    assert alone["transients_peak"].mean == 0
    # Two of the four servers for short tasks are replaced, each by up to three.
    saved = 1 - pair["transients_mean"].mean / 3 / 2
    assert pair["saved_share"].mean == pytest.approx(saved)
    assert "saved_share" not in alone
    printed = Console(width=250, record=True, file=io.StringIO())
    printed.print(table(summary, OF_SHORT))
    told = printed.export_text()
    for column in ("SHORT WAIT", "P99", "LONG WAIT", "NORMALISED", "SAVED", "LIFE", "RERUNS"):
        assert column in told
    assert f"{pair['short_wait_mean_s'].mean:,.2f}s" in told
    page = write_report(summary, tmp_path / "report").read_text()
    for text in ("short wait, s", "r-normalised", "Waits of short tasks", "the long load"):
        assert text in page


@pytest.mark.parametrize(
    ("wrong", "right", "key", "message"),
    [
        ("spot_ratio: 0.9, pro", "spot_ratio: 3, pro", "cluster.spot_ratio", "must be 1 or more"),
        ("below: 0s", "below: 90s", "policies[1].short.below", "must be greater than 0"),
        ("slots: 4, transient_share_ppm: 1000000", "slots: 4", "policies[1].short", "none would"),
        (
            "slots: 4, resize: published, threshold_ppm: 800000",
            "slots: 4",
            "policies[1].short",
            "threshold_ppm 800,000 is never exceeded: long tasks on all 8 shared servers are 0.80",
        ),
        (
            "slots: 4, budget_usd_per_hour: 0.3",
            "slots: 4",
            "policies[1].short",
            "budget_usd_per_hour 0.3 buys no transient server, which costs 0.333333 dollars",
        ),
        ("name: cloudcoster", "name: cloudcoaster", "policies[1].short", "no policy 'cloudcoster'"),
        ("cluster: {servers: 0,", "cluster: {servers: 12,", "cluster.servers", "must be 1 or more"),
    ],
)
def test_what_cannot_be_is_refused_with_its_key(
    tmp_path: Path, wrong: str, right: str, key: str, message: str
) -> None:
    ((found, told),) = refusal(tmp_path, wrong, right)
    assert found == key
    assert message in told


def test_a_policy_for_short_jobs_wants_a_cluster(tmp_path: Path) -> None:
    found = refusal(
        tmp_path, "", "cluster: {servers: 12, short: 4, spot_ratio: 3, provisioning: 20s}"
    )
    assert ("policies[1].short", "'short' wants a 'cluster', or partitions") in found
