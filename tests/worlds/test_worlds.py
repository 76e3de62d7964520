"""Random worlds go through the production loop to their end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eva_master.control.rounds import moment
from tests.worlds.drawing import FLAVOURS, draw
from tests.worlds.oracles import findings
from tests.worlds.oracles.beside import equal
from tests.worlds.oracles.instances import unused
from tests.worlds.oracles.waiting import Waits
from tests.worlds.records import Story
from tests.worlds.running import run

BOUGHT = {"bought-again", "beside-boot"}


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_world_is_drawn_alike_from_a_seed_and_runs_alike(flavour: str) -> None:
    assert draw(1, flavour) == draw(1, flavour)
    story = run(draw(1, flavour))
    assert set(story.fates) == {job.name for job in story.world.jobs}
    assert all(it.oracle for it in findings(story))


def test_oracles_see_what_ends_twice_is_never_used_or_never_ends() -> None:
    story = run(draw(1, "arrays"))
    assert not findings(story)
    array = next(job.name for job in story.world.jobs if job.array)
    last = story.of(array)[-1]
    story.attempts.append(replace(last, number=9, from_ms=last.to_ms or 0))
    assert {it.oracle for it in findings(story)} == {"ends"}
    story.attempts.pop()
    launch = next(story.bought())
    spare = replace(launch, id="spare", up_ms=10**9, ready_ms=None, ending_ms=10**9 + 1)
    story.launches["spare"] = replace(spare, asked_ms=10**9, gone_ms=10**9 + 1)
    assert "unused" in {it.oracle for it in findings(story)}
    del story.launches["spare"]
    story.fates[array].ended_ms = None
    assert "ends" in {it.oracle for it in findings(story)}


def test_oracles_see_what_is_given_back_before_another_of_its_offering() -> None:
    story = run(draw(1, "arrays"))
    first = min(story.attempts, key=lambda it: it.from_ms)
    launch = story.launches[first.instance]
    asked = launch.asked_ms
    older = replace(launch, id="older", asked_ms=asked - 20_000, up_ms=None, ready_ms=None)
    story.launches["older"] = replace(older, ending_ms=asked + 10_000, gone_ms=asked + 10_000)
    # The task has a place on one that boots, so what came afterwards was not bought for it.
    later = replace(older, id="later", asked_ms=asked + 15_000, ending_ms=None, gone_ms=None)
    story.launches["later"] = later
    assert {it.oracle for it in findings(story)} & BOUGHT == {"beside-boot"}
    del story.launches["later"]
    story.launches["older"] = replace(older, ending_ms=asked - 1, gone_ms=asked - 1)
    assert {it.oracle for it in findings(story)} & BOUGHT == {"bought-again"}


def _objecting(story: Story) -> set[str]:
    return {it.oracle for it in findings(story)}


def test_oracles_see_that_priorities_count_for_nothing() -> None:
    world = draw(2, "node-priorities")
    assert "urgent" not in _objecting(run(world))
    story = run(equal(world))
    story.world = world
    assert "urgent" in _objecting(story)


def test_oracles_see_that_a_shared_limit_has_no_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    world = draw(11, "partitions")
    assert "turn" not in _objecting(run(world))
    monkeypatch.setattr(moment, "shared_queue", lambda *_, **__: None)
    assert "turn" in _objecting(run(world))


def test_oracles_see_a_node_that_is_empty_beside_a_task() -> None:
    story = run(draw(1030, "nodes"))
    assert "idle" not in _objecting(story)
    # The node empties as this task comes to it: now the task comes half a minute later.
    (attempt,) = story.of("j1")
    ended = [before.to_ms for before in story.attempts if before.instance == attempt.instance]
    assert any(to_ms is not None and 0 <= attempt.from_ms - to_ms < 1_000 for to_ms in ended)
    attempt.from_ms += 30_000
    assert "idle" in _objecting(story)


def test_a_gang_that_takes_an_emptied_instance_excuses_the_one_in_its_place() -> None:
    story = run(draw(40_000, "gangs"))
    used = {it.instance for it in story.attempts}
    spare = [it for it in story.bought() if it.id not in used and it.up_ms is not None]
    assert spare
    assert not list(unused(story, Waits(story)))
    start = min(it.from_ms for it in story.of("j4"))
    taken = {it.instance for it in story.of("j4")}
    # Nothing excuses it if what the gang took was not in use before.
    story.attempts = [
        it for it in story.attempts if it.instance not in taken or it.from_ms >= start
    ]
    assert list(unused(story, Waits(story)))


def test_oracles_see_a_disk_that_is_too_small_and_a_secret_that_is_missing() -> None:
    story = run(draw(1, "mixed-needs"))
    assert not _objecting(story) & {"room", "secret"}
    needing = [it for it in story.attempts if story.world.job(it.job).disk_gib]
    launch = story.launches[needing[0].instance]
    has, launch.disk_gib = launch.disk_gib, story.world.job(needing[0].job).disk_gib - 1
    assert "room" in _objecting(story)
    launch.disk_gib = has
    order = next(it for it in story.orders if it.verb == "set" and it.at_ms)
    using = next(it for it in story.attempts if story.concerns(order, story.world.job(it.job)))
    using.from_ms = order.at_ms - 1
    assert "secret" in _objecting(story)
