"""What every runtime must do, written against the port."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from eva_worker.errors import StartFailed
from eva_worker.orders import TaskKey
from eva_worker.runtime import Exit, Runtime, TaskSpec
from eva_worker.runtime.process import ProcessRuntime

DEADLINE_S = 20
KEY = TaskKey("job-1/0", 1)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            await asyncio.sleep(0.01)


async def soon(what: Awaitable[Exit]) -> Exit:
    async with asyncio.timeout(DEADLINE_S):
        return await what


@dataclass
class Bench:
    """One state directory, and the agents' views of it, one after the other."""

    kind: type[ProcessRuntime]
    home: Path
    runtime: Runtime = field(init=False)

    def __post_init__(self) -> None:
        self.runtime = self.kind(self.home / "runtime")

    def renew(self) -> Runtime:
        """What an agent has after its restart."""
        self.runtime.close()
        self.runtime = self.kind(self.home / "runtime")
        return self.runtime

    def spec(self, command: str, key: TaskKey = KEY, cpus: tuple[int, ...] = ()) -> TaskSpec:
        work = self.home / "work" / key.path
        work.mkdir(parents=True, exist_ok=True)
        env = {
            "PATH": os.environ["PATH"],
            "PYTHON": sys.executable,
            "EVA_TASK_ID": key.copy,
            "EVA_ATTEMPT": str(key.attempt),
            "EVA_SOCKET": str(work / "socket"),
        }
        return TaskSpec(key, command, env, work, work / "log", cpus)

    def file(self, name: str, key: TaskKey = KEY) -> Path:
        return self.home / "work" / key.path / name

    def alive(self) -> list[psutil.Process]:
        """Processes of this bench's tasks, by the working directory they began in."""
        mine = str(self.home)
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get("EVA_SOCKET", "").startswith(mine):
                    found.append(process)
            except psutil.Error:
                continue
        return [p for p in found if p.status() != psutil.STATUS_ZOMBIE]


@pytest.fixture(params=[ProcessRuntime], ids=["process"])
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    bench = Bench(request.param, tmp_path)
    yield bench
    for key in await bench.runtime.adopt():
        await bench.runtime.kill(key)
        await soon(bench.runtime.wait(key))
        await bench.runtime.cleanup(key)
    assert not bench.alive()


async def test_runs_the_command_and_keeps_its_code_and_output(bench: Bench) -> None:
    await bench.runtime.start(bench.spec("pwd; echo $EVA_TASK_ID >&2; exit 7"))
    assert (await soon(bench.runtime.wait(KEY))).code == 7
    assert bench.file("log").read_text() == f"{bench.file('.')}\njob-1/0\n"


async def test_environment_is_the_one_given(bench: Bench) -> None:
    os.environ["EVA_TEST_LEAK"] = "1"
    try:
        await bench.runtime.start(bench.spec("env > env"))
        await soon(bench.runtime.wait(KEY))
    finally:
        del os.environ["EVA_TEST_LEAK"]
    names = {line.partition("=")[0] for line in bench.file("env").read_text().splitlines()}
    assert names - {"PWD", "OLDPWD", "SHLVL", "_"} == set(bench.spec("").env)


async def test_exit_by_signal_is_negative(bench: Bench) -> None:
    await bench.runtime.start(bench.spec("kill -11 $$"))
    assert (await soon(bench.runtime.wait(KEY))).code == -signal.SIGSEGV


async def test_cpus_are_the_ones_given(bench: Bench) -> None:
    cpu = min(os.sched_getaffinity(0))
    await bench.runtime.start(bench.spec("nproc > count", cpus=(cpu,)))
    await soon(bench.runtime.wait(KEY))
    assert bench.file("count").read_text() == "1\n"


async def test_an_attempt_starts_once(bench: Bench) -> None:
    spec = bench.spec("echo again >> count")
    await bench.runtime.start(spec)
    await soon(bench.runtime.wait(KEY))
    with pytest.raises(StartFailed):
        await bench.runtime.start(spec)
    runtime = bench.renew()
    with pytest.raises(StartFailed):
        await runtime.start(spec)
    assert bench.file("count").read_text() == "again\n"


async def test_what_cannot_be_started_says_why(bench: Bench) -> None:
    spec = bench.spec("true")
    spec.workdir.rmdir()
    spec = TaskSpec(spec.key, "true", spec.env, spec.workdir, bench.home / "log")
    await bench.runtime.start(spec)
    assert (await soon(bench.runtime.wait(KEY))).code == 126
    assert "No such file" in (bench.home / "log").read_text()


