"""Shared by all benchmarks: a master in a process of its own, percentiles, and output."""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from eva_client.cli.session import console
from eva_client.cli.views.grid import Grid
from eva_client.rpc.master import Client
from eva_master.app.config import LimitsSection

ROOT = Path(__file__).parent.parent
START_S = 240.0
"""Seconds within which a master must have started."""

_WHOLE = 1_000
"""From here on figures have no decimals."""

Figures = dict[str, Any]
"""JSON-able; `missed` lists the goals that were not reached."""


@dataclass(frozen=True)
class RunningMaster:
    """A master in a process of its own.

    Attributes:
        pid: Pid of the process.
        address: Address for users.
        workers: Address for workers.
        state_dir: Its state directory.
    """

    pid: int
    address: str
    workers: str
    state_dir: Path

    @property
    def journal(self) -> str:
        """URL of its journal, to be opened once it has stopped."""
        return f"sqlite:///{self.state_dir / 'journal.db'}"

    def client(self) -> Client:
        """A connection as an operator; to be used as a context manager."""
        told = yaml.safe_load((self.state_dir / "client.yaml").read_text())
        authorities = Path(told["ca_file"]).read_bytes()
        return Client(self.address, authorities=authorities, token=told["token"])


@contextmanager
def state_directory() -> Iterator[Path]:
    """A directory for a master's state, removed in the end."""
    with tempfile.TemporaryDirectory(prefix="eva-bench-") as directory:
        yield Path(directory)


@contextmanager
def running_master(
    state_dir: Path,
    settings: Mapping[str, Any],
    instances: Sequence[str] = (),
    *,
    task_ms: int = 0,
) -> Iterator[RunningMaster]:
    """Run `benchmarks.standing_master` until the block ends; its log goes into `state_dir`.

    Args:
        state_dir: Its state, with a journal or without.
        settings: The master's settings, as in its settings file; durations with units.
        instances: The instances that its cloud lists.
        task_ms: How long each task takes, if instances are launched; else none are.

    Raises:
        RuntimeError: The master did not start.
    """
    request = {
        "settings": {
            "state_dir": str(state_dir),
            "listen": "127.0.0.1:0",
            "limits": unlimited(),
            "local": {"max_instances": 1_000_000},
            **settings,
        },
        "instances": list(instances),
    }
    if task_ms:
        machine = {"type": "", "milli_cpus": 0, "memory_mib": 0, "task_ms": task_ms}
        (state_dir / "agents.json").write_text(json.dumps({**machine, "launches": True}))
        request["grows"] = str(state_dir / "agents.json")
    (state_dir / "request.json").write_text(json.dumps(request))
    with (state_dir / "master.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.standing_master", str(state_dir / "request.json")],
            cwd=ROOT,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        try:
            assert process.stdout is not None
            ports = process.stdout.readline().split()
            if not ports:
                raise RuntimeError((state_dir / "master.log").read_text()[-2000:])
            users, workers = (f"127.0.0.1:{port}" for port in ports)
            yield RunningMaster(process.pid, users, workers, state_dir)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(START_S)


@contextmanager
def fresh_master(settings: Mapping[str, Any]) -> Iterator[RunningMaster]:
    """Run a master on a state directory of its own until the block ends; see `running_master`."""
    with state_directory() as state_dir, running_master(state_dir, settings) as master:
        yield master


def unlimited() -> Figures:
    """Limits on numbers that no benchmark meets; those on times stay."""
    limits = LimitsSection().model_dump(mode="json")
    return {name: 1_000_000_000 for name, most in limits.items() if isinstance(most, int)}


def wait_until(condition: Callable[[], bool], what: str, *, pause_s: float = 0.05) -> None:
    """Poll until a condition holds, with a pause between one look and the next.

    Raises:
        TimeoutError: The condition does not come to hold in time.
    """
    end = time.monotonic() + START_S
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"{what} did not happen within {START_S:g} s")
        time.sleep(pause_s)


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, 90th and 99th percentile and maximum of at least two values."""
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    return {
        "median": round(cuts[49], 3),
        "p90": round(cuts[89], 3),
        "p99": round(cuts[98], 3),
        "max": round(max(values), 3),
    }


def surroundings() -> Figures:
    """The conditions that figures depend on: cores, their load, the interpreter."""
    return {
        "cores": len(os.sched_getaffinity(0)),
        "load_average": round(os.getloadavg()[0], 2),
        "python": sys.version.split()[0],
    }


def end_children_at_sigterm() -> None:
    """Have SIGTERM end this program as an exception does, so that it ends its child processes."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


def options(text: str | None, arguments: Sequence[str] | None, **sizes: int) -> argparse.Namespace:
    """Read a benchmark's command line, and have SIGTERM end its child processes too.

    Args:
        text: The benchmark's documentation.
        arguments: `None` for those of the process.
        sizes: Defaults of whole-numbered options.
    """
    end_children_at_sigterm()
    parser = argparse.ArgumentParser(
        description=text, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    for name, default in sizes.items():
        parser.add_argument(
            f"--{name.replace('_', '-')}", type=int, default=default, help=f"default: {default}"
        )
    return parser.parse_args(arguments)


class Rows:
    """Rows of figures: as JSON each as it comes, else as tables in the end.

    Args:
        as_json: Whether to print JSON.
    """

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._rows: list[Figures] = []

    def add(self, row: Figures) -> None:
        """Take in a row, and print it if it is to be JSON."""
        self._rows.append(row)
        if self._as_json:
            print(json.dumps(row), flush=True)

    def show(self) -> None:
        """Print a table for all rows that have the same columns."""
        for columns in () if self._as_json else dict.fromkeys(map(tuple, self._rows)):
            console().print(_grid([row for row in self._rows if tuple(row) == columns]))


def publish(figures: Figures, *, as_json: bool) -> int:
    """Print figures; returns the exit code, 1 if a goal was missed."""
    if as_json:
        print(json.dumps(figures))
    else:
        for name, value in figures.items():
            _print(name, value)
    return int(bool(figures.get("missed")))


def _print(name: str, value: object) -> None:
    """Print a figure: a line, or a table of what is in it."""
    rows: list[Figures] = []
    if isinstance(value, list) and value and all(isinstance(one, dict) for one in value):
        rows = value
    elif isinstance(value, dict) and value and all(isinstance(v, dict) for v in value.values()):
        rows = [{"": key, **inner} for key, inner in value.items()]
    if not rows:
        print(f"{name:28} {_shown(value)}")
        return
    print(name)
    for columns in dict.fromkeys(map(tuple, rows)):
        console().print(_grid([row for row in rows if tuple(row) == columns], indent=2))


def _grid(rows: Sequence[Figures], indent: int = 0) -> Grid:
    """A table of rows that have the same columns."""
    names = [str(name) for name in rows[0]]
    numbers = [
        name
        for name in rows[0]
        if all(
            isinstance(row[name], int | float) and not isinstance(row[name], bool) for row in rows
        )
    ]
    table = Grid(*names, right=map(str, numbers), notes=(), indent=indent)
    for row in rows:
        table.add_row(*map(_shown, row.values()))
    return table


def _shown(value: object) -> str:
    """A figure as people read it: with thousands apart, and four digits that matter."""
    match value:
        case dict():
            return ", ".join(f"{key} {_shown(inner)}" for key, inner in value.items())
        case list():
            return ", ".join(map(_shown, value)) or "none"
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,.0f}" if abs(value) >= _WHOLE else f"{value:.4g}"
        case None:
            return "-"
        case _:
            return str(value)
