"""The policy for short jobs: what it buys, who goes first, and what stays."""

from __future__ import annotations

from dataclasses import replace

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from eva_master.app.config import MasterConfig
from eva_master.app.master import partitions_of
from eva_master.app.policy_registry import policies
from eva_master.app.sections.base import PolicySection, ShortSection
from eva_master.app.sections.policies import doubts, policy_problems
from eva_master.model.catalog import Offering, Purchase, spot_family
from eva_master.model.fleet.partitions import ShortJobs
from eva_master.model.job import Latency, TaskSpec
from eva_master.model.planning.estimate import Estimate
from eva_master.model.planning.plan import Hold, Plan, PolicyMemory
from eva_master.model.planning.snapshot import InstanceView, Snapshot
from eva_master.packing.parts.splitter import below
from eva_master.testing.job_views import changed
from eva_master.testing.plan_checks import check
from eva_master.testing.snapshots import carried_out
from eva_policies.cloudcoaster import POLICY
from eva_policies.cloudcoaster.config import Config
from eva_policies.cloudcoaster.market import KindPurchases
from eva_policies.cloudcoaster.order import first_served
from eva_policies.cloudcoaster.sizing import needed
from eva_wire.text.yamlfile import load
from eva_wire.values.bounds import JobKind
from eva_wire.values.errors import InvalidConfig
from eva_wire.values.ids import MILLION, Family, InstanceId, JobId, Millis
from tests.fakes.snapshots import Cluster, offer, task

SPOT = spot_family(Family("any"))
ONE = task("w", any=(0, 1, 1))
EITHER = task("w", **{"any": (0, 1, 1), SPOT: (0, 1, 1)})
STEADY = offer("t.2", (0, 2, 4), 0.2)
LARGE = offer("t.8", (0, 8, 16), 0.8)


def spot(of: Offering, usd: float, zone: str = "local") -> Offering:
    """The same on the spot market."""
    kind = replace(of.type, family=spot_family(of.type.family))
    sold = replace(of, type=kind, purchase=Purchase.SPOT, zone=zone)
    return replace(sold, price=round(usd * MILLION))


def lasting(snapshot: Snapshot, **seconds: int) -> Snapshot:
    """With a stated duration of some jobs."""
    return replace(
        snapshot,
        jobs=tuple(
            changed(job, estimate=Estimate.stated(seconds[job.id] * 1000))
            if job.id in seconds
            else job
            for job in snapshot.jobs
        ),
    )


def planned(
    snapshot: Snapshot, memory: PolicyMemory | None = None, **options: int
) -> tuple[Plan, PolicyMemory | None]:
    plan, after = POLICY.build(Config(**options)).plan(snapshot, memory)  # type: ignore[arg-type]
    check(snapshot, plan)
    return plan, after


def placed(snapshot: Snapshot, plan: Plan) -> int:
    """How many tasks have a place once the plan is carried out, and lines have been served."""
    return sum(run.instance is not None for run in carried_out(snapshot, plan).runs)


def members(plan: Plan) -> dict[str, int]:
    return {pool.name: len(pool.members) for pool in plan.pools}


# -- how many --------------------------------------------------------------------------------------


@settings(deadline=None, derandomize=True)
@given(
    queued=st.integers(0, 10**7),
    free=st.integers(0, 50),
    within=st.integers(1, 10**6),
    most=st.integers(0, 100),
)
def test_slots_are_the_fewest_that_clear_the_work_in_time(queued, free, within, most):
    found = needed(queued, free, within, most)
    enough = [n for n in range(most + 1) if (n + free) * within >= queued]
    assert found == (enough[0] if enough else most)


def test_only_as_many_are_bought_as_the_work_needs():
    # 30 tasks of 2 s are a minute of work: 3 slots clear it in 20 s.
    snapshot = Cluster(STEADY).job("a", *[ONE] * 30, kind=JobKind.ARRAY).snapshot()
    plan, _ = planned(lasting(snapshot, a=2), slots=100)
    assert len(plan.launches) == 2
    (line,) = plan.lines
    assert (line.pools, line.jobs) == (("steady",), ("a",))
    told = "30 tasks wait, 60 s of work, which 3 slots would clear in 20 s"
    assert told in plan.pools[0].reason
    # Nobody is bound to an instance that is not there yet: who comes first is served first.
    assert all(isinstance(entry, Hold) for entry in plan.entries)
    assert placed(snapshot, plan) == 4
    # Of tasks of 20 s each needs a slot of its own.
    plan, _ = planned(lasting(snapshot, a=20), slots=100)
    assert placed(snapshot, plan) == 30


