"""The worker as it is run: supervisor, agent and tasks as processes, against a scripted master."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import shlex
import signal
import socket
import ssl
import sys
import tempfile
import urllib.request
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from eva_wire._proto import worker_pb2 as pb
from eva_worker.tasks.socket_places import make_socket_directory, socket_path
from tests.fakes.paths import PYTHON, short_tempdir
from tests.fakes.rpc.authority import authority
from tests.fakes.rpc.master import DEADLINE_S, FakeMaster

RUN = "job-1/0"
SAVING = """
n=$(ls "$EVA_CHECKPOINT_DIR" | sort | tail -1); n=${n:-0}; n=$((10#$n + 1))
save() {
  d=$EVA_CHECKPOINT_DIR; t=$d/.tmp-save; mkdir -p "$t/deep"
  echo "state $n" > "$t/deep/model"; mv "$t" "$d/$(printf %08d $n)"; exit 0
}
trap save TERM; echo ready; touch up; while :; do sleep 0.02; done
""".replace("10#$n", "$(echo $n | sed 's/^0*//;s/^$/0/')")


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            await asyncio.sleep(0.01)


@dataclass
class Worker:
    """A supervisor with all that is below it."""

    master: FakeMaster
    home: Path
    process: asyncio.subprocess.Process | None = field(default=None)

    async def start(self, *extra: str) -> None:
        sessions = len(self.master.sessions)
        self.process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "eva_worker"),
            *self.master.options(),
            *("--instance-id", "i-1", "--instance-type", "p3.2xlarge"),
            *("--gpus", "2", "--cpus", "4", "--memory-mib", "1024"),
            *("--state-dir", str(self.home / "state"), "--emulated", "--task-env", "COLOUR=red"),
            *extra,
            env=self.master.environment(),
        )
        await self.master.until(lambda: len(self.master.sessions) > sessions)

    @property
    def supervisor(self) -> psutil.Process:
        assert self.process
        return psutil.Process(self.process.pid)

    def agent(self) -> psutil.Process | None:
        for child in self.supervisor.children():
            try:
                if "eva_worker.agent" in child.cmdline():
                    return child
            except psutil.Error:
                continue
        return None

    def path(self, run: str = RUN, attempt: int = 1) -> Path:
        return self.home / "state" / "tasks" / run / f"{attempt:04d}"

    async def stop(self) -> int:
        assert self.process
        self.process.terminate()
        async with asyncio.timeout(DEADLINE_S):
            return await self.process.wait()

    async def end(self) -> None:
        """Kill it with all that is below it, if it was started and has not ended."""
        if self.process and self.process.returncode is None:
            below: list[psutil.Process] = []
            with contextlib.suppress(psutil.NoSuchProcess):  # It has ended in this moment.
                below = self.supervisor.children(recursive=True)
            for process in below[::-1]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()
            await self.process.wait()

    def order(self, command: str, run: str = RUN, attempt: int = 1, **more: object) -> None:
        order = pb.TaskOrder(
            run_id=run,
            attempt=attempt,
            job_id=run.partition("/")[0],
            run=command,
            grace_ms=20_000,
            demand=pb.Resources(gpus=1, milli_cpus=1000, memory_mib=64),
            **more,  # type: ignore[arg-type]
        )
        self.master.send(start=pb.StartTask(order=order))

    def halt(self, run: str = RUN, attempt: int = 1, grace_ms: int = 20_000) -> None:
        self.master.send(stop=pb.StopTask(run_id=run, attempt=attempt, grace_ms=grace_ms))


def put_blob(store: Path, data: bytes) -> str:
    digest = hashlib.sha256(data).hexdigest()
    path = store / "blobs" / digest[:2] / digest
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return digest


def put_workdir(store: Path, files: dict[str, tuple[bytes, int]]) -> str:
    entries = [
        {"path": path, "mode": mode, "sha256": put_blob(store, data), "size": len(data)}
        for path, (data, mode) in sorted(files.items())
    ]
    text = json.dumps({"files": entries}, sort_keys=True, separators=(",", ":"))
    return put_blob(store, text.encode())


@pytest.fixture
def master(master: FakeMaster, tmp_path: Path) -> FakeMaster:
    """Allows inputs of the test's own directory."""
    master.input_roots = [(tmp_path / "data").as_uri()]
    return master


@pytest.fixture
async def worker(master: FakeMaster, tmp_path: Path) -> AsyncIterator[Worker]:
    worker = Worker(master, tmp_path)
    await worker.start()
    yield worker
    await worker.end()


async def test_task_runs_to_its_exit_code(worker: Worker, master: FakeMaster) -> None:
    register = master.session.register
    assert (register.instance_id, register.instance_type) == ("i-1", "p3.2xlarge")
    assert (register.capacity.gpus, register.capacity.milli_cpus) == (2, 4000)
    worker.order(
        "env > env; until [ -e go ]; do sleep 0.02; done; exit 7",
        env={"LR": "0.1"},
        index=3,
        tasks=10_000,
    )
    await master.phase(RUN, 1, pb.PHASE_RUNNING)
    work = worker.path() / "work"
    await until((work / "env").exists)
    (work / "go").touch()
    report = await master.phase(RUN, 1, pb.PHASE_EXITED)
    assert (report.exit_code, report.stopped, report.never_started) == (7, False, False)
    env = dict(line.split("=", 1) for line in (work / "env").read_text().splitlines())
    assert env["EVA_JOB_ID"] == "job-1"
    assert env["EVA_TASK_ID"] == RUN
    assert env["EVA_ATTEMPT"] == "1"
    assert (env["EVA_TASK_INDEX"], env["EVA_TASK_COUNT"]) == ("3", "10000")
    assert env["EVA_GRACE_SECONDS"] == "20"
    assert env["EVA_CPU_COUNT"] == "1"
    assert env["LR"] == "0.1"
    assert env["COLOUR"] == "red"
    assert env["CUDA_VISIBLE_DEVICES"].startswith("GPU-")
    assert "EVA_WORKER_SETTINGS" not in env
    master.send(forget=pb.ForgetTask(run_id=RUN, attempt=1))
    await until(lambda: not worker.path().exists())


async def test_stop_lets_the_task_checkpoint(worker: Worker, master: FakeMaster) -> None:
    worker.order(SAVING)
    await until((worker.path() / "work" / "up").exists)
    worker.halt()
    report = await master.phase(RUN, 1, pb.PHASE_EXITED)
    assert (report.stopped, report.generation) == (True, 1)
    stored = master.store / "jobs" / RUN / "checkpoints" / "00000001"
    manifest = json.loads((stored / "manifest.json").read_text())
    assert [entry["path"] for entry in manifest["files"]] == ["deep/model"]
    # The next attempt begins from there, and the one after it from where it is told to.
    worker.order(SAVING, attempt=2)
    await until((worker.path(attempt=2) / "work" / "up").exists)
    restored = worker.path(attempt=2) / "checkpoints" / "00000001" / "deep" / "model"
    assert restored.read_text() == "state 1\n"
    worker.halt(attempt=2)
    assert (await master.phase(RUN, 2, pb.PHASE_EXITED)).generation == 2
    worker.order('ls "$EVA_CHECKPOINT_DIR" > had', attempt=3, resume=1)
    await master.phase(RUN, 3, pb.PHASE_EXITED)
    assert (worker.path(attempt=3) / "work" / "had").read_text() == "00000001\n"
    # A job that does it again begins from the newest one, as long as it has none of its own.
    again, never = "again-2/0", "never-1/0"
    worker.order('ls "$EVA_CHECKPOINT_DIR" > had', run=again, origins=[never, RUN])
    await master.phase(again, 1, pb.PHASE_EXITED)
    assert (worker.path(again) / "work" / "had").read_text() == "00000002\n"
    assert not (master.store / "jobs" / again / "checkpoints").exists(), "nothing is copied"


async def test_stop_kills_after_the_grace(worker: Worker, master: FakeMaster) -> None:
    worker.order("trap '' TERM; touch up; while :; do sleep 0.02; done")
    await until((worker.path() / "work" / "up").exists)
    worker.halt(grace_ms=100)
    report = await master.phase(RUN, 1, pb.PHASE_EXITED)
    assert (report.exit_code, report.stopped) == (-signal.SIGKILL, True)


async def test_start_is_carried_out_once(worker: Worker, master: FakeMaster) -> None:
    count = worker.home / "count"
    for _ in range(2):
        worker.order(f"echo x >> {shlex.quote(str(count))}")
    await master.phase(RUN, 1, pb.PHASE_EXITED)
    master.send(forget=pb.ForgetTask(run_id=RUN, attempt=1))
    await until(lambda: not worker.path().exists())
    master.reports.clear()
    worker.order(f"echo x >> {shlex.quote(str(count))}")
    assert (await master.phase(RUN, 1, pb.PHASE_EXITED)).never_started
    assert count.read_text() == "x\n"


async def test_stop_may_overtake_its_start(worker: Worker, master: FakeMaster) -> None:
    ran = worker.home / "ran"
    worker.halt(attempt=4)
    report = await master.phase(RUN, 4, pb.PHASE_EXITED)
    assert (report.never_started, report.stopped) == (True, True)
    for attempt in (4, 3):
        master.reports.clear()
        worker.order(f"touch {shlex.quote(str(ran))}", attempt=attempt)
        assert (await master.phase(RUN, attempt, pb.PHASE_EXITED)).never_started
    worker.order(f"touch {shlex.quote(str(ran))}", attempt=5)
    assert not (await master.phase(RUN, 5, pb.PHASE_EXITED)).never_started
    assert ran.exists()


async def test_agent_dies_and_task_goes_on(worker: Worker, master: FakeMaster) -> None:
    worker.order("sleep 3600", run="job-1/1")
    await master.phase("job-1/1", 1, pb.PHASE_RUNNING)
    worker.order("echo $$ > pid; until [ -e go ]; do sleep 0.02; done; echo $$ > end; exit 9")
    await master.phase(RUN, 1, pb.PHASE_RUNNING)
    agent = worker.agent()
    assert agent
    agent.kill()
    await master.until(lambda: len(master.sessions) > 1)
    known = {task.run_id: task.phase for task in master.session.register.tasks}
    assert known == {RUN: pb.PHASE_RUNNING, "job-1/1": pb.PHASE_RUNNING}
    work = worker.path() / "work"
    await until((work / "pid").exists)
    task = psutil.Process(int((work / "pid").read_text()))
    assert worker.supervisor in task.parents()
    (work / "go").touch()
    report = await master.phase(RUN, 1, pb.PHASE_EXITED)
    assert (report.exit_code, report.stopped) == (9, False)
    assert (work / "pid").read_text() == (work / "end").read_text()
    # What was assigned before is still held: one of two GPUs is free again.
    worker.order("env > env", run="job-2/0")
    await master.phase("job-2/0", 1, pb.PHASE_EXITED)
    held = json.loads((worker.path("job-1/1") / "record.json").read_text())["devices"]["gpus"]
    assert f"CUDA_VISIBLE_DEVICES={held[0]}" not in (
        worker.path("job-2/0") / "work" / "env"
    ).read_text().split("\n")


async def test_exit_while_the_agent_is_dead_is_reported(worker: Worker, master: FakeMaster) -> None:
    worker.order("until [ -e go ]; do sleep 0.02; done; exit 5")
    await master.phase(RUN, 1, pb.PHASE_RUNNING)
    agent = worker.agent()
    assert agent
    agent.suspend()
    (worker.path() / "work" / "go").touch()
    record = worker.home / "state" / "runtime" / RUN / "0001" / "exit.json"
    await until(record.exists)
    agent.kill()
    await master.until(lambda: len(master.sessions) > 1)
    assert (await master.phase(RUN, 1, pb.PHASE_EXITED)).exit_code == 5


async def test_master_vanishes_and_returns(worker: Worker, master: FakeMaster) -> None:
    worker.order("echo $$ > pid; until [ -e go ]; do sleep 0.02; done; echo $$ > end; exit 3")
    worker.order("until [ -e go ]; do sleep 0.02; done", run="job-2/0")
    await master.phase(RUN, 1, pb.PHASE_RUNNING)
    await master.phase("job-2/0", 1, pb.PHASE_RUNNING)
    await master.vanish()
    (worker.path("job-2/0") / "work" / "go").touch()
    record = worker.path("job-2/0") / "record.json"
    await until(lambda: json.loads(record.read_text())["stage"] == "exited")
    master.reports.clear()
    await master.start()
    await master.until(lambda: len(master.sessions) > 1)
    known = {task.run_id: task.phase for task in master.session.register.tasks}
    assert known == {RUN: pb.PHASE_RUNNING, "job-2/0": pb.PHASE_EXITED}
    work = worker.path() / "work"
    (work / "go").touch()
    assert (await master.phase(RUN, 1, pb.PHASE_EXITED)).exit_code == 3
    assert (work / "pid").read_text() == (work / "end").read_text()


async def test_log_is_followed_and_stored(worker: Worker, master: FakeMaster) -> None:
    worker.order("echo one; until [ -e go ]; do sleep 0.02; done; echo two >&2")
    await master.phase(RUN, 1, pb.PHASE_RUNNING)
    master.send(follow=pb.FollowLog(stream_id="s", run_id=RUN))
    await master.until(lambda: master.logs["s"] == b"one\n")
    chunks = master.store / "jobs" / RUN / "logs" / "0001"
    await until((chunks / f"{0:016d}").exists)
    (worker.path() / "work" / "go").touch()
    await master.until(lambda: "s" in master.log_ends)
    assert master.logs["s"] == b"one\ntwo\n"
    await master.phase(RUN, 1, pb.PHASE_EXITED)
    assert b"".join(p.read_bytes() for p in sorted(chunks.iterdir())) == b"one\ntwo\n"
    master.send(follow=pb.FollowLog(stream_id="none", run_id="job-9/0", once=True))
    await master.until(lambda: "none" in master.log_ends)


async def test_a_list_opens_the_files_of_its_own_user_alone(
    worker: Worker, master: FakeMaster
) -> None:
    """Neither in the store nor in the cache of an instance that another user's job has filled."""
    content = b"ada's weights"
    digest = hashlib.sha256(content).hexdigest()
    entry = {"path": "w", "mode": 0o644, "sha256": digest, "size": len(content)}
    manifest = json.dumps({"files": [entry]}).encode()
    listed = hashlib.sha256(manifest).hexdigest()
    for owner, blobs in (("ada", (content, manifest)), ("ben", (manifest,))):
        for data in blobs:
            name = hashlib.sha256(data).hexdigest()
            path = master.store / "uploads" / owner / name[:2] / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    worker.order('cat w > "$EVA_STORAGE/outputs/w"', workdir=f"ada/{listed}")
    assert (await master.phase(RUN, 1, pb.PHASE_EXITED)).exit_code == 0
    order = pb.TaskOrder(run_id=RUN, attempt=2, workdir=f"ben/{listed}")
    master.send(fetch=pb.FetchFiles(order=order))
    await master.until(lambda: master.fetched)
    assert digest in master.fetched[0].error


async def test_files_come_and_outputs_go(worker: Worker, master: FakeMaster) -> None:
    source = worker.home / "data"
    source.mkdir()
    (source / "x").write_text("input")
    files = {"run.sh": (b'#!/bin/sh\ncat lib/part "$EVA_STORAGE/inputs/d/x"', 0o755)}
    files["lib/part"] = (b"part ", 0o644)
    workdir = put_workdir(master.store, files)
    run = 'mkdir "$EVA_STORAGE/outputs/a"; ./run.sh > "$EVA_STORAGE/outputs/a/b #1"'
    order = {"workdir": workdir, "inputs": {"d": source.as_uri()}}
    master.send(fetch=pb.FetchFiles(order=pb.TaskOrder(run_id=RUN, attempt=1, workdir=workdir)))
    await master.until(lambda: master.fetched)
    assert master.fetched[0].error == ""
    worker.order(run, **order)
    assert (await master.phase(RUN, 1, pb.PHASE_EXITED)).exit_code == 0
    stored = list((master.store / "jobs" / RUN / "outputs" / "a").iterdir())
    assert [path.read_text() for path in stored] == ["part input"]


async def test_start_that_cannot_be_says_why(worker: Worker, master: FakeMaster) -> None:
    worker.order("true", workdir="0" * 64)
    report = await master.phase(RUN, 1, pb.PHASE_EXITED)
    assert report.never_started
    assert "no such object" in report.message
    worker.order("true", run="job-2/0", inputs={"d": "gopher://bucket/x"})
    report = await master.phase("job-2/0", 1, pb.PHASE_EXITED)
    assert "gopher://bucket/x" in report.message
    master.send(fetch=pb.FetchFiles(order=pb.TaskOrder(run_id=RUN, attempt=2, workdir="1" * 64)))
    await master.until(lambda: master.fetched)
    assert "no such object" in master.fetched[0].error


async def test_sigterm_drains_and_says_goodbye(worker: Worker, master: FakeMaster) -> None:
    worker.order(SAVING)
    await until((worker.path() / "work" / "up").exists)
    assert await worker.stop() == 0
    report = master.reports[RUN, 1]
    assert (report.phase, report.stopped, report.generation) == (pb.PHASE_EXITED, True, 1)
    assert master.goodbyes == ["terminated"]


async def test_sigterm_stops_tasks_and_takes_no_more(worker: Worker, master: FakeMaster) -> None:
    slow = "trap 'touch asked; until [ -e go ]; do sleep 0.02; done; exit 0' TERM;"
    worker.order(f"{slow} touch up; while :; do sleep 0.02; done")
    work = worker.path() / "work"
    await until((work / "up").exists)
    assert worker.process
    worker.process.terminate()
    await until((work / "asked").exists)
    worker.order("true", run="job-2/0")
    refused = await master.phase("job-2/0", 1, pb.PHASE_EXITED)
    assert refused.never_started
    (work / "go").touch()
    async with asyncio.timeout(DEADLINE_S):
        assert await worker.process.wait() == 0
    assert master.goodbyes == ["terminated"]
    assert master.reports[RUN, 1].stopped


async def test_progress_is_sampled(worker: Worker, master: FakeMaster) -> None:
    workdir = put_workdir(master.store, {"report.py": (REPORT.encode(), 0o644)})
    run = f"{PYTHON} report.py first; {PYTHON} report.py second; sleep 3600"
    worker.order(run, workdir=workdir, env={"PYTHONPATH": str(Path.cwd())})
    await master.until(lambda: getattr(master.samples.get((RUN, 1)), "steps", 0) == 14)
    sample = master.samples[RUN, 1]
    assert (sample.total_steps, dict(sample.metrics)) == (100, {"loss": 0.5})
    counters = worker.path() / "progress.json"
    await until(lambda: counters.exists() and "second" in counters.read_text())
    agent = worker.agent()
    assert agent
    agent.kill()
    await master.until(lambda: len(master.sessions) > 1)
    assert [task.progress.steps for task in master.session.register.tasks] == [14]
    await master.until(lambda: len(master.session.heard) > 4)
    assert not any(message.heartbeat.samples for message in master.session.heard)


async def test_sockets_of_agents_whose_files_are_gone_are_removed(
    master: FakeMaster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory(dir=short_tempdir()) as short:
        monkeypatch.setenv("XDG_RUNTIME_DIR", short)
        gone = tmp_path / ("x" * 100)
        gone.mkdir()
        left = socket_path(gone)
        make_socket_directory(left, gone)
        gone.rmdir()
        worker = Worker(master, tmp_path)
        await worker.start()
        assert not left.parent.exists()
        assert await worker.stop() == 0


async def test_metrics_are_served_on_loopback(master: FakeMaster, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    worker = Worker(master, tmp_path)
    try:
        await worker.start("--metrics-port", str(port))
        worker.order("sleep 60")
        await master.phase(RUN, 1, pb.PHASE_RUNNING)
        text = await asyncio.to_thread(_get, f"https://127.0.0.1:{port}/metrics")
        assert "eva_worker_session_up 1.0" in text
        assert 'eva_worker_tasks{phase="running"} 1.0' in text
        agent = worker.agent()
        assert agent is not None
        listening = [c.laddr for c in agent.net_connections("tcp") if c.status == "LISTEN"]
        assert (("127.0.0.1", port),) == tuple((at.ip, at.port) for at in listening)
        worker.halt(grace_ms=0)
        await master.phase(RUN, 1, pb.PHASE_EXITED)
    finally:
        await worker.stop()


def _get(url: str) -> str:
    trust = ssl.create_default_context(cafile=authority().ca_file)
    with urllib.request.urlopen(url, timeout=DEADLINE_S, context=trust) as answer:
        return str(answer.read().decode())


async def test_new_supervisor_takes_over_from_a_killed_one(
    worker: Worker, master: FakeMaster
) -> None:
    worker.order("until [ -e go ]; do sleep 0.02; done; exit 6")
    await master.phase(RUN, 1, pb.PHASE_RUNNING)
    agent = worker.agent()
    assert agent
    worker.supervisor.kill()
    await until(lambda: not agent.is_running() or agent.status() == psutil.STATUS_ZOMBIE)
    await worker.start()
    (worker.path() / "work" / "go").touch()
    assert (await master.phase(RUN, 1, pb.PHASE_EXITED)).exit_code == 6


async def test_exit_waits_for_the_store(worker: Worker, master: FakeMaster) -> None:
    worker.order('until [ -e go ]; do sleep 0.02; done; echo out > "$EVA_STORAGE/outputs/out"')
    await master.phase(RUN, 1, pb.PHASE_RUNNING)
    # A file where the store's directory was: every write fails.
    away = master.store.with_name("away")
    master.store.rename(away)
    master.store.touch()
    (worker.path() / "work" / "go").touch()
    record = worker.path() / "record.json"
    await until(lambda: json.loads(record.read_text())["stage"] == "closing")
    heard = len(master.session.heard)
    await master.until(lambda: len(master.session.heard) > heard + 3)
    assert master.reports[RUN, 1].phase == pb.PHASE_RUNNING
    # By then the program was over, so this stop does not turn its success into a stop.
    worker.halt()
    master.store.unlink()
    away.rename(master.store)
    report = await master.phase(RUN, 1, pb.PHASE_EXITED)
    assert (report.exit_code, report.stopped) == (0, False)
    assert (master.store / "jobs" / RUN / "outputs" / "out").read_text() == "out\n"


async def test_sigterm_while_the_agent_is_dead_still_drains(
    worker: Worker, master: FakeMaster
) -> None:
    worker.order("trap 'exit 4' TERM; touch up; while :; do sleep 0.02; done")
    await until((worker.path() / "work" / "up").exists)
    agent = worker.agent()
    assert agent
    # Both signals are there before the supervisor looks.
    worker.supervisor.suspend()
    agent.kill()
    worker.supervisor.terminate()
    worker.supervisor.resume()
    assert worker.process
    async with asyncio.timeout(DEADLINE_S):
        await worker.process.wait()
    report = master.reports[RUN, 1]
    assert (report.phase, report.exit_code, report.stopped) == (pb.PHASE_EXITED, 4, True)


async def test_second_sigterm_leaves_at_once(worker: Worker, master: FakeMaster) -> None:
    worker.order("echo $$ > pid; trap 'touch asked' TERM; while :; do sleep 0.02; done")
    work = worker.path() / "work"
    await until((work / "pid").exists)
    worker.supervisor.terminate()
    await until((work / "asked").exists)
    task = psutil.Process(int((work / "pid").read_text()))
    assert await worker.stop() == 1
    assert not task.is_running()


async def test_program_with_the_sdk(worker: Worker, master: FakeMaster) -> None:
    workdir = put_workdir(master.store, {"train.py": (TRAIN.encode(), 0o644)})
    worker.order(f"exec {PYTHON} train.py", workdir=workdir)
    await master.until(lambda: getattr(master.samples.get((RUN, 1)), "steps", 0) > 0)
    assert master.samples[RUN, 1].total_steps == 1_000_000
    worker.halt()
    report = await master.phase(RUN, 1, pb.PHASE_EXITED)
    assert (report.stopped, report.generation) == (True, 1)
    saved = master.store / "jobs" / RUN / "checkpoints" / "00000001" / "files" / "step"
    # What was counted is what was saved: no step is lost or done twice.
    assert int(saved.read_text()) == report.progress.steps


async def test_program_without_the_sdk(worker: Worker, master: FakeMaster) -> None:
    """It goes on from its files as a stop left them, and after a kill from a quiet copy of them."""
    seen = master.store / "jobs" / RUN / "outputs" / "seen"
    last = '"$EVA_CHECKPOINT_DIR/last.ckpt"'
    note = f'cat {last} > "$EVA_STORAGE/outputs/seen"; echo 2 > {last}'
    worker.order(f"trap 'echo 1 > {last}; exit 3' TERM; touch ready; sleep 1000 & wait")
    async with asyncio.timeout(DEADLINE_S):
        while not (worker.path() / "work" / "ready").exists():
            await asyncio.sleep(0.01)
    worker.halt()
    report = await master.phase(RUN, 1, pb.PHASE_EXITED)
    assert (report.stopped, report.generation) == (True, 1)

    half = f"until [ -e go ]; do sleep 0.02; done; printf half > {last}; kill -9 $$"
    worker.order(f"{note}; {half}", attempt=2)
    await master.until(lambda: getattr(master.reports.get((RUN, 2)), "generation", 0) == 2)
    (worker.path(attempt=2) / "work" / "go").touch()
    assert (await master.phase(RUN, 2, pb.PHASE_EXITED)).generation == 2
    assert seen.read_text() == "1\n"
    worker.order(note, attempt=3)
    await master.phase(RUN, 3, pb.PHASE_EXITED)
    assert seen.read_text() == "2\n"


TRAIN = """
import time
from eva_iterator import EvaIterator
step = 0
def save(directory):
    (directory / "step").write_text(str(step))
def data():
    while True:
        yield None
for _ in EvaIterator(data(), total=1_000_000, checkpoint=save):
    step += 1
    time.sleep(0.005)
"""
REPORT = """
import os, sys, grpc
from eva_wire._proto import iterator_pb2 as pb, iterator_pb2_grpc
with grpc.insecure_channel("unix:" + os.environ["EVA_SOCKET"]) as channel:
    stub = iterator_pb2_grpc.IteratorStub(channel)
    for steps in (3, 7, 7):
        stub.Report(pb.ReportRequest(source=sys.argv[1], steps=steps, total_steps=100,
                                     metrics={"loss": 0.5}))
"""
