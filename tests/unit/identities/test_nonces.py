"""Nonces: good once, for a minute, for one process."""

from __future__ import annotations

import pytest

from eva_master.adapters.identities.nonces import Nonces
from eva_wire.values.errors import Busy, ChallengeOver


class Now:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.s = 100.0

    def __call__(self) -> float:
        return self.s


def test_a_nonce_is_good_once() -> None:
    nonces = Nonces(Now())
    first, second = nonces.make(), nonces.make()
    assert first != second
    nonces.use(first)
    with pytest.raises(ChallengeOver, match="answered before"):
        nonces.use(first)
    nonces.use(second)


def test_a_nonce_is_good_for_a_minute() -> None:
    now = Now()
    nonces = Nonces(now)
    early, late = nonces.make(), nonces.make()
    now.s += 60
    nonces.use(early)
    now.s += 0.01
    with pytest.raises(ChallengeOver, match="older than 60 s"):
        nonces.use(late)
    # The used one is remembered for longer than it is good.
    with pytest.raises(ChallengeOver):
        nonces.use(early)


@pytest.mark.parametrize("forged", ["", ".", "a.b.c", "64.00.", "\u00e4.b.c"])
def test_what_is_not_of_this_process_is_none(forged: str) -> None:
    nonces, earlier = Nonces(Now()), Nonces(Now())
    for nonce in (forged, earlier.make(), nonces.make()[:-1], "0" + nonces.make()):
        with pytest.raises(ChallengeOver, match="no such challenge"):
            nonces.use(nonce)


def test_those_who_only_ask_take_up_no_room_and_the_used_ones_a_bounded_one() -> None:
    now = Now()
    nonces = Nonces(now, most_used=3)
    asked = [nonces.make() for _ in range(100)]
    for nonce in asked[:3]:
        nonces.use(nonce)
    with pytest.raises(Busy) as full:
        nonces.use(asked[3])
    assert full.value.retry_after_ms == 60_000
    now.s += 60.01
    nonces.use(nonces.make())
