"""NVIDIA GPUs: found by UUID, given to one task each, and seen by that task alone."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from eva_master.adapters.local.engine import Engine, ready_image
from eva_wire._proto import worker_pb2 as pb
from eva_worker.tasks.devices import discover_gpus
from tests.fakes.paths import PYTHON
from tests.fakes.rpc.master import DEADLINE_S, FakeMaster

RUN = "job-1/0"

# What CUDA itself says, by the driver's library alone: no toolkit and no package is needed.
CUDA = """
import ctypes, json, os, uuid

cuda = ctypes.CDLL("libcuda.so.1")
NO_DEVICE = 100

def call(name, *arguments):
    code = getattr(cuda, name)(*arguments)
    assert code == 0, f"{name} failed with {code}"

found = {"visible": os.environ["CUDA_VISIBLE_DEVICES"], "uuids": []}
code = cuda.cuInit(0)
assert code in (0, NO_DEVICE), code
count = ctypes.c_int(0)
if code == 0:
    call("cuDeviceGetCount", ctypes.byref(count))
for index in range(count.value):
    device, name = ctypes.c_int(), (ctypes.c_ubyte * 16)()
    call("cuDeviceGet", ctypes.byref(device), index)
    call("cuDeviceGetUuid", name, device)
    found["uuids"].append(f"GPU-{uuid.UUID(bytes=bytes(name))}")
    context, memory = ctypes.c_void_p(), ctypes.c_uint64()
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)
    size = 16 << 20
    there, back = os.urandom(size), ctypes.create_string_buffer(size)
    call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(size))
    call("cuMemcpyHtoD_v2", memory, there, ctypes.c_size_t(size))
    call("cuMemcpyDtoH_v2", back, memory, ctypes.c_size_t(size))
    call("cuMemFree_v2", memory)
    assert back.raw == there, "memory of the GPU does not hold what was written"
with open("found.json.new", "w") as file:
    json.dump(found, file)
os.rename("found.json.new", "found.json")
"""


@dataclass
class Worker:
    """A worker with the machine's real devices."""

    master: FakeMaster
    home: Path
    process: asyncio.subprocess.Process

    def order(self, command: str, gpus: int, run: str = RUN) -> None:
        demand = pb.Resources(gpus=gpus, milli_cpus=200, memory_mib=2048)
        order = pb.TaskOrder(run_id=run, attempt=1, job_id="job-1", run=command, demand=demand)
        self.master.send(start=pb.StartTask(order=order))

    async def found(self, run: str = RUN) -> dict[str, Any]:
        """What the CUDA program says."""
        report = await self.master.phase(run, 1, pb.PHASE_EXITED)
        directory = self.home / "state" / "tasks" / run / "0001"
        assert report.exit_code == 0, report.message or (directory / "log").read_text()
        document: dict[str, Any] = json.loads((directory / "work" / "found.json").read_text())
        return document


class Workers:
    """Starts workers, and ends them."""

    def __init__(self, master: FakeMaster, home: Path) -> None:
        self._master = master
        self._home = home
        self._started: list[Worker] = []

    async def start(self, gpus: int, *extra: str) -> Worker:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "eva_worker", *self._master.options()),
            *("--instance-id", "i-1", "--instance-type", "p5.4xlarge", "--gpus", str(gpus)),
            *("--cpus", "2", "--memory-mib", "16384", "--state-dir", str(self._home / "state")),
            *extra,
            env=self._master.environment(),
        )
        self._started.append(Worker(self._master, self._home, process))
        await self._master.until(lambda: self._master.sessions)
        return self._started[-1]

    async def end(self) -> None:
        for worker in self._started:
            worker.process.terminate()
            async with asyncio.timeout(DEADLINE_S):
                await worker.process.wait()


@pytest.fixture
async def workers(master: FakeMaster, tmp_path: Path) -> AsyncIterator[Workers]:
    workers = Workers(master, tmp_path)
    yield workers
    await workers.end()


@pytest.fixture
def cuda(tmp_path: Path) -> str:
    """The command that runs the CUDA program."""
    program = tmp_path / "cuda.py"
    program.write_text(CUDA)
    return f"{PYTHON} {shlex.quote(str(program))}"


def test_as_many_gpus_are_found_as_the_driver_has_devices() -> None:
    devices = [path.name for path in Path("/dev").glob("nvidia*")]
    assert len(discover_gpus()) == len([name for name in devices if name[6:].isdigit()])


async def test_a_worker_registers_the_gpus_that_it_found_and_refuses_more(
    workers: Workers, master: FakeMaster
) -> None:
    found = len(discover_gpus())
    worker = await workers.start(found + 1)
    assert master.session.register.capacity.gpus == found
    worker.order("true", found + 1)
    report = await master.phase(RUN, 1, pb.PHASE_EXITED)
    assert report.never_started
    assert f"{found + 1} GPUs wanted, the worker found {found}" in report.message
    assert "nvidia-smi" in report.message
    # It is good for everything else.
    worker.order("true", 0, run="job-2/0")
    report = await master.phase("job-2/0", 1, pb.PHASE_EXITED)
    assert (report.never_started, report.exit_code) == (False, 0)


@pytest.mark.gpu
def test_gpus_are_those_that_the_driver_lists() -> None:
    command = ["nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader"]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    found = discover_gpus()
    assert sorted(found) == sorted(listed) != []
    assert all(re.fullmatch(r"GPU(-[0-9a-f]+){5}", gpu) for gpu in found)


@pytest.mark.gpu
async def test_a_task_computes_on_its_gpu_and_sees_no_other(
    workers: Workers, master: FakeMaster, cuda: str
) -> None:
    gpus = discover_gpus()
    assert gpus
    worker = await workers.start(len(gpus))
    assert master.session.register.capacity.gpus == len(gpus)
    # Each stays until all have come, so that nobody has a GPU after somebody else.
    runs = [f"job-{number}/0" for number in range(len(gpus))]
    gate = worker.home / "go"
    for run in runs:
        worker.order(f"until [ -e '{gate}' ]; do sleep 0.02; done; {cuda}", 1, run)
        await master.phase(run, 1, pb.PHASE_RUNNING)
    gate.touch()
    found = [await worker.found(run) for run in runs]
    assert all(one["uuids"] == [one["visible"]] for one in found)
    assert sorted(one["visible"] for one in found) == sorted(gpus)


@pytest.mark.gpu
async def test_a_task_that_wants_no_gpu_sees_none(workers: Workers, cuda: str) -> None:
    worker = await workers.start(len(discover_gpus()))
    worker.order(cuda, 0)
    assert await worker.found() == {"visible": "", "uuids": []}


@pytest.mark.gpu_docker
async def test_a_container_computes_on_its_gpu_and_sees_no_other(
    workers: Workers, docker_engine: str, tmp_path: Path
) -> None:
    gpus = discover_gpus()
    with Engine(docker_engine) as engine:
        image = ready_image(engine, print)
    options = ("--runtime", "docker", "--docker-host", docker_engine, "--docker-image", image)
    worker = await workers.start(len(gpus), *options)
    worker.order(f"python3 -c '{CUDA}'", 1)
    found = await worker.found()
    assert found["uuids"] == [found["visible"]]
    assert found["visible"] in gpus
