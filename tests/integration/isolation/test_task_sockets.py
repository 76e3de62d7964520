"""Reports at a task's socket: attacks of one task on another, whatever confines them."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from eva_worker.orders import TaskKey
from eva_worker.process.peers import descends
from eva_worker.runtime import Exit, TaskSpec
from eva_worker.runtime.process import confinement
from eva_worker.runtime.process.measures import Measures
from eva_worker.runtime.process.runtime import ProcessRuntime
from eva_worker.tasks.progress_server import IteratorServer, StepCounters
from eva_worker.tasks.socket_places import (
    make_socket_directory,
    remove_socket_directory,
    socket_path,
    socket_secret,
)
from tests.fakes.paths import PYTHON, short_tempdir
from tests.fakes.patience import DEADLINE_S

SDK = Path(__file__).parents[3] / "iterator_sdk"

# A client that knows the protocol: reports steps, and something malformed, to a socket.
CALL = """
import os, sys, grpc
from eva_iterator._proto.iterator_pb2 import ReportRequest
def call(path, data, secret=None):
    metadata = (("eva-socket-secret", secret),) if secret else None
    with grpc.insecure_channel("unix:" + path) as channel:
        try:
            channel.unary_unary("/eva.iterator.v1.Iterator/Report")(data, metadata=metadata)
            return "heard"
        except grpc.RpcError as error:
            return error.code().name
steps = ReportRequest(source="x", steps=999000, total_steps=999000, generation=5)
good, bad = steps.SerializeToString(), ReportRequest(source="x" * 300).SerializeToString()
"""
ATTACK = """
from call import *
for data in (good, bad):
    print(call(sys.argv[1], data), call(sys.argv[1], data, sys.argv[2]))
"""
# Processes of the task itself: a session of its own, and a daemon that has lost its parents.
OWN = """
import subprocess
from call import *
def daemon(source):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            data = ReportRequest(source=source, steps=100).SerializeToString()
            open("said", "w").write(call(os.environ["EVA_SOCKET"], data))
        os._exit(0)
    os.wait()
daemon("daemon")
import time
while not os.path.exists("said") or not open("said").read():
    time.sleep(0.01)
code = "from call import *; data = ReportRequest(source='s', steps=7).SerializeToString();"
code += " print(call(os.environ['EVA_SOCKET'], data))"
subprocess.run([sys.executable, "-c", code], start_new_session=True, check=True)
print(open("said").read())
"""


class Neighbour:
    """A task of one worker that several share, with the server of its socket."""

    def __init__(self, home: Path, number: int, runtime: ProcessRuntime) -> None:
        self.key = TaskKey(f"job-{number}/0", 1)
        self.runtime = runtime
        self.directory = home / "tasks" / self.key.path
        for name in ("work", "storage", "checkpoints", "tmp"):
            (self.directory / name).mkdir(parents=True)
        (self.directory / "work" / "call.py").write_text(CALL)
        self.socket = socket_path(self.directory)
        make_socket_directory(self.socket, self.directory)
        self.secret = socket_secret(self.directory, make=True)
        self.counters = StepCounters(self.directory / "progress.json")
        self.refusals: list[str] = []
        self.server = IteratorServer(
            self.socket,
            self.counters,
            self.refusals.append,
            owns=lambda pid: runtime.owns(self.key, pid),
            secret=self.secret,
        )

    async def start(self, program: str, *arguments: str) -> None:
        (self.directory / "work" / "program.py").write_text(program)
        env = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.pathsep.join([str(SDK), *filter(None, sys.path)]),
            "EVA_STORAGE": str(self.directory / "storage"),
            "EVA_CHECKPOINT_DIR": str(self.directory / "checkpoints"),
            "EVA_SOCKET": str(self.socket),
        }
        words = " ".join(f"'{it}'" for it in arguments)
        await self.runtime.start(
            TaskSpec(
                *(self.key, f"{PYTHON} program.py {words}", env),
                *(self.directory / "work", self.directory / "log"),
                temporary=self.directory / "tmp",
            )
        )

    async def end(self) -> Exit:
        async with asyncio.timeout(DEADLINE_S):
            return await self.runtime.wait(self.key)

    @property
    def log(self) -> str:
        return (self.directory / "log").read_text()


@pytest.fixture(params=["beside", "elsewhere"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A worker's state, whose path is short enough for sockets or not."""
    state = tmp_path / "s" if request.param == "beside" else tmp_path / ("long" * 30)
    state.mkdir()
    return state


