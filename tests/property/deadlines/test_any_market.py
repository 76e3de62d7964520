"""Whatever a spot market does, deadlines that can be kept on demand are kept."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from eva_lab.runs import named_policy
from eva_lab.simulator.run import Setup, Simulation
from eva_master.control.state.store import State
from eva_master.model.catalog import InstanceType, Offering
from eva_master.model.fleet.market import Market, Span
from eva_master.model.planning.spot_choice import SpotChoice
from eva_master.model.resources import Resources
from eva_master.model.trace import Trace, TraceTask
from eva_wire.values.ids import Family, Price
from tests.drawing import drawn
from tests.simulation.spot.test_spot_markets import HOUR, jobs, simulated

MINUTE = HOUR // 60
SLOWEST_START_MS = 5 * MINUTE
"""Within so long a job begins to run on demand, and so it could be submitted."""

spans = st.lists(
    st.tuples(st.integers(1, 180), st.integers(0, 4), st.sampled_from([300_000, 2_900_000])),
    min_size=1,
    max_size=25,
)
works = st.lists(
    st.tuples(st.integers(0, 600), st.integers(5, 400), st.integers(0, 300)),
    min_size=1,
    max_size=6,
)

shared_works = st.lists(
    st.tuples(
        st.integers(0, 120),
        st.integers(30, 400),
        st.integers(0, 200),
        st.sampled_from([1, 1, 1, 2]),
        st.sampled_from([1, 1, 2, 3]),
    ),
    min_size=6,
    max_size=10,
)


def drawn_market(lengths: list[tuple[int, int, int]]) -> Market:
    """A pool that has so much room at such a price for so many minutes, over and over."""
    found, start = [], 0
    for minutes, room, price in lengths:
        found.append(Span(start, room, price))
        start += minutes * MINUTE
    return Market({("*", "a"): tuple(found)}, start)


def drawn_jobs(told: list[tuple[int, int, int]]) -> Trace:
    """Jobs that arrive at a minute, work for some, and may lose some."""
    one = jobs(1, 1).jobs[0]
    return Trace(
        "jobs",
        tuple(
            replace(
                one,
                id=f"j{number}",
                arrival_ms=arrival * MINUTE,
                duration_ms=work * MINUTE,
                within_ms=work * MINUTE + SLOWEST_START_MS + slack * MINUTE,
            )
            for number, (arrival, work, slack) in enumerate(sorted(told))
        ),
    )


def check_in_time(simulation: Simulation, trace: Trace, told: str) -> None:
    """Every job has ended, and none later than it was due."""
    due = {it.id: it.within_ms for it in trace.jobs}
    ended = simulation.outcome().record.jobs
    assert {it.name for it in ended} == set(due), "no job is lost"
    for it in ended:
        limit = due[it.name]
        assert limit is not None
        assert it.finished_ms - it.submitted_ms <= limit, f"{it.name} under {told}"


@given(spans, works, st.sampled_from(SpotChoice), st.sampled_from(["no_packing", "eva"]))
@drawn(12)
def test_no_deadline_is_missed_because_of_spot(
    lengths: list[tuple[int, int, int]],
    told: list[tuple[int, int, int]],
    rule: SpotChoice,
    policy: str,
) -> None:
    trace = drawn_jobs(told)
    simulation = simulated(trace, drawn_market(lengths), policy, spot_choice=rule)
    check_in_time(simulation, trace, f"{rule}, {policy}")


@given(spans, shared_works)
@drawn(6)
def test_none_is_missed_in_company_and_nobody_is_promised_room_that_others_have(
    lengths: list[tuple[int, int, int]], told: list[tuple[int, int, int, int, int]]
) -> None:
    trace = sharing(told)
    market = drawn_market(lengths)
    eva, _ = named_policy("eva", {"explained": False})
    catalog = market.offered((_of(1), _of(4)))
    simulation = Simulation(Setup(trace, catalog, eva, market=market, keep_record=True))
    while simulation.step():
        check_room(simulation.cluster.state)
    check_in_time(simulation, trace, "eva")


def sharing(told: list[tuple[int, int, int, int, int]]) -> Trace:
    """Jobs of tasks of so many GPUs whose files and image take minutes to be there."""
    plain = drawn_jobs([it[:3] for it in told])
    gpus = [it[3:] for it in sorted(told)]
    return replace(
        plain,
        jobs=tuple(
            replace(
                job,
                tasks=(
                    TraceTask(
                        None,
                        ((Family("p3"), Resources(count, 2_000 * count, 8_000 * count)),),
                        fetch_ms=20_000,
                        build_ms=MINUTE,
                    ),
                )
                * members,
                init_ms=MINUTE,
                within_ms=(job.within_ms or 0) + SLOWEST_START_MS,
            )
            for job, (count, members) in zip(plain.jobs, gpus, strict=True)
        ),
    )


def _of(gpus: int) -> Offering:
    size = Resources(gpus, 4_000 * gpus, 16_000 * gpus)
    machine = InstanceType(f"p3.{gpus}", Family("p3"), size, acquisition_ms=30_000, setup_ms=90_000)
    return Offering(machine, Price(3_060_000 * gpus))


def check_room(state: State) -> None:
    """Who is to be on an instance has room there."""
    for name in state.live:
        instance, there = state.instances[name], state.places.targeting(name)
        if there:
            taken = state.demand(there, instance)
            assert taken.fits(instance.offering.type.capacity), [it.id for it in there]
