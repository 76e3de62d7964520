"""What was learned, as the message that users get."""

from __future__ import annotations

from dataclasses import replace

from eva_master.adapters.rpc.server import learned
from eva_master.control.state.store import State
from eva_master.learning.colocation import key
from eva_master.learning.delays import Delay
from eva_master.learning.knowledge import Knowledge
from eva_master.learning.voices.lessons import Lessons
from eva_master.model.catalog import Purchase
from eva_master.model.records import Job
from eva_wire._proto import api_pb2 as pb
from eva_wire.values.ids import MILLION, JobId, Millis, Workload
from tests.fakes.jobs import CATALOG, CPU, job, task
from tests.fakes.models import model_of

A, B = Workload("a"), Workload("b")


def test_measured_and_stated_figures_stand_beside_each_other() -> None:
    state = State(CATALOG)
    known = Lessons().in_company([key(A, [B])], 800_000, Millis(5))
    known = known.in_company([key(A, [B])], 805_000, Millis(6))
    standalone = known.standalone.observe(A, CPU, 2.5, Millis(7))
    delays = known.delays.observe(Delay.START, A, 30_400, Millis(8))
    state.set_learned(Knowledge({"me": replace(known, standalone=standalone, delays=delays)}))
    spec = replace(job("b", 2), tasks=(task(2, "b", 3 * MILLION),))
    state.put_job(Job(JobId("b-1"), spec, Millis(0), (("running", 0),)))
    over = Job(JobId("a-2"), replace(spec, tasks=(task(2, "a", 9),)), Millis(0), (("failed", 0),))
    state.put_job(over)

    assert learned.view(model_of(state), None, Millis(9)) == pb.Learned(
        now_ms=9,
        standalone=[
            pb.StandaloneRate(
                workload="a", family="c", rate=2.5, windows=1, measured_ms=7, owner="me"
            ),
            pb.StandaloneRate(workload="b", family="c", stated=3.0, owner="me"),
        ],
        # 2,500 millionths more are noise: policies reckon with the first figure.
        interference=[
            pb.Interference(
                workload="a",
                others=["b"],
                throughput_ppm=800_000,
                windows=2,
                measured_ms=6,
                owner="me",
            )
        ],
        delays=[
            pb.LearnedDelay(
                kind="start", name="a", delay_ms=30_400, measurements=1, measured_ms=8, owner="me"
            )
        ],
    )


def test_pools_that_were_asked_for_say_how_they_are_and_will_be() -> None:
    state = State(CATALOG)
    spot = replace(CATALOG[0], zone="a1", purchase=Purchase.SPOT)
    market = state.market.sold(spot, Millis(0)).refused(spot, Millis(600_000), held=True)
    state.remember(market)
    (pool,) = learned.view(model_of(state), None, Millis(660_000)).pools
    assert (pool.name, pool.there, pool.tries) == ("c.2@a1", False, 1)
    assert (pool.since_ms, pool.began, pool.seen_ms) == (600_000, True, 600_000)
    assert pool.retry_ms == 660_000
    assert 300_000 < pool.stays_ppm < 700_000
    later = learned.view(model_of(state), None, Millis(600_000 + 20 * 60_000)).pools[0]
    assert later.stays_ppm > pool.stays_ppm, "what has been away for longer stays away"
