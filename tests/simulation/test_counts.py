"""Three fixed runs do as much as before: plans, events, trials and cost, to the last digit."""

from __future__ import annotations

import pytest

from benchmarks import counts


@pytest.mark.parametrize("run", counts.RUNS)
def test_a_fixed_run_does_as_much_as_before(run: str) -> None:
    before = {run: counts.stored()[run]}
    after = {run: counts.counted(counts.RUNS[run]())}
    if changed := counts.table(before, after):
        pytest.fail(
            f"{changed}\nIf that is meant, `python -m benchmarks.counts --write` accepts it; the "
            f"commit then shows {counts.FILE.relative_to(counts.ROOT)} and says why.",
            pytrace=False,
        )


def test_a_table_shows_each_count_that_changed() -> None:
    before = {"batch": {"trials": 100, "loads": 7}, "gone": {"loads": 1}}
    after = {"batch": {"trials": 110, "loads": 7, "new": 3}}
    assert [line.split() for line in counts.table(before, after).splitlines()[1:]] == [
        ["batch", "trials", "100", "110", "+10.00", "%"],
        ["batch", "new", "-", "3"],
        ["gone", "loads", "1", "-"],
    ]
    assert counts.table(after, after) == ""
