"""Moves to an instance that boots are withdrawn when a task ends that was to come there too."""

from __future__ import annotations

import pytest

from eva_wire.values.ids import RunId
from tests.simulation.emptied.test_late_launches import World


class _Wrong(World):
    """Jobs of which all but one say how long they take, and that one is wrong."""

    def add_wrong(self, name: str, seconds: int, said_s: int) -> None:
        """Have a job submitted that ends after other than the stated time."""
        self.add(name, said_s)
        self._seconds[name] = seconds


@pytest.mark.parametrize(("ends_s", "moves"), [(100, 0), (7_200, 1)])
def test_a_task_stays_where_it_is_if_another_one_ends_before_both_share_an_instance(
    ends_s: int, moves: int
) -> None:
    """The larger instance, bought when the second job runs, is up two minutes later."""
    world = _Wrong(told=True)
    world.add_wrong("a", ends_s, said_s=7_200)
    world.add("b", 7_200, at_s=20)
    world.play(2)
    assert world.state.runs[RunId("b-2/0")].moves == moves


def test_an_instance_that_its_tasks_have_left_serves_the_next_plan() -> None:
    """Without the first job, the second one shares the instance that boots with a third one."""
    world = _Wrong(told=True)
    world.add_wrong("a", 100, said_s=7_200)
    world.add("b", 7_200, at_s=20)
    world.add("c", 7_200, at_s=172)
    assert world.play(3).count("box.4") <= 1
