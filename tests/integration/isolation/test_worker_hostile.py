"""Tasks that attack the agent: it, its other tasks and the next attempt go on."""

from __future__ import annotations

import shlex
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from eva_wire._proto import worker_pb2 as pb
from eva_worker.tasks.socket_places import socket_path
from tests.fakes.docker import dockerd
from tests.fakes.paths import PYTHON
from tests.fakes.rpc.master import FakeMaster
from tests.integration.worker.test_worker_agent import RUN, Worker, until

NEIGHBOUR = "job-2/0"
POISON = "99999999999999999999999999"

# What a task says over EVA_SOCKET, with no more than grpc.
_SAY = """
import grpc, os, sys, time
from eva_iterator._proto.iterator_pb2 import ReportRequest
channel = grpc.insecure_channel("unix:" + os.environ["EVA_SOCKET"])
say = channel.unary_unary("/eva.iterator.v1.Iterator/Report")
def report(**fields):
    try:
        say(ReportRequest(**fields).SerializeToString(), timeout=60, wait_for_ready=True)
    except grpc.RpcError as error:
        print(error.details(), flush=True)
"""


@pytest.fixture
async def worker(master: FakeMaster, tmp_path: Path) -> AsyncIterator[Worker]:
    worker = Worker(master, tmp_path)
    await worker.start()
    worker.order("until [ -e go ]; do sleep 0.02; done", run=NEIGHBOUR)
    await master.phase(NEIGHBOUR, 1, pb.PHASE_RUNNING)
    agent = worker.agent()
    yield worker
    # Neither the agent nor the neighbour has noticed anything.
    assert worker.agent() == agent
    assert master.reports[NEIGHBOUR, 1].phase == pb.PHASE_RUNNING
    assert len(master.sessions) == 1
    (worker.path(NEIGHBOUR) / "work" / "go").touch()
    assert (await master.phase(NEIGHBOUR, 1, pb.PHASE_EXITED)).exit_code == 0
    assert await worker.stop() == 0


def program(worker: Worker, text: str) -> str:
    """A command that runs a program with what it needs to report."""
    path = worker.home / "program.py"
    path.write_text(_SAY + text)
    return f"{PYTHON} {shlex.quote(str(path))}"


async def test_a_number_that_is_too_large_is_no_generation(
    worker: Worker, master: FakeMaster
) -> None:
    """It is a directory like any other: kept under its name, and counted like any other."""
    poison = f'mkdir "$EVA_CHECKPOINT_DIR"/{POISON}'
    worker.order(f"{poison}; touch up; until [ -e go ]; do sleep 0.02; done; exit 3")
    await until((worker.path() / "work" / "up").exists)
    (worker.path() / "work" / "go").touch()
    report = await master.phase(RUN, 1, pb.PHASE_EXITED)
    assert (report.exit_code, report.generation) == (3, 1)
    worker.order('ls "$EVA_CHECKPOINT_DIR"', attempt=2)
    report = await master.phase(RUN, 2, pb.PHASE_EXITED)
    assert (report.exit_code, report.generation) == (0, 1)
    assert (worker.path(attempt=2) / "log").read_text() == f"{POISON}\n"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("for source in 'ab': report(source=source, steps=2**64 - 1)", "2^53"),
        ("report(metrics={f'{n:05d}' + 'x' * 175: 1.0 for n in range(300)})", "256 metrics"),
        ("say(bytes([255, 255, 255]))", "no ReportRequest"),
    ],
)
async def test_a_report_that_breaks_a_rule_fails_the_task_and_tells_its_user(
    worker: Worker, master: FakeMaster, text: str, why: str
) -> None:
    worker.order(program(worker, f"\n{text}\ntime.sleep(3600)"))
    report = await master.phase(RUN, 1, pb.PHASE_EXITED)
    assert report.exit_code != 0
    assert "EVA_SOCKET" in report.message
    assert why in report.message
    assert why in (worker.path() / "log").read_text()
    assert not report.progress.metrics
    assert not report.progress.steps


