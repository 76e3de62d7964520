"""Gains by lies and failures where tenants lend, and what honest tenants keep."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eva_wire.values.ids import MILLION, MILLIS_PER_HOUR
from tests.unit.astraea.played import Market, Work, alone, spent

TENANTS = ("ana", "bob", "cy")
QUOTA = 4
LARGEST_GAIN = 0.339
"""Largest gain of a lie in docs/experiments/tenants.md."""


@st.composite
def works(draw: st.DrawFn) -> list[Work]:
    """Jobs of three tenants: rigid and elastic gangs that fail, wait, are cancelled or overrun."""
    found = []
    for number in range(draw(st.integers(3, 9))):
        most = draw(st.integers(1, QUOTA))
        found.append(
            Work(
                f"j{number}",
                draw(st.sampled_from(TENANTS)),
                draw(st.integers(1, 30)),
                most=most,
                least=draw(st.sampled_from([1, most])),
                loses=draw(st.integers(1, 40)) / 10,
                arrives=draw(st.integers(0, 30)),
                launch_s=draw(st.sampled_from([0, 600])),
                checkpoint_s=draw(st.sampled_from([0, 600])),
                fails=draw(st.sampled_from([0, 0, 1, 3])),
                fails_after=draw(st.integers(1, 3)),
                backoff=draw(st.integers(0, 3)),
                cancelled=draw(st.none() | st.integers(5, 60)),
                # 20 s were told, and it takes 23.
                told=draw(st.sampled_from([1, 20 / 23])),
            )
        )
    return found


def market(jobs: list[Work]) -> Market:
    return spent(Market([QUOTA] * len(TENANTS), dict.fromkeys(TENANTS, QUOTA), jobs))


def slack(jobs: list[Work], tenant: str) -> int:
    """Cost of a slot that is begun for each job of a tenant, in micro-dollars."""
    return round(sum(it.loses for it in jobs if it.tenant == tenant) * MILLION)


def keep_what_they_had(played: Market, jobs: list[Work], tenants: tuple[str, ...]) -> None:
    """Check that tenants have at least what they would have alone, and none too large a payment."""
    for tenant in tenants:
        kept = alone(tenant, QUOTA, jobs) - slack(jobs, tenant)
        assert played.net(tenant) >= kept, tenant
    for standing in played.standing.values():
        assert standing.received * MILLIS_PER_HOUR <= standing.earned


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(jobs=works())
def test_no_honest_tenant_ends_below_what_it_has_alone(jobs: list[Work]) -> None:
    keep_what_they_had(market(jobs), jobs, TENANTS)


LIES = st.builds(
    Work,
    st.just("lie"),
    st.just(""),
    st.integers(1, 10),
    dollars=st.sampled_from([5, 5_000]),
    loses=st.sampled_from([1, 100]),
    fails=st.just(999),
    backoff=st.integers(0, 4),
    arrives=st.integers(0, 20),
    cancelled=st.integers(21, 60),
)
"""Jobs that never succeed, and are dear."""


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    jobs=works(),
    liar=st.sampled_from(TENANTS),
    said=st.floats(0.2, 20),
    told=st.floats(0.25, 4),
    lies=st.lists(LIES, max_size=2),
)
def test_a_lie_gains_no_more_than_was_measured_and_costs_no_honest_tenant_what_it_had(
    jobs: list[Work], liar: str, said: float, told: float, lies: list[Work]
) -> None:
    lied = [
        replace(it, said=said, told=it.told * told) if it.tenant == liar else it for it in jobs
    ] + [replace(it, name=f"lie{number}", tenant=liar) for number, it in enumerate(lies)]
    honest, after = market(jobs), market(lied)
    before = honest.truly(liar)
    assert after.truly(liar) <= before + LARGEST_GAIN * abs(before) + slack(jobs, liar)
    keep_what_they_had(after, jobs, tuple(it for it in TENANTS if it != liar))