def test_nobody_is_bound_to_a_member_that_boots_though_more_is_needed():
    cheap = spot(STEADY, 0.05)
    boots = [
        InstanceView(InstanceId(f"t{n}"), cheap, (), False, pool="transient") for n in range(3)
    ]
    cluster = Cluster(STEADY, cheap).job("a", *[EITHER] * 50, kind=JobKind.ARRAY)
    snapshot = replace(lasting(cluster.snapshot(), a=20), instances=tuple(boots))
    plan, _ = planned(snapshot, slots=16, largest_share_ppm=MILLION)
    assert not [entry for entry in plan.entries if not isinstance(entry, Hold)]
    # Four on demand, and sixteen spot ones for what eight slots on demand cost.
    assert members(plan) == {"steady": 4, "transient": 16}
    assert len(plan.launches) == 17


def test_what_is_there_for_good_clears_its_part():
    cheap = spot(STEADY, 0.05)
    steady = [InstanceView(InstanceId(f"s{n}"), STEADY, (), True, pool="steady") for n in range(2)]
    cluster = Cluster(STEADY, cheap).job("a", *[EITHER] * 100, kind=JobKind.ARRAY)
    snapshot = replace(lasting(cluster.snapshot(), a=2), instances=tuple(steady))
    plan, _ = planned(snapshot, slots=8, largest_share_ppm=MILLION)
    # Four begin at once; 96 of 2 s want ten slots in 20 s, of which four are there.
    assert members(plan) == {"steady": 2, "transient": 3}


def test_tasks_that_a_plan_is_not_shown_count():
    snapshot = Cluster(STEADY).job("a", *[ONE] * 5, kind=JobKind.ARRAY).snapshot()
    snapshot = lasting(snapshot, a=2)
    snapshot = replace(snapshot, jobs=(changed(snapshot.jobs[0], unseen=45),))
    plan, _ = planned(snapshot, slots=100)
    assert len(plan.launches) == 3, "50 tasks of 2 s want five slots"
    assert "50 tasks wait, 100 s of work, which 5 slots would" in plan.pools[0].reason


def test_what_has_been_added_for_the_same_need_is_not_added_again():
    cheap = spot(STEADY, 0.05)
    cluster = Cluster(STEADY, cheap).job("a", *[EITHER] * 5, kind=JobKind.ARRAY)
    snapshot = lasting(cluster.snapshot(), a=20)
    plan, memory = planned(snapshot, slots=100, largest_share_ppm=MILLION)
    assert len(plan.launches) == 3
    boots = tuple(
        InstanceView(InstanceId(f"i{it.key}"), it.offering, (), ready=False, pool="steady")
        for it in plan.launches
    )
    again, _ = planned(replace(snapshot, instances=boots), memory, slots=100)
    assert again.launches == ()
    assert members(again) == members(plan)


# -- what ------------------------------------------------------------------------------------------


def test_half_is_on_demand_and_the_rest_is_spot_within_the_same_money():
    cheap = spot(STEADY, 0.05)
    snapshot = Cluster(STEADY, cheap).job("a", *[EITHER] * 100, kind=JobKind.ARRAY).snapshot()
    plan, _ = planned(snapshot, slots=8, largest_share_ppm=MILLION)
    # Four slots on demand are two instances; four more cost 0.40, which is eight at 0.05.
    assert members(plan) == {"steady": 2, "transient": 8}
    bought = [launch.offering for launch in plan.launches]
    assert sum(it.price for it in bought if it.purchase is Purchase.SPOT) == 400_000
    assert "$0.4000 per hour" in plan.pools[1].reason
    assert placed(snapshot, plan) == 20


def test_spot_money_is_spread_over_types_and_zones():
    zones = [spot(STEADY, 0.05, zone) for zone in ("a", "b", "c")]
    snapshot = Cluster(STEADY, *zones).job("a", *[EITHER] * 100, kind=JobKind.ARRAY).snapshot()
    plan, _ = planned(snapshot, slots=8)
    there = [it.offering.zone for it in plan.launches if it.offering.purchase is Purchase.SPOT]
    assert sorted(there) == ["a"] * 4 + ["b"] * 4


