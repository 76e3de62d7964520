"""Stratus: who shares an instance, what is bought, and when an instance is cleared."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eva_master.model.planning.plan import Assign, Hold, Plan, PolicyMemory
from eva_master.model.planning.snapshot import Snapshot
from eva_policies.stratus import POLICY
from eva_policies.stratus.bins import bin_of
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import Millis
from tests.fakes.snapshots import START, Cluster, carried_out, ended, offer, task

HOUR = 3600
BOX = offer("box", (0, 16, 64), 0.8)
HALF = offer("half", (0, 8, 32), 0.4)
QUARTER = offer("quarter", (0, 4, 16), 0.2)
BOXES = (BOX, HALF, QUARTER)
SMALL = task("small", any=(0, 4, 16))
EIGHT = task("eight", any=(0, 8, 32))
TWELVE = task("twelve", any=(0, 12, 48))


def decide(
    snapshot: Snapshot, memory: PolicyMemory | None = None, **settings: int
) -> tuple[Plan, PolicyMemory | None]:
    return POLICY.build(POLICY.config(**settings)).plan(snapshot, memory)


def entries(snapshot: Snapshot, **settings: int) -> list[Assign | Hold]:
    return list(decide(snapshot, **settings)[0].entries)  # type: ignore[arg-type]


def bought(plan: Plan) -> list[str]:
    return sorted(launch.offering.type.name for launch in plan.launches)


@pytest.mark.parametrize(
    ("left_ms", "number"),
    [(0, 0), (999, 0), (1_000, 1), (1_999, 1), (2_000, 2), (3_999, 2), (4_000, 3), (4_096_000, 13)],
)
def test_bins_are_powers_of_two_of_seconds(left_ms, number):
    assert bin_of(left_ms) == number


# -- packing ---------------------------------------------------------------------------------------


def shared(*left_s: int) -> Cluster:
    """A box for each task, three quarters used, that will run for so long."""
    cluster = Cluster(*BOXES)
    for number, seconds in enumerate(left_s):
        cluster.instance(f"i{number}", "box")
        cluster.job(f"a{number}", TWELVE, on=[f"i{number}"], left_s=seconds)
    return cluster


def test_a_task_joins_the_instance_of_its_bin_that_ends_closest_to_it():
    # 4500, 6000, 8000 are all in [4096, 8192).
    snapshot = shared(4_500, 6_000, 8_000).job("n", SMALL, left_s=6_500).snapshot()
    assert entries(snapshot) == [Assign("n/0", "i1")]


def test_its_own_bin_goes_before_a_greater_one_and_the_nearest_greater_one_before_others():
    cluster = shared(100_000, 5_000, 20_000)
    assert entries(cluster.job("n", SMALL, left_s=8_000).snapshot()) == [Assign("n/0", "i1")]
    cluster = shared(100_000, 2_000, 20_000)
    assert entries(cluster.job("n", SMALL, left_s=8_000).snapshot()) == [Assign("n/0", "i2")]


def test_of_a_greater_bin_the_instance_with_the_most_room_is_taken():
    cluster = shared(20_000, 20_000).instance("i2", "box")
    cluster.job("a2", EIGHT, on=["i2"], left_s=20_000)
    assert entries(cluster.job("n", SMALL, left_s=8_000).snapshot()) == [Assign("n/0", "i2")]


def test_a_lesser_bin_is_the_last_resort_and_the_nearest_one_is_taken():
    cluster = shared(100, 2_000, 1_000)
    assert entries(cluster.job("n", SMALL, left_s=8_000).snapshot()) == [Assign("n/0", "i1")]


def test_an_instance_that_was_filled_up_counts_as_long_as_its_last_task():
    # The long one makes i0 last 50000 s; after that i0 is a greater bin for the short one.
    cluster = Cluster(BOX).instance("i0", "box").instance("i1", "box")
    cluster.job("a0", SMALL, on=["i0"], left_s=10).job("a1", SMALL, on=["i1"], left_s=5)
    cluster.job("m", SMALL, left_s=50_000).job("n", SMALL, left_s=20_000)
    assert entries(cluster.snapshot()) == [Assign("m/0", "i0"), Assign("n/0", "i0")]


def test_time_that_has_passed_is_taken_off():
    # Started 19 hours ago and as long as 20, a1 has an hour left, as the new one has.
    cluster = shared(20 * HOUR, 20 * HOUR)
    snapshot = cluster.job("n", SMALL, left_s=HOUR).snapshot()
    assert entries(snapshot)[0] == Assign("n/0", "i0")
    first, run, new = snapshot.runs
    assert run.remaining is not None
    since = replace(run.remaining, since_ms=Millis(START - 19 * HOUR * 1000))
    snapshot = replace(snapshot, runs=(first, replace(run, remaining=since), new))
    assert entries(snapshot) == [Assign("n/0", "i1")]


def test_a_job_that_does_not_say_how_long_it_takes_counts_as_long_as_is_assumed():
    cluster = shared(2 * HOUR, 30 * HOUR).job("n", SMALL)
    assert entries(cluster.snapshot(), assumed_duration_s=2 * HOUR) == [Assign("n/0", "i0")]
    assert entries(cluster.snapshot(), assumed_duration_s=30 * HOUR) == [Assign("n/0", "i1")]


def test_the_urgent_come_before_the_long():
    cluster = Cluster(replace(QUARTER, limit=1))
    cluster.job("long", SMALL, left_s=50_000).job("urgent", SMALL, left_s=60, priority=1)
    assert [type(entry) for entry in entries(cluster.snapshot())] == [Hold, Assign]


# -- scaling out -----------------------------------------------------------------------------------

ONE = offer("one", (1, 8, 61), 3.06, family="p")
FOUR = offer("four", (4, 32, 244), 12.24, family="p")
GPU = task("gpu", p=(1, 8, 60))


def test_tasks_of_a_bin_share_a_new_instance_if_it_is_as_efficient():
    cluster = Cluster(ONE, FOUR)
    for number in range(5):
        cluster.job(f"g{number}", GPU, left_s=5_000 + number)
    plan, _ = decide(cluster.snapshot())
    assert bought(plan) == ["four", "one"]
    # The group is that of the longest; the shortest is left.
    four = next(launch.key for launch in plan.launches if launch.offering == FOUR)
    assert {e.run for e in plan.entries if e.on == four} == {f"g{n}/0" for n in range(1, 5)}


def test_a_group_is_not_put_where_the_dollar_does_less():
    cluster = Cluster(ONE, replace(FOUR, price=FOUR.price + 1_000))
    for number in range(4):
        cluster.job(f"g{number}", GPU, left_s=5_000)
    assert bought(decide(cluster.snapshot())[0]) == ["one"] * 4


def test_room_on_a_new_instance_is_offered_to_lesser_bins():
    cluster = Cluster(BOX).job("long", TWELVE, left_s=50_000).job("short", SMALL, left_s=500)
    expected = [Assign("long/0", 0), Assign("short/0", 0)]
    assert entries(cluster.snapshot(), clear_below_percent=0) == expected


def test_where_all_that_can_be_had_is_one_instance_whoever_fits_joins_it():
    cluster = Cluster(replace(BOX, limit=1))
    cluster.job("a", EIGHT, left_s=5_200).job("b", TWELVE, left_s=5_100)
    cluster.job("c", EIGHT, left_s=5_000)
    plan, _ = decide(cluster.snapshot())
    assert [type(entry) for entry in plan.entries] == [Assign, Hold, Assign]
    assert plan.entries[1].reason == "limit of box@local/on-demand reached"


def test_a_family_that_costs_more_for_the_same_task_is_not_taken():
    compute = offer("compute", (0, 16, 32), 0.714, family="c")
    memory = offer("memory", (0, 4, 32), 0.265, family="r")
    gpu = offer("gpu", (1, 8, 17), 3.06, family="p")
    spec = task(c=(0, 1, 17), r=(0, 1, 17), p=(0, 1, 17))
    plan, _ = decide(Cluster(compute, memory, gpu).job("a", spec).snapshot())
    assert bought(plan) == ["memory"]


def test_a_gang_that_does_not_fit_as_a_whole_takes_nothing_from_others():
    cluster = Cluster(replace(BOX, limit=2))
    cluster.job("gang", TWELVE, TWELVE, TWELVE, left_s=50_000).job("a", TWELVE).job("b", TWELVE)
    plan, _ = decide(cluster.snapshot())
    kinds = [type(entry) for entry in plan.entries]
    assert kinds == [Assign, Assign, Hold, Hold, Hold]
    assert "its gang waits for gang/0" in plan.entries[3].reason


def test_an_empty_instance_is_used_before_one_is_bought():
    cluster = Cluster(*BOXES).instance("i", "box").job("a", TWELVE)
    assert entries(cluster.snapshot()) == [Assign("a/0", "i")]


# -- scaling in ------------------------------------------------------------------------------------


def left_behind(left_s: int = 10 * HOUR, spec: object = SMALL, **more: object) -> Cluster:
    """A task on a box of which it needs no more than a quarter."""
    return Cluster(*BOXES).instance("i", "box").job("a", spec, on=["i"], left_s=left_s, **more)  # type: ignore[arg-type]


def test_an_instance_that_is_hardly_used_is_given_up_for_a_smaller_one():
    plan, _ = decide(left_behind().snapshot())
    assert (bought(plan), list(plan.entries)) == (["quarter"], [Assign("a/0", 0)])
    (exchange,) = plan.reasons.exchanges
    assert exchange.saved_micro_usd_per_hour == 600_000
    # A quarter at both ends for a minute: 2 * 0.2 / 60.
    assert exchange.cost_micro_usd == pytest.approx(2 * 200_000 / 60, abs=1)


def test_one_that_is_half_used_is_kept():
    assert entries(left_behind(spec=EIGHT).snapshot()) == []
    assert len(entries(left_behind(spec=EIGHT).snapshot(), clear_below_percent=51)) == 1
    assert entries(left_behind().snapshot(), clear_below_percent=0) == []


def test_it_is_kept_if_the_move_costs_more_than_what_is_saved_until_the_end():
    # 0.6 an hour saved against 0.4 an hour for a minute: break-even after 40 s.
    assert entries(left_behind(left_s=40).snapshot()) == []
    assert len(entries(left_behind(left_s=41).snapshot())) == 1


def test_all_of_its_gang_is_charged():
    cluster = left_behind(left_s=60).instance("j", "quarter")
    assert len(entries(cluster.snapshot())) == 1
    cluster = Cluster(*BOXES).instance("i", "box").instance("j", "quarter")
    cluster.job("a", SMALL, SMALL, on=["i", "j"], left_s=60)
    assert entries(cluster.snapshot()) == []
    cluster = Cluster(*BOXES).instance("i", "box").instance("j", "quarter")
    cluster.job("a", SMALL, SMALL, on=["i", "j"], left_s=60, kind=JobKind.ARRAY)
    assert len(entries(cluster.snapshot())) == 1


def test_its_tasks_go_to_instances_that_are_there_if_they_have_room():
    cluster = left_behind().instance("j", "box").job("b", TWELVE, on=["j"], left_s=11 * HOUR)
    plan, _ = decide(cluster.snapshot())
    assert (plan.launches, list(plan.entries)) == ((), [Assign("a/0", "j")])
    assert plan.reasons.exchanges[0].saved_micro_usd_per_hour == 800_000


def test_it_is_kept_where_a_task_is_between_places():
    assert entries(left_behind(pinned=True).snapshot()) == []


def test_clearing_waits_for_an_occasion():
    cluster = Cluster(*BOXES).instance("i", "box")
    cluster.job("a", SMALL, on=["i"], left_s=10 * HOUR)
    cluster.job("b", TWELVE, on=["i"], left_s=10 * HOUR)
    snapshot = cluster.snapshot()
    plan, memory = decide(snapshot)
    assert plan.entries == ()
    # The same snapshot without b, as if nothing had happened: nothing is done, until b has ended.
    quiet = replace(ended(snapshot, "b"), completions=0)
    assert decide(quiet, memory)[0].entries == ()
    assert decide(ended(snapshot, "b"), memory)[0].entries == (Assign("a/0", 0),)


def test_a_task_that_was_between_places_is_looked_at_again_when_it_has_come_to_rest():
    moving = left_behind(pinned=True).snapshot()
    plan, memory = decide(moving)
    assert plan.entries == ()
    still = replace(moving, runs=(replace(moving.runs[0], pinned=False),))
    plan, memory = decide(still, memory)
    assert plan.entries == (Assign("a/0", 0),)
    assert decide(carried_out(still, plan), memory)[0].entries == ()


def test_a_memory_of_another_form_is_no_memory():
    for memory in (
        PolicyMemory("owl", 1, {"events": 1, "hindered": []}),
        PolicyMemory("stratus", 9, {"events": 1, "hindered": []}),
        PolicyMemory("stratus", 1, {"events": "many"}),
    ):
        assert len(decide(left_behind().snapshot(), memory)[0].entries) == 1
