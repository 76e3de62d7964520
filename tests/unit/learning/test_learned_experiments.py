"""Experiments with jobs that recur: those that come with Eva, at the size of a few jobs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from eva_lab.experiments.execution import execute
from eva_lab.experiments.runs import Cell, Results, cells
from eva_lab.experiments.schema import ExperimentPlan, load_experiment
from eva_lab.experiments.summary import Summary, summarise
from eva_lab.reports.page import write_report
from eva_wire.values.errors import InvalidConfig

EXPERIMENTS = Path(__file__).parents[3] / "experiments"
OWN = sorted(EXPERIMENTS.glob("slearn-*.yaml"))
TEXT = """
name: tiny
traces: {t: {kind: tasks, file: "t_{seed}.txt"}}
policies: [slearn:published, slearn:3sigma, {name: "slearn:oracle", stated_durations: true}]
baseline: slearn:3sigma
cluster: {servers: 8}
seeds: [1, 2]
stated_durations: false
reference: false
"""


def line(at: float, app: str, seconds: Sequence[float]) -> str:
    return f"J {at} 1 ana {app} 9 8 32 {len(seconds)} {' '.join(map(str, seconds))}\n"


def recurring(seed: int, jobs: int = 40) -> str:
    """Jobs of two applications; the past tells of one of them what is ten times too much."""
    draw = Random(seed)
    past = "".join(f"H 1 ana {app} 9 8 32 {draw.uniform(900, 1100)}\n" for app in "ab" * 10)
    found = []
    for number in range(jobs):
        mean = 100 if number % 2 else 1_000
        tasks = [round(mean * draw.uniform(0.9, 1.1), 1) for _ in range(draw.randint(1, 6))]
        found.append(line(240.0 * number, "ba"[mean > 100], tasks))
    return past + "".join(found)


def done(plan: ExperimentPlan, folder: Path) -> tuple[Summary, list[Cell]]:
    found, results = cells(plan), Results(folder)
    for run in {cell.digest: cell.run for cell in found}.values():
        result = execute(run)
        assert "error" not in result, result
        results.keep(result)
    return summarise(plan, found, results), found


@pytest.mark.explore
def test_each_seed_has_a_file_and_each_policy_the_estimates_it_asks_for(tmp_path: Path) -> None:
    for seed in (1, 2):
        (tmp_path / f"t_{seed}.txt").write_text(recurring(seed))
    (tmp_path / "e.yaml").write_text(TEXT)
    summary, found = done(load_experiment(tmp_path / "e.yaml"), tmp_path / "results")
    assert len({cell.digest for cell in found}) == 6
    asked = {cell.label: (cell.run.estimates, cell.run.stated_durations) for cell in found}
    assert asked == {
        "slearn:published": ("pilots", False),
        "slearn:3sigma": ("3sigma", False),
        "slearn:oracle": ("off", True),
    }
    rows = {row.label: row for row in summary.rows}
    pilots, history, oracle = (rows[label].figures for label in asked)
    assert all(one.count == 2 for one in pilots.values()), "two files are two samples"
    assert oracle["estimate_error_p90"].mean == pytest.approx(0, abs=1e-4)
    assert pilots["estimate_error_p90"].mean < 0.2 < 0.8 < history["estimate_error_p90"].mean
    assert pilots["right_queue"].mean > history["right_queue"].mean
    assert pilots["jct_p90_h"].mean >= pilots["jct_median_h"].mean
    assert "short_wait_mean_s" not in pilots
    # Of 40 jobs those of one or two tasks are thin, and those of 1,000 s of one task in all large.
    of_sorts = {name: it.mean for name, it in pilots.items() if name.count("_") == 3}
    sorts = {"jct_thin_small_h", "jct_thin_large_h", "jct_wide_small_h", "jct_wide_large_h"}
    assert of_sorts.keys() & sorts == sorts
    assert min(of_sorts[it] for it in sorts) < pilots["jct_mean_h"].mean
    assert max(of_sorts[it] for it in sorts) > pilots["jct_mean_h"].mean
    chosen = rows["slearn:published"].results[0]["curves"]["pilots"]
    assert chosen
    assert all(pilots == 1 and tasks in (3, 4, 5, 6) for _, pilots, tasks in chosen)
    assert rows["slearn:3sigma"].results[0]["curves"]["pilots"] == []
    over = rows["slearn:published"].speed_ups["slearn:3sigma"]
    back = rows["slearn:3sigma"].speed_ups["slearn:published"]
    assert over.count == 2
    assert over.half is not None
    first, second = (
        history_of["figures"]["jct_mean_h"] / own["figures"]["jct_mean_h"]
        for history_of, own in zip(
            rows["slearn:3sigma"].results, rows["slearn:published"].results, strict=True
        )
    )
    assert over.mean == pytest.approx((first + second) / 2)
    assert back.mean == pytest.approx((1 / first + 1 / second) / 2)
    page = write_report(summary, tmp_path / "report").read_text()
    for told in (
        "right queue, %",
        "over slearn:3sigma",
        "Estimated and true",
        "many tasks are pilots",
    ):
        assert told in page
    assert "Waits of short tasks" not in page


def test_an_experiment_may_say_what_all_estimate_from(tmp_path: Path) -> None:
    for seed in (1, 2):
        (tmp_path / f"t_{seed}.txt").write_text(recurring(seed))
    (tmp_path / "e.yaml").write_text(TEXT + "estimates: history\n")
    found = cells(load_experiment(tmp_path / "e.yaml"))
    assert {cell.run.estimates for cell in found} == {"history"}


def test_what_is_estimated_from_must_be_known(tmp_path: Path) -> None:
    (tmp_path / "e.yaml").write_text(TEXT + "estimates: tea leaves\n")
    with pytest.raises(InvalidConfig) as refused:
        load_experiment(tmp_path / "e.yaml")
    ((key, told),) = [(str(one.key), one.message) for one in refused.value.problems]
    assert key == "estimates"
    assert "posterior" in told


def test_there_is_a_file_for_each_table_that_is_repeated() -> None:
    assert [path.stem.removeprefix("slearn-") for path in OWN] == [
        "dag",
        "figure-3",
        "figure-6",
        "table-6",
        "table-7",
        "table-9",
    ]


def test_ratios_and_thin_limits_are_compared_with_3sigma_as_in_the_paper() -> None:
    ratios, limits = (
        load_experiment(path).experiment
        for path in OWN
        if path.stem in ("slearn-table-6", "slearn-table-9")
    )
    assert ratios.baseline == limits.baseline == "slearn:3sigma"
    assert set(ratios.labels) == {f"{it} %" for it in (1, 2, 3, 4, 5, 10)} | {
        "adaptive",
        "slearn:3sigma",
    }
    assert set(limits.labels) == {f"limit {it}" for it in (2, 3, 4, 5, 6)} | {"slearn:3sigma"}


@pytest.mark.long
@pytest.mark.parametrize(
    "path",
    [it if it == OWN[0] else pytest.param(it, marks=pytest.mark.explore) for it in OWN],
    ids=lambda path: path.stem,
)
def test_those_that_come_with_eva_run(path: Path, tmp_path: Path) -> None:
    settings = ["trace.jobs=15", "seeds=[6]", "cluster.servers=8"]
    if path.stem == "slearn-dag":
        settings = ["trace.dags=5", "trace.past=40", "trace.slots=20", "seeds=[6]"]
    elif "recurrent" in path.read_text():
        settings = ["trace.jobs=8", "trace.past=40", "seeds=[6]"]
    else:
        (tmp_path / "t_6.txt").write_text(recurring(6, jobs=15))
        settings.append(f"trace.file={tmp_path}/t_{{seed}}.txt")
    plan = load_experiment(path, settings)
    summary, found = done(plan, tmp_path / "results")
    assert summary.missing == 0
    assert len(summary.rows) == 3 * len(plan.experiment.policies) == len(found)
    for row in summary.rows:
        rivals = set(plan.experiment.labels) - {row.label}
        assert row.speed_ups.keys() == rivals
        assert "wait_share" in row.figures
        unknown = ("slearn:fifo", "slearn:las-dag")
        assert ("right_queue" in row.figures) >= (row.label not in unknown)
        assert ("dag_jct_mean_h" in row.figures) is (path.stem == "slearn-dag")
