"""The first image on a new instance is learned as a part of the instance's set-up."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from eva_lab.simulator.cluster.delays import Accounting, MoveDelays, TaskDelays
from eva_lab.simulator.simulated_cluster import SimulatedCluster
from eva_master.control.planning.snapshot_builder import snapshot
from eva_master.control.settings import Settings
from eva_master.learning.delays import Delay
from eva_wire.values.ids import JobId, RunId
from tests.fakes.jobs import CATALOG, LARGE, MEDIUM, Script, job
from tests.fakes.learned.lessons import lessons_of

PULL_MS = 90_000
FETCH_MS = 4_000
SETUP_MS = MEDIUM.type.setup_ms


class Frequent(TaskDelays):
    """Tasks that report a step each second."""

    report_ms = 1_000


def _world(
    script: Script,
    images: Mapping[str, str],
    accounting: Accounting = Accounting.PRODUCTION,
) -> SimulatedCluster:
    def moves(run: RunId) -> MoveDelays:
        return MoveDelays(images[run], FETCH_MS, build_ms=PULL_MS, stop_ms=3_000)

    return SimulatedCluster(
        CATALOG, script, settings=Settings(), delays=Frequent(moves, accounting)
    )


def _steps(world: SimulatedCluster, name: str) -> None:
    def reported() -> bool:
        run = world.state.runs.get(RunId(name))
        return run is not None and run.state == "running" and run.progress.steps > 0

    assert world.run(reported, limit_ms=3_600_000)


def _learned(world: SimulatedCluster) -> dict[tuple[Delay, str], int]:
    tables = (world.state.learned.delays, lessons_of(world.state).delays)
    return {key: table.known[key].value for table in tables for key in table.known}


def _planned_setup_ms(world: SimulatedCluster) -> int:
    """The set-up that policies reckon with."""
    seen = snapshot(world.state, world.timeline.now(), Settings())
    return next(each.type.setup_ms for each in seen.catalog if each.type.name == MEDIUM.type.name)


def test_a_second_task_with_the_image_pays_nothing_and_the_launch_pays_all() -> None:
    script = Script({"a-1/0": "box", "b-2/0": "box"}, {"box": MEDIUM})
    world = _world(script, {"a-1/0": "torch", "b-2/0": "torch"})
    world.submit(job("a", 2, minutes=60))
    _steps(world, "a-1/0")
    assert _learned(world)[Delay.IMAGE, "c.4"] == PULL_MS
    assert _learned(world)[Delay.START, "a"] <= FETCH_MS + 2_000
    assert _planned_setup_ms(world) == _learned(world)[Delay.SETUP, "c.4"] + PULL_MS
    world.submit(job("b", 2, minutes=60))
    _steps(world, "b-2/0")
    assert _learned(world)[Delay.START, "b"] <= FETCH_MS + 2_000
    assert world.state.learned.delays.known[Delay.IMAGE, "c.4"].samples == 1


def test_tasks_that_wait_for_one_first_image_have_short_starts_all() -> None:
    script = Script({"a-1/0": "box", "b-2/0": "box"}, {"box": MEDIUM})
    world = _world(script, {"a-1/0": "torch", "b-2/0": "torch"})
    world.submit(job("a", 2, minutes=60))
    world.submit(job("b", 2, minutes=60))
    _steps(world, "a-1/0")
    _steps(world, "b-2/0")
    assert {_learned(world)[Delay.START, name] <= FETCH_MS + 2_000 for name in "ab"} == {True}


def test_another_image_counts_in_the_start_that_waits_for_it() -> None:
    script = Script({"a-1/0": "box", "b-2/0": "box"}, {"box": MEDIUM})
    world = _world(script, {"a-1/0": "torch", "b-2/0": "jax"})
    world.submit(job("a", 2, minutes=60))
    _steps(world, "a-1/0")
    world.submit(job("b", 2, minutes=60))
    _steps(world, "b-2/0")
    assert _learned(world)[Delay.START, "b"] >= PULL_MS
    assert world.state.learned.delays.known[Delay.IMAGE, "c.4"].samples == 1


def test_an_image_that_is_fetched_before_a_move_counts_in_the_target_s_set_up() -> None:
    script = Script({"a-1/0": "box"}, {"box": MEDIUM})
    world = _world(script, {"a-1/0": "torch", "nudge-2/0": "torch"})
    world.submit(job("a", 2, minutes=60))
    _steps(world, "a-1/0")
    script.wanted["a-1/0"] = "bigger"
    script.offerings["bigger"] = LARGE
    world.submit(job("nudge", 1, minutes=0.01))
    assert world.run(lambda: world.state.runs[RunId("a-1/0")].moves == 1, limit_ms=3_600_000)
    _steps(world, "a-1/0")
    assert _learned(world)[Delay.IMAGE, LARGE.type.name] == PULL_MS
    assert JobId("a-1") in world.state.jobs


@pytest.mark.parametrize("restarted", [False, True])
def test_figures_outlive_the_master_and_unfinished_measurements_do_not(restarted: bool) -> None:
    script = Script({"a-1/0": "box"}, {"box": MEDIUM})
    world = _world(script, {"a-1/0": "torch", "later-2/0": "torch"})
    world.submit(job("a", 2, minutes=60))
    if restarted:
        assert world.run(lambda: bool(world.state.runs) and _state(world) == "starting")
        world.restart()
    _steps(world, "a-1/0")
    assert ((Delay.IMAGE, "c.4") in _learned(world)) is not restarted
    if not restarted:
        # Figures are written with a round.
        world.submit(job("later", 1, minutes=0.01))
        assert world.run(lambda: JobId("later-2") in world.state.jobs)
        assert world.run(lambda: world.state.jobs[JobId("later-2")].state == "succeeded")
        world.restart()
        assert _learned(world)[Delay.IMAGE, "c.4"] == PULL_MS


def _state(world: SimulatedCluster) -> str:
    return world.state.runs[RunId("a-1/0")].state


def test_the_published_account_of_delays_knows_no_images() -> None:
    script = Script({"a-1/0": "box"}, {"box": MEDIUM})
    world = _world(script, {"a-1/0": "torch"}, Accounting.COMPAT)
    world.submit(job("a", 2, minutes=60))
    _steps(world, "a-1/0")
    assert (Delay.IMAGE, "c.4") not in _learned(world)
    assert _learned(world)[Delay.START, "a"] >= PULL_MS
