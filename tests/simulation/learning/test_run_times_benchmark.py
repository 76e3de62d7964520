"""What `python -m benchmarks.run_times` prints of a trace small enough to reckon by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import run_times
from eva_master.app.policy_registry import policies
from eva_master.app.sections.base import OnePolicySection
from eva_master.app.sections.building import policy_config
from eva_master.app.sections.policies import estimates_of
from eva_master.model.planning.estimate import Estimates

PAST = "".join(f"H etl ana spark {hour} 1 1 150\n" for hour in range(6))
JOBS = (
    "J 0 etl ana spark 0 1 1 6 100 100 100 100 250 250\n"  # 900 s, by the past 150 s a task
    "J 150 thin ana other 0 1 1 2 10 10\n"  # has a plan be made, for which four have ended
)


def figures(
    folder: Path, capsys: pytest.CaptureFixture[str], *options: str, text: str = PAST + JOBS
) -> dict[str, Any]:
    path = folder / "t.txt"
    path.write_text(text)
    command = [str(path), "--json", "--policy", "fifo", "--slots", "4", *options]
    assert run_times.main(command) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_times_of_jobs_and_the_error_of_pilots(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = figures(tmp_path, capsys, "--estimates", "pilots")
    assert (found["jobs"], found["wide"], found["estimated"]) == (2, 1, 1)
    assert found["jct_mean_s"] == pytest.approx((350 + 10) / 2, abs=3)
    # The first four tasks end at once: a mean of 100 s, not 150, is a third too little.
    assert found["error_p50"] == pytest.approx(33.3, abs=3)
    assert found["right_queue"] == 100


def test_history_is_asked_at_first_sight(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = figures(tmp_path, capsys, "--estimates", "history")
    assert found["error_p50"] < 10
    unknown = figures(tmp_path, capsys, "--estimates", "history", text=JOBS)
    assert (unknown["estimated"], unknown["error_p50"]) == (0, None)


def test_who_states_how_long_jobs_take_is_believed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = figures(tmp_path, capsys, "--stated")
    assert (found["estimates"], found["estimated"]) == ("stated", 1)
    assert (found["error_p50"], found["error_p90"], found["right_queue"]) == (0, 0, 100)


def test_a_policy_that_is_not_there_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.txt"
    path.write_text(JOBS)
    assert run_times.main([str(path), "--policy", "fifoo"]) == 2
    assert "there is no policy 'fifoo'" in capsys.readouterr().err
    assert run_times.main([str(path), "--policy", "fifo:fast"]) == 2
    assert "the policy 'fifo' has no preset 'fast'" in capsys.readouterr().err
    path.write_text("J\n")
    assert run_times.main([str(path), "--policy", "fifo"]) == 2
    assert "t.txt" in capsys.readouterr().err


def test_a_policy_says_what_it_wants_estimates_from() -> None:
    kind = policies()["fifo"]
    config = policy_config(OnePolicySection(name="fifo"), kind)
    assert estimates_of(kind, config) is Estimates.POSTERIOR
    assert estimates_of(kind, config, default=Estimates.OFF) is Estimates.OFF

    class Choosy:
        """A policy that wants earlier jobs alone, or whatever there is."""

        def estimates(self, config: object) -> Estimates | None:
            return Estimates.HISTORY if config else None

    assert estimates_of(Choosy(), True) is Estimates.HISTORY  # type: ignore[arg-type]
    assert estimates_of(Choosy(), False) is Estimates.POSTERIOR  # type: ignore[arg-type]
