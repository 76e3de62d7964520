"""A turn looks at things in the order in which they were touched."""

from __future__ import annotations

from eva_master.control.turn.touched import Touched
from eva_wire.values.ids import InstanceId, JobId, RunId

PLACE = InstanceId("i-1")


def test_things_are_taken_in_the_order_in_which_they_were_touched() -> None:
    touched = Touched()
    for index in (2, 1, 2):
        touched.run(RunId(f"a-1/{index}"))
    touched.job(JobId("b-2"))
    assert touched.take_job() == ("b-2", None)
    assert [touched.take_run(), touched.take_run()] == ["a-1/2", "a-1/1"]
    assert not touched.jobs
    assert not touched.runs


def test_a_place_is_asked_about_again_once_a_task_is_taken_or_a_turn_begins() -> None:
    """Else a task that came meanwhile would not hear of room that becomes free."""
    touched = Touched()
    assert touched.place(PLACE)
    assert not touched.place(PLACE)
    touched.run(RunId("a-1/0"))
    touched.take_run()
    assert touched.place(PLACE)
    touched.begin()
    assert touched.place(PLACE)
