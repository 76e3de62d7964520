"""An engine that is restarted, killed or frozen under running tasks."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
from docker.errors import APIError
from docker.models.containers import Container, ContainerCollection
from requests import Response

from eva_wire._proto import worker_pb2 as pb
from eva_worker.orders import TaskKey
from eva_worker.runtime import Exit, TaskSpec
from eva_worker.runtime.docker.runtime import DockerRuntime, connect
from tests.fakes.docker import dockerd
from tests.fakes.docker.dockerd import Engine
from tests.fakes.patience import DEADLINE_S
from tests.fakes.rpc.master import FakeMaster

pytestmark = pytest.mark.docker

FROZEN_HEARTBEATS = 40
KEY = TaskKey("job-1/0", 1)
LOOP = "touch up; until [ -e go ]; do sleep 0.02; done; exit 5"


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        # Once at least: restarts hold up the loop, and the runtime has to have had its turn before.
        await asyncio.sleep(0.01)
        while not condition():
            await asyncio.sleep(0.01)


class Bench:
    """One agent after another on an engine of its own."""

    def __init__(self, home: Path, engine: Engine) -> None:
        self.home, self.engine = home, engine
        self.runtime = self.new()

    def new(self) -> DockerRuntime:
        client = connect(self.engine.url, timeout_s=1)
        self.runtime = DockerRuntime(
            self.home / "runtime", client, instance="i-1", default_image=dockerd.IMAGE
        )
        return self.runtime

    async def start(self, command: str = LOOP, key: TaskKey = KEY) -> None:
        work = self.file(".", key)
        work.mkdir(parents=True)
        await self.runtime.start(TaskSpec(key, command, {}, work, work / "log"))

    def file(self, name: str, key: TaskKey = KEY) -> Path:
        return self.home / "work" / key.path / name

    async def up(self) -> None:
        """Wait until the task has made the file ``up``; fail with its own words if it ends."""
        over = asyncio.create_task(self.runtime.wait(KEY))
        await until(lambda: over.done() or self.file("up").exists())
        assert self.file("up").exists(), (over.result(), self.file("log").read_text())
        over.cancel()

    async def ended(self, key: TaskKey = KEY) -> Exit:
        async with asyncio.timeout(DEADLINE_S):
            return await self.runtime.wait(key)


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    with dockerd.engine(live_restore=getattr(request, "param", False)) as engine:
        yield engine


@pytest.fixture
async def bench(engine: Engine, tmp_path: Path) -> AsyncIterator[Bench]:
    bench = Bench(tmp_path, engine)
    yield bench
    bench.runtime.close()


def restart(engine: Engine, how: signal.Signals) -> None:
    # Not in a thread of a pool: an engine dies with the thread that started it.
    engine.stop(how)
    engine.start()


@pytest.mark.parametrize("engine", [True], indirect=True)
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
async def test_task_outlives_an_engine_that_restores(bench: Bench, how: signal.Signals) -> None:
    await bench.start()
    await bench.up()
    restart(bench.engine, how)
    bench.file("go").touch()
    ended = await bench.ended()
    assert (ended.code, ended.message) == (5, "")


@pytest.mark.parametrize("engine", [True], indirect=True)
async def test_task_outlives_engine_and_agent(bench: Bench) -> None:
    await bench.start()
    await bench.up()
    bench.runtime.close()
    restart(bench.engine, signal.SIGKILL)
    assert list(await bench.new().adopt()) == [KEY]
    await bench.runtime.stop(KEY, DEADLINE_S)
    ended = await bench.ended()
    assert ended.code == -signal.SIGTERM


@pytest.mark.parametrize("engine", [True], indirect=True)
async def test_exit_while_the_engine_is_away_is_known(bench: Bench) -> None:
    await bench.start()
    await bench.up()
    bench.engine.stop(signal.SIGKILL)
    bench.file("go").touch()
    bench.engine.start()
    assert (await bench.ended()).code == 5


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
async def test_task_that_its_engine_takes_along_was_killed_and_says_why(
    bench: Bench, how: signal.Signals
) -> None:
    await bench.start()
    await bench.up()
    restart(bench.engine, how)
    ended = await bench.ended()
    assert ended.code == -signal.SIGKILL
    assert "engine" in ended.message
    bench.runtime.close()
    await bench.new().adopt()
    assert await bench.ended() == ended


async def test_what_is_forgotten_while_the_engine_is_away_is_removed_later(bench: Bench) -> None:
    await bench.start("true")
    await bench.ended()
    bench.engine.stop(signal.SIGKILL)
    await bench.runtime.cleanup(KEY)
    bench.engine.start()
    client = connect(bench.engine.url)
    await until(lambda: not client.containers.list(all=True, ignore_removed=True))
    client.close()


async def test_kill_by_somebody_else_is_told_apart(bench: Bench) -> None:
    await bench.start()
    await bench.up()
    for container in connect(bench.engine.url).containers.list():
        container.kill()
    ended = await bench.ended()
    assert ended.code == -signal.SIGKILL
    assert ended.message.startswith("killed through the Docker engine")


async def test_frozen_engine_holds_up_nothing_but_itself(bench: Bench) -> None:
    other = TaskKey("job-1/1", 1)
    await bench.start("trap 'echo asked; exit 3' TERM; touch up; while :; do sleep 0.02; done")
    await bench.up()
    with bench.engine.frozen():
        starting = asyncio.create_task(bench.start("echo once; exit 4", other))
        await bench.runtime.stop(KEY, DEADLINE_S)
        # Longer than several calls wait; meanwhile the agent's own work goes on.
        for _ in range(30):
            async with asyncio.timeout(1):
                await asyncio.to_thread(bench.file("up").exists)
            await asyncio.sleep(0.1)
        assert not starting.done()
    await starting
    assert (await bench.ended(other)).code == 4
    assert (await bench.ended()).code == 3
    # What was asked of the engine several times was done once.
    assert bench.file("log", other).read_text() == "once\n"
    assert bench.file("log").read_text().count("asked") == 1


async def test_start_without_an_answer_is_not_repeated(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = Container.start

    def unanswered(container: Container) -> None:
        start(container)
        raise TimeoutError("no answer")

    monkeypatch.setattr(Container, "start", unanswered)
    await bench.start("echo once; exit 4")
    assert (await bench.ended()).code == 4
    assert bench.file("log").read_text() == "once\n"


@pytest.mark.parametrize("comes", [False, True], ids=["is given up", "comes late"])
async def test_a_container_that_is_still_being_made_is_waited_for(
    comes: bool, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its name is taken before the engine knows it: a try before had no answer in time."""
    create = ContainerCollection.create
    calls: list[str] = []

    def busy(containers: ContainerCollection, *given: Any, **options: Any) -> Container:
        calls.append(options["name"])
        if len(calls) == 1:
            taken = Response()
            taken.status_code = HTTPStatus.CONFLICT
            raise APIError("the name is in use", response=taken)
        made = create(containers, *given, **options)
        return create(containers, *given, **options) if comes else made

    monkeypatch.setattr(ContainerCollection, "create", busy)
    await bench.start("echo once; exit 4")
    assert (await bench.ended()).code == 4
    assert bench.file("log").read_text() == "once\n"
    assert len(calls) == 2


