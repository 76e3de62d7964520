"""What every runtime must do, written against the port."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import secrets
import signal
import string
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil
import pytest

from eva_worker.errors import StartFailed
from eva_worker.isolation import Isolation
from eva_worker.orders import TaskKey
from eva_worker.runtime import Exit, Image, Runtime, TaskSpec
from eva_worker.runtime.docker.runtime import DockerRuntime, connect
from eva_worker.runtime.process.measures import measures
from eva_worker.runtime.process.runtime import ProcessRuntime
from eva_worker.secret_values import SecretValues
from tests.fakes.docker import dockerd
from tests.fakes.patience import DEADLINE_S
from tests.fakes.secrets.traces import traces

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
    """One state directory, and the agents' views of it, one after the other.

    Attributes:
        engine: URL of the Docker engine; empty for plain processes.
        memory: A directory in memory of its own, at which secrets wait for their containers.
        confined: Whether processes are confined as far as this machine allows.
    """

    home: Path
    engine: str = ""
    memory: Path = Path()
    confined: bool = False
    runtime: ProcessRuntime | DockerRuntime = field(init=False)

    def __post_init__(self) -> None:
        self.runtime = self._new()

    def _new(self) -> ProcessRuntime | DockerRuntime:
        root = self.home / "runtime"
        if not self.engine:
            taken = measures(self.home, [], Isolation()) if self.confined else None
            return ProcessRuntime(root, taken)
        client = connect(self.engine)
        return DockerRuntime(root, client, instance="i-1", default_image=dockerd.IMAGE)

    def renew(self) -> Runtime:
        """What an agent has after its restart."""
        self.runtime.close()
        self.runtime = self._new()
        return self.runtime

    @property
    def inside(self) -> Path:
        """The working directory as the task sees it."""
        return Path("/eva/work") if self.engine else self.file(".")

    @property
    def added(self) -> set[str]:
        """Names of the variables that a task has besides those of its spec."""
        ours = {"PYTHONUNBUFFERED", "TMPDIR"}
        return {*ours, "HOME", "HOSTNAME", "LOGNAME", "OF_IMAGE", "USER"} if self.engine else ours

    def spec(self, command: str, key: TaskKey = KEY, cpus: tuple[int, ...] = ()) -> TaskSpec:
        work = self.home / "work" / key.path
        work.mkdir(parents=True, exist_ok=True)
        env = {
            "PATH": os.environ["PATH"],
            "PYTHON": sys.executable,
            "EVA_TASK_ID": key.run,
            "EVA_ATTEMPT": str(key.attempt),
            "EVA_SOCKET": str(work / "socket"),
        }
        temporary = self.home / "tmp" / key.path
        temporary.mkdir(parents=True, exist_ok=True)
        defaults = {"PYTHONUNBUFFERED": "1"}
        return TaskSpec(
            *(key, command, env, work, work / "log", cpus),
            temporary=temporary,
            defaults=defaults,
        )

    def file(self, name: str, key: TaskKey = KEY) -> Path:
        return self.home / "work" / key.path / name

    def alive(self) -> list[object]:
        """What there is of this bench's tasks: containers, or processes by their sockets."""
        if self.engine:
            with contextlib.closing(connect(self.engine)) as client:
                return list(client.containers.list(all=True))
        mine = str(self.home)
        found: list[object] = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):  # It may end while it is looked at.
                of_mine = process.environ().get("EVA_SOCKET", "").startswith(mine)
                if of_mine and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found


def with_argument(mark: str) -> list[psutil.Process]:
    """Processes anywhere on the machine that have this last argument."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.cmdline()[-1:] == [mark]:
                found.append(process)
    return found


def running(bench: Bench) -> bool:
    """Whether the task's program runs, or its container does."""
    if not bench.engine:
        return bool(bench.alive())
    with contextlib.closing(connect(bench.engine)) as client:
        return any(it.status == "running" for it in client.containers.list(all=True))


@pytest.fixture(
    params=["process", "confined process", pytest.param("docker", marks=pytest.mark.docker)]
)
async def bench(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Bench]:
    engine = request.getfixturevalue("docker_engine") if request.param == "docker" else ""
    with tempfile.TemporaryDirectory(prefix="eva-test-", dir="/dev/shm") as memory:
        if engine:
            monkeypatch.setenv("XDG_RUNTIME_DIR", memory)
        confined = request.param == "confined process"
        bench = Bench(tmp_path, engine, Path(memory), confined)
        yield bench
        await _end(bench)
        assert list(bench.memory.iterdir()) == []


async def _end(bench: Bench) -> None:
    runtime = bench.renew()  # A test that fails may have closed the one that there was.
    for key in await runtime.adopt():
        await runtime.kill(key)
        await soon(runtime.wait(key))
        await runtime.cleanup(key)
    bench.runtime.close()
    assert not bench.alive()


async def test_runs_the_command_and_keeps_its_code_and_output(bench: Bench) -> None:
    await bench.runtime.start(bench.spec("pwd; echo $EVA_TASK_ID >&2; exit 7"))
    assert (await soon(bench.runtime.wait(KEY))).code == 7
    assert bench.file("log").read_text() == f"{bench.inside}\njob-1/0\n"


