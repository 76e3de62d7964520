"""Secrets on an instance: with the agent's restarts, repeated orders and neighbours."""

from __future__ import annotations

import hashlib
import resource
import shlex
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from eva_wire._proto import worker_pb2 as pb
from eva_worker.runtime.process import confinement
from tests.fakes.rpc.master import FakeMaster
from tests.fakes.secrets.traces import traces
from tests.integration.worker.test_worker_agent import RUN, Worker, until

VALUE = "s3cr't of ana: 1f0c7b9d2e64"
OTHER = "another value: 77aa0d81c3f2"
NEIGHBOUR = "job-2/0"
LANDLOCK = 2
"""Version from which on the kernel keeps tasks from looking into each other's processes."""


@pytest.fixture
async def worker(master: FakeMaster, tmp_path: Path) -> AsyncIterator[Worker]:
    worker = Worker(master, tmp_path)
    await worker.start()
    yield worker
    await worker.end()


def start(worker: Worker, command: str, secrets: dict[str, str], **more: object) -> None:
    """Order a task that needs the secret TOKEN, with some secrets."""
    order = pb.TaskOrder(
        **{"run_id": RUN, "attempt": 1, **more},  # type: ignore[arg-type]
        job_id="job-1",
        run=command,
        grace_ms=20_000,
        demand=pb.Resources(milli_cpus=1000, memory_mib=64),
        secrets=["TOKEN"],
    )
    worker.master.send(start=pb.StartTask(order=order, secrets=secrets))


def check(value: str) -> str:
    """A command that fails unless the secret has a value."""
    digest = hashlib.sha256(value.encode()).hexdigest()
    return f'[ "$(printf %s "$TOKEN" | sha256sum | cut -c1-64)" = {digest} ] || exit 9'


async def killed(worker: Worker) -> None:
    """Have another agent take over from one that is killed."""
    sessions, agent = len(worker.master.sessions), worker.agent()
    assert agent
    agent.kill()
    await worker.master.until(lambda: len(worker.master.sessions) > sessions)


async def test_a_secret_is_used_and_on_no_disk(worker: Worker, master: FakeMaster) -> None:
    start(
        worker,
        f"{check(VALUE)}; touch used; until [ -e go ]; do sleep 0.02; done",
        {"TOKEN": VALUE},
    )
    await until((worker.path() / "work" / "used").exists)
    assert traces(VALUE, worker.home) == []
    # An agent that does not know the value takes the task over.
    await killed(worker)
    assert [task.phase for task in master.session.register.tasks] == [pb.PHASE_RUNNING]
    (worker.path() / "work" / "go").touch()
    assert (await master.phase(RUN, 1, pb.PHASE_EXITED)).exit_code == 0
    assert traces(VALUE, worker.home) == []


async def test_an_agent_without_the_values_waits_until_it_is_told_them_again(
    worker: Worker, master: FakeMaster
) -> None:
    start(worker, f"{check(VALUE)}; echo x >>count", {})
    await master.phase(RUN, 1, pb.PHASE_STARTING)
    await killed(worker)
    start(worker, "true", {"UNASKED": OTHER})
    assert [task.phase for task in master.session.register.tasks] == [pb.PHASE_STARTING]
    # The order that is on record counts.
    for _ in range(2):
        start(worker, "true", {"TOKEN": VALUE})
    assert (await master.phase(RUN, 1, pb.PHASE_EXITED)).exit_code == 0
    assert (worker.path() / "work" / "count").read_text() == "x\n"
    assert traces(VALUE, worker.home) == traces(OTHER, worker.home) == []


async def test_a_task_that_waits_for_its_secret_can_be_stopped(
    worker: Worker, master: FakeMaster
) -> None:
    start(worker, "true", {})
    await master.phase(RUN, 1, pb.PHASE_STARTING)
    worker.halt()
    report = await master.phase(RUN, 1, pb.PHASE_EXITED)
    assert (report.never_started, report.stopped) == (True, True)
    start(worker, "true", {"TOKEN": VALUE})
    worker.order("true", run=NEIGHBOUR)
    await master.phase(NEIGHBOUR, 1, pb.PHASE_EXITED)
    assert not (worker.path() / "work" / "count").exists()


async def test_a_repeated_order_with_another_value_changes_nothing(
    worker: Worker, master: FakeMaster
) -> None:
    start(
        worker, f"touch up; until [ -e go ]; do sleep 0.02; done; {check(VALUE)}", {"TOKEN": VALUE}
    )
    await until((worker.path() / "work" / "up").exists)
    start(worker, "touch ../replayed", {"TOKEN": OTHER})
    (worker.path() / "work" / "go").touch()
    assert (await master.phase(RUN, 1, pb.PHASE_EXITED)).exit_code == 0
    start(worker, "touch ../replayed", {"TOKEN": OTHER})
    worker.order("true", run=NEIGHBOUR)
    await master.phase(NEIGHBOUR, 1, pb.PHASE_EXITED)
    assert not (worker.path() / "replayed").exists()


async def test_the_next_attempt_has_the_next_value(worker: Worker, master: FakeMaster) -> None:
    for attempt, value in ((1, VALUE), (2, OTHER)):
        start(worker, check(value), {"TOKEN": value, "OTHERS": "x"}, attempt=attempt)
        assert (await master.phase(RUN, attempt, pb.PHASE_EXITED)).exit_code == 0


async def test_a_task_gets_no_secret_that_its_order_does_not_name(
    worker: Worker, master: FakeMaster
) -> None:
    start(worker, '[ -z "${OTHERS+set}" ]', {"TOKEN": VALUE, "OTHERS": OTHER})
    assert (await master.phase(RUN, 1, pb.PHASE_EXITED)).exit_code == 0


async def test_a_neighbour_reads_no_secret(worker: Worker, master: FakeMaster) -> None:
    if confinement._landlock_version() < LANDLOCK:
        pytest.skip("this kernel has no Landlock")
    start(worker, "echo $$ >pid; until [ -e go ]; do sleep 0.02; done", {"TOKEN": VALUE})
    place = worker.path() / "work" / "pid"
    await until(lambda: place.exists() and place.read_text().strip())
    task, agent = psutil.Process(int(place.read_text())), worker.agent()
    assert agent
    assert task.environ()["TOKEN"] == VALUE
    shim = task.parent()
    assert shim
    assert "TOKEN" not in shim.environ()
    tries = [
        f"cat /proc/{pid}/{what}"
        for pid in (task.pid, shim.pid, agent.pid, worker.supervisor.pid)
        for what in ("environ", "mem", "fd/3", "maps", "root/etc/hostname")
    ]
    program = "\n".join(f"{attempt} && echo read: {shlex.quote(attempt)}" for attempt in tries)
    worker.order(f"{program}\nls -d /dev/shm/eva-secrets-* /run/eva-secrets-*\ntrue", run=NEIGHBOUR)
    assert (await master.phase(NEIGHBOUR, 1, pb.PHASE_EXITED)).exit_code == 0
    log = (worker.path(NEIGHBOUR) / "log").read_bytes()
    assert b"read:" not in log
    assert VALUE.encode() not in log
    place.with_name("go").touch()
    await master.phase(RUN, 1, pb.PHASE_EXITED)


async def test_a_crash_of_the_agent_leaves_no_dump(worker: Worker) -> None:
    agent = worker.agent()
    assert agent
    soft, _ = resource.prlimit(agent.pid, resource.RLIMIT_CORE)
    # Handlers of dumps are called with a limit of 0, but not with one of 1.
    assert soft == 1
