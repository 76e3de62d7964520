"""What is learned of pools that run dry and come back."""

from __future__ import annotations

import json
import random

import pytest

from eva_master.learning.market.interruptions import Interruptions
from eva_master.learning.market.pools import SpotPool, SpotPools
from eva_master.learning.market.spot_market import SpotMarket
from eva_master.learning.market.survival import Survival
from eva_wire.values.ids import MILLIS_PER_HOUR, Millis

MINUTE = 60_000
HERE = SpotPool("p3.2xlarge", "us-east-1a")
NEXT_DOOR = SpotPool("p3.2xlarge", "us-east-1c")
ELSEWHERE = SpotPool("p3.2xlarge", "us-west-2a")


def watched(pool: SpotPool, times: list[tuple[bool, int]], step_ms: int = MINUTE) -> SpotPools:
    """What is known after a launch was tried every minute, while a pool was there and away."""
    known, now = SpotPools(), 0
    for there, length_ms in times:
        for _ in range(length_ms // step_ms):
            now += step_ms
            if there:
                known = known.sold(pool, Millis(now))
            elif known.retry_ms(pool) <= now:
                known = known.refused(pool, Millis(now))
    return known


def test_what_has_lasted_for_long_is_told_from_what_is_new() -> None:
    draw, times = random.Random(7), []
    for _ in range(400):
        # Seven of ten last ten minutes, the others a day; outages are of one kind, half an hour.
        times.append((True, 10 * MINUTE if draw.random() < 0.7 else 24 * MILLIS_PER_HOUR))
        times.append((False, 30 * MINUTE))
    known = watched(HERE, times)
    # Of a quarter of an hour that begins, 0.7 times 10 minutes and 0.3 times 15 are watched.
    assert known.loss_at(HERE, 0) == pytest.approx(0.7 / (11.5 / 60), rel=0.15)
    assert known.loss_at(HERE, 3 * MILLIS_PER_HOUR) < 0.01
    # All that end do so in one class, of which each was watched for a quarter of an hour, or less.
    assert known.return_at(HERE, 45 * MINUTE) < known.return_at(HERE, 20 * MINUTE) * 10
    elsewhere = known.loss_at(ELSEWHERE, 0)
    assert 2 < elsewhere < known.loss_at(HERE, 0) * 1.05, "it leans on what is known of others"


def test_what_is_bought_when_a_pool_comes_back_is_young_and_ages() -> None:
    known = watched(HERE, [(True, 20 * MINUTE), (False, 30 * MINUTE), (True, 5 * MINUTE)])
    now = Millis(55 * MINUTE)
    young = known.loss_per_hour(HERE, now, held=True, assumed=0.01)
    later = Millis(now + 6 * MILLIS_PER_HOUR)
    old = known.loss_per_hour(HERE, later, held=True, assumed=0.01)
    forgotten = known.loss_per_hour(HERE, later, held=False, assumed=0.01)
    assert young is not None
    assert old is not None
    assert forgotten is not None
    # It came back between two tries, two and a half minutes before it was bought.
    assert young == known.loss_at(HERE, now - 48_500 * 60) > old
    assert old < forgotten != young, "nobody knows how often it changed meanwhile"


@pytest.mark.parametrize("held", [False, True])
def test_what_nobody_watched_is_of_unknown_age(held: bool) -> None:
    known = watched(HERE, [(True, 20 * MINUTE), (False, 30 * MINUTE), (True, 5 * MINUTE)])
    later = Millis(72 * MILLIS_PER_HOUR)
    again = known.sold(HERE, later, held=held)
    age_ms = again.age_ms(HERE, Millis(later + MINUTE), held=True)
    assert (age_ms is None) is not held, "it may have been away for days"


def test_pools_that_were_never_refused_are_worth_what_they_were() -> None:
    lives = Interruptions().seen("p3.2xlarge", 3_600_000, interrupted=True)
    pools = SpotPools().sold(HERE, Millis(0)).ended(HERE, Millis(3_600_000))
    assert pools.loss_per_hour(HERE, Millis(4_000_000), held=True, assumed=0.5) is None
    assert SpotMarket(lives, pools).documents["interruptions"]() == lives.to_json()


def dropping(*pools: SpotPool) -> SpotPools:
    """Pools that came back together and run dry together, ten times."""
    known, now = SpotPools(), 0
    for _ in range(10):
        for there in (False, True):
            now += 15 * MINUTE
            for pool in pools:
                if there:
                    known = known.sold(pool, Millis(now))
                else:
                    known = known.refused(pool, Millis(now), held=True)
    return known


def test_pools_that_run_dry_together_count_once_beyond_themselves() -> None:
    together, alone = dropping(HERE, NEXT_DOOR), dropping(HERE)
    apart = dropping(HERE, ELSEWHERE)
    assert sum(together.up[""].ends) == sum(alone.up[""].ends) == 9
    assert sum(together.up[str(NEXT_DOOR)].ends) == 9
    assert sum(apart.up[""].ends) == 18, "regions have nothing to do with each other"


def test_several_launches_of_one_try_are_one_refusal() -> None:
    once = SpotPools().refused(HERE, Millis(5))
    assert once.refused(HERE, Millis(5)) == once
    assert once.refused(HERE, Millis(6)) == once
    assert once.retry_ms(HERE) == 60_005
    again = once.refused(HERE, Millis(60_005))
    assert again.retry_ms(HERE) == 180_005
    assert again.sold(HERE, Millis(200_000)).retry_ms(HERE) == 0


def test_the_journal_keeps_it_and_takes_no_nonsense() -> None:
    market = SpotMarket(Interruptions(), dropping(HERE, NEXT_DOOR, ELSEWHERE))
    written = json.loads(json.dumps({name: made() for name, made in market.documents.items()}))
    assert SpotMarket.from_json(written) == market
    for broken in ({}, {"spot_pools": 1}, {"spot_pools": {"up": {"": [[1], [2]]}, "spells": []}}):
        assert SpotMarket.from_json(broken) == SpotMarket()
    assert Survival.from_json([[-1] * 9, [0] * 9]) is None
    assert Survival.from_json([["x"] * 9, [0] * 9]) is None
