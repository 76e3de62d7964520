"""What is special about containers as a runtime: limits, mounts, labels, an engine that fails."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from docker.models.containers import Container

from eva_wire._proto import worker_pb2 as pb
from eva_worker.errors import StartFailed
from eva_worker.isolation import UNPRIVILEGED
from eva_worker.orders import TaskKey
from eva_worker.runtime import Exit, Image, TaskSpec
from eva_worker.runtime.docker.runtime import DockerRuntime, connect
from tests.fakes.docker import dockerd
from tests.fakes.rpc.master import DEADLINE_S, FakeMaster

pytestmark = pytest.mark.docker

KEY = TaskKey("job-1/0", 1)
MIB = 1 << 20


class AgentDied(BaseException):
    """Ends a start where no code of the agent's would be run any more."""


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            await asyncio.sleep(0.01)


async def no_context(digest: str, target: Path) -> None:
    raise AssertionError(f"{digest} is not wanted in {target}")


@pytest.fixture
def client(docker_engine: str) -> Iterator[Any]:
    with contextlib.closing(connect(docker_engine)) as client:
        yield client
        # An engine that is busy may be a while in removing what it was told to.
        deadline = time.monotonic() + DEADLINE_S
        while left := client.containers.list(all=True, ignore_removed=True):
            if time.monotonic() > deadline:
                break
            time.sleep(0.05)
        for container in left:
            container.remove(force=True)
        assert not left


class Bench:
    """The agents' views of one state directory, one after the other, and a task's directories."""

    def __init__(self, home: Path, engine: str) -> None:
        self.home, self.engine = home, engine
        for name in ("work", "storage", "checkpoints", "run"):
            (home / name).mkdir(parents=True)
        self.runtime = self.new()

    def new(self, **changes: Any) -> DockerRuntime:
        options = {"instance": "i-1", "default_image": dockerd.IMAGE, **changes}
        self.runtime = DockerRuntime(self.home / "runtime", connect(self.engine), **options)
        return self.runtime

    def renew(self) -> DockerRuntime:
        self.runtime.close()
        return self.new()

    def spec(self, command: str, **more: Any) -> TaskSpec:
        env = {
            "EVA_STORAGE": str(self.home / "storage"),
            "EVA_CHECKPOINT_DIR": str(self.home / "checkpoints"),
            "EVA_SOCKET": str(self.home / "run" / "eva.sock"),
        }
        return TaskSpec(KEY, command, env, self.home / "work", self.home / "log", **more)

    async def ended(self) -> Exit:
        async with asyncio.timeout(DEADLINE_S):
            return await self.runtime.wait(KEY)

    def file(self, name: str) -> Path:
        return self.home / "work" / name


@pytest.fixture
async def bench(client: Any, docker_engine: str, tmp_path: Path) -> AsyncIterator[Bench]:
    bench = Bench(tmp_path / "first", docker_engine)
    yield bench
    await bench.runtime.adopt()
    await bench.runtime.kill(KEY)
    with contextlib.suppress(KeyError):  # Some tests start nothing.
        await bench.ended()
    await bench.runtime.cleanup(KEY)
    bench.runtime.close()


async def test_task_has_its_limits_and_no_privileges(bench: Bench, client: Any) -> None:
    cpu = min(os.sched_getaffinity(0))
    await bench.runtime.start(bench.spec("sleep 3600", cpus=(cpu,), memory_mib=64))
    [container] = client.containers.list()
    config, host = container.attrs["Config"], container.attrs["HostConfig"]
    assert config["User"] == f"{UNPRIVILEGED}:{UNPRIVILEGED}"
    assert config["Labels"] == {
        "eva.instance": "i-1",
        "eva.home": str(bench.home / "runtime"),
        "eva.copy": "job-1/0",
        "eva.attempt": "1",
    }
    assert host["CpusetCpus"] == str(cpu)
    assert host["Memory"] == host["MemorySwap"] == host["ShmSize"] == 64 * MIB
    assert (host["CapDrop"], host["SecurityOpt"]) == (["ALL"], ["no-new-privileges"])
    assert (host["Init"], host["NetworkMode"]) == (True, "bridge")
    assert not host["Privileged"]


async def test_directories_are_where_the_variables_say(bench: Bench) -> None:
    (bench.home / "run" / "eva.sock").write_text("here")
    await bench.runtime.start(
        bench.spec(
            "env | grep ^EVA_ | sort; cat $EVA_SOCKET; touch $EVA_STORAGE/s $EVA_CHECKPOINT_DIR/c"
        )
    )
    assert (await bench.ended()).code == 0
    assert (bench.home / "log").read_text() == (
        "EVA_CHECKPOINT_DIR=/eva/checkpoints\nEVA_SOCKET=/eva/run/eva.sock\n"
        "EVA_STORAGE=/eva/storage\nhere"
    )
    for path in ("storage/s", "checkpoints/c"):
        assert (bench.home / path).stat().st_uid == UNPRIVILEGED