async def test_how_long_it_ran_is_by_a_clock_that_nobody_sets(bench: Bench) -> None:
    began = time.monotonic()
    await bench.runtime.start(bench.spec("sleep 0.2"))
    ended = await bench.runtime.wait(KEY)
    most_ms = (time.monotonic() - began) * 1000
    assert ended.ran_ms is None if bench.engine else 200 <= (ended.ran_ms or 0) <= most_ms


async def test_task_without_an_image_of_its_own_can_be_prepared_again_and_again(
    bench: Bench,
) -> None:
    async def no_context(digest: str, target: Path) -> None:
        raise AssertionError(f"{digest} is not wanted in {target}")

    first, second = [await bench.runtime.prepare(Image("", None, no_context), print) for _ in "12"]
    assert first == second
    await bench.runtime.start(replace(bench.spec("exit 3"), image=first))
    assert (await soon(bench.runtime.wait(KEY))).code == 3


async def test_environment_is_the_one_given(bench: Bench) -> None:
    os.environ["EVA_TEST_LEAK"] = "1"
    try:
        await bench.runtime.start(bench.spec("env > env"))
        await soon(bench.runtime.wait(KEY))
    finally:
        del os.environ["EVA_TEST_LEAK"]
    names = {line.partition("=")[0] for line in bench.file("env").read_text().splitlines()}
    own = {"PWD", "OLDPWD", "SHLVL", "_"}
    assert names - own == set(bench.spec("").env) | bench.added


LETTERS = string.printable.replace("\r", "") + "é€𝄞"


async def test_secrets_come_before_all_variables_and_are_in_no_file(bench: Bench) -> None:
    value = f"{LETTERS}{'0123456789abcdef' * 4_080}{secrets.token_hex(16)}"
    digest = hashlib.sha256(value.encode()).hexdigest()
    command = f"""
[ "$(printf %s "$TOKEN" | sha256sum | cut -c1-64)" = {digest} ] || exit 1
[ $OTHER = second ] || exit 2
ls -l /proc/$$/fd | grep -q memfd && exit 3
touch used; until [ -e go ]; do sleep 0.05; done; exit 7"""
    spec = bench.spec(command)
    hidden = SecretValues({"TOKEN": value, "OTHER": "second"})
    await bench.runtime.start(
        replace(spec, env={**spec.env, "OTHER": "first", "TOKEN": ""}, secrets=hidden)
    )
    await until(bench.file("used").exists)
    assert traces(value[-40:], bench.home) == []
    if bench.engine:
        with contextlib.closing(connect(bench.engine)) as client:
            (container,) = client.containers.list()
            assert value[-40:] not in json.dumps(container.attrs)
            assert "second" not in json.dumps(container.attrs)
    assert list(bench.memory.iterdir()) == []
    bench.file("go").touch()
    assert (await soon(bench.runtime.wait(KEY))).code == 7
    assert list(bench.memory.iterdir()) == []
    assert traces(value[-40:], bench.home) == []


async def test_a_start_that_fails_leaves_no_secret(bench: Bench) -> None:
    spec = replace(bench.spec("true"), secrets=SecretValues({"TOKEN": "s3cret"}))
    spec = replace(spec, workdir=bench.home / "nowhere", image=f"nowhere:{KEY.attempt}")
    with contextlib.suppress(StartFailed):  # plain processes say so in their logs
        await bench.runtime.start(spec)
    await soon(bench.runtime.wait(KEY)) if not bench.engine else None
    assert list(bench.memory.iterdir()) == []


async def test_variables_may_have_the_names_of_the_parents_own(bench: Bench) -> None:
    spec = bench.spec('echo "$stopped $code" >told')
    await bench.runtime.start(replace(spec, env={**spec.env, "stopped": "a", "code": "b"}))
    assert (await soon(bench.runtime.wait(KEY))).code == 0
    assert bench.file("told").read_text() == "a b\n"


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


async def ended(bench: Bench, command: str) -> tuple[int, str]:
    """The exit code of a script, and what it said."""
    await bench.runtime.start(bench.spec(command))
    code = (await soon(bench.runtime.wait(KEY))).code
    return code, bench.file("log").read_text()


async def test_the_first_line_names_the_interpreter_with_its_argument(bench: Bench) -> None:
    assert await ended(bench, "#!/bin/sh -e\necho a\nfalse\necho b") == (1, "a\n")


async def test_any_program_may_be_the_interpreter(bench: Bench) -> None:
    assert await ended(bench, "#! /bin/cat\ndata") == (0, "#! /bin/cat\ndata")


async def test_a_script_for_no_interpreter_is_for_bash_where_there_is_one(bench: Bench) -> None:
    program = "command -v bash >/dev/null || echo; echo ${BASH_VERSION:+bash}"
    assert (await ended(bench, program))[1].splitlines()[:1] in (["bash"], [""])
    assert "bash" in bench.file("log").read_text() or bench.engine


