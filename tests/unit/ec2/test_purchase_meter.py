"""The meter that ends every test on EC2: what it counts, and what it lets pass."""

from __future__ import annotations

import pytest

from tests.fakes.aws.purchases import Purchase, check, in_a_row

BOUGHT = [Purchase(at, f"i{at}", "c5.large@za") for at in range(1, 7)]


def test_it_counts_until_one_registers() -> None:
    assert in_a_row(BOUGHT, {}) == {"c5.large@za": 6}
    assert in_a_row(BOUGHT, {"i3": 5, "i1": None}) == {"c5.large@za": 4}
    assert in_a_row([*BOUGHT[:3], Purchase(4, "i4", "c5.large@zb")], {}) == {
        "c5.large@za": 3,
        "c5.large@zb": 1,
    }


def test_too_many_in_a_row_fail_a_test() -> None:
    check(BOUGHT[:4], {})
    with pytest.raises(AssertionError, match=r"c5\.large@za': 5"):
        check(BOUGHT[:5], {})
