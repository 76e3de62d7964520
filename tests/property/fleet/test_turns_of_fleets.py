"""Jobs that share a small fleet in turns, from the first to the end of the last."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eva_lab.experiments.fleet import ServersSection, awaited, nodes_of
from eva_lab.runs import named_policy
from eva_lab.simulator.results.fleet_bound import fleet_bound
from eva_lab.simulator.run import Setup, Simulation
from eva_master.model.trace import GPU_SLOT, Trace, TraceJob, TraceTask
from eva_wire.values.ids import MILLION, Family, Workload
from tests.drawing import drawn

ROUND_MS = 60_000
MINUTE = 60_000
TYPES = ("a", "b", "c")


@dataclass(frozen=True)
class Drawn:
    """A job: its GPUs, how long it takes on the first type, how much faster it is on the others."""

    gpus: int
    minutes: int
    speeds: tuple[int, int]
    came: int
    move_s: int


jobs = st.builds(
    Drawn,
    gpus=st.sampled_from([1, 1, 2, 4]),
    minutes=st.integers(1, 90),
    speeds=st.tuples(st.sampled_from([10, 50, 100, 300]), st.sampled_from([5, 100, 200])),
    came=st.integers(0, 20),
    move_s=st.sampled_from([0, 10]),
)


def traced(found: list[Drawn], factor: int = 1) -> Trace:
    """The jobs, so many times as fast."""
    arrivals = accumulate(job.came * MINUTE for job in found)
    made = []
    for number, (job, at) in enumerate(zip(found, arrivals, strict=True)):
        speeds = (100, *job.speeds)
        task = TraceTask(
            demand=None,
            demand_by_family=tuple((Family(name), GPU_SLOT) for name in TYPES),
            speed_by_family=tuple(
                (Family(name), speed * MILLION // 100)
                for name, speed in zip(TYPES, speeds, strict=True)
            ),
        )
        made.append(
            TraceJob(
                f"job-{number:02}",
                Workload(f"w{speeds}"),
                at,
                job.minutes * MINUTE // factor,
                (task,) * job.gpus,
                init_ms=1000 * job.move_s,
            )
        )
    return Trace("drawn", tuple(made))


def simulated(trace: Trace, policy: str, servers: int) -> list[tuple[int, int]]:
    """When each job came and ended, by name."""
    fleet = {name: ServersSection(servers=servers, gpus=2) for name in TYPES}
    scheduler, _ = named_policy(policy, {"lease_s": 60})
    setup = Setup(
        awaited(trace, ROUND_MS),
        (),
        scheduler,
        nodes=nodes_of(fleet),
        round_gap_ms=ROUND_MS,
        keep_record=True,
    )
    record = Simulation(setup).run().record.jobs
    return [(it.submitted_ms, it.finished_ms) for it in sorted(record, key=lambda it: it.id)]


@pytest.mark.parametrize("policy", ["hadar", "hadar_published"])
@drawn(12)
@given(found=st.lists(jobs, min_size=1, max_size=7), servers=st.integers(1, 2))
def test_all_jobs_end_and_none_before_it_can(policy: str, found: list[Drawn], servers: int) -> None:
    """Each has taken as long as it does where it is fastest, and all together the least time."""
    trace = traced(found)
    ends = simulated(trace, policy, servers)
    assert len(ends) == len(found)
    for job, (came, ended) in zip(found, ends, strict=True):
        fastest = max(100, *job.speeds)
        assert ended - came >= job.minutes * MINUTE * 100 // fastest - 1
    at_once = replace(trace, jobs=tuple(replace(job, arrival_ms=0) for job in trace.jobs))
    nodes = nodes_of({name: ServersSection(servers=servers, gpus=2) for name in TYPES})
    least = fleet_bound(at_once, nodes)
    assert least is not None
    total = max(ended for _, ended in ends) - min(came for came, _ in ends)
    assert total >= least.bound_ms - len(found)
    twice = fleet_bound(traced(found, factor=2), nodes)
    assert twice is not None
    assert twice.bound_ms == pytest.approx(least.bound_ms / 2, rel=1e-3)


@pytest.mark.parametrize("policy", ["hadar", "hadar_published"])
@drawn(6)
@given(found=st.lists(jobs, min_size=2, max_size=6))
def test_nobody_waits_much_longer_than_one_job_after_the_other(
    policy: str, found: list[Drawn]
) -> None:
    """With what rounds and starts cost, everything ends within all jobs on the slowest type."""
    ends = simulated(traced(found), policy, servers=2)
    one_by_one = sum(job.minutes * MINUTE * 100 // min(100, *job.speeds) for job in found)
    total = max(ended for _, ended in ends) - max(came for came, _ in ends)
    turns = 4 * len(found) * (ROUND_MS + 10_000)
    assert total <= one_by_one + turns
