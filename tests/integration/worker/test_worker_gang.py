"""The members of a gang on two real workers find each other and go on from one checkpoint."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from eva_wire._proto import worker_pb2 as pb
from tests.fakes.paths import PYTHON
from tests.fakes.rpc.master import DEADLINE_S, FakeMaster

MEMBERS = ("gang-1/0", "gang-1/1")
# Rank 0 listens, the other dials, and each tells its rank. Rank 0 publishes one generation more
# than it has. Then each writes down what it was told, and waits to be stopped.
TALKING = """
import os, pathlib, signal, socket, sys, time
rank, size = int(os.environ["NODE_RANK"]), int(os.environ["NNODES"])
place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if rank == 0:
    server = socket.create_server(place)
    peer, _ = server.accept()
else:
    end = time.monotonic() + 200
    while True:
        try:
            peer = socket.create_connection(place)
            break
        except ConnectionRefusedError:
            assert time.monotonic() < end
            time.sleep(0.02)
peer.sendall(bytes([rank, size]))
told = peer.recv(2, socket.MSG_WAITALL)
home = pathlib.Path(os.environ["EVA_CHECKPOINT_DIR"])
had = sorted(path.name for path in home.iterdir())
new = max(map(int, had), default=0) + 1
draft = home / f".tmp-{os.getpid()}-{0:032x}"
draft.mkdir()
(draft / "rank").write_text(f"{rank} {new}")
if rank == 0:
    draft.rename(home / f"{new:08d}")
pathlib.Path("met").write_text(f"{told[0]} {told[1]} {had}")
signal.pause()
"""


@dataclass
class Worker:
    """A supervisor with all that is below it, on an instance of its own."""

    master: FakeMaster
    instance: str
    home: Path
    process: asyncio.subprocess.Process

    def send(self, **body: object) -> None:
        session = next(
            session
            for session in reversed(self.master.sessions)
            if session.register.instance_id == self.instance
        )
        message = pb.MasterMessage(command_id=f"c{id(body)}", **body)  # type: ignore[arg-type]
        session.outgoing.put_nowait(message)

    def order(self, rank: int, attempt: int, port: int, **more: object) -> None:
        """Start the member of a rank; rank 0 is on the first worker."""
        first = self.master.sessions[0].register
        gang = pb.Gang(rank=rank, size=2, address=first.address, port=port)
        order = pb.TaskOrder(
            run_id=MEMBERS[rank],
            attempt=attempt,
            job_id="gang-1",
            index=rank,
            run=f"exec {PYTHON} -c '{TALKING}'",
            env={"MASTER_ADDR": "not the user's to say"},
            grace_ms=20_000,
            demand=pb.Resources(milli_cpus=1000, memory_mib=64),
            gang=gang,
            **more,  # type: ignore[arg-type]
        )
        self.send(start=pb.StartTask(order=order))

    def path(self, rank: int, attempt: int) -> Path:
        return self.home / "tasks" / MEMBERS[rank] / f"{attempt:04d}"

    async def met(self, rank: int, attempt: int) -> str:
        note = self.path(rank, attempt) / "work" / "met"
        async with asyncio.timeout(DEADLINE_S):
            while not (note.exists() and (text := note.read_text())):
                await asyncio.sleep(0.01)
            return text


async def launch(master: FakeMaster, instance: str, home: Path) -> Worker:
    sessions = len(master.sessions)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "eva_worker"),
        *master.options(),
        *("--instance-id", instance, "--instance-type", "c7i.large"),
        *("--cpus", "2", "--memory-mib", "1024", "--emulated", "--state-dir", str(home)),
        env=master.environment(),
    )
    await master.until(lambda: len(master.sessions) > sessions)
    return Worker(master, instance, home, process)


@pytest.fixture
async def workers(tmp_path: Path) -> AsyncIterator[list[Worker]]:
    (tmp_path / "objects").mkdir()
    master = FakeMaster(tmp_path / "objects")
    await master.start()
    workers: list[Worker] = []
    try:
        for name in ("i-1", "i-2"):
            workers.append(await launch(master, name, tmp_path / name))
        yield workers
    finally:
        for worker in workers:
            supervisor = psutil.Process(worker.process.pid)
            for process in [*supervisor.children(recursive=True), supervisor]:
                if process.is_running():
                    process.kill()
            await worker.process.wait()
        await master.vanish()


async def stop(workers: list[Worker], attempt: int) -> list[int]:
    """Stop both members; returns the newest generation stored of each."""
    for member, worker in zip(MEMBERS, workers, strict=True):
        worker.send(stop=pb.StopTask(run_id=member, attempt=attempt, grace_ms=20_000))
    master = workers[0].master
    reports = [await master.phase(member, attempt, pb.PHASE_EXITED) for member in MEMBERS]
    assert all(report.stopped for report in reports)
    return [report.generation for report in reports]


async def test_members_meet_and_go_on_from_the_first_ones_checkpoint(
    workers: list[Worker], unused_tcp_port_factory: object
) -> None:
    master = workers[0].master
    assert [session.register.address for session in master.sessions] == ["127.0.0.1"] * 2
    ports = [unused_tcp_port_factory() for _ in range(2)]  # type: ignore[operator]
    for rank, worker in enumerate(workers):
        worker.order(rank, 1, ports[0], resume=0)
    assert await workers[0].met(0, 1) == "1 2 []"
    assert await workers[1].met(1, 1) == "0 2 []"
    assert await stop(workers, 1) == [1, 0]

    # A newer one of an attempt that the master has given up does not count.
    stored = master.store / "jobs" / MEMBERS[0] / "checkpoints"
    (stored / "00000002").mkdir()
    (stored / "00000002" / "manifest.json").write_text('{"files": [], "steps": 0}')
    workers[0].order(0, 2, ports[1], resume=1)
    workers[1].order(1, 2, ports[1], resume=1, checkpoint_of=MEMBERS[0])
    assert await workers[0].met(0, 2) == "1 2 ['00000001']"
    assert await workers[1].met(1, 2) == "0 2 ['00000001']"
    restored = workers[1].path(1, 2) / "checkpoints" / "00000001" / "rank"
    assert restored.read_text() == "0 1"
    assert await stop(workers, 2) == [2, 1]
    assert (stored / "00000002" / "files" / "rank").read_text() == "0 2"
