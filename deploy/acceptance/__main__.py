"""``deploy/acceptance/run.sh``: a trial from the first look to the proof that nothing is left."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
import urllib.request
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import boto3
import click
from botocore.exceptions import BotoCoreError, ClientError

from deploy.acceptance.assumptions import judged
from deploy.acceptance.eva import Eva, StepFailed
from deploy.acceptance.leftovers import leftovers
from deploy.acceptance.report import FAILED, Outcome, Report
from deploy.acceptance.spending import Account, Watch
from deploy.acceptance.steps import Trial, attempted, carry_out

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_TRIES = 5
_INTERRUPTED = 130
_ADDRESS = "https://checkip.amazonaws.com"


class Interrupted(BaseException):
    """A signal asks for the end."""


@cache
def _client(service: str, region: str) -> Any:
    return boto3.session.Session().client(service, region_name=region)


@dataclass
class Run:
    """One run of the program.

    Attributes:
        trial: The cluster and its steps.
        report: Filled in as the run goes on.
        budget: Dollars.
        tell: Called with each line that is shown.
    """

    trial: Trial
    report: Report
    budget: float
    tell: Callable[[str], None]

    def go(self) -> int:
        """Carry everything out; returns the exit code."""
        watch = Watch(self.trial.account, self.budget, self._exceeded, 3 * self.trial.pause_s)
        watch.start()
        code = 1
        try:
            self.report.steps = []
            steps = self.trial.steps()
            for step in steps:
                self.report.steps += carry_out([step], self.tell)
                if self.report.steps[-1].result == FAILED:
                    break
        except Interrupted:
            code = _INTERRUPTED
            self.report.steps.append(Outcome("interrupted", FAILED, "by a signal", 0.0))
        finally:
            _be_patient()
            self._end(watch)
        return 0 if self.report.passed else code

    def _exceeded(self, spent: float) -> None:
        self.trial.eva.stop(f"spent ${spent:.4f}, above the budget of ${self.budget:g}")

    def _end(self, watch: Watch) -> None:
        """Tear down, prove that nothing is left, and judge the assumptions."""
        trial, report = self.trial, self.report
        trial.eva.go_on()
        attempted(self._remember)
        report.steps += carry_out([("tear down", self._tear_down)], self.tell)
        watch.stop()
        report.steps += carry_out([("nothing is left", self._nothing_left)], self.tell)
        attempted(lambda: str(trial.account.look()))
        report.spent = trial.account.spent
        report.guessed = sorted(trial.account.guessed)

    def _remember(self) -> str:
        self.trial.made = self.trial.account.stack_resources() or self.trial.made
        self.report.assumptions = judged(self.trial.evidence)
        return ""

    def _tear_down(self) -> str:
        for number in range(1, _TRIES + 1):
            try:
                if not self.trial.account.has_stack():
                    return "no stack was there" if number == 1 else "the stack is gone"
                self.trial.eva.account("teardown", "-y")
            except (StepFailed, BotoCoreError, ClientError) as failure:
                if number == _TRIES:
                    raise StepFailed(str(failure)) from failure
                time.sleep(self.trial.pause_s)
        return ""

    def _nothing_left(self) -> str:
        for tries_left in reversed(range(_TRIES)):
            self.report.remains = leftovers(self.trial.account, self.trial.made)
            if self.report.remains and tries_left:  # Interfaces and listings lag behind.
                time.sleep(self.trial.pause_s)
        if self.report.remains:
            raise StepFailed(", ".join(self.report.remains))
        return f"{len(self.trial.made)} resources and {len(self.trial.account.seen)} instances"


def _interrupt(_: int, __: FrameType | None) -> None:
    _be_patient()
    raise Interrupted


def _be_patient() -> None:
    """From now on only the end of the cluster counts."""
    for number in _SIGNALS:
        signal.signal(number, lambda *_: click.echo("the cluster is removed; a moment", err=True))


def _own_address() -> str:
    with urllib.request.urlopen(_ADDRESS, timeout=10) as answer:
        return f"{answer.read().decode().strip()}/32"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--region", required=True, help="AWS region of the cluster.")
@click.option(
    "--budget", type=click.FloatRange(min=0), default=5.0, show_default=True, help="Dollars."
)
@click.option("--cluster", help="Its name; made up if absent.")
@click.option(
    "--users", help="From where the master is reached.  [default: this machine's address]"
)
@click.option("--no-gpu", is_flag=True, help="Leave the GPU job out.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("acceptance-report"),
    show_default=True,
    help="Where the report is written.",
)
@click.option("--bundles", help="As of eva deploy aws.")
@click.option("--emulated", is_flag=True, hidden=True, help="For a stand-in.")
@click.option("--shorter", type=int, default=10, hidden=True)
@click.option("--pause-s", type=float, default=5.0, hidden=True)
def main(
    *,
    region: str,
    budget: float,
    cluster: str | None,
    users: str | None,
    no_gpu: bool,
    out: Path,
    bundles: str | None,
    emulated: bool,
    shorter: int,
    pause_s: float,
) -> None:
    """Try a whole cluster in an AWS account, and leave nothing there.

    Makes a cluster, runs jobs on it, stops its master, removes it, and writes a report. Above the
    budget, on Ctrl-C and after a failure it removes the cluster at once.
    """
    name = cluster or f"try-{uuid.uuid4().hex[:8]}"
    out.mkdir(parents=True, exist_ok=True)
    account = Account(_client, region, name)

    def tell(line: str) -> None:
        click.echo(f"{time.strftime('%H:%M:%S')} {line}", err=True)

    tell(
        f"cluster {name}; if this program is killed: eva teardown -y --cluster {name} "
        f"--region {region}"
    )
    with tempfile.TemporaryDirectory(prefix="eva-trial-") as work:
        eva = Eva(name, region, Path(work), tell, pause_s if emulated else None)
        trial = Trial(
            eva,
            account,
            users or _own_address(),
            ["--bundles", bundles] if bundles else [],
            shorter,
            emulated,
            pause_s,
            gpu=not no_gpu,
        )
        report = Report(region, name, budget, os.environ.get("AWS_ENDPOINT_URL", ""))
        for number in _SIGNALS:
            signal.signal(number, _interrupt)
        code = Run(trial, report, budget, tell).go()
        (out / "log.txt").write_bytes(_log(Path(work)))
    tell(f"{'passed' if report.passed else 'FAILED'}: {report.write(out)}")
    sys.exit(code)


def _log(work: Path) -> bytes:
    file = work / "log.txt"
    return file.read_bytes() if file.exists() else b""


if __name__ == "__main__":
    main()
