"""What containers are kept from: attacks by tasks, on a real engine."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from eva_master.adapters.local.engine import Engine as LocalEngine
from eva_master.adapters.local.engine import ready_image
from eva_worker.isolation import UNPRIVILEGED, Isolation
from eva_worker.orders import TaskKey
from eva_worker.runtime import Exit, TaskSpec
from eva_worker.runtime.docker.runtime import DockerRuntime, connect
from eva_worker.secret_values import SecretValues
from eva_worker.tasks.progress_server import IteratorServer, StepCounters
from eva_worker.tasks.socket_places import make_socket_directory
from tests.fakes.docker import dockerd
from tests.fakes.patience import DEADLINE_S

pytestmark = pytest.mark.docker

KEY = TaskKey("job-1/0", 1)
FIRST_ID = 100_000


class Bench:
    """A task's directories as an attempt makes them, for this user alone."""

    def __init__(self, home: Path, engine: str, isolation: Isolation | None = None) -> None:
        self.home = home
        for name in ("work", "storage/outputs", "storage/inputs/t", "checkpoints"):
            (home / name).mkdir(parents=True, mode=0o700)
        self.socket = home / "run" / "eva.sock"
        make_socket_directory(self.socket, home)
        for file in ("work/train.py", "storage/inputs/t/data"):
            (home / file).write_text("given")
            (home / file).chmod(0o600)
        self.runtime = DockerRuntime(
            home / "runtime",
            connect(engine),
            instance="i-1",
            default_image=dockerd.IMAGE,
            isolation=isolation,
        )

    async def run(self, command: str, **more: Any) -> Exit:
        env = {
            "EVA_STORAGE": str(self.home / "storage"),
            "EVA_CHECKPOINT_DIR": str(self.home / "checkpoints"),
            "EVA_SOCKET": str(self.socket),
        }
        work, log = self.home / "work", self.home / "log"
        async with asyncio.timeout(DEADLINE_S):
            await self.runtime.start(TaskSpec(KEY, command, env, work, log, **more))
            return await self.runtime.wait(KEY)

    @property
    def log(self) -> str:
        return (self.home / "log").read_text()


@contextlib.asynccontextmanager
async def bench(
    home: Path, engine: str, isolation: Isolation | None = None
) -> AsyncIterator[Bench]:
    bench = Bench(home, engine, isolation)
    try:
        yield bench
    finally:
        for key in await bench.runtime.adopt():
            await bench.runtime.kill(key)
            await bench.runtime.wait(key)
            await bench.runtime.cleanup(key)
        bench.runtime.close()


