"""What is left once an attempt is over: no more counts as done than a checkpoint holds."""

from __future__ import annotations

import pytest

from eva_master.adapters.store.codec import RUNS
from eva_master.model.events import InstanceGone, Phase
from eva_wire.values.ids import Millis, RunId
from tests.fakes.hand_driven import JOB, PACED, Cluster

RUN = RunId("job-1/0")
TIMED = JOB + "duration: 1000s\n"


def gone(cluster: Cluster, *, at: int, run: RunId = RUN) -> None:
    """Have the cloud take a task run's instance away without a word."""
    instance = cluster.state.runs[run].instance
    assert instance is not None
    cluster.handle(InstanceGone(instance, Millis(0), Millis(at), reclaimed=True), at=at)


@pytest.mark.parametrize("text", [PACED, TIMED])
def test_what_was_done_after_the_last_checkpoint_is_lost_with_the_instance(text: str) -> None:
    cluster = Cluster()
    cluster.start(text)
    if text == PACED:
        cluster.progress(60_000, at=200_000)
    cluster.say(RUN, Phase.RUNNING, at=200_000, generation=1)
    if text == PACED:
        cluster.progress(150_000, at=500_000)
    cluster.handle(at=500_000)
    assert cluster.left() == 500_000
    gone(cluster, at=500_000)
    assert cluster.left() == 800_000


def test_a_stop_that_came_too_late_to_store_anything_loses_the_same() -> None:
    cluster = Cluster()
    cluster.start(PACED)
    cluster.progress(60_000, at=200_000)
    cluster.say(RUN, Phase.RUNNING, at=200_000, generation=1)
    cluster.progress(150_000, at=500_000)
    cluster.say(RUN, Phase.EXITED, at=510_000, exit_code=137, stopped=True, generation=1)
    assert cluster.left() == 800_000
    assert cluster.state.runs[RUN].progress.steps == 60_000


def test_a_checkpoint_of_the_last_moment_keeps_all() -> None:
    cluster = Cluster()
    cluster.start(PACED)
    cluster.say(RUN, Phase.RUNNING, at=1_000, generation=1)
    cluster.progress(150_000, at=500_000)
    cluster.say(RUN, Phase.EXITED, at=510_000, exit_code=143, stopped=True, generation=2)
    assert cluster.left() == 500_000


def test_a_program_that_stores_by_itself_loses_no_more_than_from_one_to_the_next() -> None:
    cluster = Cluster()
    cluster.start(TIMED + "checkpoint_interval: 2m\n")
    cluster.say(RUN, Phase.RUNNING, at=100_000, generation=1)
    cluster.handle(at=500_000)
    gone(cluster, at=500_000)  # before its worker could tell of the later ones
    assert cluster.left() == 620_000


def test_steps_that_nobody_can_have_done_stay_in_bounds() -> None:
    cluster = Cluster()
    cluster.start(PACED + "checkpoint_interval: 2m\n")
    cluster.say(RUN, Phase.RUNNING, at=1_000, generation=1)
    for at in range(2_000, 200_000, 2_000):
        cluster.progress(min(2**62, at**3), at=at)
    cluster.progress(2**62, at=300_000)
    gone(cluster, at=300_000)
    assert 0 <= cluster.state.runs[RUN].progress.steps <= 2**62


def test_a_gang_falls_back_to_what_those_have_stored_who_store() -> None:
    cluster = Cluster()
    cluster.start(PACED + "tasks: 2\n")
    for at, steps in ((100_000, 30_000), (500_000, 150_000)):
        for run in ("job-1/0", "job-1/1"):
            cluster.progress(steps, at=at, run=run)
        if at == 100_000:
            cluster.say(RUN, Phase.RUNNING, at=at, generation=1)
    gone(cluster, at=500_000, run=RunId("job-1/1"))
    cluster.say(RUN, Phase.EXITED, at=510_000, exit_code=137, stopped=True, generation=1)
    assert [cluster.left(run) for run in ("job-1/0", "job-1/1")] == [900_000, 900_000]


def test_it_is_on_record() -> None:
    cluster = Cluster()
    cluster.start(PACED)
    assert "stored" not in RUNS.encode(cluster.state.runs[RUN])  # nothing to tell yet
    cluster.progress(60_000, at=200_000)
    cluster.say(RUN, Phase.RUNNING, at=200_000, generation=1)
    written = cluster.state.runs[RUN]
    assert RUNS.decode([RUNS.encode(written)]) == [written]
    assert written.stored is not None
    assert (written.stored.steps, written.stored.work_ms) == (60_000, 200_000)
