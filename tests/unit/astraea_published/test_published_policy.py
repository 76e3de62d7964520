"""The policy over time: batches, calendars, nodes that die, and what its memory holds."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.tenants import main
from eva_master.model.planning.plan import Assign, Hold, Plan, Suspend
from eva_master.ports import Policy
from eva_master.testing.plan_checks import check
from eva_policies.astraea_published.memory import Memory
from eva_policies.astraea_published.policy import POLICY
from eva_wire.values.ids import MILLIS_PER_HOUR, Millis
from tests.unit.astraea.played import Market, Work
from tests.unit.worlds.small import world, written


class Batched(Market):
    """A market under the published policy, in slots of an hour."""

    def built(self, options: dict[str, Any]) -> Policy:
        return POLICY.build(POLICY.config(**options))

    def held(self) -> dict[str, str]:
        """Who waits, and why."""
        entries = self.plans[-1].entries
        return {it.run.split("/")[0]: it.reason for it in entries if isinstance(it, Hold)}

    def until_placed(self, name: str, most: int = 40) -> int:
        """Play until a job has a place; returns the slot in which it got it."""
        while True:
            assert self.slot < most, f"{name} has no place by slot {most}"
            self.round()
            entries = self.plans[-1].entries
            if any(isinstance(it, Assign) and it.run.split("/")[0] == name for it in entries):
                return self.slot - 1


def test_a_batch_is_closed_before_its_jobs_are_scheduled() -> None:
    """Batch 0 has who came in the first slot; its first round begins after lambda slots."""
    market = Batched([2], {"ana": 2}, [Work("first", "ana", 1), Work("late", "ana", 1, arrives=2)])
    market.round()
    assert market.held() == {"first": "waits for its batch"}
    assert market.until_placed("first") == 2
    # Slot 2 is in batch 1, whose rounds begin at 4.
    assert market.until_placed("late") == 4


def test_a_job_too_long_for_a_round_waits_for_a_longer_one() -> None:
    market = Batched([1], {"ana": 1}, [Work("long", "ana", 5, dollars=1000)])
    # Rounds of 4 slots end at 16.
    assert market.until_placed("long") == 16
    assert "long" in market.to_end().done


def test_nobody_is_ever_stopped() -> None:
    works = [
        Work("a", "ana", 12, most=4),
        Work("b", "bob", 3, most=2, arrives=1, dollars=9000, loses=90),
        Work("c", "ana", 6, most=3, arrives=2),
    ]
    market = Batched([2, 2], {"ana": 2, "bob": 2}, works).to_end(200)
    assert market.done.keys() == {"a", "b", "c"}
    stopped = [it for plan in market.plans for it in plan.entries if isinstance(it, Suspend)]
    assert stopped == []
    assert not any(plan.sizes and _running(plan) for plan in market.plans)


def _running(plan: Plan) -> bool:
    placed = {it.run.split("/")[0] for it in plan.entries if isinstance(it, Assign)}
    return any(it.job not in placed for it in plan.sizes)


def test_who_borrows_pays_those_who_leave_something_idle() -> None:
    works = [Work("wide", "ana", 8, most=4, least=3, dollars=1000, loses=100)]
    market = Batched([2, 2], {"ana": 2, "bob": 2}, works, {"full_gpu_usd": 3.0})
    market.until_placed("wide")
    (terms,) = market.plans[-1].loans.terms
    assert (terms.job, terms.gpus) == ("wide", 4)
    assert {name for name, _ in terms.lenders} == {"ana", "bob"}
    assert sum(terms.lent) == 4000
    # Nothing was in use when its price was posted.
    assert terms.per_hour == 0


def test_a_job_whose_node_dies_joins_the_next_batch() -> None:
    market = Batched([1, 1], {"ana": 2}, [Work("a", "ana", 3), Work("b", "ana", 3)])
    market.until_placed("a")
    market.round()
    lost = next(iter(market.places))
    market.bought = [it for it in market.bought if it[0] != market.places[lost]]
    name = lost.split("/")[0]
    del market.places[lost], market.began[name]
    before = Memory.read(market.memory).entries
    market.round()
    after = Memory.read(market.memory).entries
    assert lost in before
    assert lost not in after
    assert market.to_end(100).done.keys() == {"a", "b"}


def test_the_clock_begins_anew_after_its_horizon() -> None:
    works = [Work(f"j{n}", "ana", 1, arrives=3 * n) for n in range(30)]
    market = Batched([1], {"ana": 1}, works, {"horizon_slots": 8})
    waits = []
    for work in works:
        waits.append(market.until_placed(work.name, 200) - work.arrives)
    # Batches that double for ever would have the last ones wait for dozens of slots.
    assert max(waits) <= 16


def test_tasks_without_gpus_start_at_once() -> None:
    market = Batched([1], {"ana": 1}, [Work("gpu", "ana", 1)])
    seen = market.seen()
    need = seen.runs[0].task
    plain = replace(need, demand=((need.demand[0][0], replace(need.demand[0][1], gpus=0)),))
    seen = replace(seen, runs=tuple(replace(run, task=plain) for run in seen.runs))
    plan, _ = market.policy.plan(seen, None)
    check(seen, plan)
    assert [type(it) for it in plan.entries] == [Assign]


def test_the_policy_wakes_when_a_round_begins_or_a_job_is_due() -> None:
    market = Batched([1], {"ana": 1}, [Work("a", "ana", 2), Work("b", "ana", 2)])
    began = market.now
    market.round()
    assert market.plans[-1].again.at_ms == Millis(began + 2 * MILLIS_PER_HOUR)


def test_memory_holds_jobs_that_are_there_and_no_others() -> None:
    works = [Work(f"j{n}", "ana", 1, arrives=n) for n in range(40)]
    market = Batched([4], {"ana": 4}, works)
    sizes = []
    while len(market.done) < len(works):
        market.round()
        there = {it.name for it in works if it.arrives < market.slot and it.name not in market.done}
        entries = Memory.read(market.memory).entries
        assert {name.split("/")[0] for name in entries} <= there | set(market.done)
        sizes.append(len(entries))
    market.round()
    assert Memory.read(market.memory).entries == {}
    assert Memory.read(market.memory).epoch_ms is None


@pytest.mark.parametrize("broken", [{}, {"epoch": "x"}, {"entries": {"a": [1]}}])
def test_a_memory_that_cannot_be_read_counts_as_none(broken: dict[str, Any]) -> None:
    whole = Memory().written()
    data = {**whole.data, **broken} if broken else {}
    assert Memory.read(replace(whole, data=data)) == Memory()


def test_a_small_world_is_done_and_what_is_paid_is_earned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = [{"arrival_slot": 1 + n, "tenant": n % 2, "epochs": 2 + n} for n in range(8)]
    path = written(tmp_path, world(*jobs))
    policies = ("astraea_published", "astraea_published:batchsche")
    assert main([str(path), "--json", *(f"--policy={it}" for it in policies)]) == 0
    shared, alone = map(json.loads, capsys.readouterr().out.splitlines())
    assert shared["paid"] == shared["earned"]
    assert (alone["paid"], alone["borrowed_jobs"]) == (0, 0)
    assert 0 < alone["revenue"] <= alone["bound"]
    assert 0 < shared["revenue"] <= shared["bound"]