async def test_stop_lets_the_task_end_by_itself(bench: Bench) -> None:
    command = "trap 'echo saved > saved; exit 3' TERM; touch up; while :; do sleep 0.01; done"
    await bench.runtime.start(bench.spec(command))
    await until(bench.file("up").exists)
    await bench.runtime.stop(KEY, DEADLINE_S)
    assert (await soon(bench.runtime.wait(KEY))).code == 3
    assert bench.file("saved").exists()


async def test_stop_gives_the_grace_to_a_child_of_the_shell(bench: Bench) -> None:
    # The shell dies of the signal at once; the program below it is the one that has to save.
    bench.spec("")
    bench.file("child.sh").write_text(
        "trap 'sleep 0.3; echo saved > saved; exit' TERM; touch up; while :; do sleep 0.01; done"
    )
    await bench.runtime.start(bench.spec("sh child.sh; true"))
    await until(bench.file("up").exists)
    await bench.runtime.stop(KEY, DEADLINE_S)
    await soon(bench.runtime.wait(KEY))
    assert bench.file("saved").exists()


async def test_kill_ends_what_ignores_the_stop(bench: Bench) -> None:
    await bench.runtime.start(bench.spec("trap '' TERM; touch up; while :; do sleep 0.01; done"))
    await until(bench.file("up").exists)
    await bench.runtime.stop(KEY, 3600)
    await bench.runtime.stop(KEY, 0.1)
    assert (await soon(bench.runtime.wait(KEY))).code == -signal.SIGKILL


async def test_nothing_remains_of_a_task_that_ends(bench: Bench) -> None:
    escape = "setsid sh -c 'echo $$ > pid.new; mv pid.new pid; exec env -i sleep 3600' &"
    await bench.runtime.start(bench.spec(f"{escape} until [ -e pid ]; do sleep 0.01; done"))
    await soon(bench.runtime.wait(KEY))
    assert not psutil.pid_exists(int(bench.file("pid").read_text()))


async def test_running_task_is_adopted(bench: Bench) -> None:
    await bench.runtime.start(bench.spec("until [ -e go ]; do sleep 0.01; done; exit 5"))
    runtime = bench.renew()
    assert list(await runtime.adopt()) == [KEY]
    bench.file("go").touch()
    assert (await soon(runtime.wait(KEY))).code == 5


async def test_exit_between_two_agents_is_kept(bench: Bench) -> None:
    await bench.runtime.start(bench.spec("exit 9"))
    first = await soon(bench.runtime.wait(KEY))
    runtime = bench.renew()
    assert list(await runtime.adopt()) == [KEY]
    assert await soon(runtime.wait(KEY)) == first


async def test_adopted_task_can_be_stopped(bench: Bench) -> None:
    await bench.runtime.start(bench.spec("sleep 3600"))
    runtime = bench.renew()
    await runtime.adopt()
    await runtime.stop(KEY, DEADLINE_S)
    assert (await soon(runtime.wait(KEY))).code == -signal.SIGTERM


async def test_forgotten_attempt_is_not_adopted(bench: Bench) -> None:
    await bench.runtime.start(bench.spec("true"))
    await soon(bench.runtime.wait(KEY))
    await bench.runtime.cleanup(KEY)
    assert not await bench.renew().adopt()


async def test_stop_of_an_exited_or_unknown_attempt_does_nothing(bench: Bench) -> None:
    await bench.runtime.stop(TaskKey("other/1", 4), 1)
    await bench.runtime.start(bench.spec("exit 2"))
    assert (await soon(bench.runtime.wait(KEY))).code == 2
    await bench.runtime.stop(KEY, 1)
    await bench.runtime.kill(KEY)
    assert (await soon(bench.runtime.wait(KEY))).code == 2


async def test_tasks_do_not_disturb_each_other(bench: Bench) -> None:
    other = TaskKey("job-1/1+1", 2)
    await bench.runtime.start(bench.spec("until [ -e go ]; do sleep 0.01; done; exit 1"))
    await bench.runtime.start(bench.spec("sleep 3600", other))
    await bench.runtime.kill(other)
    assert (await soon(bench.runtime.wait(other))).code == -signal.SIGKILL
    bench.file("go").touch()
    assert (await soon(bench.runtime.wait(KEY))).code == 1
