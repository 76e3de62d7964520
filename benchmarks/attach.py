"""The cost of commands in tasks for the master: ``python -m benchmarks.attach``.

A real cluster of one instance runs commands that each print a line ten times a second, through
agent, master and client. The master's processor time is compared with that at rest.
The goal: 50 commands take at most a fifth of a core.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import yaml

from benchmarks.harness import end_children_at_sigterm, state_directory
from eva_client.attach.places import NamedRun
from eva_client.rpc.master import Client
from eva_wire._proto import attach_pb2 as pb
from eva_wire.values.errors import EvaError

_GOAL = 0.20
_STARTS_S = 120.0
_LINE = "a line of output as programs print it, with a number behind"
_PROGRAM = f"""import time
n, due = 0, time.monotonic()
while True:
    print({_LINE!r}, n, flush=True)
    n, due = n + 1, due + 0.1
    time.sleep(max(0, due - time.monotonic()))"""
_JOB = "name: idle\nrun: sleep 36000\nresources: {cpus: 1, memory: 4GiB}\nduration: 10h\n"


@contextmanager
def cluster(directory: Path) -> Iterator[tuple[psutil.Process, Client]]:
    """A cluster of this machine; its master, and a client of it."""
    options = {"listen": "127.0.0.1:17411", "local": {"runtime": "process"}}
    file = directory / "master.yaml"
    file.write_text(yaml.safe_dump(options))
    state = directory / "state"
    command = [sys.executable, "-m", "eva_client.cli", "up", "--config", str(file)]
    with subprocess.Popen(
        [*command, "--state-dir", str(state)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            _wait((state / "client.yaml").exists)
            settings = yaml.safe_load((state / "client.yaml").read_text())
            authorities = Path(settings["ca_file"]).read_bytes()
            address, token = settings["address"], settings["token"]
            with Client(address, authorities=authorities, token=token) as client:
                yield psutil.Process(process.pid), client
        finally:
            process.terminate()
            process.wait()


def _wait(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + _STARTS_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("the cluster did not begin")
        time.sleep(0.2)


class Command(threading.Thread):
    """A command in the task, whose output is read.

    Attributes:
        lines: How many lines have come.
    """

    def __init__(self, client: Client, job: str) -> None:
        super().__init__(daemon=True)
        self._client = client
        self._job = job
        self._end = threading.Event()
        self.lines = 0

    def run(self) -> None:
        """Read until the connection ends."""
        try:
            for frame in self._client.attach(self._frames()):
                self.lines += frame.data.count(b"\n")
        except EvaError as error:
            print(f"a command has ended: {error}", file=sys.stderr)

    def _frames(self) -> Iterator[pb.Input]:
        command = [sys.executable, "-c", _PROGRAM]
        yield NamedRun(self._job).opening(pb.Kind(exec=pb.Exec(command=command)))
        self._end.wait()


def _runs(client: Client, job: str) -> bool:
    return any(task.state == "running" for task in client.job(job).tasks)


def _share(master: psutil.Process, seconds: float) -> float:
    """The part of a core that the master takes for a while."""

    def used() -> float:
        times = master.cpu_times()
        return times.user + times.system

    before, began = used(), time.monotonic()
    time.sleep(seconds)
    return (used() - before) / (time.monotonic() - began)


def main() -> int:
    """Measure, print the figures, and return whether the goal was missed."""
    end_children_at_sigterm()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commands", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=20.0)
    chosen = parser.parse_args()
    with state_directory() as directory, cluster(directory) as (master, client):
        job = client.submit(_JOB, file_name="idle.yaml").job_id
        _wait(lambda: _runs(client, job))
        at_rest = _share(master, chosen.seconds)
        commands = [Command(client, job) for _ in range(chosen.commands)]
        for command in commands:
            command.start()
        _wait(lambda: all(command.lines for command in commands))
        before = sum(command.lines for command in commands)
        busy = _share(master, chosen.seconds)
        lines = (sum(command.lines for command in commands) - before) / chosen.seconds
    cost = busy - at_rest
    print(f"{chosen.commands} commands, {lines:.0f} lines a second")
    print(f"the master at rest: {at_rest:.1%} of a core, with them {busy:.1%}: {cost:.1%} more")
    return int(cost > _GOAL)


if __name__ == "__main__":
    sys.exit(main())
