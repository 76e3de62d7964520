"""The check of owners: a figure that is worked out twice is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checks import owners

SECOND_SPELLINGS = {
    "room left on an instance": "free = view.offering.type.capacity - used",
    "instances left of an offering": "more = max(0, offering.limit - used[offering.id])",
    "where task runs are after a plan": "places[entry.run] = None",
    "since when a record is in its state": "began = run.history[-1][1]",
    "time that a record has spent in a state, waiting or running": (
        "spells = zip(job.history, ends)"
    ),
    "delay of a start, a stop or a boot": "boot = lookup(Delay.SETUP, name, hint=None, default=0)",
    "time that a change takes": "ms = job.delays.checkpoint_ms + job.delays.launch_ms",
    "cost of a change": "cost += view.offering.price * job.delays.change_ms",
    "time until work is done": "ends = work.standalone_ms(now) * MILLION // work.pace_ppm",
    "price per hour of instances": "rate = sum(instance.offering.price for instance in live)",
    "money spent this month": "spent = sums.month_charged if sums.month_ms == month else 0",
}


@pytest.mark.parametrize("figure", SECOND_SPELLINGS)
def test_a_second_spelling_of_a_figure_is_refused(tmp_path: Path, figure: str) -> None:
    path = tmp_path / "eva_master" / "elsewhere.py"
    path.parent.mkdir()
    path.write_text(f'"""A module."""\n\n{SECOND_SPELLINGS[figure]}\n')
    (fault,) = owners.faults(tmp_path)
    assert fault.startswith(f"eva_master/elsewhere.py:3: {figure} is worked out here")


def test_owners_may_work_out_their_figures(tmp_path: Path) -> None:
    for owned in owners.OWNED:
        path = tmp_path / owned.owners[0]
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.write(f"{SECOND_SPELLINGS[owned.figure]}\n")
    assert not list(owners.faults(tmp_path))


def test_every_figure_has_an_example_and_an_owner_that_exists() -> None:
    root = Path(__file__).parents[3]
    assert {owned.figure for owned in owners.OWNED} == set(SECOND_SPELLINGS)
    assert all((root / owner).exists() for owned in owners.OWNED for owner in owned.owners)
