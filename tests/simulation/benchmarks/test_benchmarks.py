"""The benchmarks run and say what they measured; how fast they were is not judged here."""

from __future__ import annotations

import json
import math

import pytest

from benchmarks import arrays, estimates, harness, lines, rounds
from benchmarks.__main__ import SMOKE, main

_CHECKED = ["submission", "idle_agents", "control_loop", "simulator"]


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in SMOKE if name not in _CHECKED])
def test_each_benchmark_runs(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--json", "--smoke"]) == 0
    assert json.loads(capsys.readouterr().out)[name]


@pytest.mark.long
def test_smoke_run_prints_one_json_object_with_a_member_per_benchmark(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([*_CHECKED, "--json", "--smoke"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert list(figures) == _CHECKED
    submission, idle, loop, simulator = figures.values()
    assert submission["samples"] == 3
    assert submission["rounds_meanwhile"] > 0
    assert 0 < submission["submission_ms"]["median"] <= submission["submission_ms"]["max"]
    assert (idle["agents"], idle["lost"]) == (3, 0)
    assert idle["percent_of_a_core"] >= 0
    for policy in ("eva", "no_packing"):
        assert loop[f"{policy}/3"]["jobs"] == 3
        assert loop[f"{policy}/3"]["events"] > 0
    for policy in ("no_packing", "eva_published", "eva"):
        assert simulator[policy]["jobs_finished"] == 3
        assert simulator[policy]["events_per_s"] > 0


def test_arrays_of_two_sizes_are_compared(capsys: pytest.CaptureFixture[str]) -> None:
    small, large = ("--tasks", "40"), ("--tasks", "120")
    arrays.main(["--json", *large, *small, "--slots", "16"])
    figures = json.loads(capsys.readouterr().out)
    for tasks in (40, 120):
        figure = figures[str(tasks)]
        # The start and the exit of each are turns of their own.
        assert figure["turns"] > 2 * tasks
        assert figure["rounds"] > tasks / 16
        assert figure["ms_per_task"] > 0 < figure["yardsticks_per_task"]
    assert figures["ratio"] > 0
    with pytest.raises(SystemExit):
        arrays.main(["--slots", "17"])
    assert "multiple of 16" in capsys.readouterr().err


def test_a_room_costs_the_same_however_many_stand_in_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Counts of calls are the same on every machine, so these are judged."""
    assert lines.main(["--json", "--waiting", "60", "--waiting", "600"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert not figures["missed"]
    for waits in ("jobs", "array"):
        assert 0 < figures[waits]["calls"]["600"] <= 1.1 * figures[waits]["calls"]["60"]
    with pytest.raises(SystemExit):
        lines.main(["--waiting", "40"])


def test_a_round_pictures_what_has_changed_alone() -> None:
    figures = rounds.measure("no_packing", tasks=300, changes=6, rounds=5)
    assert figures["tasks"] == 300
    # Six jobs came and six went before, and six and six since, each with its task and its place.
    assert 0 < figures["views_made"] <= 24 * 3 < 2 * 300
    assert figures["quiet_rounds_held"] == 0
    assert figures["quiet_views_made"] == 0


def test_unknown_benchmark_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["submision"])
    assert "no benchmark submision" in capsys.readouterr().err


def test_spread_of_known_values() -> None:
    spread = harness.spread([float(value) for value in range(101)])
    assert spread == {"median": 50.0, "p90": 90.0, "p99": 99.0, "max": 100.0}
    assert math.isclose(harness.spread([1.0, 3.0])["median"], 2.0)


@pytest.mark.parametrize(("missed", "code"), [([], 0), (["speed"], 1)])
def test_missed_goal_is_the_exit_code(
    missed: list[str], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert harness.publish({"speed": 1, "missed": missed}, as_json=True) == code
    assert json.loads(capsys.readouterr().out) == {"speed": 1, "missed": missed}


def test_an_estimate_costs_as_much_however_many_tasks_have_finished() -> None:
    few, many = map(estimates.calls_per_task, (40, 400))
    assert 0 < many <= 1.1 * few


@pytest.mark.explore
def test_what_is_learned_has_room_in_so_much_memory(capsys: pytest.CaptureFixture[str]) -> None:
    estimates.main(["--json", "--tasks", "40", "--owners", "8"])
    figures = json.loads(capsys.readouterr().out)
    assert {"us_per_task", "us_per_job", "calls_per_task"} <= figures.keys()
    assert 0 < figures["mib"] < figures["mib_with_last_values"] < estimates.GOAL_MIB
