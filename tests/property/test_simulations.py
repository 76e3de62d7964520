"""Whatever arrives and whatever goes wrong: the books agree, nothing runs twice, seeds decide."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from eva_lab.runs import Chosen, prepared
from eva_lab.simulator.cluster.delays import Accounting
from eva_lab.simulator.cluster.supply.fault_injector import Faults
from eva_lab.simulator.results.lower_bound import reference_bound
from eva_lab.simulator.results.metrics import charge
from eva_lab.simulator.results.rows import tables
from eva_lab.simulator.run import Setup, Simulation
from eva_master.control.measure import ledger
from eva_master.model.trace import Interference, TraceJob
from eva_master.policies.no_packing import POLICY as NO_PACKING
from eva_wire.values.ids import MILLION, Workload
from tests.drawing import drawn
from tests.simulation.test_accounting import CATALOG, job, setup

WORKLOADS = ("a", "b", "c")
shares = st.integers(300_000, MILLION)
truths = st.dictionaries(
    st.tuples(*[st.sampled_from(WORKLOADS).map(Workload)] * 2), shares, max_size=9
).map(lambda pairs: Interference(pairs, 950_000))
faults = st.builds(
    Faults,
    refusals=st.sampled_from([0.0, 0.3]),
    failures_per_hour=st.sampled_from([0.0, 0.0, 0.5]),
    checkpoint_ms=st.sampled_from([0, 300_000]),
    noise=st.sampled_from([0.0, 0.1]),
)


@st.composite
def traces(draw: st.DrawFn) -> list[TraceJob]:
    """A few jobs that come one after another."""
    found, at_s = [], 0
    for number in range(draw(st.integers(1, 7))):
        at_s += draw(st.integers(0, 1200))
        found.append(
            job(
                f"j{number}",
                at_s,
                draw(st.integers(1, 4000)),
                tasks=draw(st.sampled_from([1, 1, 1, 2, 3])),
                cpus=draw(st.integers(1, 8)),
                workload=draw(st.sampled_from(WORKLOADS)),
            )
        )
    return found


@st.composite
def setups(draw: st.DrawFn) -> Setup:
    """A policy in its usual rhythm, on a trace in a world where things go wrong."""
    base = setup(
        *draw(traces()),
        policy=NO_PACKING.build(NO_PACKING.config()),
        truth=draw(truths),
        accounting=draw(st.sampled_from(Accounting)),
        faults=draw(faults),
        seed=draw(st.integers(0, 99)),
    )
    name = draw(st.sampled_from(["no_packing", "stratus", "synergy", "eva_published"]))
    return prepared(Chosen(name, {}), base)


def lived(given_: Setup) -> Simulation:
    simulation = Simulation(given_)
    simulation.run()
    return simulation


@drawn(10)
@given(setups())
def test_books_agree_and_nothing_runs_twice(given_: Setup) -> None:
    simulation = lived(given_)
    outcome, state = simulation.outcome(), simulation.cluster.state
    assert outcome.jobs_finished == len(given_.trace.jobs)
    assert all(record.state == "succeeded" for record in state.jobs.values())

    billed = {name: charge(machine) for name, machine in simulation.cluster.cloud.bill().items()}
    bill = ledger.bill(state, simulation.cluster.timeline.now())
    assert {name: account.charged for name, account in bill.instances.items()} == billed
    assert bill.charged == bill.idle + sum(account.charged for account in bill.jobs.values())
    # What is at work cannot cost less than the fractional bound allows, but for rounding.
    assert sum(billed.values()) >= 0.999 * reference_bound(given_.trace, CATALOG)

    by_run = defaultdict(list)
    for occupancy in outcome.record.occupancies:
        by_run[occupancy.run].append(occupancy)
    for occupancies in by_run.values():
        occupancies.sort(key=lambda occupancy: occupancy.attempt)
        for before, after in pairwise(occupancies):
            assert before.to_ms <= after.from_ms, "two attempts at a time"
            assert before.attempt < after.attempt
    assert outcome.tasks_per_instance >= 0
    assert max(outcome.allocation_cpu, outcome.allocation_memory) <= 1 + 1e-9
    for record in outcome.record.jobs:
        assert record.moving_ms + 1 >= record.alone_ms, "nobody is faster than alone"
        assert record.jct_ms >= record.executing_ms


@drawn(3)
@given(setups())
def test_the_same_seed_is_the_same_life(given_: Setup) -> None:
    one, other = lived(given_).outcome(), lived(given_).outcome()
    assert one.row() == other.row()
    assert tables(one.record) == tables(other.record)