def test_a_spot_instance_that_costs_more_than_the_money_is_not_bought():
    dear = spot(LARGE, 0.4 + 0.000001)
    snapshot = Cluster(STEADY, dear).job("a", *[EITHER] * 100, kind=JobKind.ARRAY).snapshot()
    assert members(planned(snapshot, slots=8)[0]) == {"steady": 4}
    exact = spot(LARGE, 0.4)
    snapshot = replace(snapshot, catalog=(STEADY, exact))
    assert members(planned(snapshot, slots=8)[0]) == {"steady": 2, "transient": 1}


def test_members_that_are_about_to_leave_count_against_the_money():
    cheap = spot(STEADY, 0.05)
    cluster = Cluster(STEADY, cheap).job("a", *[EITHER] * 100, kind=JobKind.ARRAY)
    leaving = tuple(InstanceView(f"d{n}", cheap, (), ready=True) for n in range(6))  # type: ignore[arg-type]
    snapshot = replace(cluster.snapshot(), draining=leaving)
    plan, _ = planned(snapshot, slots=8, largest_share_ppm=MILLION)
    assert members(plan) == {"steady": 2, "transient": 2}


def test_the_money_may_be_said_in_dollars():
    cheap = spot(STEADY, 0.05)
    snapshot = Cluster(STEADY, cheap).job("a", *[EITHER] * 100, kind=JobKind.ARRAY).snapshot()
    plan, _ = planned(snapshot, slots=8, largest_share_ppm=MILLION, budget_usd_per_hour=0.25)
    assert members(plan) == {"steady": 2, "transient": 5}


def test_the_dearest_go_when_prices_have_risen_above_the_money():
    cheap, dear = spot(STEADY, 0.05), spot(LARGE, 0.11)
    cluster = Cluster(STEADY, cheap, dear).job("a", *[EITHER] * 100, kind=JobKind.ARRAY)
    steady = [InstanceView(InstanceId(f"s{n}"), STEADY, (), True, pool="steady") for n in range(2)]
    there = [InstanceView(InstanceId("d"), dear, (), True, pool="transient")]
    there += [
        InstanceView(InstanceId(f"t{n}"), cheap, (), True, pool="transient") for n in range(5)
    ]
    snapshot = replace(cluster.snapshot(), instances=(*there[:1], *steady, *there[1:]))

    def left(usd: float, **options: float) -> int:
        plan, _ = planned(snapshot, slots=8, largest_share_ppm=MILLION, **options)  # type: ignore[arg-type]
        (pool,) = (it for it in plan.pools if it.name == "transient")
        assert ("d" in pool.members) is (usd >= 0.36)
        return len([it for it in pool.members if isinstance(it, str)])

    # Together they cost 0.36; the money is 0.40 if nothing is said.
    assert left(0.40) == left(0.36, budget_usd_per_hour=0.36) == 6
    assert left(0.35, budget_usd_per_hour=0.35) == 5
    assert left(0.20, budget_usd_per_hour=0.20) == 4


def test_who_may_not_be_taken_away_gets_room_on_demand_alone():
    snapshot = Cluster(STEADY, spot(STEADY, 0.05)).job("a", *[ONE] * 100, kind=JobKind.ARRAY)
    plan, _ = planned(snapshot.snapshot(), slots=8)
    assert members(plan) == {"steady": 4}


def test_who_waits_beside_spot_members_that_it_may_not_use_is_told_so():
    cheap = spot(STEADY, 0.05)
    there = (
        InstanceView(InstanceId("s"), STEADY, (), True, pool="steady"),
        InstanceView(InstanceId("t"), cheap, (), True, pool="transient"),
    )

    def told(task: TaskSpec, *members: InstanceView) -> set[str]:
        cluster = Cluster(STEADY, cheap).job("a", *[task] * 9, kind=JobKind.ARRAY)
        snapshot = replace(lasting(cluster.snapshot(), a=20), instances=members)
        plan, _ = planned(snapshot, slots=2)
        return {entry.reason for entry in plan.entries if isinstance(entry, Hold)}

    assert told(ONE, *there) == {
        "no room on demand at present, and it takes no spot instances (spot: never)"
    }
    assert told(ONE, *there[:1]) == {"no room at present"}
    assert told(EITHER, *there) == {"no room at present"}


def test_without_spot_on_sale_the_money_buys_on_demand():
    sold_out = replace(spot(STEADY, 0.05), unavailable_until=Millis(2**60))
    snapshot = Cluster(STEADY, sold_out).job("a", *[EITHER] * 100, kind=JobKind.ARRAY).snapshot()
    assert members(planned(snapshot, slots=8)[0]) == {"steady": 4}