async def test_an_interpreter_that_is_not_there_is_named(bench: Bench) -> None:
    code, log = await ended(bench, "#!/opt/no such\necho a")
    assert code == 127
    assert "cannot start: /opt/no, which the first line of `run` names, is not " in log


async def test_the_length_of_a_script_is_no_matter(bench: Bench) -> None:
    notes = ("# " + "\u6ce8" * 500 + "\n") * 300
    assert await ended(bench, f"{notes}echo it ran") == (0, "it ran\n")


async def test_temporary_files_are_the_tasks_own_and_output_is_not_buffered(bench: Bench) -> None:
    code, log = await ended(bench, 'echo $PYTHONUNBUFFERED; cd "$TMPDIR" && basename "$(mktemp)"')
    value, name = log.split()
    assert (code, value) == (0, "1")
    assert (bench.home / "tmp" / KEY.path / name).is_file()


async def test_what_cannot_be_started_says_why(bench: Bench) -> None:
    spec = bench.spec("true")
    spec.workdir.rmdir()
    spec = replace(spec, log=bench.home / "log")
    if bench.engine:
        with pytest.raises(StartFailed, match=str(spec.workdir)):
            await bench.runtime.start(spec)
        assert not bench.alive()
    else:
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
    mark = f"3600{os.getpid()}"  # A process id would not mean the same inside a container.
    escape = f"setsid sh -c 'exec env -i sleep {mark}' &"
    await bench.runtime.start(bench.spec(f"{escape} until [ -e go ]; do sleep 0.01; done"))
    await until(lambda: with_argument(mark))
    bench.file("go").touch()
    await soon(bench.runtime.wait(KEY))
    assert not with_argument(mark)


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


async def test_many_may_ask_for_a_stop_at_once(bench: Bench) -> None:
    command = "trap 'echo asked >> asked; exit 3' TERM; touch up; while :; do sleep 0.01; done"
    await bench.runtime.start(bench.spec(command))
    await until(bench.file("up").exists)
    await asyncio.gather(*(bench.runtime.stop(KEY, DEADLINE_S) for _ in range(20)))
    assert (await soon(bench.runtime.wait(KEY))).code == 3


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


async def test_an_exit_tells_whether_a_stop_came_before_it(bench: Bench) -> None:
    command = "trap 'exit 0' TERM; touch up; while :; do sleep 0.01; done"
    await bench.runtime.start(bench.spec(command))
    await until(bench.file("up").exists)
    await bench.runtime.stop(KEY, DEADLINE_S)
    ended = await soon(bench.runtime.wait(KEY))
    assert ended.stopped
    assert ended.code in (0, -signal.SIGTERM)
    runtime = bench.renew()
    await runtime.adopt()
    assert (await soon(runtime.wait(KEY))).stopped


async def test_a_stop_that_comes_after_an_unseen_exit_did_not_cause_it(bench: Bench) -> None:
    await bench.runtime.start(bench.spec("until [ -e go ]; do sleep 0.01; done; touch over"))
    bench.runtime.close()  # The agent is dead while the program ends.
    bench.file("go").touch()
    await until(bench.file("over").exists)
    await until(lambda: not running(bench))
    runtime = bench.renew()
    await runtime.adopt()
    # Asked before the next agent has looked what became of it.
    await runtime.stop(KEY, DEADLINE_S)
    ended = await soon(runtime.wait(KEY))
    assert (ended.code, ended.stopped) == (0, False)


async def test_tasks_do_not_disturb_each_other(bench: Bench) -> None:
    other = TaskKey("job-1/1+1", 2)
    await bench.runtime.start(bench.spec("until [ -e go ]; do sleep 0.01; done; exit 1"))
    await bench.runtime.start(bench.spec("sleep 3600", other))
    await bench.runtime.kill(other)
    assert (await soon(bench.runtime.wait(other))).code == -signal.SIGKILL
    bench.file("go").touch()
    assert (await soon(bench.runtime.wait(KEY))).code == 1


async def test_parts_of_the_storage_that_lie_elsewhere_are_found_in_it(bench: Bench) -> None:
    storage, mount = bench.home / "storage", bench.home / "mount"
    for directory in (storage / "outputs", mount / "outputs", mount / "shared", mount / "set"):
        directory.mkdir(parents=True)
    (mount / "set" / "data").write_text("an input")
    spec = bench.spec(
        'cd "$EVA_STORAGE"; cat inputs/set/data >outputs/read; echo word >shared/word'
    )
    elsewhere = {
        "outputs": mount / "outputs",
        "shared": mount / "shared",
        "inputs/set": mount / "set",
    }
    env = {**spec.env, "EVA_STORAGE": str(storage)}
    await bench.runtime.start(replace(spec, env=env, elsewhere=elsewhere))
    assert (await soon(bench.runtime.wait(KEY))).code == 0, bench.file("log").read_text()
    assert (mount / "outputs" / "read").read_text() == "an input"
    assert (mount / "shared" / "word").read_text() == "word\n"
