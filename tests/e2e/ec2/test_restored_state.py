"""The master's state is put back from a snapshot, as the how-to says, while workers run jobs."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.acceptance.eva import Eva, StepFailed
from eva_client.cli.session import CommandSession
from eva_wire.rpc.messages import Task
from tests.e2e.cluster import until
from tests.fakes.aws.service import REGION, Aws
from tests.fakes.datacentre import DataCentre, bundles

HOW_TO = Path(__file__).parents[3] / "docs" / "howto" / "deploy-aws.md"
OWN = {
    "catalog": {"only": ["c7i.large"]},
    "round_min_interval": "300ms",
    "ec2": {"unwanted_grace": "1m", "poll": "500ms"},
}


@dataclass
class Jobs:
    """Jobs that run until they are let go, each on an instance of its own.

    A task leaves word in the directory of its machine, which it has for its user's home.
    """

    eva: Eva
    centre: DataCentre

    def submit(self, name: str) -> str:
        """Submit one, and wait until it runs; returns its id."""
        wait = f"until [ -e ~/{name}.go ]; do sleep 0.1; done"
        job = {
            "name": name,
            "run": f"echo $EVA_ATTEMPT $$ >>~/{name}.began; {wait}; "
            f"echo $EVA_ATTEMPT >>~/{name}.done",
            "resources": {"cpus": 2, "memory": "1GiB"},
            "retries": 3,
        }
        file = self.eva.work / f"{name}.yaml"
        file.write_text(yaml.safe_dump(job))
        (submitted,) = self.eva.json("submit", str(file))["jobs"]
        until(lambda: self.began(name), f"{name} runs")
        until(lambda: self.task(submitted["id"]).state == "running", f"{name} is seen to run")
        return str(submitted["id"])

    def began(self, name: str) -> list[tuple[int, int]]:
        """Attempts that began, with their processes."""
        lines = map(str.split, self._lines(f"{name}.began"))
        return [(int(attempt), int(process)) for attempt, process in lines]

    def ended(self, name: str) -> list[int]:
        """Attempts that have done all of the job."""
        return [int(line) for line in self._lines(f"{name}.done")]

    def _lines(self, name: str) -> list[str]:
        homes = [machine.home for machine in [*self.centre.machines.values()]]
        files = [home / name for home in homes if (home / name).exists()]
        return [line for file in files for line in file.read_text().splitlines()]

    def let_go(self, *names: str) -> None:
        for machine in [*self.centre.machines.values()]:
            for name in names:
                (machine.home / f"{name}.go").touch()

    def task(self, job: str) -> Task:
        # Within this process: a command each time would keep a CPU busy.
        with CommandSession().client() as client:
            (task,) = client.job(job).tasks
        return task


@dataclass
class Account:
    """The cluster's part of the account."""

    aws: Aws
    cluster: str

    def workers(self, *states: str) -> list[str]:
        filters = [
            {"Name": "tag:eva:cluster", "Values": [self.cluster]},
            {"Name": "instance-state-name", "Values": [*(states or ("pending", "running"))]},
        ]
        pages = self.aws.client("ec2").describe_instances(Filters=filters)["Reservations"]
        return [instance["InstanceId"] for each in pages for instance in each["Instances"]]

    def made(self) -> dict[str, str]:
        pages = self.aws.client("cloudformation").get_paginator("list_stack_resources")
        listed = pages.paginate(StackName=f"eva-{self.cluster}").build_full_result()
        return {
            it["LogicalResourceId"]: it["PhysicalResourceId"]
            for it in listed["StackResourceSummaries"]
        }

    def state(self) -> tuple[list[str], list[str]]:
        """Volumes and snapshots of the master's state."""
        ec2 = self.aws.client("ec2")
        ours = [{"Name": "tag:eva:state", "Values": [self.cluster]}]
        snapshots = ec2.describe_snapshots(OwnerIds=["self"], Filters=ours)["Snapshots"]
        volumes = ec2.describe_volumes(Filters=ours)["Volumes"]
        return [it["VolumeId"] for it in volumes], [it["SnapshotId"] for it in snapshots]


def documented() -> list[str]:
    """The commands of the how-to, one a line."""
    text = HOW_TO.read_text().partition("## A snapshot of the state")[2]
    (block,) = re.findall(r"```sh\n(.*?)```", text.partition("\n## ")[0], re.DOTALL)
    return str(block).replace("\\\n", " ").strip().splitlines()


