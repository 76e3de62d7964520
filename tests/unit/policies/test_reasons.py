"""Why plans are as they are: the dollars are worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eva_master.adapters.rpc.server.reasons import hosting as hosting_message
from eva_master.adapters.store import SqlJournal
from eva_master.adapters.store.journal import ROUNDS_EXPLAINED
from eva_master.model.changes import Changes, Round
from eva_master.model.planning.plan import Plan, PolicyMemory
from eva_master.model.planning.reasons import Exchange, Hosting, Move, Occupant, Reasons
from eva_master.model.planning.snapshot import Snapshot
from eva_master.policies import eva, eva_published, no_packing
from eva_master.ports import PolicyKind
from eva_wire.values.ids import InstanceId, Millis, RunId
from tests.fakes.snapshots import T1, T2, T3, T4, TABLE_3, Cluster, ended, offer, table, task
from tests.fakes.snapshots import carried_out as done


def decide(
    snapshot: Snapshot,
    memory: PolicyMemory | None = None,
    *,
    of: PolicyKind = eva.POLICY,
    **settings: bool | int | str,
) -> tuple[Plan, PolicyMemory | None]:
    return of.build(of.config(**settings)).plan(snapshot, memory)


def table_3() -> Cluster:
    return Cluster(*TABLE_3).job("1", T1).job("2", T2).job("3", T3).job("4", T4)


def alone(run: str, price: int) -> Occupant:
    return Occupant(RunId(run), price, 1_000_000, price)


def test_table_3_is_explained_in_the_papers_dollars() -> None:
    plan, _ = decide(table_3().snapshot(), interference=False)
    reasons = plan.reasons
    large, small = sorted(reasons.hostings, key=lambda one: -one.price_micro_usd_per_hour)
    # 12 + 3 + 0.4 = 15.4 against 12, and 0.8 against 0.8.
    assert (large.type, large.price_micro_usd_per_hour) == ("it1", 12_000_000)
    assert large.value_micro_usd_per_hour == 15_400_000
    assert large.occupants == (
        alone("1/0", 12_000_000),
        alone("2/0", 3_000_000),
        alone("4/0", 400_000),
    )
    assert (small.type, small.value_micro_usd_per_hour) == ("it3", 800_000)
    weighing = reasons.weighing
    assert weighing is not None
    assert weighing.alternatives[0].savings_micro_usd_per_hour == 3_400_000
    assert (weighing.cost_micro_usd_per_hour, weighing.tasks, weighing.instances) == (
        12_800_000,
        4,
        2,
    )
    bound = weighing.lower_bound_micro_usd_per_hour
    assert bound is not None
    assert bound <= 12_800_000
    assert reasons.exchanges == ()


def test_slowdowns_are_charged_as_in_the_papers_second_example() -> None:
    cluster = Cluster(*TABLE_3).job("1", T1).job("2", T2)
    cluster.throughput = table({("t1", ("t2",)): 0.8, ("t2", ("t1",)): 0.9})
    (shared,) = decide(cluster.snapshot())[0].reasons.hostings
    # 0.8 * 12 + 0.9 * 3 = 12.3 against 12.
    assert shared.value_micro_usd_per_hour == 12_300_000
    assert shared.occupants == (
        Occupant(RunId("1/0"), 12_000_000, 800_000, 9_600_000),
        Occupant(RunId("2/0"), 3_000_000, 900_000, 2_700_000),
    )


def test_the_price_is_split_as_on_the_bill() -> None:
    (shared,) = decide(Cluster(*TABLE_3).job("1", T1).job("2", T2).snapshot())[0].reasons.hostings
    shares = [one.share_micro_usd_per_hour for one in hosting_message(shared).occupants]
    assert shares == [9_600_000, 2_400_000]


def test_a_lone_move_saves_the_difference_of_the_prices() -> None:
    snapshot = Cluster(*TABLE_3).job("1", T1).job("2", T2).snapshot()
    plan, memory = decide(snapshot)
    left = ended(done(snapshot, plan), "1")
    plan, _ = decide(replace(left, now_ms=Millis(left.now_ms + 60_000)), memory)
    (exchange,) = plan.reasons.exchanges
    # From it1 to it2: 12 - 3 an hour. A minute of both: 15 / 60.
    assert exchange.saved_micro_usd_per_hour == 9_000_000
    assert exchange.cost_micro_usd == 250_000
    assert exchange.break_even_ms == 100_000
    (move,) = exchange.moves
    assert (move.run, move.target, move.cost_micro_usd) == ("2/0", 0, 250_000)


@pytest.mark.parametrize(
    ("kind", "policy", "horizon"),
    [
        ("full", eva_published.POLICY, {"min_horizon_s": 36_000, "optimizer": "auto"}),
        ("search", eva.POLICY, {"horizon_s": 36_000}),
    ],
)
def test_exchanges_add_up_to_what_the_round_weighed(
    kind: str, policy: PolicyKind, horizon: dict[str, Any]
) -> None:
    """Two mergers that have nothing to do with each other, in one round."""
    boxes = [
        offer("box", (0, 8, 32), 1.0, family="c"),
        offer("pair", (0, 16, 64), 1.5, family="c", setup_s=90),
        offer("chest", (0, 8, 32), 1.2, family="m"),
        offer("chests", (0, 16, 64), 1.6, family="m", setup_s=90),
    ]
    cluster = Cluster(*boxes)
    for name, machine, family in (
        *(("a", "box", "c"), ("b", "box", "c")),
        *(("x", "chest", "m"), ("y", "chest", "m")),
    ):
        cluster.instance(f"i-{name}", machine)
        cluster.job(name, task(**{family: (0, 8, 8)}), on=[f"i-{name}"])
    plan, _ = decide(cluster.snapshot(), of=policy, default_throughput_ppm=1_000_000, **horizon)
    first, second = sorted(plan.reasons.exchanges, key=lambda one: one.moves[0].run)
    assert {move.run for move in first.moves} == {"a/0", "b/0"}
    assert {move.run for move in second.moves} == {"x/0", "y/0"}
    assert first.saved_micro_usd_per_hour == 500_000
    assert second.saved_micro_usd_per_hour == 800_000
    # A minute of both boxes and of the pair, and the pair while it comes up.
    assert first.cost_micro_usd == pytest.approx(1e6 * (3.5 * 60 + 1.5 * 90) / 3600, abs=1)
    weighing = plan.reasons.weighing
    assert weighing is not None
    assert weighing.chosen == kind
    by_kind = {one.kind: one for one in weighing.alternatives}
    gained = by_kind[kind].savings_micro_usd_per_hour - by_kind["keep"].savings_micro_usd_per_hour
    assert gained == first.saved_micro_usd_per_hour + second.saved_micro_usd_per_hour
    spent = by_kind[kind].migration_micro_usd - by_kind["keep"].migration_micro_usd
    assert abs(spent - first.cost_micro_usd - second.cost_micro_usd) <= 2


def test_members_of_a_gang_that_stop_along_are_in_the_exchange() -> None:
    cluster = Cluster(*TABLE_3).instance("i", "it1").instance("j", "it4")
    cluster.job("g", T4, T4, on=["i", "j"])
    (exchange,) = decide(cluster.snapshot())[0].reasons.exchanges
    assert [move.run for move in exchange.moves] == ["g/0"]
    # g/0 holds it1 and the new it4 for a minute, g/1 its own it4.
    assert exchange.moves[0].cost_micro_usd == pytest.approx(12.4e6 / 60, abs=1)
    assert exchange.cost_micro_usd == pytest.approx(12.8e6 / 60, abs=1)
    assert exchange.saved_micro_usd_per_hour == 11_600_000


def test_no_packing_has_simple_reasons() -> None:
    cluster = table_3().instance("i", "it1").job("5", T2, on=["i"])
    plan, _ = no_packing.POLICY.build(no_packing.POLICY.config()).plan(cluster.snapshot(), None)
    found = {one.occupants[0].run: one for one in plan.reasons.hostings}
    assert all(len(one.occupants) == 1 for one in found.values())
    assert found[RunId("5/0")].on == "i"
    assert found[RunId("5/0")].price_micro_usd_per_hour == 12_000_000
    assert found[RunId("5/0")].value_micro_usd_per_hour == 3_000_000
    assert found[RunId("1/0")].value_micro_usd_per_hour == 12_000_000
    assert (plan.reasons.exchanges, plan.reasons.weighing) == ((), None)


HOSTING = Hosting(0, "box", 5, 7, (alone("a/0", 3), alone("b/0", 4)))
MOVE = Move(RunId("a/0"), InstanceId("i"), 0, 9)


def test_new_instances_get_their_names_and_what_was_dropped_is_left_out() -> None:
    other = replace(HOSTING, on=1, occupants=(alone("c/0", 3),))
    reasons = Reasons((HOSTING, other), (Exchange((MOVE,), 1, 2),))
    adopted = reasons.adopted({0: InstanceId("i00007")}, {RunId("b/0")})
    (hosting,) = adopted.hostings
    assert (hosting.on, hosting.occupants) == ("i00007", (alone("a/0", 3),))
    assert adopted.exchanges[0].moves[0].target == "i00007"
    assert reasons.adopted({}, {RunId("a/0")}) == Reasons()


@pytest.mark.parametrize(
    ("saved", "cost", "after"), [(10, 0, 0), (0, 5, None), (-1, 5, None), (3_600_000, 2, 2)]
)
def test_break_even(saved: int, cost: int, after: int | None) -> None:
    assert Exchange((MOVE,), saved, cost).break_even_ms == after


def test_reasons_of_the_newest_rounds_are_kept(tmp_path: Path) -> None:
    reasons = Reasons((replace(HOSTING, on=InstanceId("i")),), (Exchange((MOVE,), 1, 2),))

    def record(number: int) -> Round:
        return Round(number, Millis(number), 1, 0, 0, reasons=reasons)

    with SqlJournal.open(f"sqlite:///{tmp_path}/journal.db") as journal:
        assert journal.explained() is None
        journal.commit(Changes(rounds=tuple(map(record, (1, 2, ROUNDS_EXPLAINED)))))
        assert journal.explained(2) == record(2)
        journal.commit(Changes(rounds=(record(ROUNDS_EXPLAINED + 2),)))
        assert journal.explained(2) is None
        assert journal.explained() == record(ROUNDS_EXPLAINED + 2)
        assert journal.explained(ROUNDS_EXPLAINED + 1) == record(ROUNDS_EXPLAINED)
        assert len(journal.rounds(limit=9)) == 4
