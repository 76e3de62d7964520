"""A cluster of dask carries out a sweep: real processes of this machine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import pytest
from click.testing import CliRunner
from distributed import LocalCluster

from eva_lab.cli.experiment import experiment
from eva_lab.experiments.runs import Result, Results, cells
from eva_lab.experiments.schema import ExperimentPlan, load_experiment
from eva_lab.experiments.sweep import RunExecutor, SweepProgress, missing, sweep
from eva_wire.values.errors import Unreachable

SMALL = """
name: small
traces:
  short: {kind: production, jobs: 8, durations: short}
policies: [no_packing, synergy]
seeds: [1, 2]
"""


def plan_of(folder: Path) -> ExperimentPlan:
    path = folder / "e.yaml"
    path.write_text(SMALL)
    return load_experiment(path, ())


def nothing(_: SweepProgress) -> None:
    """Watch no progress."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with (
        # So long the client of a lost cluster tries to connect again.
        dask.config.set({"distributed.comm.timeouts.connect": "10s"}),
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            dashboard_address=None,
            local_directory=str(tmp_path / "dask"),
        ) as made,
    ):
        yield made


def untimed(result: Result | None) -> dict[str, Any]:
    assert result is not None
    figures = {
        name: value for name, value in result["figures"].items() if not name.startswith("planning_")
    }
    return {**result, "figures": figures, "made": result["made"] | {"wall_s": 0.0}}


def test_a_dask_cluster_has_the_results_of_this_machine(
    tmp_path: Path, cluster: LocalCluster
) -> None:
    plan = plan_of(tmp_path)
    here, on_dask = Results(tmp_path / "here"), tmp_path / "out" / "runs"
    assert not sweep(missing(cells(plan), here), here, RunExecutor(1, "sequential"), nothing)
    arguments = [str(tmp_path / "e.yaml"), "--out", str(on_dask.parent), "--json", "--dask"]
    done = CliRunner().invoke(experiment, [*arguments, cluster.scheduler_address])
    assert done.exit_code == 0, done.output
    assert {row["policy"] for row in json.loads(done.stdout)["rows"]} == {"no_packing", "synergy"}
    for cell in cells(plan):
        assert untimed(Results(on_dask).find(cell.digest)) == untimed(here.find(cell.digest))


def test_a_cluster_that_is_lost_leaves_what_has_ended(
    tmp_path: Path, cluster: LocalCluster
) -> None:
    results = Results(tmp_path / "runs")
    runs = missing(cells(plan_of(tmp_path)), Results(tmp_path / "none"))

    def lose(progress: SweepProgress) -> None:
        if progress.done == 1:
            cluster.close()

    with pytest.raises(Unreachable, match="the dask cluster at tcp") as lost:
        sweep(runs, results, RunExecutor(dask=cluster.scheduler_address), lose)
    assert "go" in lost.value.hint
    rest = missing(cells(plan_of(tmp_path)), results)
    assert 0 < len(rest) < len(runs)
    assert not sweep(rest, results, RunExecutor(1, "sequential"), nothing)


def test_a_scheduler_that_does_not_answer_is_told(tmp_path: Path) -> None:
    runs, free = missing(cells(plan_of(tmp_path)), Results(tmp_path / "none")), "tcp://127.0.0.1:9"
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "100ms"}),
        pytest.raises(Unreachable, match="the dask cluster at tcp"),
    ):
        sweep(runs, Results(tmp_path / "runs"), RunExecutor(dask=free), nothing)
