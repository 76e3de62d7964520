"""The fence of an owned node against an engine that fails in all ways: nobody shields others."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from eva_worker.orders import TaskKey
from eva_worker.runtime.docker.fence import kill_all
from eva_worker.runtime.docker.labels import ATTEMPT, COPY, labels_of
from tests.fakes.docker import scripted
from tests.fakes.docker.scripted import BROKEN, CONFLICT, NOT_FOUND, Container, ScriptedEngine

INSTANCE = "rack1"
HANGS_UP = 0


@pytest.fixture
def engine() -> Iterator[ScriptedEngine]:
    with scripted.running() as engine:
        yield engine


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "runtime"


def labels(root: Path, number: int = 0, instance: str = INSTANCE) -> dict[str, str]:
    return {**labels_of(instance, root), COPY: f"job-1/{number}", ATTEMPT: "1"}


def fenced(engine: ScriptedEngine, root: Path) -> bool:
    return kill_all(engine.url, root, instance=INSTANCE)


@pytest.mark.parametrize("state", ["running", "paused", "restarting"])
def test_what_is_alive_is_killed_until_the_engine_says_that_none_is(
    engine: ScriptedEngine, root: Path, state: str
) -> None:
    record = root / TaskKey("job-1/0", 1).path
    record.mkdir(parents=True)
    engine.containers = {
        "ours": Container(state, labels(root)),
        "over": Container("exited", labels(root, 1)),
        "dead": Container("dead", labels(root, 2)),
        "another node's": Container("running", labels(root, instance="rack2")),
        "another worker's": Container("running", labels(root.parent / "other")),
        "nobody's": Container("running", {}),
    }
    assert not fenced(engine, root), "the word that it has ended comes with the next look"
    assert fenced(engine, root)
    assert engine.killed == ["ours"]
    assert json.loads((record / "stop.json").read_text())["deadline_ms"] > 0


def test_what_has_not_begun_is_removed_and_never_begins(engine: ScriptedEngine, root: Path) -> None:
    engine.containers = {"new": Container("created", labels(root), kill=CONFLICT)}
    assert not fenced(engine, root)
    assert not engine.containers
    assert fenced(engine, root)


@pytest.mark.parametrize("kill", [NOT_FOUND, CONFLICT, BROKEN, HANGS_UP])
@pytest.mark.parametrize("look", [200, BROKEN, HANGS_UP])
def test_one_that_cannot_be_killed_does_not_shield_the_others(
    engine: ScriptedEngine, root: Path, kill: int, look: int
) -> None:
    engine.containers = {
        f"c{number}": Container("running", labels(root, number)) for number in range(4)
    }
    engine.containers["c0"].kill = engine.containers["c2"].kill = kill
    engine.containers["c0"].look = engine.containers["c2"].look = look
    assert not fenced(engine, root)
    ended = [name for name, it in engine.containers.items() if it.state == "exited"]
    assert ended == ["c1", "c3"]
    assert fenced(engine, root) == (kill == NOT_FOUND)


def test_who_takes_long_to_die_keeps_nobody_else_alive(engine: ScriptedEngine, root: Path) -> None:
    together = threading.Barrier(3, timeout=3.0)
    engine.containers = {
        f"c{number}": Container("running", labels(root, number), meets=together)
        for number in range(3)
    }
    assert not fenced(engine, root)
    assert {it.state for it in engine.containers.values()} == {"exited"}


def test_an_engine_that_cannot_say_who_runs_is_asked_again(
    engine: ScriptedEngine, root: Path
) -> None:
    engine.containers = {"ours": Container("running", labels(root))}
    engine.listing = BROKEN
    assert not fenced(engine, root)
    assert not engine.killed
    engine.listing = 200
    assert not fenced(engine, root)
    assert fenced(engine, root)


@pytest.mark.parametrize("strange", [{}, {COPY: "../../x", ATTEMPT: "1"}, {COPY: "a/0"}])
def test_a_container_with_strange_labels_is_killed_all_the_same(
    engine: ScriptedEngine, root: Path, strange: dict[str, str]
) -> None:
    engine.containers = {"odd": Container("running", {**labels_of(INSTANCE, root), **strange})}
    assert not fenced(engine, root)
    assert fenced(engine, root)
