"""Every figure about money asks the valuation: when that says double, all of them do."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace

import pytest

from eva_lab.runs import named_policy
from eva_master.control.measure import ledger
from eva_master.control.state.store import State
from eva_master.model.catalog import Offering
from eva_master.model.records import Instance, Job, TaskRun
from eva_master.packing.valuation.reservation_price import reservation_price
from eva_wire.values.ids import InstanceId, JobId, Millis, Price, RunId
from tests.fakes.jobs import job, offering, task
from tests.fakes.snapshots import Cluster, offer
from tests.fakes.snapshots import task as snapshot_task
from tests.simulation.test_accounting import job as trace_job
from tests.simulation.test_accounting import setup

POLICIES = ("eva", "eva_published", "no_packing", "stratus", "synergy", "owl")
Double = Callable[[], None]


@pytest.fixture
def double(monkeypatch: pytest.MonkeyPatch) -> Double:
    """Doubles the reservation price, in every module that asks for it."""

    def doubled(found: Offering | None) -> int:
        return 2 * reservation_price(found)

    def replace_it() -> None:
        patched = 0
        for module in list(sys.modules.values()):
            if getattr(module, "__name__", "").startswith("eva_master."):
                for name, value in list(vars(module).items()):
                    if value is reservation_price:
                        monkeypatch.setattr(module, name, doubled)
                        patched += 1
        assert patched

    return replace_it


def worth(policy: str, usd: float) -> int:
    """What the plan's reasons say that a lone task is worth, in micro-dollars per hour."""
    cluster = Cluster(offer("box", (0, 4, 8), usd)).job("a", snapshot_task(any=(0, 2, 2)))
    plan, _ = named_policy(policy)[0].plan(cluster.snapshot(), None)
    ((occupant,),) = [hosting.occupants for hosting in plan.reasons.hostings]
    return occupant.value_micro_usd_per_hour


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_follows(policy: str, double: Double) -> None:
    # Prices that no other test has, since what was worked out is remembered.
    assert worth(policy, 0.123457) == 123_457
    double()
    assert worth(policy, 0.123459) == 246_918


def counterfactual() -> tuple[int, int]:
    """What a job that is running would have cost alone, and its price as `eva plan` tells it."""
    box = offering(4, 190_001)
    state = State((box,))
    name = JobId("a-1")
    spec = replace(job("a", 4), tasks=(task(4, "a"),))
    state.put_job(Job(name, spec, Millis(0), (("running", 0),)))
    instance = Instance(InstanceId("i"), box, (("ready", 0),), Millis(0), up_ms=Millis(0))
    state.put_instance(replace(instance, ready_ms=Millis(0)))
    ledger.open_account(state, state.instances[InstanceId("i")])
    place = InstanceId("i")
    running = (("running", 0),)
    state.put_run(TaskRun(RunId(f"{name}/0"), name, 0, running, 1, place, place))
    bill = ledger.bill(state, Millis(1_000))
    return bill.alone, sum(one.price for one in state.prices.of(spec))


def test_the_ledger_and_previews_follow(double: Double) -> None:
    assert counterfactual() == (190_001 * 1_000, 190_001)
    double()
    assert counterfactual() == (2 * 190_001 * 1_000, 2 * 190_001)


def test_the_prices_of_a_quote_are_those_of_the_next_booking(double: Double) -> None:
    state = State((offering(4, 10),))
    spec = job("a", 4)
    assert [one.price for one in state.prices.of(spec)] == [10]
    state.set_prices({state.catalog[0].id: Price(30)})
    double()
    assert [one.price for one in state.prices.of(spec)] == [60]


def test_simulations_follow(double: Double) -> None:
    from eva_lab.simulator.run import Simulation

    def alone() -> int:
        simulation = Simulation(setup(trace_job("a", 0, 3_600)))
        simulation.run()
        return ledger.bill(simulation.cluster.state, simulation.cluster.timeline.now()).alone

    before = alone()
    double()
    assert alone() == 2 * before