async def test_task_can_gain_no_privileges(bench: Bench) -> None:
    await bench.runtime.start(
        bench.spec("grep -E 'Cap(Eff|Prm|Bnd)|NoNewPrivs' /proc/self/status; mount -t tmpfs x /mnt")
    )
    assert (await bench.ended()).code != 0
    said = dict(line.split(":") for line in (bench.home / "log").read_text().splitlines()[:4])
    assert {name: int(value, 16) for name, value in said.items()} == {
        **{"CapPrm": 0, "CapEff": 0, "CapBnd": 0, "NoNewPrivs": 1}
    }


async def test_task_finds_nothing_of_another(bench: Bench, client: Any, tmp_path: Path) -> None:
    other = Bench(tmp_path / "other", bench.engine)
    for each in (bench, other):
        (each.home / "run" / "eva.sock").write_text("secret")
        (each.home / "checkpoints" / "secret").touch()
    (other.home / "checkpoints" / "others").touch()
    # The host's processes are not seen.
    await bench.runtime.start(
        bench.spec(
            f"ls {other.home} {bench.home}; find / -xdev -name others 2>/dev/null;"
            " ls $EVA_SOCKET; find / -name '*.sock' 2>/dev/null;"
            " ls $EVA_CHECKPOINT_DIR /proc | grep -c '^[0-9]'"
        )
    )
    await bench.ended()
    lines = (bench.home / "log").read_text().splitlines()
    assert [line for line in lines if "No such file" in line] == lines[:2]
    assert lines[2] == "/eva/run/eva.sock"
    assert int(lines[3]) < 10
    other.runtime.close()


async def test_gpus_are_asked_for_by_uuid(tmp_path: Path) -> None:
    # The engine takes such requests where it finds NVIDIA's hook, which does nothing here.
    tools = tmp_path / "tools"
    tools.mkdir()
    hook = tools / "nvidia-container-runtime-hook"
    hook.write_text("#!/bin/sh\nexit 0\n")
    hook.chmod(0o755)
    with dockerd.engine(tools=tools) as engine, contextlib.closing(connect(engine.url)) as client:
        bench = Bench(tmp_path / "home", engine.url)
        await bench.runtime.start(bench.spec("sleep 3600", gpus=("GPU-0a1b", "GPU-2c3d")))
        [container] = client.containers.list()
        [request] = container.attrs["HostConfig"]["DeviceRequests"]
        assert request["DeviceIDs"] == ["GPU-0a1b", "GPU-2c3d"]
        assert request["Capabilities"] == [["gpu"]]
        await bench.runtime.kill(KEY)
        await bench.ended()
        await bench.runtime.cleanup(KEY)
        bench.runtime.close()


async def test_socket_of_the_next_agent_is_seen(bench: Bench) -> None:
    await bench.runtime.start(bench.spec("until [ -e $EVA_SOCKET ]; do sleep 0.01; done"))
    (bench.home / "run" / "eva.sock").touch()
    assert (await bench.ended()).code == 0


async def test_out_of_memory_is_said(bench: Bench) -> None:
    await bench.runtime.start(
        bench.spec("dd if=/dev/zero of=/dev/null bs=100M count=1", memory_mib=32)
    )
    ended = await bench.ended()
    assert ended.code == -signal.SIGKILL
    assert ended.message == "out of memory: the task's limit is 32 MiB"
    bench.renew()
    await bench.runtime.adopt()
    assert await bench.ended() == ended


async def test_killed_task_is_not_called_out_of_memory(bench: Bench) -> None:
    await bench.runtime.start(bench.spec("kill -9 $$", memory_mib=32))
    assert await bench.ended() == Exit(-signal.SIGKILL, (await bench.ended()).at_ms)


async def test_real_gpus_are_asked_of_the_engine(bench: Bench, client: Any) -> None:
    # There are none here: the engine refuses, which shows that it was asked, and no container
    # stays behind.
    spec = bench.spec("true", gpus=("GPU-0a1b",))
    with pytest.raises(StartFailed, match="could not select device driver"):
        await bench.runtime.start(spec)
    assert not client.containers.list(all=True)
    runtime = bench.renew()
    assert list(await runtime.adopt()) == [KEY]
    ended = await bench.ended()
    assert not ended.ran
    assert "device driver" in ended.message


async def test_nominal_gpus_are_but_names(bench: Bench) -> None:
    bench.runtime.close()
    bench.new(real_gpus=False)
    await bench.runtime.start(bench.spec("exit 4", gpus=("GPU-0a1b",)))
    assert (await bench.ended()).code == 4


async def test_without_any_image_nothing_starts(bench: Bench) -> None:
    bench.runtime.close()
    runtime = bench.new(default_image="")
    with pytest.raises(StartFailed, match="--docker-image"):
        await runtime.prepare(Image("", None, no_context), print)


async def test_image_of_the_task_goes_before_the_default(bench: Bench) -> None:
    bench.runtime.close()
    bench.new(default_image="127.0.0.1:1/no-such-image")
    await bench.runtime.start(bench.spec("exit 6", image=dockerd.IMAGE))
    assert (await bench.ended()).code == 6


