"""The example programs, run as an agent runs them."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import psutil
import yaml
from eva_iterator._proto.iterator_pb2 import ReportRequest, ReportResponse
from eva_iterator._proto.iterator_pb2_grpc import (
    IteratorServicer,
    add_IteratorServicer_to_server,
)

from tests.fakes.paths import short_tempdir
from tests.fakes.patience import DEADLINE_S
from tests.fakes.rpc.ports import free_port

EXAMPLES = Path(__file__).parents[2] / "examples"
JOB_FILES = sorted(EXAMPLES.glob("*/job.yaml"))
INHERITED = ("HOME", "PYTHONPATH")

# Large enough to be still busy when the first progress line has been read, small enough for a test.
SMALL = {
    "digits_mlp": {"STEPS": "500", "HIDDEN": "64"},
    "digits_cnn": {"STEPS": "300"},
    "digits_ddp": {"STEPS": "300", "HIDDEN": "64"},
    "digits_torch": {"STEPS": "600", "HIDDEN": "64"},
    "graph_rank": {"STEPS": "400", "NODES": "20000"},
    "heat2d": {"STEPS": "1000", "SIZE": "96"},
    "ring_digits": {"STEPS": "600", "HIDDEN": "64"},
    "shell_wordcount": {"STEPS": "40", "RESAMPLES": "200", "SAVE_EVERY": "10"},
    "split_batch": {"STEPS": "200"},
    "stream_stats": {"STEPS": "200", "CHUNK_KIB": "128"},
}


class Agent(IteratorServicer):
    """Takes reports over a socket."""

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory(dir=short_tempdir())
        self.socket = f"{self._directory.name}/socket"
        self.reports: list[ReportRequest] = []
        self._server = grpc.server(ThreadPoolExecutor(4))
        add_IteratorServicer_to_server(self, self._server)
        self._server.add_insecure_port(f"unix:{self.socket}")
        self._server.start()

    def Report(self, request: ReportRequest, context: grpc.ServicerContext) -> ReportResponse:
        self.reports.append(request)
        return ReportResponse(interval_ms=1000)

    def close(self) -> None:
        self._server.stop(None).wait()
        self._directory.cleanup()


@dataclass(frozen=True)
class Attempt:
    """One run of a program, from its start to its exit.

    Attributes:
        printed: Its standard output and error.
        code: Its exit code, negative for a signal.
        report: The last it said to the agent.
    """

    printed: str
    code: int
    report: ReportRequest

    @property
    def last_line(self) -> str:
        return self.printed.splitlines()[-1]

    def column(self, index: int) -> list[float]:
        """Figures in the progress lines; the step is the first."""
        lines = [line for line in self.printed.splitlines() if line.startswith("step ")]
        return [numbers(line)[index] for line in lines]


class Run:
    """A program that runs.

    Args:
        process: Leads a process group.
        agent: Takes its reports.
    """

    def __init__(self, process: subprocess.Popen[str], agent: Agent) -> None:
        self._process = process
        self._agent = agent
        self._read = ""

    def await_step(self) -> None:
        """Reads until the first progress line."""
        assert self._process.stdout is not None
        line = ""
        while not line.startswith("step "):
            line = self._process.stdout.readline()
            assert line, self._read
            self._read += line

    def send(self, number: signal.Signals) -> None:
        """Sends a signal to all its processes."""
        os.killpg(self._process.pid, number)

    def finish(self) -> Attempt:
        """Waits for its exit."""
        rest, _ = self._process.communicate(timeout=DEADLINE_S)
        last = self._agent.reports[-1] if self._agent.reports else ReportRequest()
        return Attempt(self._read + rest, self._process.returncode, last)


@dataclass
class Task:
    """A task of an example: its command, its environment and the directories it is given.

    Attributes:
        name: The example's folder.
        root: Holds the checkpoints, the storage and the working directory.
        agent: Takes its reports.
        env: Variables on top of the job file's and of `SMALL`.
        file: The job file in the folder.
    """

    name: str
    root: Path
    agent: Agent
    env: dict[str, str] = field(default_factory=dict)
    file: str = "job.yaml"

    def __post_init__(self) -> None:
        self.checkpoints = self.root / "checkpoints"
        self.outputs = self.root / "storage" / "outputs"
        self.workdir = self.root / "workdir"
        self.checkpoints.mkdir(parents=True)
        self.outputs.mkdir(parents=True)
        shutil.copytree(EXAMPLES / self.name, self.workdir)
        self.env = {**SMALL.get(self.name, {}), **self.env}
        self.steps = int(self.env["STEPS"])

    def run(self, *, stop_midway: bool = False) -> Attempt:
        """Runs an attempt to its exit.

        Args:
            stop_midway: Send SIGTERM to all its processes at the first sign of progress.
        """
        with self.start() as run:
            if stop_midway:
                run.await_step()
                run.send(signal.SIGTERM)
            return run.finish()

    @contextmanager
    def start(self) -> Iterator[Run]:
        """Begins an attempt; what is left of it at the end is killed."""
        self.agent.reports.clear()
        job = yaml.safe_load((self.workdir / self.file).read_text())
        env = {
            "OMP_NUM_THREADS": "1",  # The program has one CPU; more threads wait for it in circles.
            **{name: os.environ[name] for name in INHERITED if name in os.environ},
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "EVA_CHECKPOINT_DIR": str(self.checkpoints),
            "EVA_CPU_COUNT": "1",
            "EVA_GRACE_SECONDS": "30",
            "EVA_SOCKET": self.agent.socket,
            "EVA_STORAGE": str(self.root / "storage"),
            **job.get("envs", {}),
            **self.env,
        }
        process = subprocess.Popen(
            ["/bin/sh", "-c", f"exec {job['run']}"],
            cwd=self.workdir,
            env=env,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            yield Run(process, self.agent)
        finally:
            if process.poll() is None:
                for one in [*psutil.Process(process.pid).children(recursive=True), process]:
                    one.kill()
            process.communicate()

    def results(self) -> dict[str, bytes]:
        """The files that the program left for collection."""
        return {path.name: path.read_bytes() for path in self.outputs.iterdir()}


class Gang:
    """The tasks of a gang, each with an agent and directories of its own.

    Args:
        name: The example's folder.
        root: Holds all that the members have.
        size: How many there are.
        env: As for `Task`.
    """

    def __init__(self, name: str, root: Path, size: int, env: Mapping[str, str]) -> None:
        self._agents = [Agent() for _ in range(size)]
        self.members = [
            Task(name, root / str(rank), agent, {**env, "NODE_RANK": str(rank)})
            for rank, agent in enumerate(self._agents)
        ]

    def run(
        self, *, hit: Sequence[int] = (), number: signal.Signals = signal.SIGTERM
    ) -> list[Attempt]:
        """Runs an attempt of all members to their exits.

        Args:
            hit: Which members get a signal at the first sign of progress, in this order.
            number: The signal.
        """
        meeting = {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(free_port()),
            "NNODES": str(len(self.members)),
        }
        with ExitStack() as stack:
            runs = []
            for member in self.members:
                member.env.update(meeting)
                runs.append(stack.enter_context(member.start()))
            if hit:
                runs[0].await_step()
            for rank in hit:
                runs[rank].send(number)
            return [run.finish() for run in runs]

    def close(self) -> None:
        """Ends the agents."""
        for agent in self._agents:
            agent.close()


def numbers(line: str) -> list[float]:
    return [float(text) for text in re.findall(r"-?\d+\.?\d*(?:e-?\d+)?", line)]