def test_a_larger_instance_is_sliced_where_a_slot_costs_less():
    bargain = offer("t.big", (0, 8, 16), 0.4)
    snapshot = Cluster(STEADY, bargain).job("a", *[ONE] * 8, kind=JobKind.ARRAY).snapshot()
    plan, _ = planned(snapshot, slots=16)
    assert [it.offering.type.name for it in plan.launches] == ["t.big"]
    assert len(plan.entries) == 8


@pytest.mark.parametrize(
    ("empty", "usd", "bought"),
    [("t.2", 0.2, []), ("t.16", 1.6, ["t.big"]), ("t.1", 0.1, ["t.big"])],
)
def test_a_short_task_has_an_empty_instance_before_a_cheaper_slot(empty, usd, bought):
    """Unless the empty one costs more than what would be bought, or is too small."""
    there = offer(empty, (0, int(empty[2:]), 2 * int(empty[2:])), usd)
    bargain, pair = offer("t.big", (0, 8, 16), 0.4), task("w", any=(0, 2, 2))
    cluster = Cluster(there, bargain).instance("i1", empty).job("a", pair)
    snapshot = lasting(cluster.snapshot(), a=20)
    plan, _ = planned(snapshot, slots=16)
    assert [it.offering.type.name for it in plan.launches] == bought
    assert ("i1" in {it for pool in plan.pools for it in pool.members}) is not bool(bought)


def test_a_task_that_no_member_holds_gets_one_beside_the_slots():
    whole = task("w", any=(0, 8, 16))
    cluster = Cluster(STEADY, LARGE).instance("i1", "t.2").instance("i2", "t.2")
    cluster.job("a", *[ONE] * 4, kind=JobKind.ARRAY, on=["i1", "i1", "i2", "i2"])
    cluster.job("b", whole, kind=JobKind.ARRAY)
    plan, _ = planned(cluster.snapshot(), slots=2)
    assert placed(cluster.snapshot(), plan) == 5
    assert members(plan) == {"steady": 3}
    # The next of its kind waits for that one.
    cluster.job("c", whole, kind=JobKind.ARRAY)
    plan, _ = planned(cluster.snapshot(), slots=2)
    assert [it.offering.type.name for it in plan.launches] == ["t.8"]
    assert plan.lines[0].jobs == ("b", "c")
    assert placed(cluster.snapshot(), plan) == 5


def test_a_task_for_spot_alone_gets_one_instance_though_there_is_no_money():
    only = task("w", **{SPOT: (0, 1, 1)})
    cluster = Cluster(STEADY, spot(STEADY, 0.05)).job("a", only, only, only, kind=JobKind.ARRAY)
    plan, _ = planned(cluster.snapshot(), slots=4, transient_share_ppm=0)
    assert members(plan) == {"transient": 1}


def test_the_budget_is_that_of_a_slot_on_demand():
    market = KindPurchases(Config(slots=8), EITHER, (), (STEADY, LARGE, spot(STEADY, 0.05)))
    assert market.budget == 4 * 100_000
    assert KindPurchases(Config(slots=8), EITHER, (spot(STEADY, 0.05),) * 3, ()).spent == 150_000


# -- who first -------------------------------------------------------------------------------------


def test_the_least_work_goes_first_unless_somebody_has_waited_long():
    cluster = Cluster(STEADY).job("much", *[ONE] * 9, kind=JobKind.ARRAY)
    cluster.job("little", *[ONE] * 3, kind=JobKind.ARRAY)
    cluster.job("urgent", *[ONE] * 12, kind=JobKind.ARRAY, priority=1)
    snapshot = lasting(cluster.snapshot(), much=10, little=10, urgent=10)

    def order(waits: dict[str, int]) -> list[str]:
        runs = tuple(
            replace(run, since_ms=Millis(snapshot.now_ms - 1000 * waits.get(run.job, 1)))
            for run in snapshot.runs
        )
        key = first_served(runs, snapshot.now_ms, 20_000, 5)
        return [job.id for job in sorted(snapshot.jobs, key=key)]

    assert order({}) == ["urgent", "little", "much"]
    assert order({"much": 49}) == ["urgent", "little", "much"]
    assert order({"much": 50}) == ["urgent", "much", "little"]
    assert order({"much": 50, "little": 51}) == ["urgent", "little", "much"]


# -- what stays ------------------------------------------------------------------------------------


