"""How the EC2 adapter paces itself: rates, pauses after refusals, quotas."""

from __future__ import annotations

import threading

import pytest

from eva_master.adapters.ec2.availability import AvailabilityBook
from eva_master.adapters.ec2.client import Aws
from eva_master.adapters.ec2.limits import CallLimit, RateLimiter, limiter_of
from eva_master.adapters.ec2.quotas import in_words, quota_of
from eva_master.adapters.ec2.settings import Ec2Settings
from eva_master.model.catalog import InstanceType, Offering, Purchase
from eva_master.model.resources import Resources
from eva_wire.values.errors import CloudDenied
from eva_wire.values.ids import Family, Millis, OfferingId, Price

ONE, OTHER = OfferingId("one"), OfferingId("other")


class Hands:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.s = 0.0

    def __call__(self) -> float:
        return self.s


def test_a_burst_is_free_and_the_rest_comes_at_the_rate() -> None:
    limiter = RateLimiter(CallLimit(burst=3, per_s=2), Hands())
    assert [limiter.take() for _ in range(5)] == [0, 0, 0, 0.5, 1.0]


def test_a_bucket_fills_up_to_its_size() -> None:
    clock = Hands()
    limiter = RateLimiter(CallLimit(burst=2, per_s=1), clock)
    assert [limiter.take() for _ in range(2)] == [0, 0]
    clock.s = 1.0
    assert limiter.take() == 0
    clock.s = 100.0
    assert [limiter.take() for _ in range(3)] == [0, 0, 1.0]


def test_who_is_throttled_slows_down_and_recovers() -> None:
    clock = Hands()
    limiter = RateLimiter(CallLimit(burst=10, per_s=1), clock)
    limiter.throttled()
    assert limiter.take() == 2.0, "nothing of the burst is left, at half the rate"
    for _ in range(10):
        limiter.throttled()
    clock.s = 1000.0
    limiter.throttled()
    assert limiter.take() == 16.0, "it never stands still"
    for _ in range(30):
        limiter.succeeded()
    clock.s = 2000.0
    assert [limiter.take() for _ in range(11)] == [0] * 10 + [1.0]


def test_each_kind_of_call_has_a_bucket_of_its_own() -> None:
    launches = limiter_of("run_instances", Hands(), share=0.8)
    assert [launches.take() for _ in range(5)] == [0, 0, 0, 0, 0.625]
    looks = limiter_of("describe_instances", Hands(), share=0.8)
    assert {looks.take() for _ in range(40)} == {0}


def test_pauses_double_up_to_a_limit_and_begin_anew_after_a_sale() -> None:
    stock = AvailabilityBook()
    pauses = []
    for _ in range(7):
        assert stock.admit(ONE)
        pauses.append(stock.refused(ONE, 10, Millis(0)))
    assert pauses == [10, 20, 40, 80, 160, 160, 160]
    assert stock.admit(ONE)
    stock.sold(ONE)
    assert stock.admit(ONE)
    assert stock.refused(ONE, 10, Millis(5)) == 15


def test_after_a_refusal_one_launch_finds_out_for_all() -> None:
    stock = AvailabilityBook()
    assert stock.admit(ONE)
    assert stock.admit(ONE)
    stock.refused(ONE, 10, Millis(0))
    # The other one that was under way says nothing new.
    assert stock.refused(ONE, 10, Millis(0)) == 10
    assert stock.admit(ONE)
    assert not stock.admit(ONE)
    assert stock.admit(OTHER)
    stock.unclear(ONE)
    assert stock.admit(ONE), "the one that tried has to try again"
    stock.sold(ONE)
    assert stock.admit(ONE)
    assert stock.admit(ONE)


@pytest.mark.parametrize(
    ("name", "purchase", "code"),
    [
        ("c7i.large", Purchase.ON_DEMAND, "L-1216C47A"),
        ("c7i.large", Purchase.SPOT, "L-34B43A08"),
        ("im4gn.large", Purchase.ON_DEMAND, "L-1216C47A"),
        ("p3.2xlarge", Purchase.ON_DEMAND, "L-417A185B"),
        ("g5.xlarge", Purchase.SPOT, "L-3819A6DF"),
        ("gr6.4xlarge", Purchase.ON_DEMAND, "L-DB2E81BA"),
        ("inf2.xlarge", Purchase.ON_DEMAND, "L-1945791B"),
        ("trn1.2xlarge", Purchase.SPOT, "L-6B0D517C"),
        ("p3dn.24xlarge", Purchase.SPOT, "L-7212CCBC"),
        ("p5en.48xlarge", Purchase.SPOT, "L-C4BD4855"),
        ("p5en.48xlarge", Purchase.ON_DEMAND, "L-417A185B"),
        ("hpc7a.96xlarge", Purchase.ON_DEMAND, "L-F7808C92"),
        ("u7i-12tb.224xlarge", Purchase.ON_DEMAND, "L-43DA4232"),
        ("dl1.24xlarge", Purchase.SPOT, "L-85EED4F7"),
    ],
)
def test_the_quota_of_a_type(name: str, purchase: Purchase, code: str) -> None:
    quota = quota_of(name, purchase)
    assert quota is not None
    assert quota.code == code


def test_families_with_quotas_of_their_own_count_against_no_other() -> None:
    assert quota_of("mac2.metal", Purchase.ON_DEMAND) is None
    assert quota_of("hpc7a.96xlarge", Purchase.SPOT) is None
    assert quota_of("p9.large", Purchase.SPOT) is None


def test_a_quota_that_may_not_be_looked_up_is_named_all_the_same() -> None:
    machine = InstanceType("p3.2xlarge", Family("p3"), Resources(1, 8_000, 62_464))

    def denied(*_: object) -> None:
        raise CloudDenied("no")

    aws = Aws(Ec2Settings("c", "us-east-1"), threading.Event(), denied)
    words = in_words(Offering(machine, Price(1)), (), aws)
    assert words == (
        "the quota 'Running On-Demand P instances' (L-417A185B) has no room for 8 vCPUs"
    )
