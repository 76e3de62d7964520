"""Virtual time: the order of actions, and what is cancelled."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from eva_lab.simulator.cluster.clock import Timeline, Timer


def test_a_cancelled_action_is_as_if_it_had_never_been() -> None:
    timeline, told = Timeline(), list[str]()
    first = timeline.after(10, lambda: told.append("first"))
    timeline.after(20, lambda: told.append("second"))
    last = timeline.after(30, lambda: told.append("last"))
    timeline.cancel(first)
    timeline.cancel(last)
    timeline.cancel(last)
    assert timeline.next() == 20
    timeline.advance()
    assert (told, timeline.now(), timeline.next()) == (["second"], 20, None)


def test_an_action_may_cancel_itself_and_others_of_its_moment() -> None:
    timeline, told = Timeline(), list[str]()

    def happens() -> None:
        told.append("it")
        for timer in timers:
            timeline.cancel(timer)

    timers = [timeline.after(5, happens) for _ in range(4)]
    timeline.advance()
    assert told == ["it"]
    assert timeline.next() is None


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 30)), max_size=40))
def test_what_is_left_happens_in_order_and_little_else_is_kept(
    steps: list[tuple[int, int]],
) -> None:
    """A step is a delay and the number of an earlier action to cancel."""
    timeline, told, left = Timeline(), list[int](), list[tuple[int, int]]()
    timers: list[Timer] = []
    for number, (delay, other) in enumerate(steps):
        timers.append(timeline.after(delay, lambda number=number: told.append(number)))
        left.append((delay, number))
        if other < len(timers):
            timeline.cancel(timers[other])
            left = [entry for entry in left if entry[1] != other]
        assert len(timeline._agenda) <= 2 * len(left)
    while timeline.next() is not None:
        timeline.advance()
    assert told == [number for _, number in sorted(left)]
