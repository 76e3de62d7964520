from __future__ import annotations

import pytest

from eva_wire.values.errors import IllegalTransition
from eva_wire.values.states import InstanceState, JobState, RunState, moved, spent_ms


def test_a_legal_move_extends_the_history() -> None:
    history = moved("job a", (("pending", 1),), JobState.RUNNING, 5)
    assert history == (("pending", 1), ("running", 5))


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("succeeded", JobState.RUNNING),
        ("pending", JobState.SUCCEEDED),
        ("waiting", RunState.RUNNING),
        ("failed", RunState.STARTING),
        ("stopping", RunState.RUNNING),
        ("gone", InstanceState.UP),
        ("launching", InstanceState.READY),
        ("terminating", InstanceState.READY),
    ],
)
def test_an_illegal_move_raises_with_the_history(source: str, target: JobState) -> None:
    history = (("before", 1), (source, 2))
    with pytest.raises(IllegalTransition) as caught:
        moved("thing x", history, target, 3)
    assert caught.value.history == history
    assert f"before@1 -> {source}@2" in str(caught.value)
    assert "thing x" in str(caught.value)


def test_histories_stay_short() -> None:
    history = (("pending", 0),)
    for at in range(1, 100):
        history = moved("job", history, JobState.RUNNING if at % 2 else JobState.PENDING, at)
    assert len(history) == 16
    assert history[-1] == ("running", 99)


def test_stays_in_a_state_add_up_and_the_last_one_lasts_until_now() -> None:
    history = (("pending", 100), ("running", 110), ("pending", 130), ("running", 170))
    assert spent_ms(history, JobState.PENDING, 1_000) == 10 + 40
    assert spent_ms(history, JobState.RUNNING, 200) == 20 + 30
    assert spent_ms(history[:3], JobState.PENDING, 135) == 10 + 5
    assert spent_ms(history, JobState.RUNNING, 90) == 20, (
        "a clock that is behind takes nothing back"
    )
    assert spent_ms(history, JobState.ENDING, 1_000) == 0