async def test_a_program_that_ends_well_after_a_bad_report_has_failed_too(
    worker: Worker, master: FakeMaster
) -> None:
    worker.order(program(worker, "\nreport(steps=2**64 - 1)\nsys.exit(0)"))
    report = await master.phase(RUN, 1, pb.PHASE_EXITED)
    assert report.exit_code != 0
    assert "2^53" in report.message


async def test_inputs_of_the_host_are_refused(worker: Worker, master: FakeMaster) -> None:
    for number, path in enumerate(("/etc/shadow", str(worker.home / "state" / "identity"))):
        run = f"job-3/{number}"
        worker.order('cat "$EVA_STORAGE/inputs/t"', run=run, inputs={"t": f"file://{path}"})
        report = await master.phase(run, 1, pb.PHASE_EXITED)
        assert report.never_started
        assert "input_roots" in report.message
        assert not (worker.path(run) / "storage" / "inputs" / "t").exists()


@pytest.fixture
async def container(
    master: FakeMaster, docker_engine: str, tmp_path: Path
) -> AsyncIterator[Worker]:
    """A worker whose tasks are containers."""
    worker = Worker(master, tmp_path)
    options = ("--runtime", "docker", "--docker-host", docker_engine)
    await worker.start(*options, "--docker-image", dockerd.IMAGE)
    yield worker
    # It stops its tasks, whatever has become of the test.
    assert await worker.stop() == 0


@pytest.mark.docker
async def test_a_container_gets_nothing_of_its_host(
    container: Worker, master: FakeMaster, tmp_path: Path
) -> None:
    """The agent follows none of its links, the next agent neither."""
    host = tmp_path / "host"
    (host / "outputs").mkdir(parents=True)
    for name in ("secret", "outputs/secret"):
        (host / name).write_text("the host's own")
        (host / name).chmod(0o600)
    container.order(f"""
        ln -s "{host}" "$EVA_CHECKPOINT_DIR/00000001"
        rm -r "$EVA_STORAGE/outputs"; ln -s "{host}" "$EVA_STORAGE/outputs"
        rm "$EVA_SOCKET"; ln -s "{host}/secret" "$EVA_SOCKET"
        mkdir "$EVA_CHECKPOINT_DIR"/{POISON}
        until [ -e go ]; do sleep 0.1; done
        exit 3
    """)
    log = container.path() / "log"
    await until(lambda: log.exists() and "'00000001' is not stored" in log.read_text())
    sessions = len(master.sessions)
    agent = container.agent()
    assert agent
    agent.kill()
    await master.until(lambda: len(master.sessions) > sessions)
    await until(socket_path(container.path()).is_socket)
    (container.path() / "work" / "go").touch()
    report = await master.phase(RUN, 1, pb.PHASE_EXITED)
    assert report.exit_code == 3
    # The first agent may have stored the other checkpoint before it died; the next one does so.
    assert report.generation in (1, 2)
    stored = [path for path in master.store.rglob("*") if path.is_file()]
    assert not [path for path in stored if "the host's own" in path.read_text()]
    assert (host / "secret").stat().st_mode & 0o777 == 0o600


async def test_temporary_files_go_with_their_task(worker: Worker, master: FakeMaster) -> None:
    """However deep, whatever their modes; what links lead to stays."""
    outside = worker.home / "outside"
    outside.mkdir()
    (outside / "kept").write_text("kept")
    worker.order(
        f'cd "$TMPDIR"; ln -s {shlex.quote(str(outside))} link; mkdir locked; touch locked/a;'
        " i=0; while [ $i -lt 300 ]; do mkdir d; touch a b c; cd d; i=$((i+1)); done;"
        " chmod 0 $TMPDIR/locked $TMPDIR; exit 3"
    )
    assert (await master.phase(RUN, 1, pb.PHASE_EXITED)).exit_code == 3
    assert not (worker.path() / "tmp").exists()
    trash = worker.home / "state" / "trash"
    await until(lambda: not any(trash.iterdir()))
    assert (outside / "kept").read_text() == "kept"
