"""A journal that is put back from a backup: nothing runs twice, no name is given out twice."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from eva_master.model.resources import NOTHING
from eva_master.ports import Journal
from eva_wire.values.ids import JobId, Millis
from eva_wire.values.states import TERMINAL_JOB
from tests.drawing import drawn
from tests.fakes.chaos import ChaoticWorld
from tests.property.test_control_loop import (
    CHAOS_MS,
    QUICK,
    Story,
    _check_gangs,
    _stuck,
    _world,
    stories,
)


def copied(journal: Journal) -> dict[str, object]:
    """A backup: the records never change, the tables do."""
    return {
        name: table.copy() if isinstance(table, dict) else table
        for name, table in vars(journal).items()
        if name != "feed"
    }


def put_back(world: ChaoticWorld, backup: dict[str, object]) -> None:
    """Restart the master with a backup, as its operator says."""
    for name, table in backup.items():
        setattr(world.journal, name, table)
    world._settings = replace(world._settings, restored_mark=world.timeline.now())
    world.restart()


def check_now(world: ChaoticWorld) -> None:
    """No task runs on two instances, whatever the journal knows, and none takes room of others."""
    for run, places in world.workers.running().items():
        assert len(places) == 1, f"{run} runs on {places}"
    for instance in world.workers.agents():
        agent = world.workers._agents[instance]
        load = sum((attempt.order.demand for attempt in agent.present()), NOTHING)
        assert load.fits(agent._capacity), f"{instance} is overcommitted: {load}"


times = st.integers(1, CHAOS_MS // 1000).map(lambda seconds: 1000 * seconds)


@drawn(40)
@given(stories, times, times)
def test_a_restored_journal_starts_nothing_twice(story: Story, first: int, second: int) -> None:
    early = [replace(arrival, at_ms=arrival.at_ms // 8) for arrival in story.arrivals]
    world = _world(replace(story, fuses=[], arrivals=early), replace(QUICK, unwanted_ms=60_000))
    saved_ms, restored_ms = sorted((first, second))
    backup: dict[str, object] = {}
    saved_jobs: set[JobId] = set()
    restored = False
    while True:
        now = world.timeline.now()
        # The simulation has no programs of jobs that the master has forgotten.
        accepted = sum(command.startswith("submit-") for command in world.answers.replies)
        if not backup and now >= saved_ms and accepted == len(story.arrivals):
            backup, saved_jobs = copied(world.journal), {*world.state.jobs}
        if backup and not restored and now >= restored_ms:
            restored = True
            put_back(world, backup)
        if restored and now >= CHAOS_MS:
            world.calm_down()
            jobs = world.state.jobs
            if world.quiet() and all(jobs[name].state in TERMINAL_JOB for name in saved_jobs):
                break
        assert now < 20 * CHAOS_MS, _stuck(world)
        world.step()
        check_now(world)
    started = [
        (run, attempt)
        for run, attempt, instance in world.history.starts
        if instance not in world.workers.wiped
    ]
    assert len(started) == len(set(started)), "an attempt was started twice"
    _check_gangs(world)
    machines = world.cloud.bill()
    assert all(machine.gone_ms is not None for machine in machines.values())
    assert world.state.counters.restored_ms >= Millis(restored_ms)