@pytest.fixture(scope="module")
def remapping(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An engine whose containers' root is another user of this machine."""
    users = tmp_path_factory.mktemp("users") / "ids"
    users.write_text(f"nobody:{FIRST_ID}:65536\nnogroup:{FIRST_ID}:65536\n")
    before = "\n".join(
        f"[ -e {file} ] || : >{file}\nmount --bind {users} {file}"
        for file in ("/etc/subuid", "/etc/subgid")
    )
    with dockerd.engine(options=["--userns-remap=nobody:nogroup"], before=before) as engine:
        yield engine.url


async def test_a_fork_bomb_stays_within_its_task(docker_engine: str, tmp_path: Path) -> None:
    isolation = Isolation(processes=32)
    async with bench(tmp_path, docker_engine, isolation) as it:
        bomb = "i=0; while [ $i -lt 64 ]; do sleep 1000 & i=$((i+1)); done; echo all"
        await it.run(f"{bomb}; kill -9 -1")
        assert "all" not in it.log.splitlines()
        assert "Resource temporarily unavailable" in it.log


async def test_files_and_core_dumps_are_limited(docker_engine: str, tmp_path: Path) -> None:
    async with bench(tmp_path, docker_engine, Isolation(open_files=128)) as it:
        await it.run("ulimit -n; ulimit -Hn; ulimit -c; ulimit -Hc", memory_mib=64)
        assert it.log.split() == ["128", "128", "0", "0"]


async def test_a_task_is_nobody_and_has_its_own_files(docker_engine: str, tmp_path: Path) -> None:
    async with bench(tmp_path, docker_engine) as it:
        ended = await it.run(
            "set -e; id -u; id -g; cat train.py $EVA_STORAGE/inputs/t/data; echo >>train.py;"
            " mkdir $EVA_STORAGE/outputs/o $EVA_CHECKPOINT_DIR/00000001; echo c >"
            " $EVA_CHECKPOINT_DIR/00000001/c; ! cat /proc/sys/kernel/core_pattern >/dev/null ||"
            " ! echo x 2>/dev/null >/proc/sys/kernel/core_pattern; echo done"
        )
        assert ended.code == 0, it.log
        assert it.log.replace("given", "").split() == [*[str(UNPRIVILEGED)] * 2, "done"]
        assert (it.home / "checkpoints" / "00000001" / "c").stat().st_uid == UNPRIVILEGED


WRITE_EVERYWHERE = """while read -r _ place kind _; do
[ ! -d $place ] || place=$place/.probe
[ ! -c $place ] && { true >>$place; } 2>/dev/null && echo $kind $place
done </proc/mounts
true"""


@pytest.mark.parametrize("user", ["unprivileged", "worker"])
async def test_a_task_fills_no_memory_of_its_host(
    docker_engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: str
) -> None:
    with tempfile.TemporaryDirectory(prefix="eva-test-", dir="/dev/shm") as memory:
        monkeypatch.setenv("XDG_RUNTIME_DIR", memory)
        async with bench(tmp_path, docker_engine, Isolation(user=user)) as box:
            # Sockets whose names would be too long are there as well.
            box.socket = Path(memory) / "run" / "eva.sock"
            make_socket_directory(box.socket, box.home)
            secrets = SecretValues({"TOKEN": "s3cret"})
            ended = await box.run(WRITE_EVERYWHERE, memory_mib=64, secrets=secrets)
            assert ended.code == 0, box.log
            places = dict(line.split()[::-1] for line in box.log.splitlines())
            assert "/eva/work/.probe" in places
            # The engine bounds these by what the container may use.
            in_memory = {place for place, kind in places.items() if kind == "tmpfs"}
            assert in_memory - {"/dev/.probe"} == {"/dev/shm/.probe"}
            assert {path.name for path in Path(memory).rglob("*")} == {"run", "of"}


async def test_links_that_were_there_before_are_not_followed(
    docker_engine: str, tmp_path: Path
) -> None:
    async with bench(tmp_path / "home", docker_engine) as it:
        secret = tmp_path / "secret"
        secret.write_text("s")
        (it.home / "work" / "link").symlink_to(secret)
        (it.home / "work" / "directory").symlink_to(tmp_path)
        await it.run("true")
        assert secret.stat().st_uid == tmp_path.stat().st_uid == os.geteuid()


async def test_the_socket_is_seen_and_its_directory_is_not_written(
    docker_engine: str, tmp_path: Path
) -> None:
    async with bench(tmp_path, docker_engine) as it:
        path = it.home / "run" / "eva.sock"
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(os.fsencode(path))
            await it.run("[ -S $EVA_SOCKET ] && echo seen; rm -f $EVA_SOCKET; ls /eva/run")
        assert it.log.splitlines()[0] == "seen"
        assert "Permission denied" in it.log
        assert path.is_socket()
        # The next agent's directory still lets the task in, and nobody else.
        make_socket_directory(path, it.home)
        status = path.parent.stat()
        assert (status.st_mode & 0o777, status.st_gid) == (0o710, UNPRIVILEGED)


@contextlib.contextmanager
def listening() -> Iterator[int]:
    """A server of this machine, on loopback alone, as the ports of an agent are."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            with contextlib.suppress(OSError):  # Closed.
                while True:
                    connection, _ = server.accept()
                    with connection:
                        connection.sendall(b"reached\n")

        thread = threading.Thread(target=answer)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join(DEADLINE_S)


async def test_a_task_has_a_network_of_its_own(docker_engine: str, tmp_path: Path) -> None:
    ours = str(Path("/proc/self/ns/net").readlink())
    with listening() as port:
        attack = f"timeout 20 nc 127.0.0.1 {port} </dev/null; readlink /proc/self/ns/net"
        async with bench(tmp_path / "own", docker_engine) as it:
            await it.run(attack)
            assert "reached" not in it.log
            assert it.log.splitlines()[-1] != ours
        for name, isolation, gang in (
            ("allowed", Isolation(network="host"), False),
            ("gang", Isolation(), True),
        ):
            async with bench(tmp_path / name, docker_engine, isolation) as it:
                await it.run(attack, gang=gang)
                assert it.log.split() == ["reached", ours]


async def test_an_operator_may_allow_the_workers_user(docker_engine: str, tmp_path: Path) -> None:
    async with bench(tmp_path, docker_engine, Isolation(user="worker")) as it:
        await it.run("id -u; touch own")
        assert it.log.strip() == str(os.geteuid())
        assert (it.home / "work" / "own").stat().st_uid == os.geteuid()


@pytest.mark.parametrize("gang", [False, True])
async def test_a_user_namespace_is_used_where_the_engine_has_them(
    remapping: str, tmp_path: Path, gang: bool
) -> None:
    async with bench(tmp_path, remapping) as it:
        ended = await it.run(
            "id -u; cat train.py; cut -c1-30 /proc/self/uid_map; touch own", gang=gang
        )
        assert ended.code == 0, it.log
        owner = (it.home / "work" / "own").stat().st_uid
        if gang:
            assert it.log.split()[0] == str(owner) == str(UNPRIVILEGED)
        else:
            assert it.log.split()[0] == "0"
            assert owner == FIRST_ID


PROGRAM = """
import sys
from eva_iterator import EvaIterator
for step in EvaIterator(range(7)):
    pass
"""


@pytest.mark.parametrize("gang", [False, True])
async def test_progress_is_reported_by_a_user_without_rights(
    docker_engine: str, tmp_path: Path, gang: bool
) -> None:
    """And by no process outside of the container, whatever it knows."""
    with LocalEngine(docker_engine) as engine:
        image = ready_image(engine, lambda _sentence: None)
    async with bench(tmp_path, docker_engine) as it:
        (it.home / "work" / "train.py").write_text(PROGRAM)
        counters = StepCounters(tmp_path / "progress.json")
        server = IteratorServer(
            it.home / "run" / "eva.sock", counters, owns=lambda pid: it.runtime.owns(KEY, pid)
        )
        await server.start()
        try:
            os.mkfifo(it.home / "work" / "end", 0o644)
            running = asyncio.create_task(
                it.run("python train.py; cat end", image=image, gang=gang)
            )
            async with asyncio.timeout(DEADLINE_S):
                while counters.progress().steps < 7 and not running.done():
                    await asyncio.sleep(0.01)
            assert not await it.runtime.owns(KEY, os.getpid())
            assert not await it.runtime.owns(KEY, 1)
            await asyncio.to_thread((it.home / "work" / "end").write_text, "")
            ended = await running
        finally:
            await server.close()
        assert ended.code == 0, it.log
        assert counters.progress().steps == 7


@pytest.mark.parametrize("remapped", [False, True])
async def test_processes_of_a_container_are_its_tasks_own(
    request: pytest.FixtureRequest, tmp_path: Path, remapped: bool
) -> None:
    url = request.getfixturevalue("remapping" if remapped else "docker_engine")
    async with bench(tmp_path, url) as it:
        os.mkfifo(it.home / "work" / "end", 0o644)
        running = asyncio.create_task(it.run("setsid sleep 1000 & touch up; cat end"))
        async with asyncio.timeout(DEADLINE_S):
            while not (it.home / "work" / "up").exists() and not running.done():
                await asyncio.sleep(0.01)
        with contextlib.closing(connect(url)) as client:
            (container,) = client.containers.list()
            titles, processes = (container.top()[name] for name in ("Titles", "Processes"))
        pids = [int(row[titles.index("PID")]) for row in processes]
        assert len(pids) >= 3
        assert [await it.runtime.owns(KEY, pid) for pid in pids] == [True] * len(pids)
        assert not await it.runtime.owns(TaskKey("job-1/0", 2), pids[0])
        assert not await it.runtime.owns(KEY, os.getpid())
        await asyncio.to_thread((it.home / "work" / "end").write_text, "")
        await running
