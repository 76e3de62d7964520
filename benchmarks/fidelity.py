"""How far a simulation is from a cluster of real processes.

Run as `python -m benchmarks.fidelity [--jobs 14] [--seed 1] [--json]`. A local cluster runs jobs of
half a minute to a minute and a half that arrive within three minutes, which takes about five
minutes. Then its journal is replayed with the recorded delays and work, and the same jobs are
simulated with what could have been configured beforehand: arrivals, demands, stated durations, and
a guess of each delay.
"""

from __future__ import annotations

import os
import random
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from benchmarks.harness import ROOT, START_S, Figures, options, publish, surroundings, wait_until
from eva_client.rpc.master import Client
from eva_lab.history import Replay, read_history
from eva_lab.runs import named_policy
from eva_lab.simulator.cluster.delays import Accounting
from eva_lab.simulator.results.metrics import SimulationOutcome
from eva_lab.simulator.run import Setup, simulate
from eva_master.adapters.catalog import load_catalog
from eva_master.control.settings import Settings
from eva_master.model.trace import Trace
from eva_wire.values.errors import Unreachable

_STEP_S = 0.05
_WITHIN_S = 180.0
_LENGTHS_S = (30, 90)
_SHAPES = (
    {"cpus": 2, "memory": "4GiB"},
    {"cpus": 4, "memory": "8GiB"},
    {"cpus": 3, "memory": "20GiB"},
    {"cpus": 6, "memory": "10GiB"},
    {"cpus": 1, "memory": "12GiB"},
)
_ENDED = ("succeeded", "failed", "cancelled")
_PATIENCE_S = 900.0

_OPTIONS = {"horizon_s": 120}
"""For jobs of a minute: a move has to pay off within two."""
_SETTINGS = {
    "round_period": "1h",
    "round_min_interval": "1s",
    "throughput_window": "5s",
    "profile": False,
    "heartbeat": "500ms",
    "upload_interval": "1s",
    "local": {"launch_delay": "500ms"},
    "policy": {"name": "eva", "options": _OPTIONS},
}
_LOOP = Settings(round_gap_ms=1_000, window_ms=5_000)
"""Settings of a simulation."""

_FAMILIES = ["c7i", "r7i"]
_LAUNCH_MS, _SETUP_MS, _START_MS, _STOP_MS = 500, 1_500, 1_000, 500
"""Guessed delays: the first two are in the catalog, the others in the job files."""

_PROGRAM = f"""\
import os, time
from eva_iterator import EvaIterator, latest_checkpoint

newest = latest_checkpoint()
done = int((newest / "step").read_text()) if newest else 0
steps = range(done + 1, int(os.environ["STEPS"]) + 1)

def save(directory):
    (directory / "step").write_text(str(done))

due = time.monotonic()
for step in EvaIterator(steps, checkpoint=save, checkpoint_every_s=5):
    due += {_STEP_S}  # what it is late by, it makes good: a busy machine is no interference
    time.sleep(max(0.0, due - time.monotonic()))
    done = step
"""


@dataclass(frozen=True)
class Submission:
    """A job of the run.

    Attributes:
        at_s: Time of submission in seconds since the beginning.
    """

    name: str
    at_s: float
    steps: int
    resources: dict[str, object]

    @property
    def length_ms(self) -> int:
        """Running time alone, without delays, in milliseconds."""
        return round(1000 * _STEP_S * self.steps)

    @property
    def text(self) -> str:
        """The text of its job file."""
        return yaml.safe_dump(
            {
                "name": self.name,
                "run": f"exec {shlex.quote(sys.executable)} work.py",
                "resources": self.resources,
                "throughput": 1 / _STEP_S,
                "total_steps": self.steps,
                "delays": {"checkpoint": f"{_STOP_MS}ms", "launch": f"{_START_MS}ms"},
                "envs": {"STEPS": str(self.steps)},
            }
        )


def submissions(count: int, seed: int) -> list[Submission]:
    """Jobs in the order of their arrival."""
    draw = random.Random(seed)
    arrivals = sorted(draw.uniform(0, _WITHIN_S) for _ in range(count))
    return [
        Submission(
            f"job-{number}",
            at_s - arrivals[0],
            round(draw.uniform(*_LENGTHS_S) / _STEP_S),
            dict(draw.choice(_SHAPES)),
        )
        for number, at_s in enumerate(arrivals)
    ]


def _catalog_file(home: Path) -> Path:
    """EC2's types and prices, with the delays of emulated instances."""
    delays = {"acquisition": f"{_LAUNCH_MS}ms", "setup": f"{_SETUP_MS}ms"}
    types = {offering.type.name: delays for offering in load_catalog(only=_FAMILIES)}
    file = home / "catalog.yaml"
    file.write_text(yaml.safe_dump({"types": types}))
    return file