async def test_container_that_an_agent_did_not_come_to_start_never_runs(
    bench: Bench, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(_container: Container) -> None:
        raise AgentDied

    with monkeypatch.context() as patch:
        patch.setattr(Container, "start", die)
        with pytest.raises(AgentDied):
            await bench.runtime.start(bench.spec("touch ran"))
    assert [c.status for c in client.containers.list(all=True)] == ["created"]
    runtime = bench.renew()
    assert list(await runtime.adopt()) == [KEY]
    assert not (await bench.ended()).ran
    assert not client.containers.list(all=True)
    assert not bench.file("ran").exists()


async def test_container_removed_by_somebody_else_has_run(bench: Bench, client: Any) -> None:
    await bench.runtime.start(bench.spec("sleep 3600"))
    bench.runtime.close()
    for container in client.containers.list():
        container.remove(force=True)
    bench.new()
    await bench.runtime.adopt()
    ended = await bench.ended()
    assert (ended.code, ended.ran) == (-signal.SIGKILL, True)
    assert "removed" in ended.message


async def test_leftovers_are_removed_and_those_of_others_are_not(
    bench: Bench, client: Any, tmp_path: Path
) -> None:
    # The same instance id and task, in the state directory of another cluster.
    other = Bench(tmp_path / "other", bench.engine)
    for each in (bench, other):
        await each.runtime.start(each.spec("sleep 3600"))
    (bench.home / "runtime" / KEY.path / "started.json").unlink()
    (bench.home / "runtime" / KEY.path).rmdir()
    assert not await bench.renew().adopt()
    [left] = client.containers.list(all=True)
    assert left.labels["eva.home"] == str(other.home / "runtime")
    await other.runtime.kill(KEY)
    await other.ended()
    await other.runtime.cleanup(KEY)
    other.runtime.close()


async def test_stop_goes_on_with_the_next_agent_and_is_not_asked_twice(bench: Bench) -> None:
    await bench.runtime.start(
        bench.spec("trap 'echo asked' TERM; touch up; while :; do sleep 0.01; done")
    )
    await until(bench.file("up").exists)
    await bench.runtime.stop(KEY, 1.5)
    await until((bench.home / "runtime" / KEY.path / "asked").exists)
    bench.renew()
    await bench.runtime.adopt()
    assert (await bench.ended()).code == -signal.SIGKILL
    # Between them the shell may say that a child of its own was terminated.
    assert (bench.home / "log").read_text().count("asked") == 1


async def test_stop_that_was_on_disk_only_is_carried_out(bench: Bench) -> None:
    await bench.runtime.start(
        bench.spec("trap 'exit 3' TERM; touch up; while :; do sleep 0.01; done")
    )
    await until(bench.file("up").exists)
    (bench.home / "runtime" / KEY.path / "stop.json").write_text('{"deadline_ms":4000000000000}')
    bench.renew()
    await bench.runtime.adopt()
    assert (await bench.ended()).code == 3


async def test_worker_runs_containers_that_outlive_its_agent(
    client: Any, docker_engine: str, master: FakeMaster, tmp_path: Path
) -> None:
    worker = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "eva_worker", "--instance-id", "i-1"),
        *("--instance-type", "p3.2xlarge", "--cpus", "4", "--memory-mib", "1024"),
        *("--emulated", "--gpus", "1"),
        *(*master.options(), "--state-dir", str(tmp_path / "state")),
        *("--runtime", "docker", "--docker-host", docker_engine),
        *("--docker-image", dockerd.IMAGE),
        env=master.environment(),
    )
    try:
        await master.until(lambda: master.sessions)
        order = pb.TaskOrder(
            run_id="job-1/0",
            attempt=1,
            job_id="job-1",
            run="[ -S $EVA_SOCKET ] && pwd && which sh; until [ -e go ]; do sleep 0.01; done;"
            " dd if=/dev/zero of=/dev/null bs=100M count=1; exit 5",
            grace_ms=20_000,
            demand=pb.Resources(gpus=1, milli_cpus=1000, memory_mib=32),
        )
        master.send(start=pb.StartTask(order=order))
        await master.phase("job-1/0", 1, pb.PHASE_RUNNING)
        [agent] = psutil.Process(worker.pid).children()
        agent.kill()
        await master.until(lambda: len(master.sessions) > 1)
        (tmp_path / "state/tasks/job-1/0/0001/work/go").touch()
        report = await master.phase("job-1/0", 1, pb.PHASE_EXITED)
        assert report.exit_code == 5
        words = "out of memory: the task's limit is 32 MiB; its log ends: /eva/work | /bin/sh | "
        assert report.message.startswith(words)
        pieces = sorted((tmp_path / "objects/jobs/job-1/0/logs/0001").iterdir())
        log = "".join(piece.read_text() for piece in pieces)
        assert log.startswith("/eva/work\n/bin/sh\n")
        master.send(forget=pb.ForgetTask(run_id="job-1/0", attempt=1))
        await until(lambda: not client.containers.list(all=True, ignore_removed=True))
    finally:
        worker.terminate()
        assert await worker.wait() == 0
