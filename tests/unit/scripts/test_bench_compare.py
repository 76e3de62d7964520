"""The comparison of two commits: what each runs, the ratios with their intervals, what is left."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from benchmarks import compare
from benchmarks.compare import Benchmark, Failed, compared, interval

SPEED = Benchmark("speed", ("-m", "speed"), ("taken.s",))


def git(root: Path, *arguments: str) -> str:
    """Run git with a name of its own, whatever the user's settings are."""
    names = ["-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false"]
    return subprocess.run(
        ["git", "-C", str(root), *names, *arguments], check=True, capture_output=True, text=True
    ).stdout


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Two commits: the newer one, whose tag is `slow`, takes 1.3 times as long as `quick`."""
    git(tmp_path, "init", "--quiet")
    for tag, factor in (("quick", 1.0), ("slow", 1.3)):
        (tmp_path / "factor.py").write_text(f"FACTOR = {factor}\n")
        (tmp_path / "speed.py").write_text(
            "import json, factor\nprint(json.dumps({'taken': {'s': factor.FACTOR}}))\n"
        )
        git(tmp_path, "add", ".")
        git(tmp_path, "commit", "--quiet", "-m", tag)
        git(tmp_path, "tag", tag)
    return tmp_path


def test_an_interval_is_that_of_paired_ratios() -> None:
    """Noise that both runs of a pair share does not widen it; the figures are from a t table."""
    assert interval([1, 10, 100], [2, 20, 200]) == pytest.approx((2, 2, 2))
    # Ratios e^0, e^1, e^2: the mean of the logarithms is 1, their deviation 1, t(0.975, 2) 4.3027.
    assert interval([1, 1, 1], [1, 2.718281828, 7.389056099]) == pytest.approx(
        (2.71828, 2.71828 * 0.083406, 2.71828 * 11.98953), rel=1e-3
    )


@pytest.mark.parametrize(
    ("base", "new", "ratio", "slower"),
    [("quick", "slow", 1.3, True), ("slow", "quick", 0.769, False), ("slow", "slow", 1.0, False)],
)
def test_each_commit_runs_its_own_code_and_leaves_nothing(
    base: str, new: str, ratio: float, slower: bool, repository: Path
) -> None:
    before = git(repository, "worktree", "list")
    (result,) = compared(repository, base, new, [SPEED], 2)
    (row,) = result.rows()
    assert (row["ratio"], row["slower"]) == (ratio, slower)
    assert row["from"] == row["to"] == ratio
    assert git(repository, "worktree", "list") == before
    assert git(repository, "status", "--porcelain") == ""


def test_each_commit_has_its_own_entry_points(repository: Path) -> None:
    """The newer commit names another policy, under the name of what is installed here."""
    for count, tag in enumerate(("one", "two"), 1):
        points = "".join(f'policy-{number} = "factor:FACTOR"\n' for number in range(count))
        (repository / "pyproject.toml").write_text(
            '[project]\nname = "eva-scheduler"\nversion = "0"\n'
            f'[project.entry-points."eva.policies"]\n{points}'
        )
        (repository / "speed.py").write_text(
            "import json\nfrom importlib.metadata import entry_points\n"
            "print(json.dumps({'taken': {'s': len(entry_points(group='eva.policies'))}}))\n"
        )
        git(repository, "add", ".")
        git(repository, "commit", "--quiet", "-m", tag)
        git(repository, "tag", tag)
    (result,) = compared(repository, "one", "two", [SPEED], 2)
    assert result.base == {"taken.s": [1, 1]}
    assert result.new == {"taken.s": [2, 2]}


def test_commits_take_turns(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    def measured(benchmark: Benchmark, tree: Path) -> dict[str, float]:
        order.append("base" if tree.name.startswith("0") else "new")
        return {"taken.s": 1.0}

    monkeypatch.setattr(compare, "measured", measured)
    list(compared(repository, "quick", "slow", [SPEED], 3))
    assert order[:2] == ["base", "new"]  # these do not count
    assert order[2:] == ["base", "new", "new", "base", "base", "new"]


@pytest.mark.parametrize(
    ("new", "benchmark", "message"),
    [
        ("unknown", SPEED, "no such commit"),
        ("slow", Benchmark("gone", ("-m", "gone"), ("s",)), "gone fails in 0-.*No module named"),
        ("slow", Benchmark("gone", ("-m", "gone")), "gone fails in 0-.*No module named"),
        ("slow", Benchmark("speed", ("-m", "speed"), ("taken.ms",)), "speed fails in 0-.*'ms'"),
    ],
)
def test_a_commit_that_cannot_be_compared_is_named(
    new: str, benchmark: Benchmark, message: str, repository: Path
) -> None:
    before = git(repository, "worktree", "list")
    with pytest.raises(Failed, match=message):
        list(compared(repository, "quick", new, [benchmark], 2))
    assert git(repository, "worktree", "list") == before


def test_processor_time_is_that_of_the_command(repository: Path) -> None:
    (result,) = compared(repository, "quick", "slow", [Benchmark("help", ("-c", "pass"))], 2)
    assert all(0 < figure < 60 for figure in result.base["processor_s"])
