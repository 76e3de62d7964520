"""Owl: who is paired with whom, where, and who is left alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from eva_master.model.job import TaskSpec
from eva_master.model.planning.plan import Assign, Hold, Plan, PolicyMemory
from eva_master.model.planning.snapshot import Snapshot, StandaloneRates
from eva_policies.owl import POLICY
from eva_wire.values.ids import MILLION, Family, Workload
from tests.fakes.snapshots import Cluster, carried_out, ended, offer, table, task

BOX = offer("box", (0, 16, 64), 1.5)
HALF = offer("half", (0, 8, 32), 1.0)
BOXES = (BOX, HALF)
A, B, C = (task(name, any=(0, 8, 32)) for name in "abc")
"""Each is worth 1.0 and has a half to itself; two of them share a box for 1.5."""


def profile(**pairs: float) -> tuple[tuple[str, str, int], ...]:
    """``ab=0.9``: a runs at 0.9 beside b, and b beside a."""
    return tuple(
        (one, other, round(value * MILLION))
        for (first, second), value in ((tuple(name), value) for name, value in pairs.items())
        for one, other in ((first, second), (second, first))
    )


PROFILE = profile(ab=0.95, ac=0.92, bc=0.98, aa=0.9, bb=0.91, cc=0.7)


def decide(
    snapshot: Snapshot, memory: PolicyMemory | None = None, **settings: Any
) -> tuple[Plan, PolicyMemory | None]:
    return POLICY.build(POLICY.config(**{"profile": PROFILE, **settings})).plan(snapshot, memory)


def entries(cluster: Cluster, **settings: Any) -> list[object]:
    return list(decide(cluster.snapshot(), **settings)[0].entries)


def together(plan: Plan) -> set[frozenset[str]]:
    return {frozenset(one.run for one in hosting.occupants) for hosting in plan.reasons.hostings}


def bought(plan: Plan) -> list[str]:
    return sorted(launch.offering.type.name for launch in plan.launches)


def test_the_pair_that_is_worth_most_for_its_price_is_made_first():
    plan, _ = decide(Cluster(*BOXES).job("1", A).job("2", B).job("3", C).snapshot())
    # bc: 1.96 / 1.5, ab: 1.90 / 1.5, ac: 1.84 / 1.5.
    assert together(plan) == {frozenset({"2/0", "3/0"}), frozenset({"1/0"})}
    assert bought(plan) == ["box", "half"]


def test_the_ratio_counts_the_cheapest_instance_for_the_pair():
    small = task("c", any=(0, 4, 16))
    cluster = Cluster(*BOXES, offer("twelve", (0, 12, 48), 1.02)).job("1", A).job("2", B)
    # a with a small c on a twelve: 2 * 0.92 / 1.02; ab on a box: 1.9 / 1.5.
    plan, _ = decide(cluster.job("3", small).job("4", small).snapshot())
    assert frozenset({"1/0", "2/0"}) not in together(plan)
    assert bought(plan) == ["twelve", "twelve"]


def test_a_pair_of_which_one_is_slowed_down_too_much_is_no_pair():
    lopsided = (("a", "b", 899_999), ("b", "a", MILLION))
    cluster = Cluster(*BOXES).job("1", A).job("2", B)
    assert len(together(decide(cluster.snapshot(), profile=lopsided)[0])) == 2
    plan, _ = decide(cluster.snapshot(), profile=lopsided, least_throughput_ppm=899_999)
    assert together(plan) == {frozenset({"1/0", "2/0"})}


def test_a_pair_must_be_worth_more_than_its_instance():
    dear = replace(BOX, price=1_900_000)
    cluster = Cluster(dear, HALF).job("1", A).job("2", B)
    assert bought(decide(cluster.snapshot())[0]) == ["half", "half"]  # 2 * 0.95 = 1.9
    cluster = Cluster(replace(dear, price=1_899_999), HALF).job("1", A).job("2", B)
    assert bought(decide(cluster.snapshot())[0]) == ["box"]


def test_what_is_not_in_the_profile_is_not_paired():
    cluster = Cluster(*BOXES).job("1", A).job("2", task("x", any=(0, 8, 32)))
    assert bought(decide(cluster.snapshot())[0]) == ["half", "half"]


def test_a_variant_is_looked_up_as_its_base_unless_it_has_an_entry_itself():
    variant = task("b[7]", any=(0, 8, 32))
    cluster = Cluster(*BOXES).job("1", A).job("2", variant)
    assert bought(decide(cluster.snapshot())[0]) == ["box"]
    own = (*PROFILE, ("b[7]", "a", 100_000), ("a", "b[7]", 100_000))
    assert bought(decide(cluster.snapshot(), profile=own)[0]) == ["half", "half"]


def test_without_a_profile_what_was_seen_of_pairs_counts():
    cluster = Cluster(*BOXES).job("1", A).job("2", B)
    assert bought(decide(cluster.snapshot(), profile=())[0]) == ["half", "half"]
    cluster.throughput = table({("a", ("b",)): 0.95, ("b", ("a",)): 0.95})
    assert bought(decide(cluster.snapshot(), profile=())[0]) == ["box"]


def test_it_is_never_more_than_two():
    tiny = task("b", any=(0, 1, 1))
    cluster = Cluster(*BOXES).instance("i", "box").job("1", A, on=["i"]).job("2", tiny, on=["i"])
    for number in range(3, 9):
        cluster.job(f"{number}", tiny)
    plan, _ = decide(cluster.snapshot())
    assert max(map(len, together(plan))) == 2


def test_a_waiting_task_joins_one_that_is_alone_where_that_is():
    cluster = Cluster(*BOXES).instance("i", "box").job("1", A, on=["i"]).job("2", B)
    assert entries(cluster) == [Assign("2/0", "i")]


def test_two_that_are_alone_are_brought_together_at_one_of_them():
    cluster = Cluster(*BOXES).instance("i", "box").instance("j", "half")
    cluster.job("1", A, on=["i"]).job("2", B, on=["j"])
    plan, _ = decide(cluster.snapshot())
    assert (plan.launches, plan.entries) == ((), (Assign("2/0", "i"),))
    (exchange,) = plan.reasons.exchanges
    # The half is no longer paid for; each loses a twentieth of what it is worth.
    assert exchange.saved_micro_usd_per_hour == 1_000_000 - 100_000
    assert exchange.cost_micro_usd == 2 * MILLION * 60 // 3600


def test_two_on_instances_that_are_too_small_for_both_meet_on_a_new_one():
    cluster = Cluster(*BOXES).instance("i", "half").instance("j", "half")
    cluster.job("1", A, on=["i"]).job("2", B, on=["j"])
    plan, _ = decide(cluster.snapshot())
    assert bought(plan) == ["box"]
    assert plan.entries == (Assign("1/0", 0), Assign("2/0", 0))
    (exchange,) = plan.reasons.exchanges
    assert exchange.saved_micro_usd_per_hour == 2_000_000 - 1_500_000 - 100_000


def test_one_that_is_left_alone_moves_to_a_cheaper_instance():
    cluster = Cluster(*BOXES).instance("i", "box").job("1", A, on=["i"]).job("2", B, on=["i"])
    snapshot = cluster.snapshot()
    plan, memory = decide(snapshot)
    assert plan.entries == ()
    alone = ended(snapshot, "2")
    plan, memory = decide(alone, memory)
    assert (bought(plan), plan.entries) == (["half"], (Assign("1/0", 0),))
    assert decide(carried_out(alone, plan), memory)[0].entries == ()


def test_nothing_moves_without_an_occasion_or_if_it_is_not_to():
    cluster = Cluster(*BOXES).instance("i", "box").instance("j", "half")
    snapshot = cluster.job("1", A, on=["i"]).job("2", B, on=["j"]).snapshot()
    assert decide(snapshot, migrate=False)[0].entries == ()
    memory = PolicyMemory("owl", 1, {"events": 2, "hindered": []})
    assert decide(snapshot, memory)[0].entries == ()
    # Someone who waits is no occasion either.
    waiting = cluster.job("3", task("x", any=(0, 8, 32))).snapshot(arrivals=2)
    assert [entry.run for entry in decide(waiting, memory)[0].entries] == ["3/0"]
    memory = PolicyMemory("owl", 1, {"events": 1, "hindered": []})
    assert len(decide(snapshot, memory)[0].entries) == 1


def test_one_between_places_can_be_joined_but_not_moved():
    cluster = Cluster(*BOXES).instance("j", "box").job("1", A).job("2", B, on=["j"], pinned=True)
    assert entries(cluster) == [Assign("1/0", "j")]
    # Not pinned, 1 would go to the box.
    for pinned, expected in ((False, [Assign("1/0", "j")]), (True, [Assign("2/0", 0)])):
        cluster = Cluster(*BOXES).instance("i", "half").instance("j", "box")
        cluster.job("1", A, on=["i"], pinned=pinned).job("2", B, on=["j"])
        assert entries(cluster) == expected


def test_all_of_a_gang_is_charged_for_a_member_that_is_slowed_down():
    def cluster(size: int) -> Cluster:
        made = Cluster(*BOXES).instance("box", "box")
        halves = [f"half-{number}" for number in range(1, size)]
        for half in halves:
            made.instance(half, "half")
        return made.job("gang", *[A] * size, on=["box", *halves], pinned=True).job("2", B)

    # 2.0 less a twentieth of b, and of all of the gang: 1.85 for two members, 1.45 for ten.
    only = profile(ab=0.95)
    assert entries(cluster(2), profile=only) == [Assign("2/0", "box")]
    assert entries(cluster(10), profile=only) == [Assign("2/0", 0)]


def test_members_of_a_gang_may_share_an_instance():
    cluster = Cluster(*BOXES).job("gang", A, A)
    assert bought(decide(cluster.snapshot(), profile=profile(aa=0.95))[0]) == ["box"]


def test_where_the_cheapest_type_is_used_up_the_next_one_that_pays_is_taken():
    cluster = Cluster(replace(BOX, limit=1), HALF, offer("other", (0, 16, 64), 1.6))
    for number in range(4):
        cluster.job(f"{number}", B)
    assert bought(decide(cluster.snapshot())[0]) == ["box", "other"]
    cluster = Cluster(replace(BOX, limit=1), HALF)
    for number in range(4):
        cluster.job(f"{number}", B)
    assert bought(decide(cluster.snapshot())[0]) == ["box", "half", "half"]


def test_a_gang_that_does_not_fit_is_held_and_takes_nothing():
    cluster = Cluster(replace(HALF, limit=2)).job("gang", C, C, C).job("2", C)
    assert [type(entry) for entry in entries(cluster)] == [Assign, Hold, Hold, Hold]


def test_a_gang_gets_the_room_that_its_own_pairing_would_have_cost_it():
    # One box is left, and no half. The best pair is a member of the gang and the task that is
    # alone on a nook: 1.9 / 1.5 on the box. That leaves the other member without room: on the
    # nook neither fits. So nobody makes way, and the gang has the box for its own 1.8 / 1.5.
    nook = offer("nook", (0, 2, 4), 0.9, family="nook")
    little = task("b", any=(0, 8, 32), nook=(0, 2, 4))
    known = profile(ab=1.0, aa=0.9)

    def cluster(name: str, *waiting: TaskSpec) -> Cluster:
        made = Cluster(replace(BOX, limit=1), replace(HALF, limit=1), nook)
        made.instance("i", "half").job("1", C, on=["i"], pinned=True)
        made.instance("j", "nook").job("2", little, on=["j"])
        return made.job(name, *waiting)

    plan, _ = decide(cluster("gang", A, A).snapshot(), profile=known)
    assert bought(plan) == ["box"]
    assert plan.entries == (Assign("gang/0", 0), Assign("gang/1", 0))
    # A single task may have the better pair: there is nobody whom that leaves without.
    plan, _ = decide(cluster("3", A).snapshot(), profile=known)
    assert plan.entries == (Assign("2/0", 0), Assign("3/0", 0))


def test_a_task_of_unknown_throughput_is_alone_until_it_was_measured():
    snapshot = replace(Cluster(*BOXES).job("1", A).job("2", B).snapshot(), profile=True)
    assert bought(decide(snapshot)[0]) == ["half", "half"]
    known = StandaloneRates(tuple(((Workload(w), Family("any")), MILLION) for w in "ab"))
    assert bought(decide(replace(snapshot, standalone=known))[0]) == ["box"]
