"""What is special about processes as a runtime: shims, pids, sockets of their own."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import psutil
import pytest

from eva_worker.errors import StartFailed
from eva_worker.orders import TaskKey
from eva_worker.process.durable_files import read_json, write_json
from eva_worker.runtime import TaskSpec
from eva_worker.runtime.process import runtime as process_runtime
from eva_worker.runtime.process import shim
from eva_worker.runtime.process.runtime import ProcessRuntime
from tests.fakes.patience import DEADLINE_S

KEY = TaskKey("job-1/0", 1)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            await asyncio.sleep(0.01)


def spec(home: Path, command: str) -> TaskSpec:
    env = {
        "PATH": os.environ["PATH"],
        "EVA_TASK_ID": KEY.run,
        "EVA_ATTEMPT": str(KEY.attempt),
        "EVA_SOCKET": str(home / "socket"),
    }
    return TaskSpec(KEY, command, env, home, home / "log")


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[ProcessRuntime]:
    runtime = ProcessRuntime(tmp_path / "runtime")
    yield runtime
    await runtime.kill(KEY)
    runtime.close()


async def test_dead_shim_takes_its_task_along(runtime: ProcessRuntime, tmp_path: Path) -> None:
    # The child has a session, a group and soon a parent of its own.
    command = "setsid sh -c 'echo $$ > pid.new; mv pid.new pid; exec sleep 3600' & wait"
    await runtime.start(spec(tmp_path, command))
    await until((tmp_path / "pid").exists)
    shim = read_json(tmp_path / "runtime" / KEY.path / "shim.json")
    task = read_json(tmp_path / "runtime" / KEY.path / "task.json")
    assert shim
    assert task
    os.kill(shim["pid"], signal.SIGKILL)
    async with asyncio.timeout(DEADLINE_S):
        ended = await runtime.wait(KEY)
    assert (ended.code, ended.ran) == (-signal.SIGKILL, True)
    for pid in (task["pid"], int((tmp_path / "pid").read_text())):
        assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


async def test_shim_that_never_began_is_given_up_for_good(tmp_path: Path) -> None:
    # The agent died between writing the order to its shim and starting it.
    directory = tmp_path / "runtime" / KEY.path
    directory.mkdir(parents=True)
    runtime = ProcessRuntime(tmp_path / "runtime")
    assert list(await runtime.adopt()) == [KEY]
    async with asyncio.timeout(DEADLINE_S):
        assert not (await runtime.wait(KEY)).ran
    with pytest.raises(StartFailed):
        await runtime.start(spec(tmp_path, f"touch '{tmp_path / 'ran'}'"))
    assert not (tmp_path / "ran").exists()


async def test_reused_pid_is_not_taken_for_the_shim(tmp_path: Path) -> None:
    # The pid in the record is that of a process which is not ours: this one.
    directory = tmp_path / "runtime" / KEY.path
    write_json(directory / "shim.json", {"pid": os.getpid(), "started": 1})
    write_json(directory / "spec.json", {"env": {}})
    runtime = ProcessRuntime(tmp_path / "runtime")
    await runtime.adopt()
    await runtime.stop(KEY, 0)
    async with asyncio.timeout(DEADLINE_S):
        assert (await runtime.wait(KEY)).code == -signal.SIGKILL


async def test_shim_is_in_a_session_of_its_own(runtime: ProcessRuntime, tmp_path: Path) -> None:
    await runtime.start(spec(tmp_path, "sleep 3600"))
    shim = read_json(tmp_path / "runtime" / KEY.path / "shim.json")
    task = read_json(tmp_path / "runtime" / KEY.path / "task.json")
    assert shim
    assert task
    assert os.getsid(shim["pid"]) == shim["pid"]
    await until(lambda: os.getsid(task["pid"]) == task["pid"])
    await runtime.kill(KEY)
    async with asyncio.timeout(DEADLINE_S):
        await runtime.wait(KEY)


async def test_agents_zombies_are_reaped(runtime: ProcessRuntime, tmp_path: Path) -> None:
    await runtime.start(spec(tmp_path, "true"))
    async with asyncio.timeout(DEADLINE_S):
        await runtime.wait(KEY)
    shim = read_json(tmp_path / "runtime" / KEY.path / "shim.json")
    assert shim
    assert not psutil.pid_exists(shim["pid"])


async def test_a_stop_that_finds_the_program_over_did_not_end_it(
    runtime: ProcessRuntime, tmp_path: Path
) -> None:
    await runtime.start(spec(tmp_path, "until [ -e go ]; do sleep 0.01; done"))
    shim = psutil.Process(read_json(tmp_path / "runtime" / KEY.path / "shim.json")["pid"])
    task = psutil.Process(read_json(tmp_path / "runtime" / KEY.path / "task.json")["pid"])
    shim.suspend()
    (tmp_path / "go").touch()
    await until(lambda: task.status() == psutil.STATUS_ZOMBIE)
    await runtime.stop(KEY, DEADLINE_S)
    shim.resume()
    async with asyncio.timeout(DEADLINE_S):
        ended = await runtime.wait(KEY)
    assert (ended.code, ended.stopped) == (0, False)


HOME = Path(process_runtime.__file__).parent
HEAVY = {"contextlib", "enum", "importlib.util", "json", "re", "signal", "subprocess", "typing"}
"""What takes longer to import than all that a shim does otherwise."""


@pytest.mark.parametrize("module", ["shim", "confinement"])
def test_what_runs_before_a_task_imports_little(module: str) -> None:
    code = f"import sys; sys.path.insert(0, {str(HOME)!r}); import {module}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True
    )
    assert module in done.stdout.split()
    assert not HEAVY & set(done.stdout.split())


def test_its_records_are_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    document = {"code": -9, "at_ms": 1_700_000_000_000, "ran": True, "stopped": False, "no": None}
    shim.write("exit.json", document)
    assert read_json(tmp_path / "exit.json") == document
    assert {key: type(it) for key, it in shim.read("exit.json").items()} == {
        key: type(it) for key, it in document.items()
    }


def test_it_reads_what_agents_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    document = {
        "command": 'echo "ä\u2028\\" \ud800 \n\t$X"',
        "env": {"A": "", "é": "\x7f"},
        "cpus": [0, 1.5, -2e300],
        "confinement": None,
        "nested": [[], {}, [{"a": [True, False]}]],
    }
    Path("spec.json").write_text(json.dumps(document))
    assert shim.read("spec.json") == document


def test_a_process_that_has_called_exit_is_leaving_though_nobody_has_waited_for_it() -> None:
    assert not shim.leaving(os.getpid())
    ending = os.fork()
    if not ending:
        os._exit(0)
    os.waitid(os.P_PID, ending, os.WEXITED | os.WNOWAIT)
    assert shim.leaving(ending)
    os.waitpid(ending, 0)
    assert shim.leaving(ending)


@pytest.mark.parametrize("on_its_way_out", [False, True])
def test_a_program_on_its_way_out_is_not_ended_by_the_stop(
    on_its_way_out: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exit of a process with much memory takes long, and its code is certain by then."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "stop.json").write_text('{"grace_s": 5}')
    monkeypatch.setattr(shim, "halt", lambda: [])
    monkeypatch.setattr(shim, "leaving", lambda pid: on_its_way_out)
    task = shim.Task(os.getpid(), None)
    monkeypatch.setattr(task, "reap", lambda: True)
    task.stop()
    assert task.stopped is not on_its_way_out