async def test_exits_are_heard_of_at_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    # Without the events the next look would come much later.
    monkeypatch.setattr("eva_worker.runtime.docker.runtime._LOOK_AGAIN_S", 3600.0)
    await bench.start()
    await bench.up()
    bench.file("go").touch()
    assert (await bench.ended()).code == 5


async def test_agent_of_a_frozen_engine_stays_with_its_master(
    engine: Engine, tmp_path: Path
) -> None:
    (tmp_path / "objects").mkdir()
    master = FakeMaster(tmp_path / "objects")
    await master.start()
    worker = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "eva_worker", "--instance-id", "i-1", "--emulated"),
        *("--instance-type", "c7i.large", "--cpus", "2", "--memory-mib", "1024"),
        *(*master.options(), "--state-dir", str(tmp_path / "state")),
        *("--runtime", "docker", "--docker-host", engine.url, "--docker-image", dockerd.IMAGE),
        env=master.environment(),
    )
    try:
        await master.until(lambda: master.sessions)

        def heartbeats() -> int:
            return sum(one.WhichOneof("body") == "heartbeat" for one in master.session.heard)

        with engine.frozen():
            order = pb.TaskOrder(run_id="job-1/0", attempt=1, job_id="job-1", run="exit 5")
            master.send(start=pb.StartTask(order=order))
            await master.phase("job-1/0", 1, pb.PHASE_STARTING)
            before = heartbeats()
            # Fifty milliseconds between two of them.
            await master.until(lambda: heartbeats() > before + FROZEN_HEARTBEATS)
            master.send(stop=pb.StopTask(run_id="other/0", attempt=1))
            assert (await master.phase("other/0", 1, pb.PHASE_EXITED)).never_started
        report = await master.phase("job-1/0", 1, pb.PHASE_EXITED)
        said = [piece.read_text() for piece in master.store.glob("jobs/job-1/0/logs/*/*")]
        assert (report.exit_code, report.message, said) == (5, "", [])
        assert len(master.sessions) == 1
    finally:
        worker.terminate()
        assert await worker.wait() == 0
        await master.vanish()
