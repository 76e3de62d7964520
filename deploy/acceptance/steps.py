"""The steps of a trial, in order."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from deploy.acceptance import jobs
from deploy.acceptance.assumptions import Evidence
from deploy.acceptance.eva import Eva, StepFailed
from deploy.acceptance.report import DONE, FAILED, SKIPPED, Outcome
from deploy.acceptance.spending import Account, dollars

_LONGEST_S = 1800.0
_SHARE, _SLACK = 0.98, 0.0005
"""Of what EC2's descriptions cost, the bill must have; dollars that rounding may make."""
_MOST = 1.05
_SETTINGS = """\
ec2:
  spot: {expected_life: 7d}
catalog: {only: [c7i, r7i, g6]}
limits: {instances: 12}
"""


class Skipped(Exception):
    """A step that does not apply to this account."""


@dataclass
class Trial:
    """A cluster that is tried.

    Attributes:
        eva: Calls commands.
        account: Looks at the account.
        users: Addresses from which users reach the master, as CIDR.
        deploy: More arguments of `eva deploy aws`.
        shorter: How many times fewer steps the demo's jobs make here.
        emulated: Whether workers run plain processes and GPUs are names, as on a stand-in.
        pause_s: Seconds between two looks.
        gpu: Whether a GPU job is tried.
        evidence: Facts for the assumptions.
        made: The stack's resources, once it is there.
    """

    eva: Eva
    account: Account
    users: str
    deploy: Sequence[str] = ()
    shorter: int = 10
    emulated: bool = False
    pause_s: float = 5.0
    gpu: bool = True
    made: dict[str, tuple[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.evidence = Evidence(self.account, emulated=self.emulated)
        self._room = False

    def steps(self) -> list[tuple[str, Callable[[], str]]]:
        """Names and functions; each returns a note."""
        return [
            ("look first", self._look),
            ("deploy", self._deploy),
            ("a job that runs on", self._steady),
            ("jobs of the demo", self._demo),
            ("array", lambda: self._run("array")),
            ("spot", lambda: self._run("spot")),
            ("GPU", self._gpu),
            ("deploy again", self._again),
            ("the master is stopped", self._kill_master),
            ("bill", self._bill),
        ]

    def _settings(self) -> Path:
        file = self.eva.work / "own.yaml"
        file.write_text(_SETTINGS, encoding="utf-8")
        return file

    def _arguments(self) -> list[str]:
        return [*self.deploy, "--settings", str(self._settings())]

    def _look(self) -> str:
        """A dry run for the GPU job."""
        job = jobs.plain("gpu", self.eva.work, emulated=self.emulated)
        answer = self.eva.account(
            *("deploy", "aws", "--dry-run", "--json", "--for", str(job), "--users", self.users),
            *self._arguments(),
        )
        checks = json.loads(answer)["checks"]
        self._room = all(check["ok"] is True for check in checks if check["name"] == "quota")
        wrong = [f"{check['name']}: {check['says']}" for check in checks if check["ok"] is False]
        return "; ".join(wrong) or f"{len(checks)} checks, all well"

    def _deploy(self) -> str:
        self.eva.account(
            *("deploy", "aws", "-y", "--users", self.users),
            *("--client-file", str(self.eva.client_file)),
            *self._arguments(),
        )
        self.made = self.account.stack_resources()
        return f"{len(self.made)} resources"

    def _steady(self) -> str:
        file = jobs.plain("steady", self.eva.work, emulated=self.emulated)
        self.eva.run("submit", str(file))
        self._until(lambda: self._task("steady")["state"] == "running", "the job runs")
        self.evidence.worked = True
        return f"on {self._task('steady')['instance']}"

    def _demo(self) -> str:
        files = jobs.of_the_demo(self.eva.work, shorter=self.shorter, emulated=self.emulated)
        submitted = self.eva.json("submit", "--allow-outside", "-y", *map(str, files))["jobs"]
        self.eva.run("wait", "--timeout", "30m", *(job["id"] for job in submitted))
        return f"{len(submitted)} jobs"

    def _run(self, name: str) -> str:
        file = jobs.plain(name, self.eva.work, emulated=self.emulated)
        (job,) = self.eva.json("submit", str(file))["jobs"]
        self.eva.run("wait", "--timeout", "20m", job["id"])
        return str(job["id"])

    def _gpu(self) -> str:
        if not self.gpu:
            raise Skipped("not asked for")
        if not self._room:
            raise Skipped("the account's quotas have no room for a type with a GPU")
        job = self._run("gpu")
        self.account.look()
        bought = [each.kind for each in self.evidence.workers() if each.kind.startswith("g")]
        self.evidence.gpu_type = bought[-1] if bought else ""
        return f"{job} on {self.evidence.gpu_type or 'no instance that was seen'}"

    def _again(self) -> str:
        answer = self.eva.account(
            *("deploy", "aws", "--dry-run", "--json", *self._arguments()),
        )
        changes = json.loads(answer)["changes"]
        self.evidence.unchanged = not changes
        if changes:
            raise StepFailed(f"would change {[change['resource'] for change in changes]}")
        self.eva.account(
            *("deploy", "aws", "-y", "--client-file", str(self.eva.client_file)),
            *self._arguments(),
        )
        return "nothing to change"

    def _kill_master(self) -> str:
        before = self._task("steady")
        ec2, master = self.account.client("ec2"), self.made["Master"][1]
        began = time.monotonic()
        ec2.stop_instances(InstanceIds=[master])
        waiter = {"Delay": max(1, round(self.pause_s)), "MaxAttempts": 300}
        ec2.get_waiter("instance_stopped").wait(InstanceIds=[master], WaiterConfig=waiter)
        self._until(lambda: not self._answers(), "the master is away")
        ec2.start_instances(InstanceIds=[master])
        self._until(self._answers, "the master is back")
        took = time.monotonic() - began
        after = self._task("steady")
        same = ("instance", "attempt", "state")
        if [before[key] for key in same] != [after[key] for key in same]:
            raise StepFailed(f"the job did not run on: {before} became {after}")
        return f"back after {took:.0f} s; the job ran on"

    def _answers(self) -> bool:
        try:
            self.eva.run("nodes")
        except StepFailed:
            self.eva.check()
            return False
        return True

    def _bill(self) -> str:
        """All jobs end, and the cluster's bill is that of EC2's descriptions."""
        self.eva.run("cancel", "-y", "steady")
        self._until(self._all_gone, "all workers are terminated")
        nodes = self.eva.json("nodes", "--all")
        self.evidence.nodes = nodes["instances"]
        self.account.look()
        bill = self.eva.json("cost")["cost_micro_usd"] / 1_000_000
        workers = self.evidence.workers()
        prices = {(each.kind, each.zone, each.spot): self.account.price(each) for each in workers}
        expected = dollars(workers, prices, datetime.now(UTC))
        note = f"eva cost ${bill:.4f}, EC2's descriptions ${expected:.4f}, {len(workers)} workers"
        if not expected * _SHARE - _SLACK <= bill <= expected * _MOST + _SLACK:
            raise StepFailed(note)
        return note

    def _all_gone(self) -> bool:
        self.account.look()
        return all(each.ended is not None for each in self.evidence.workers())

    def _task(self, job: str) -> dict[str, Any]:
        document: dict[str, Any] = self.eva.json("status", job)
        task: dict[str, Any] = document["tasks"][0]
        return task

    def _until(self, holds: Callable[[], bool], words: str) -> None:
        deadline = time.monotonic() + _LONGEST_S
        while not holds():
            if time.monotonic() > deadline:
                raise StepFailed(f"{words}: not within {_LONGEST_S / 60:g} minutes")
            time.sleep(self.pause_s)


def carry_out(
    steps: Sequence[tuple[str, Callable[[], str]]], tell: Callable[[str], None]
) -> list[Outcome]:
    """Carry steps out until one fails; the rest is skipped.

    Args:
        steps: Names and functions.
        tell: Called with a line about each.
    """
    outcomes: list[Outcome] = []
    for name, step in steps:
        began = time.monotonic()
        result, note = SKIPPED, "an earlier step has failed"
        if all(outcome.result != FAILED for outcome in outcomes):
            tell(f"-- {name}")
            result, note = attempted(step)
        outcomes.append(Outcome(name, result, note, time.monotonic() - began))
        tell(f"   {result}: {note}")
    return outcomes


def attempted(step: Callable[[], str]) -> tuple[str, str]:
    """Result and note of a step, whatever it raises; an interruption passes."""
    try:
        return DONE, step()
    except Skipped as reason:
        return SKIPPED, str(reason)
    except StepFailed as failure:
        return FAILED, str(failure)
    except Exception as error:  # The teardown must come in any case.
        return FAILED, f"{type(error).__name__}: {error}"