@contextmanager
def _cluster(home: Path) -> Iterator[Client]:
    """`eva up` until the block ends."""
    config, state = home / "master.yaml", home / "state"
    sold = {"file": str(_catalog_file(home)), "only": _FAMILIES}
    config.write_text(yaml.safe_dump({**_SETTINGS, "catalog": sold}))
    command = (sys.executable, "-m", "eva_client.cli", "up", "--config", str(config))
    ours = {name: value for name, value in os.environ.items() if not name.startswith("EVA_")}
    with (home / "master.log").open("wb") as log:
        master = subprocess.Popen(
            [*command, "--state-dir", str(state), "--listen", "127.0.0.1:0"],
            cwd=ROOT,
            env=ours,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        wait_until((state / "client.yaml").exists, "the master's start")
        told = yaml.safe_load((state / "client.yaml").read_text())
        authorities = Path(told["ca_file"]).read_bytes()
        with Client(told["address"], authorities=authorities, token=told["token"]) as client:
            wait_until(lambda: _serves(client), "the master's answer")
            yield client
    finally:
        master.send_signal(signal.SIGTERM)
        master.wait(START_S)


def _serves(client: Client) -> bool:
    try:
        client.describe()
    except Unreachable:
        return False
    return True


def _live(client: Client, jobs: Sequence[Submission], workdir: Path) -> None:
    """Submit the jobs when they are due, and wait until all is over."""
    (workdir / "work.py").write_text(_PROGRAM)
    files = client.upload(workdir)
    start = time.monotonic()
    for job in jobs:
        time.sleep(max(0.0, start + job.at_s - time.monotonic()))
        client.submit(job.text, file_name=f"{job.name}.yaml", workdir=files)
    deadline = time.monotonic() + _PATIENCE_S
    while not _over(client):
        if time.monotonic() > deadline:
            raise TimeoutError(f"not over after {_PATIENCE_S:g} s")
        time.sleep(0.5)


def _over(client: Client) -> bool:
    ended = all(job.state in _ENDED for job in client.jobs(ended=True))
    return ended and all(instance.state == "gone" for instance in client.instances())


def _configured(history: Replay, jobs: Sequence[Submission]) -> Setup:
    """Simulate the same jobs with the guessed delays."""
    first = min(job.submitted_ms for job in history.past.jobs)
    stated = {job.name: job for job in jobs}
    arrived = {job.spec.name: job.submitted_ms - first for job in history.past.jobs}
    # The trace of a history names its jobs by their place in it.
    names = {f"{number}/0": job.spec.name for number, job in enumerate(history.past.jobs)}
    assumed = tuple(
        replace(
            job,
            arrival_ms=arrived[names[job.id]],
            duration_ms=stated[names[job.id]].length_ms,
            init_ms=_START_MS,
            tasks=tuple(replace(task, kill_ms=_STOP_MS) for task in job.tasks),
        )
        for job in history.past.trace().jobs
    )
    return replace(
        history.setup,
        trace=Trace("configured", assumed),
        accounting=Accounting.PRODUCTION,
        truth=lambda _workload, _others: 1.0,
        past=None,
    )


def _simulated(setup: Setup) -> Figures:
    policy, gap = named_policy("eva", {**_OPTIONS, "explained": False})
    return _figures(simulate(replace(setup, policy=policy, round_gap_s=gap, settings=_LOOP)))


def _figures(outcome: SimulationOutcome) -> Figures:
    return {
        "cost_usd": round(outcome.cost_usd, 6),
        "jct_mean_s": round(3600 * outcome.jct_mean_h, 2),
        "instances": outcome.instances_launched,
        "moves": round(outcome.migrations_per_job * outcome.jobs_finished),
    }


def _asked(client: Client) -> Figures:
    """Read the results of the run from the master."""
    jobs = list(client.jobs(ended=True))
    if failed := [job.name for job in jobs if job.state != "succeeded"]:
        raise RuntimeError(f"not succeeded: {', '.join(failed)}")
    return {
        "jct_mean_s": round(
            statistics.fmean(job.finished_ms - job.submitted_ms for job in jobs) / 1000, 2
        ),
        "instances": sum(1 for _ in client.instances()),
        "moves": sum(task.moves for job in jobs for task in job.tasks),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, replay, simulate; print all three."""
    chosen = options(__doc__, arguments, jobs=14, seed=1)
    jobs = submissions(chosen.jobs, chosen.seed)
    with tempfile.TemporaryDirectory(prefix="eva-fidelity-") as directory:
        home = Path(directory)
        (home / "work").mkdir()
        before = surroundings()
        with _cluster(home) as client:
            _live(client, jobs, home / "work")
            asked = _asked(client)
        history = read_history(home / "state", load_catalog(home / "catalog.yaml", _FAMILIES))
        figures: Figures = {
            "surroundings": before,
            "run": {"cost_usd": round(history.cost_usd, 6), **asked},
            "replayed": _simulated(history.setup),
            "configured": _simulated(_configured(history, jobs)),
        }
    for name in ("replayed", "configured"):
        off = figures[name]["cost_usd"] / figures["run"]["cost_usd"] - 1
        figures[name]["cost_off_percent"] = round(100 * off, 2)
    return publish(figures, as_json=chosen.json)


if __name__ == "__main__":
    sys.exit(main())
