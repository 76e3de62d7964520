"""Sweeps: the order of runs, and when they end."""

from __future__ import annotations

from pathlib import Path

from eva_lab.experiments.pace import Pace, timed
from eva_lab.experiments.runs import Results, Run, cells
from eva_lab.experiments.schema import ExperimentPlan, load_experiment
from eva_lab.experiments.sweep import RunExecutor, SweepProgress, missing, sweep

SMALL = """
name: small
traces:
  short: {kind: production, jobs: 8, durations: short}
policies: [no_packing, synergy]
seeds: [1, 2]
"""


def plan_of(folder: Path, *settings: str) -> ExperimentPlan:
    path = folder / "e.yaml"
    path.write_text(SMALL)
    return load_experiment(path, settings)


def runs_of(folder: Path, *settings: str) -> list[Run]:
    return missing(cells(plan_of(folder, *settings)), Results(folder / "none"))


class Clock:
    """A clock that stands still until it is set."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


# -- the order, and the end ------------------------------------------------------------------------


def test_one_of_each_kind_comes_first_then_the_longest(tmp_path: Path) -> None:
    runs = runs_of(tmp_path, "seeds=[1,2,3]", "reference=false")
    pace = Pace(runs, (), Clock())
    order = pace.longest_first()
    begun = [next(order), next(order)]
    assert {run.title for run in begun} == {"no_packing", "synergy"}
    for run in begun:
        pace.ended(run.digest, 9.0 if run.title == "synergy" else 2.0)
    assert [run.title for run in order] == ["synergy", "synergy", "no_packing", "no_packing"]


def test_what_took_long_in_an_earlier_sweep_begins_first(tmp_path: Path) -> None:
    runs = runs_of(tmp_path, "seeds=[1,2,3]", "reference=false")
    earlier = [(run, 5.0 if run.title == "synergy" else 1.0) for run in runs if run.seed == 1]
    rest = [run for run in runs if run.seed != 1]
    order = [run.title for run in Pace(rest, earlier, Clock()).longest_first()]
    assert order == ["synergy", "synergy", "no_packing", "no_packing"]


def test_the_end_is_told_from_what_runs_of_a_kind_took(tmp_path: Path) -> None:
    runs, clock = runs_of(tmp_path, "seeds=[1,2,3]", "reference=false"), Clock()
    pace = Pace(runs, (), clock)
    order = pace.longest_first()
    first, second = next(order), next(order)
    assert pace.left_s(2) is None, "none has ended"
    clock.now = 10.0
    pace.ended(first.digest, 10.0)
    # Two of its kind wait; the other kind is taken to be as long, and one of it is over by now.
    assert pace.left_s(2) == (4 * 10.0) / 2
    assert pace.left_s(100) == 10.0, "no sooner than the longest run ends"
    clock.now = 30.0
    pace.ended(second.digest, 30.0)
    assert pace.left_s(2) == (2 * 10.0 + 2 * 30.0) / 2
    third = next(order)
    assert third.title == second.title
    clock.now = 45.0
    assert pace.left_s(1) == 15.0 + 30.0 + 2 * 10.0
    pace.ended(third.digest, None)
    assert pace.left_s(1) == 30.0 + 2 * 10.0, "a run that failed tells nothing"


def test_a_sweep_that_ends_has_nothing_left(tmp_path: Path) -> None:
    progresses: list[SweepProgress] = []
    runs, results = runs_of(tmp_path, "seeds=[1]"), Results(tmp_path / "runs")
    assert not sweep(runs, results, RunExecutor(1, "sequential"), progresses.append)
    assert [progress.done for progress in progresses] == [0, 1, 2, 3]
    assert progresses[0].left_s is None
    assert progresses[-1].left_s == 0.0
    seconds = timed(cells(plan_of(tmp_path, "seeds=[1]")), results)
    assert {run.digest for run, _ in seconds} == {run.digest for run in runs}
    assert all(took > 0 for _, took in seconds)
