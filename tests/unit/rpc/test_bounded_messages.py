"""Numbers beyond their fields in messages that views are made of."""

from __future__ import annotations

import pytest

from eva_master.adapters.rpc.bounded import bounded_pb as pb
from eva_wire._proto import api_pb2


@pytest.mark.parametrize("huge", [2**63, 10**30])
def test_a_number_beyond_its_field_is_shown_as_the_one_nearest_to_it(huge: int) -> None:
    high = pb.Job(submitted_ms=huge, failures=huge, exit_code=huge, priority=3, id="a")
    assert (high.submitted_ms, high.failures) == (2**63 - 1, 2**32 - 1)
    assert (high.exit_code, high.priority, high.id) == (2**31 - 1, 3, "a")
    low = pb.Job(submitted_ms=-huge - 1, failures=-1)
    assert (low.submitted_ms, low.failures) == (-(2**63), 0)


def test_maps_lists_and_messages_within_one_are_kept() -> None:
    task = pb.Task(index=1)
    shown = pb.Job(
        submitted_ms=2**64, tasks=[task], tasks_by_state={"a": 2**40, "b": 1}, exit_code=None
    )
    assert list(shown.tasks) == [task]
    assert dict(shown.tasks_by_state) == {"a": 2**32 - 1, "b": 1}
    assert not shown.HasField("exit_code")


def test_a_field_that_does_not_exist_is_an_error_all_the_same() -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        pb.Job(submitted=1)  # type: ignore[call-arg]
    assert isinstance(pb.Job(), pb.Job)
    assert isinstance(api_pb2.Job(), pb.Job)
    assert not isinstance(api_pb2.Task(), pb.Job)