def put_back(account: Account, home: Path) -> None:
    """Do what the how-to says, with what its commands have printed."""
    made = account.made()
    words = {"MASTER": made["Master"], "BUCKET": made["Bucket"], "ZONE": f"{REGION}a"}
    words["lab"] = account.cluster
    path = home / "bin"
    path.mkdir()
    python = shlex.quote(sys.executable)
    (path / "aws").write_text(f'#!/bin/sh\nexec {python} -m awscli "$@"\n')
    (path / "aws").chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{path}:{os.environ['PATH']}",
        "AWS_DEFAULT_REGION": REGION,
    }

    def called(line: str) -> Any:
        for word, value in words.items():
            line = re.sub(rf"(?<![-\w]){word}\b", value, line)
        done = subprocess.run(
            ["sh", "-c", line], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, (line, done.stderr)
        return json.loads(done.stdout) if done.stdout.strip().startswith("{") else {}

    look, *changes = documented()

    def completed() -> list[str]:
        listed = called(look)["Snapshots"]
        return [it["SnapshotId"] for it in listed if it["State"] == "completed"]

    (words["SNAPSHOT"],) = until(completed, "the snapshot is completed")
    for line in changes:
        answer = called(line)
        if "create-volume" in line:
            words["VOLUME"] = answer["VolumeId"]


def charges_taken(eva: Eva) -> list[str]:
    """Sentences of the masters that took charge, as far as one answers."""
    try:
        told = eva.run("events", "--last", "0", "--json").splitlines()
    except StepFailed:
        return []
    return [it["text"] for it in map(json.loads, told) if it["kind"] == "leader"]


def deploy(eva: Eva, home: Path) -> None:
    bundles.make(home / "dist")
    (home / "own.yaml").write_text(yaml.safe_dump(OWN))
    eva.account(
        *("deploy", "aws", "-y", "--users", "127.0.0.1/32"),
        *("--bundles", str(home / "dist"), "--settings", str(home / "own.yaml")),
        *("--client-file", str(eva.client_file)),
    )


@pytest.mark.long
@pytest.mark.waits
@pytest.mark.timeout(1200)
def test_jobs_go_on_with_a_state_that_was_put_back_and_no_instance_is_left(
    aws: Aws, centre: DataCentre, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    eva = Eva("back", REGION, tmp_path, lambda _: None, poll_s=0.5)
    monkeypatch.setenv("EVA_CONFIG", str(eva.client_file))
    account, jobs = Account(aws, "back"), Jobs(eva, centre)
    deploy(eva, tmp_path)
    ids = {name: jobs.submit(name) for name in ("kept", "done", "again")}
    ((_, kept),) = jobs.began("kept")
    (snapshot,) = centre.take_snapshots()

    # After the snapshot a job ends with its instance, one begins anew, and one comes.
    jobs.let_go("done")
    until(lambda: jobs.task(ids["done"]).state == "succeeded", "a job ends")
    os.killpg(os.getpgid(jobs.began("again")[0][1]), signal.SIGKILL)
    until(lambda: len(jobs.began("again")) == 2, "a job begins anew")
    jobs.submit("lost")
    until(lambda: len(account.workers()) == 3, "the instance of the job that ended is given back")
    put_back(account, tmp_path)

    told = until(lambda: [it for it in charges_taken(eva) if "put back" in it], "a master says so")
    assert len(told) == 1
    assert re.match(r"a master has taken charge with a journal put back to \d{4}-", told[0])
    # The attempt that the journal does not know of is over before the next one begins.
    until(lambda: jobs.task(ids["again"]).attempt > 2, "a job begins after what was lost")
    until(lambda: len(jobs.began("again")) == 3, "and runs")
    assert jobs.task(ids["kept"]).attempt == 1
    until(lambda: jobs.task(ids["done"]).state == "succeeded", "its proof is found")
    # Nothing is known of the job that came later; its instance is not kept.
    until(lambda: len(account.workers()) == 2, "the instance that is not on record goes")
    names = {job["name"] for job in eva.json("ls", "--all")["jobs"]}
    assert names == {"kept", "done", "again"}
    fresh = jobs.submit("fresh")
    jobs.let_go("kept", "again", "fresh")
    eva.run("wait", "--timeout", "10m", ids["kept"], ids["again"], fresh)
    assert jobs.began("kept") == [(1, kept)], "was restarted"
    assert jobs.ended("done") == [1], "a finished job was done again"
    assert jobs.ended("again") == [jobs.began("again")[-1][0]]
    until(lambda: not account.workers("pending", "running", "shutting-down"), "all are given back")

    volumes, snapshots = account.state()
    assert len(volumes) == 2
    assert snapshots == [snapshot]
    eva.account("teardown", "-y")
    assert account.state() == ([], [])
    assert [each for each in aws.decisions() if not each["allowed"]] == []
