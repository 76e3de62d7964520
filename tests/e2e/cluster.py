"""A whole cluster for a test: a master as a real process, and everything that it starts."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeVar

import grpc
import psutil
import yaml
from grpc_health.v1 import health_pb2, health_pb2_grpc

from eva_client.rpc.master import Client
from eva_master.adapters.local.records import HostRecord, HostRecords
from eva_master.adapters.store import SqlJournal
from eva_wire._proto import api_pb2 as pb
from eva_wire.rpc.channels import open_channel
from tests.fakes.paths import PYTHON
from tests.fakes.patience import DEADLINE_S
from tests.fakes.processes.preloaded import Fork, same_python
from tests.fakes.rpc.ports import free_port

PROGRAMS = Path(__file__).with_name("programs")
EVA = (sys.executable, "-m", "eva_client.cli")
Started = Fork | subprocess.Popen[bytes]
_POLL_S = 0.05
"""At first; what takes long is looked at less often, since every look takes time from it."""
_SLOWER = 1.1
_LONGEST_POLL_S = 0.4
_LOG_BYTES = 20_000
_READ_BYTES = 2_000_000
_ENGINE_CHATTER = re.compile(rb"^(time=\S+ )?level=(debug|info|warning) ")
"""How lines of container engines begin that do not tell why a test failed."""
_ENDED = ("succeeded", "failed", "cancelled")

SETTINGS: dict[str, Any] = {
    "round_min_interval": "300ms",
    "throughput_window": "2s",
    "heartbeat": "300ms",
    "upload_interval": "500ms",
    "resend_interval": "5s",
    "local": {"launch_delay": "100ms"},
}
"""So that little time is spent waiting."""

T = TypeVar("T")


def until(condition: Callable[[], T], what: str, *, within_s: float = DEADLINE_S) -> T:
    """Wait for a condition.

    Args:
        condition: Asked again and again until its answer is true.
        what: Is waited for; for the message.
        within_s: How long.

    Returns:
        The first answer that is true.

    Raises:
        AssertionError: There was none in time.
    """
    deadline = time.monotonic() + within_s
    pause_s = _POLL_S
    while not (answer := condition()):
        assert time.monotonic() < deadline, f"{what}: not within {within_s:g} s, but {answer!r}"
        time.sleep(pause_s)
        pause_s = min(pause_s * _SLOWER, _LONGEST_POLL_S)
    return answer


@dataclass(frozen=True)
class Line:
    """What `programs/counter.py` did.

    Attributes:
        event: ``start``, ``overlap``, ``step``, ``checkpoint`` or ``end``.
        at_ms: Milliseconds since the epoch.
        step: Steps done so far, those of earlier attempts included.
        loss: After a step, where the program trains something.
    """

    event: str
    attempt: int
    pid: int
    at_ms: int
    step: int
    loss: float = 0.0


class Cluster:
    """A cluster on this machine; its state outlives its processes.

    Args:
        home: A directory of its own. Its path marks the cluster's processes.
        command: ``up``, or ``master`` for one whose instances outlive it.
        settings: The master's, beyond `SETTINGS`.
        catalog: What is on sale, as in a catalog file; all EC2 types if `None`.
        host: Where the master listens.

    Attributes:
        minimum_ms: The shortest time that its cloud bills.
    """

    minimum_ms = 0

    def __init__(
        self,
        home: Path,
        *,
        command: str = "up",
        settings: Mapping[str, Any] | None = None,
        catalog: Mapping[str, Any] | None = None,
        host: str = "127.0.0.1",
    ) -> None:
        self.home = home
        self.state_dir = home / "state"
        self.address = f"{host}:{free_port(host)}"
        self.metrics_port = free_port(host)
        self.command = command
        self._record = home / "record"
        self._record.mkdir()
        self._log = home / "master.log"
        self._config = home / "master.yaml"
        workers = {"worker_listen": f"{host}:{free_port(host)}"}
        document = {**SETTINGS, **workers, **(settings or {})}
        if catalog is not None:
            file = home / "catalog.yaml"
            file.write_text(yaml.safe_dump(dict(catalog)))
            document["catalog"] = {"file": str(file)}
        self._config.write_text(yaml.safe_dump(document))
        self._master: Started | None = None
        self._workdirs: dict[Path, str] = {}
        self._clients: dict[str, Client] = {}

    # -- users -----------------------------------------------------------------------------------

    @property
    def client_file(self) -> Path:
        """What the master leaves for whoever runs it."""
        return self.state_dir / "client.yaml"

    @property
    def client(self) -> Client:
        """As an operator, with the token that the master has left; since the first start."""
        return self.client_with(yaml.safe_load(self.client_file.read_text())["token"])

    def client_with(self, secret: str) -> Client:
        """With some token; the same client for the same token."""
        if secret not in self._clients:
            self._clients[secret] = Client(
                self.address, authorities=self.authorities(), token=secret
            )
        return self._clients[secret]

    def client_of(self, owner: str, role: str) -> Client:
        """As somebody, with a new token."""
        return self.client_with(self.client.create_token(owner, role).secret)

    def authorities(self) -> bytes:
        """The certificate of the cluster's authority; since the first start."""
        return (self.state_dir / "pki" / "ca.pem").read_bytes()

    # -- processes -------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the master, and wait until it serves."""
        self._master = self._started(self.master_command(), self.environment())
        until(self._serves, "the master serves")

    def _started(self, command: list[str], env: dict[str, str]) -> Started:
        if (*command[: len(EVA)],) == EVA and same_python(env):
            self._log.touch()
            return Fork(command[len(EVA) :], env, self._log, self._log, session=True)
        with self._log.open("ab") as log:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=env,
                start_new_session=True,
            )

    def master_command(self) -> list[str]:
        """Runs the master."""
        return [*EVA, self.command, *self.master_options()]

    def master_options(self) -> list[str]:
        """For the master."""
        return [
            *("--config", str(self._config)),
            *("--state-dir", str(self.state_dir)),
            *("--listen", self.address),
            *("--metrics-port", str(self.metrics_port)),
        ]

    def environment(self) -> dict[str, str]:
        """For commands that are to talk to this cluster; nothing of the user's own settings."""
        ours = {name: value for name, value in os.environ.items() if not name.startswith("EVA_")}
        return {**ours, "EVA_CONFIG": str(self.client_file)}

    def eva(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run the command as the user who runs the cluster, unless a variable says otherwise.

        A command that does not end shows where each of its threads is.
        """
        command = [*EVA, *arguments]
        with (
            tempfile.NamedTemporaryFile(dir=self.home) as output,
            tempfile.NamedTemporaryFile(dir=self.home) as errors,
        ):
            process = self._run(arguments, variables, output, errors)
            try:
                code = process.wait(DEADLINE_S)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGABRT)
                process.wait(DEADLINE_S)
                where = Path(errors.name).read_text()
                raise AssertionError(f"{shlex.join(command)} did not end:\n{where}") from None
            except BaseException:
                process.kill()
                raise
            texts = [Path(file.name).read_text() for file in (output, errors)]
        return subprocess.CompletedProcess(command, code, *texts)

    def _run(
        self, arguments: Sequence[str], variables: Mapping[str, str], *streams: IO[bytes]
    ) -> Started:
        env = {**self.environment(), **variables}
        if same_python(env):
            return Fork(arguments, env, *(Path(stream.name) for stream in streams))
        return subprocess.Popen(
            [*EVA, *arguments],
            env={"PYTHONFAULTHANDLER": "1", **env},
            stdin=subprocess.DEVNULL,
            stdout=streams[0],
            stderr=streams[1],
        )

    def _serves(self) -> bool:
        assert self._master is not None
        assert self._master.poll() is None, f"the master exited with {self._master.returncode}"
        if not self.client_file.exists():
            return False
        with open_channel(self.address, authorities=self.authorities(), token="") as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            request = health_pb2.HealthCheckRequest(service="eva.api.v1.Jobs")
            try:
                answer = stub.Check(request, timeout=5, wait_for_ready=True)
            except grpc.RpcError:
                return False
            return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)

    def kill(self) -> None:
        """Let the master die on the spot; its instances run on."""
        assert self._master is not None
        self._master.kill()
        self._master.wait()
        # A connection that was lost is tried again later, and until then each call fails at once.
        self._clients.clear()

    def master(self) -> psutil.Process:
        """The master's process; it has been started."""
        assert self._master is not None
        return psutil.Process(self._master.pid)

    def runs(self) -> bool:
        """Whether the master runs."""
        return self._master is not None and self._master.poll() is None

    def stop_master(self) -> None:
        """Have the master end as it should."""
        assert self._master is not None
        self._master.send_signal(signal.SIGTERM)
        code = self._master.wait(DEADLINE_S)
        assert code == 0, f"the master exited with {code}"

    def interrupt(self) -> None:
        """Ask the master to end, as Ctrl-C does, without waiting for it."""
        assert self._master is not None
        self._master.send_signal(signal.SIGINT)

    def said(self) -> str:
        """What the master has printed."""
        return self._log.read_text(errors="replace")

    def stop(self) -> None:
        """End the cluster as Ctrl-C does, and see that nothing of it is left."""
        self.stop_master()
        until(lambda: not self.processes(), "all processes of the cluster end")

    def close(self) -> None:
        """Leave nothing behind, whatever state the cluster is in.

        Raises:
            AssertionError: It did not end as it should.
        """
        try:
            if self._master is not None and self._master.poll() is None:
                self.stop()
        finally:
            for client in self._clients.values():
                client.close()
            # What a killed master left behind notices it a moment later.
            with contextlib.suppress(AssertionError):
                until(lambda: not self.processes(), "all processes end")
            left = self._clear()
            if self._master is not None:
                self._master.wait()
        assert not left, f"processes were left: {left}"

    def _clear(self) -> list[str]:
        """Kill what is left; tells what it was."""
        found: dict[int, str] = {}
        while left := self.processes():
            for process in left:
                found[process.pid] = str(process)
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            psutil.wait_procs(left, timeout=1)
        return list(found.values())

    def processes(self) -> list[psutil.Process]:
        """Every process of the cluster: its paths are in their arguments or environments."""
        mark = str(self.home)
        master = self._master.pid if self._master and self.runs() else None
        return [it for it in psutil.process_iter() if it.pid == master or _bears(it, mark)]

    def processes_of(self, instance: str, module: str = "") -> list[psutil.Process]:
        """The processes of an instance, all or those that run a Python module."""
        found = []
        for process in self.processes():
            try:
                mine = process.environ().get("EVA_HOST", "").startswith(f"{instance}@")
                if mine and (not module or module in arguments(process)):
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def kill_processes_of(self, instance: str, module: str = "") -> None:
        """Kill the processes of an instance; some go with others."""
        for process in self.processes_of(instance, module):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()

    # -- jobs ------------------------------------------------------------------------------------

    def submit(self, name: str, *, workdir: Path = PROGRAMS, **keys: Any) -> str:
        """Submit a job that runs `programs/counter.py`; returns its id.

        Args:
            name: The job's.
            workdir: Its working directory.
            keys: Of the job file, in place of the usual ones.
        """
        if workdir not in self._workdirs:
            self._workdirs[workdir] = self.client.upload(workdir)
        text = self.job_file(name, **keys)
        files = self._workdirs[workdir]
        return self.client.submit(text, file_name=f"{name}.yaml", workdir=files).job_id

    def job_file(self, name: str, *, envs: Mapping[str, str] | None = None, **keys: Any) -> str:
        """A job file; see `submit`."""
        document = {
            "name": name,
            "run": f"exec {PYTHON} counter.py",
            "resources": {"cpus": 2, "memory": "3GiB"},
            # Less than it makes, so that a busy machine does not pass for interference.
            "throughput": 2,
            "envs": {"RECORD": str(self._record), **(envs or {})},
            **keys,
        }
        return yaml.safe_dump({key: value for key, value in document.items() if value is not None})

    def finish(self, *jobs: str) -> None:
        """Have the programs of jobs come to their end."""
        for job in jobs:
            (self._record / f"{job}.finish").touch()

    def job(self, job: str) -> pb.Job:
        """A job as the master sees it."""
        return self.client.job(job)

    def task(self, job: str, index: int = 0) -> pb.Task:
        """A task as the master sees it."""
        return self.client.job(job).tasks[index]

    def until_running(self, *jobs: str) -> None:
        """Wait until the master says that all tasks run, and the programs have made steps."""
        for job in jobs:
            until(
                lambda job=job: all(task.state == "running" for task in self.job(job).tasks),
                f"{job} runs",
            )
            for task in self.job(job).tasks:
                self.until_steps(job, task.index)

    def until_steps(self, job: str, index: int = 0, *, more: int = 1) -> None:
        """Wait until a task's newest attempt has made some steps more."""
        known = len(self.lines(job, index))
        attempt = self.task(job, index).attempt

        def made() -> bool:
            new = self.lines(job, index)[known:]
            steps = [line for line in new if line.event == "step" and line.attempt >= attempt]
            return len(steps) >= more

        until(made, f"{job}/{index} makes {more} steps")

    def until_ended(self, *jobs: str, state: str = "succeeded") -> None:
        """Wait until jobs have ended, and see that they ended so."""
        for job in jobs:
            until(lambda job=job: self.job(job).state in _ENDED, f"{job} ends")
            assert self.job(job).state == state, self.job(job)

    # -- what happened ---------------------------------------------------------------------------

    def lines(self, job: str, index: int = 0, *, event: str = "") -> list[Line]:
        """What a task's program wrote down, all or one kind."""
        try:
            text = (self._record / f"{job}.{index}").read_text()
        except FileNotFoundError:
            return []
        lines = [Line(**json.loads(line)) for line in text.splitlines()]
        return [line for line in lines if event in ("", line.event)]

    def records(self) -> dict[str, HostRecord]:
        """The cloud's own books."""
        return {str(key): it for key, it in HostRecords(self.state_dir / "cloud").read().items()}

    def instances(self) -> dict[str, pb.Instance]:
        """Every instance that the master has ever wanted, in order of launch."""
        return {it.id: it for it in reversed(list(self.client.instances()))}

    def until_empty(self) -> None:
        """Wait until no instance is left, in the master's books and in the cloud's."""
        until(lambda: not self.client.describe().instances, "all instances are gone")
        assert all(record.gone_ms is not None for record in self.records().values())

    def journal(self) -> SqlJournal:
        """What the master has written; only while it does not run."""
        return SqlJournal.open(f"sqlite:///{self.state_dir / 'journal.db'}")

    def journal_rows(self) -> dict[str, list[tuple[Any, ...]]]:
        """Every row of the journal, by table; at any time."""
        path = self.state_dir / "journal.db"
        connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        try:
            tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            return {
                name: connection.execute(f'SELECT * FROM "{name}"').fetchall()
                for (name,) in tables.fetchall()
            }
        finally:
            connection.close()

    def logs(self) -> list[tuple[str, str]]:
        """Title and end of each log that tells why a test failed."""
        logs = [self._log, *sorted((self.state_dir / "cloud").glob("*/*.log"))]
        # Tasks that end take their directories along meanwhile; `os.walk` passes over these.
        folders = os.walk(self.state_dir / "cloud")
        found = (Path(folder) / "log" for folder, _, files in folders if "log" in files)
        tasks = sorted(path for path in found if "tasks" in path.parts)
        return [(str(path.relative_to(self.home)), log_end(path)) for path in [*logs, *tasks]]


def arguments(process: psutil.Process) -> list[str]:
    """Those of a process; none if it is over by now, waited for or not."""
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        return []


def _bears(process: psutil.Process, mark: str) -> bool:
    try:
        if process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE:
            return False
        texts = [*process.cmdline(), *process.environ().values()]
    except psutil.Error:
        return False
    return any(mark in text for text in texts)


def log_end(path: Path) -> str:
    """The end of a log without the chatter of container engines; empty if the file is gone."""
    try:
        with path.open("rb") as log:
            log.seek(max(0, path.stat().st_size - _READ_BYTES))
            lines = log.read().splitlines(keepends=True)
    except FileNotFoundError:
        return ""
    kept = b"".join(line for line in lines if not _ENGINE_CHATTER.match(line))
    return kept[-_LOG_BYTES:].decode(errors="replace")
