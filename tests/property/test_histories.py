"""A life that was lived in the simulator, run again from its records."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from eva_lab.runs import named_policy
from eva_lab.simulator.cluster.delays import Accounting
from eva_lab.simulator.results.metrics import charge
from eva_lab.simulator.run import Simulation
from eva_lab.simulator.scenario.journal_replay import latest, past
from eva_master.control.measure import ledger
from eva_master.model.trace import Interference, TraceJob
from tests.property.test_simulations import traces, truths
from tests.simulation.test_accounting import setup


def times(simulation: Simulation) -> list[tuple[object, ...]]:
    occupancies = simulation.outcome().record.occupancies
    return sorted((s.run, s.attempt, s.instance, s.from_ms, s.to_ms) for s in occupancies)


def bills(simulation: Simulation) -> dict[str, tuple[str, int]]:
    machines = simulation.cluster.cloud.bill().values()
    return {it.instance: (it.offering.type.name, charge(it)) for it in machines}


@settings(max_examples=40)
@given(
    traces(),
    truths,
    st.sampled_from(["no_packing", "stratus"]),
    st.sampled_from(Accounting),
    st.sampled_from([None, 300]),
)
def test_the_same_happens_again(
    jobs: list[TraceJob], truth: Interference, name: str, accounting: Accounting, gap: int | None
) -> None:
    """Under a policy that does not go by measurements, whatever the truth was."""
    policy, _ = named_policy(name)
    given_ = setup(*jobs, policy=policy, truth=truth, accounting=accounting, round_gap_s=gap)
    first = Simulation(given_)
    record = first.run().record
    state = first.cluster.state
    charged = ledger.bill(state, latest(state)).charged
    found = past(state, record.rounds, charged)
    again = Simulation(replace(given_, past=found, trace=found.trace(), truth=found.truth))
    again.run()
    assert times(again) == times(first)
    assert bills(again) == bills(first)
    assert sum(cost for _, cost in bills(again).values()) == charged
