"""An owned node's lease: whatever runs under it ends with it, with the agent stopped or gone."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from eva_worker.process import lease
from eva_worker.runtime.process import runtime as process_runtime
from eva_worker.tasks.fence import LeaseFence

SHIM = Path(process_runtime.__file__).with_name("shim.py")
LONG_MS = 3_600_000


def _shim(home: Path, held: Path, epoch: int, command: str) -> subprocess.Popen[bytes]:
    """A task's parent, in a group that nobody looks after."""
    home.mkdir()
    spec = {
        "command": command,
        "env": {"PATH": os.environ["PATH"]},
        "workdir": str(home),
        "log": str(home / "log"),
        "cpus": [],
        "lease": [str(held), epoch],
    }
    (home / "spec.json").write_text(json.dumps(spec))
    return subprocess.Popen(
        [sys.executable, "-I", "-S", str(SHIM), str(home)], stdout=subprocess.PIPE
    )


def _ended(home: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads((home / "exit.json").read_text())
    return found


def test_a_task_is_killed_when_its_lease_runs_out(tmp_path: Path) -> None:
    held = tmp_path / "lease"
    began = lease.now_ms()
    lease.write(str(held), (7, began + 1_500))
    task = _shim(tmp_path / "task", held, 7, "trap '' TERM; sleep 1000 & wait; sleep 1000")
    assert task.stdout is not None
    task.stdout.read()  # It runs.
    assert task.wait(60) == 0
    assert lease.now_ms() >= began + 1_500
    ended = _ended(tmp_path / "task")
    assert (ended["code"], ended["stopped"], ended["ran"]) == (-signal.SIGKILL, True, True)


def test_a_lease_that_is_renewed_lets_the_task_run(tmp_path: Path) -> None:
    held = tmp_path / "lease"
    began = lease.now_ms()
    lease.write(str(held), (7, began + 1_000))
    done = tmp_path / "done"
    task = _shim(
        tmp_path / "task", held, 7, f"until [ -e {shlex.quote(str(done))} ]; do sleep 0.05; done"
    )
    lease.write(str(held), (7, began + LONG_MS))
    while lease.now_ms() < began + 1_500:
        assert task.poll() is None
        time.sleep(0.05)
    done.touch()
    assert task.wait(60) == 0
    assert _ended(tmp_path / "task")["code"] == 0


@pytest.mark.parametrize("damage", ["epoch", "gone", "nonsense", "boot"])
def test_a_lease_of_another_time_starts_nothing(tmp_path: Path, damage: str) -> None:
    held = tmp_path / "lease"
    lease.write(str(held), (8 if damage == "epoch" else 7, lease.now_ms() + LONG_MS))
    if damage == "gone":
        held.unlink()
    elif damage == "nonsense":
        held.write_text('{"epoch": 7, "until_ms": "soon"')
    elif damage == "boot":
        held.write_text(json.dumps({**json.loads(held.read_text()), "boot": "another"}))
    ran = tmp_path / "ran"
    task = _shim(tmp_path / "task", held, 7, f"touch {shlex.quote(str(ran))}")
    assert task.wait(60) == 3
    assert not ran.exists()
    ended = _ended(tmp_path / "task")
    assert (ended["ran"], ended["stopped"]) == (False, True)


class _Tasks:
    """Tasks that say what is done to them."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.changed = asyncio.Event()

    def longest_grace_ms(self) -> int:
        return 400

    async def stop_all(self, within_ms: int) -> None:
        assert 0 < within_ms <= 400
        self.done.append("stopped")

    async def kill(self) -> None:
        self.done.append("killed")
        self.changed.set()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The time since the boot, to be set; agents look at it all the time."""
    now = [1_000_000]
    monkeypatch.setattr(lease, "now_ms", lambda: now[0])
    monkeypatch.setattr("eva_worker.tasks.fence._LOOK_S", 0.001)
    return now


async def _fence(path: Path, tasks: _Tasks) -> LeaseFence:
    fence = LeaseFence(path)
    fence.watch(tasks)
    fence.configure(10_000)
    return fence


async def test_the_answer_counts_from_before_the_question(tmp_path: Path, clock: list[int]) -> None:
    fence = await _fence(tmp_path / "lease", _Tasks())
    asked = await fence.ask()
    clock[0] += 3_000
    fence.granted(asked)
    held = lease.read(str(tmp_path / "lease"))
    assert held is not None
    assert held[1] == asked + 10_000
    assert fence.terms() == (str(tmp_path / "lease"), held[0])


async def test_an_answer_after_its_own_end_is_none(tmp_path: Path, clock: list[int]) -> None:
    fence = await _fence(tmp_path / "lease", _Tasks())
    asked = await fence.ask()
    clock[0] += 10_000
    fence.granted(asked)
    assert lease.read(str(tmp_path / "lease")) is None


async def test_tasks_are_asked_and_then_killed(tmp_path: Path, clock: list[int]) -> None:
    tasks = _Tasks()
    fence = await _fence(tmp_path / "lease", tasks)
    fence.granted(await fence.ask())
    keeping = asyncio.create_task(fence.keep())
    clock[0] += 9_700
    while not tasks.done:
        await asyncio.sleep(0)
    clock[0] += 300
    await tasks.changed.wait()
    keeping.cancel()
    assert tasks.done == ["stopped", "killed"]


async def test_a_lease_that_ran_out_is_never_extended(tmp_path: Path, clock: list[int]) -> None:
    """Else what ran under it, killed or not, would count as leased again."""
    tasks = _Tasks()
    fence = await _fence(tmp_path / "lease", tasks)
    fence.granted(await fence.ask())
    first = fence.terms()
    clock[0] += 20_000  # The machine was suspended.
    fence.granted(clock[0])
    assert lease.left_ms(*first) == 0 if first else False
    asked = await fence.ask()
    assert tasks.done == ["killed"], "before the next question"
    fence.granted(asked)
    assert fence.terms() != first
    assert lease.left_ms(*first) == 0 if first else False


async def test_the_next_agent_goes_on_with_the_lease(tmp_path: Path, clock: list[int]) -> None:
    fence = await _fence(tmp_path / "lease", _Tasks())
    fence.granted(await fence.ask())
    tasks = _Tasks()
    successor = await _fence(tmp_path / "lease", tasks)
    assert successor.terms() == fence.terms()
    clock[0] += 5_000
    successor.granted(await successor.ask())
    assert successor.terms() == fence.terms()
    assert not tasks.done