def test_room_on_demand_stays_up_to_its_share_and_the_rest_goes_after_a_while():
    cheap = spot(STEADY, 0.05)
    cluster = Cluster(STEADY, cheap).job("a", *[EITHER] * 100, kind=JobKind.ARRAY)
    plan, memory = planned(cluster.snapshot(), slots=8, hold_s=300, largest_share_ppm=MILLION)
    full = carried_out(cluster.snapshot(), plan)
    empty = replace(
        full,
        jobs=(),
        runs=(),
        instances=tuple(replace(it, residents=()) for it in full.instances),
    )

    def later(seconds: int) -> Plan:
        now = Millis(full.now_ms + 1000 * seconds)
        return planned(replace(empty, now_ms=now), memory, slots=8, hold_s=300)[0]

    assert members(later(299)) == members(plan)
    assert members(later(300)) == {"steady": 2}
    assert members(later(10**6)) == {"steady": 2}
    (pool,) = later(300).pools
    assert {full_of(full, it).purchase for it in pool.members} == {Purchase.ON_DEMAND}


def full_of(snapshot: Snapshot, name: object) -> Offering:
    return next(view.offering for view in snapshot.instances if view.id == name)


def test_who_is_idle_goes_first_and_who_is_busy_finishes():
    cheap = spot(STEADY, 0.05)
    cluster = Cluster(STEADY, cheap).job("a", *[EITHER] * 12, kind=JobKind.ARRAY)
    snapshot = lasting(cluster.snapshot(), a=20)
    plan, _ = planned(snapshot, slots=8, largest_share_ppm=MILLION)
    assert members(plan) == {"steady": 2, "transient": 4}
    full = carried_out(snapshot, plan)
    idle = next(it for it in full.instances if it.offering.purchase is Purchase.SPOT)
    runs = tuple(run for run in full.runs if run.instance != idle.id)
    job = replace(full.jobs[0], runs=tuple(run.id for run in runs))
    left = tuple(replace(it, residents=()) if it is idle else it for it in full.instances)
    less = replace(full, jobs=(job,), runs=runs, instances=left)

    def after(slots: int) -> tuple[int, bool]:
        """How many spot members stay if so many slots were needed lately; whether the idle one."""
        memory = PolicyMemory("cloudcoaster", 2, {"needs": [[less.now_ms - 1, slots]]})
        pools = {pool.name: pool for pool in planned(less, memory, slots=8)[0].pools}
        spot_members = pools["transient"].members if "transient" in pools else ()
        return len(spot_members), idle.id in spot_members

    assert after(8) == (4, True)
    assert after(6) == (3, False)
    assert after(5) == (3, False)
    assert after(1) == (1, False)


def test_a_size_that_is_stated_is_bought_before_anybody_needs_it():
    snapshot = Cluster(STEADY, spot(STEADY, 0.05)).snapshot()
    assert members(planned(snapshot, slots=8)[0]) == {}
    options = {"slots": 8, "slot_milli_cpus": 1_000, "slot_memory_mib": 1_024}
    plan, memory = planned(snapshot, **options)
    assert members(plan) == {"steady": 2}
    full = carried_out(snapshot, plan)
    again, _ = planned(full, memory, **options)
    assert again.launches == ()
    assert members(again) == {"steady": 2}


# -- what is said of it ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("latency", "seconds", "short"),
    [
        (Latency.AUTO, None, False),
        (Latency.AUTO, 89, True),
        (Latency.AUTO, 90, False),
        (Latency.SHORT, 900, True),
        (Latency.SHORT, None, True),
        (Latency.LONG, 1, False),
    ],
)
def test_the_user_s_word_goes_before_what_is_expected(latency, seconds, short):
    (job,) = Cluster(STEADY).job("a", ONE).snapshot().jobs
    estimate = None if seconds is None else Estimate.stated(seconds * 1000)
    assert below(90_000)(changed(job, estimate=estimate, latency=latency)) is short
    assert job.id == JobId("a")


