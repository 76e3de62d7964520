"""Each division of the bill on the page Money adds up to the bill."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from eva_master.adapters.pages.shown.money import BY, money_page
from eva_wire.rpc.messages import Bill, CostShare

amounts = st.integers(0, 10**12)


def test_volumes_and_addresses_are_told_where_they_cost() -> None:
    bill = Bill(cost_micro_usd=9_000_000, volumes_micro_usd=400_000, addresses_micro_usd=500_000)
    assert money_page(bill, "part").attached == "$0.4000 volumes, $0.5000 addresses"
    assert money_page(Bill(cost_micro_usd=9_000_000), "part").attached == ""


@given(st.sampled_from(BY), st.lists(amounts, max_size=8), amounts, amounts)
def test_rows_add_up_to_the_bill(by: str, costs: list[int], idle: int, more: int) -> None:
    of_jobs = by in ("job", "owner", "tenant", "workload", "label")
    whole = sum(costs) + (idle if of_jobs else 0) + more
    bill = Bill(
        cost_micro_usd=whole,
        idle_micro_usd=idle,
        no_packing_micro_usd=2 * whole,
        by=by,
        shares=[
            CostShare(name=f"part-{number}", cost_micro_usd=cost)
            for number, cost in enumerate(costs)
        ],
    )
    page = money_page(bill, by)
    assert sum(row.exact for row in page.rows) == page.exact == whole
    assert all(0 <= row.width <= 100 for row in page.rows)