@pytest.fixture(params=[confinement.NAMESPACES, confinement.LANDLOCK, confinement.NOTHING])
async def neighbours(
    request: pytest.FixtureRequest, home: Path
) -> AsyncIterator[tuple[Neighbour, Neighbour]]:
    """Two tasks of two users."""
    how = request.param
    if how and confinement.tried_out([str(home)], [], harmless=True, ways=(how,))[0] != how:
        pytest.skip(f"{how} do not work here")
    runtime = ProcessRuntime(home / "runtime", Measures(how, [str(home)], None))
    both = Neighbour(home, 1, runtime), Neighbour(home, 2, runtime)
    for each in both:
        await each.server.start()
    yield both
    for each in both:
        await each.server.close()
        if each.key in await runtime.adopt():
            await runtime.kill(each.key)
            await runtime.wait(each.key)
            await runtime.cleanup(each.key)
        remove_socket_directory(each.socket)
    runtime.close()


async def test_a_task_is_not_heard_by_the_socket_of_another(
    neighbours: tuple[Neighbour, Neighbour],
) -> None:
    victim, attacker = neighbours
    await victim.start("import time; time.sleep(1000)")
    await attacker.start(ATTACK, str(victim.socket), victim.secret)
    assert (await attacker.end()).code == 0, attacker.log
    assert set(attacker.log.split()) == {"UNAVAILABLE"}
    progress = victim.counters.progress()
    assert (progress.steps, progress.total_steps, progress.published) == (0, 0, 0)
    assert victim.refusals == attacker.refusals == []


REPLACE = """
import os, socket, sys
path = sys.argv[1]
for attack in (os.unlink, lambda p: os.rename(p, p + "x"), lambda p: open(p + "y", "w")):
    try:
        attack(path)
        print("done")
    except OSError:
        print("refused")
try:
    print(os.listdir(os.path.dirname(path)))
except OSError:
    print("refused")
"""


async def test_a_socket_in_the_users_runtime_directory_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where Landlock is all that there is, and the state's path is long."""
    how = confinement.LANDLOCK
    if confinement.tried_out([str(tmp_path)], [], harmless=True, ways=(how,))[0] != how:
        pytest.skip("Landlock does not work here")
    home = tmp_path / ("long" * 30)
    home.mkdir()
    with tempfile.TemporaryDirectory(dir=short_tempdir()) as base:
        monkeypatch.setenv("XDG_RUNTIME_DIR", base)
        runtime = ProcessRuntime(home / "runtime", Measures(how, [str(home)], None))
        victim, thief = Neighbour(home, 1, runtime), Neighbour(home, 2, runtime)
        assert victim.socket.is_relative_to(base)
        victim.socket.touch()
        before = sorted(victim.socket.parent.iterdir())
        await thief.start(REPLACE, str(victim.socket))
        await thief.end()
        assert thief.log.split() == ["refused"] * 4
        assert sorted(victim.socket.parent.iterdir()) == before
        for key in await runtime.adopt():
            await runtime.cleanup(key)
        runtime.close()


async def test_all_processes_of_a_task_are_heard(neighbours: tuple[Neighbour, Neighbour]) -> None:
    """As of an SDK that shows no secret: the kernel says whose they are."""
    task, _ = neighbours
    await task.start(OWN)
    assert (await task.end()).code == 0, task.log
    assert task.log.split() == ["heard", "heard"]
    assert task.counters.progress().steps == 107


async def test_a_malformed_report_fails_the_task_that_sends_it(
    neighbours: tuple[Neighbour, Neighbour],
) -> None:
    task, other = neighbours
    program = "from call import *; print(call(os.environ['EVA_SOCKET'], bad))"
    await task.start(program)
    assert (await task.end()).code == 0, task.log
    assert task.log.split() == ["INVALID_ARGUMENT"]
    assert (len(task.refusals), other.refusals) == (1, [])


def test_a_younger_process_is_no_ancestor() -> None:
    """The number of a parent that has ended may have passed to another process."""
    me = os.getpid()
    started = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    assert descends(me, me, started)
    assert descends(me, os.getppid())
    assert not descends(me, me, started + 1)
    assert not descends(os.getppid(), me)
    assert not descends(1 << 30, me)