@pytest.mark.parametrize(
    ("options", "key", "message"),
    [
        ("{slots: 4, transient_share_ppm: 1000000}", "", "none would be on demand"),
        ("{slots: 1}", "", "none would be on demand"),
        ("{transient_share_ppm: 1000001}", ".transient_share_ppm", "must be "),
        ("{budget_usd_per_hour: 0}", ".budget_usd_per_hour", "must be "),
        ("{resize: need, placement: probes}", "", "have resize: published"),
        ("{clear_within_s: 0}", ".clear_within_s", "must be 1 or more"),
        ("{slots: -1}", ".slots", "must be 0 or more"),
        ("{slotz: 1}", ".slotz", "no option 'slotz'"),
    ],
)
def test_options_that_cannot_be_are_refused_with_line_and_key(options, key, message):
    text = f"policy:\n  short:\n    name: cloudcoaster\n    options:\n      {options}\n"
    document = load(text, file_name="m.yaml", error=InvalidConfig)
    section = PolicySection(**document.value["policy"])
    assert isinstance(section.short, ShortSection)
    (found,) = policy_problems(("policy",), section, policies(), document)
    assert found.key == f"policy.short.options{key}"
    assert found.line == (5 if key else 4)
    assert message in found.message
    assert "Value error" not in found.message


@pytest.mark.parametrize(
    ("short", "expected"),
    [
        ("", None),
        ("below: 90s", ShortJobs(90_000)),
        ("below: 90s, spot: true", ShortJobs(90_000)),
        ("below: 90s, spot: false", ShortJobs(90_000, spot=False)),
    ],
)
def test_the_settings_say_which_jobs_are_short_and_may_use_spot_instances(short, expected):
    inner = f", short: {{name: cloudcoaster, {short}}}" if short else ""
    policy = yaml.safe_load(f"{{name: eva{inner}}}")
    assert partitions_of(MasterConfig.model_validate({"policy": policy})).default.short == expected
    parts = {"a": {"default": True, "policy": policy}, "b": {}}
    divided = partitions_of(MasterConfig.model_validate({"partitions": parts}))
    assert [part.short for part in divided.parts] == [expected, None]


@pytest.mark.parametrize(
    ("latency", "task_ms", "told"),
    [
        (Latency.AUTO, 20_000, "short: its tasks are expected to take 20 s, and short ones take"),
        (Latency.AUTO, 90_000, "long: its tasks are expected to take 90 s, and short ones take"),
        (Latency.AUTO, None, "long: it is not known how long its tasks take, and short ones"),
        (Latency.SHORT, 9_000_000, "short, since its job file says so; its tasks are expected to"),
        (
            Latency.LONG,
            1_500,
            "long, since its job file says so; its tasks are expected to take 1.5",
        ),
    ],
)
def test_it_is_told_why_a_job_is_short(latency, task_ms, told):
    assert f"it counts as {told}" in ShortJobs(90_000).explain(latency, task_ms)
    assert "less than 90 s here" in ShortJobs(90_000).explain(latency, task_ms)


def test_a_master_is_told_what_may_not_be_meant():
    def told(options: dict[str, object], *catalog: Offering) -> list[str]:
        short = {"name": "cloudcoaster", "options": options}
        return list(doubts(PolicySection.model_validate({"short": short}), catalog))

    cheap, own = spot(STEADY, 0.05), replace(STEADY, purchase=Purchase.OWNED)
    assert told({}, STEADY, cheap) == []
    (found,) = told({"slots": 6}, STEADY)
    assert "no spot instances are on sale: short jobs have 6 slots on demand" in found
    assert told({"transient_share_ppm": 0}, STEADY) == []
    (found,) = told({"budget_usd_per_hour": 0.04}, STEADY, cheap)
    assert "0.04 buys no spot instance: the cheapest costs 0.05 dollars per hour" in found
    (found,) = told({"resize": "published"}, STEADY, cheap)
    assert "near 1 all the time where empty instances go" in found
    assert told({"resize": "published"}, STEADY, cheap, own) == []


def test_pools_say_that_no_spot_instances_are_on_sale():
    cluster = Cluster(STEADY).job("a", *[ONE] * 3, kind=JobKind.ARRAY)
    assert (
        planned(cluster.snapshot())[0].pools[0].reason.endswith("; no spot instances are on sale")
    )
    cluster = Cluster(STEADY, spot(STEADY, 0.05)).job("a", *[ONE] * 3, kind=JobKind.ARRAY)
    assert "on sale" not in planned(cluster.snapshot())[0].pools[0].reason


def test_the_money_for_spot_members_is_there_though_no_more_may_be_had_on_demand() -> None:
    cheap = spot(STEADY, 0.05)
    market = KindPurchases(Config(slots=8), EITHER, (STEADY,), (cheap,), listed=(STEADY, cheap))
    assert (
        market.budget
        == KindPurchases(Config(slots=8), EITHER, (STEADY,), (STEADY, cheap)).budget
        > 0
    )
