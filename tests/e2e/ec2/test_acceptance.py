"""The acceptance script, against the stand-in: masters and workers boot by their user data."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from deploy.acceptance.assumptions import CHECKS, rows
from tests.e2e.cluster import until
from tests.fakes.aws.deployer import AMAZON_LINUX, OLD_IMAGE
from tests.fakes.aws.service import CREDENTIALS, REGION, Aws
from tests.fakes.datacentre import DataCentre, bundles
from tests.fakes.paths import short_tempdir
from tests.fakes.patience import DEADLINE_S

SCRIPT = Path(__file__).parents[3] / "deploy" / "acceptance" / "run.sh"
NVIDIA = (
    "/aws/service/deeplearning/ami/{}/base-oss-nvidia-driver-gpu-amazon-linux-2023/latest/ami-id"
)


@dataclass
class Trial:
    """A run of the script."""

    aws: Aws
    centre: DataCentre
    home: Path

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Begin; standard error goes to `said`."""
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("EVA_")},
            **{name.upper(): value for name, value in CREDENTIALS.items()},
            "AWS_ENDPOINT_URL": self.aws.url,
        }
        with (self.home / "said").open("wb") as said:
            return subprocess.Popen(
                [
                    *(SCRIPT, "--region", REGION, "--users", "127.0.0.1/32", "--emulated"),
                    *("--bundles", self.home / "dist", "--out", self.home / "out"),
                    *("--shorter", "200", "--pause-s", "0.5", *arguments),
                ],
                env=environment,
                stdin=subprocess.DEVNULL,
                stderr=said,
                text=True,
                start_new_session=True,
            )

    def said(self) -> str:
        return (self.home / "said").read_text()

    def logs(self) -> str:
        return "\n".join(f"--- {name}\n{text}" for name, text in self.centre.logs())

    def report(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads((self.home / "out" / "report.json").read_text())
        return document

    def results(self) -> dict[str, str]:
        return {step["step"]: step["result"] for step in self.report()["steps"]}

    def alive(self) -> list[str]:
        pages = self.aws.client("ec2").get_paginator("describe_instances").paginate()
        return [
            instance["InstanceId"]
            for page in pages
            for reservation in page["Reservations"]
            for instance in reservation["Instances"]
            if instance["State"]["Name"] != "terminated"
        ]

    def stacks(self) -> list[str]:
        stacks = self.aws.client("cloudformation").describe_stacks()["Stacks"]
        return [each["StackName"] for each in stacks if each["StackStatus"] != "DELETE_COMPLETE"]


@pytest.fixture
def trial() -> Iterator[Trial]:
    aws = Aws()
    for name in (AMAZON_LINUX, *(NVIDIA.format(kind) for kind in ("x86_64", "arm64"))):
        aws.publish(name, OLD_IMAGE)
    with tempfile.TemporaryDirectory(prefix="eva-dc-", dir=short_tempdir()) as home:
        centre = DataCentre(aws, Path(home))
        bundles.make(Path(home) / "dist")
        centre.start()
        try:
            yield Trial(aws, centre, Path(home))
        finally:
            centre.close()
            aws.stop()


@pytest.mark.long
@pytest.mark.waits
@pytest.mark.timeout(1200)
def test_a_cluster_is_tried_and_nothing_is_left(trial: Trial) -> None:
    process = trial.start()
    # On a quiet machine two minutes; on a busy one several times that.
    code = process.wait(2 * DEADLINE_S)
    assert code == 0, trial.said() + trial.logs()
    report = trial.report()
    assert report["passed"]
    assert {*trial.results().values()} == {"done"}
    assert {*trial.results()} >= {"array", "spot", "GPU", "deploy again", "bill", "tear down"}
    assert report["remains"] == []
    assert trial.alive() == trial.stacks() == [], trial.said()
    assert 0 < report["spent"] < report["budget"]
    verdicts = {each["assumption"][:20]: each["verdict"] for each in report["assumptions"]}
    assert verdicts["StateTransitionReaso"] == "seen"
    assert verdicts["a token is taken aga"] == "seen"
    assert verdicts["IMDSv2: `spot/instan"] == "not seen"
    # The stand-in has prices of its own.
    assert verdicts["prices of GPU types "] == "different"
    assert "| bill | done |" in (trial.home / "out" / "report.md").read_text()
    # The GPU's worker has booted by its user data, up to the container toolkit.
    (commands,) = trial.home.glob("i-*/root/commands")
    assert "nvidia-smi -L\nnvidia-ctk runtime configure" in commands.read_text()
    (launch,) = [bought for bought in trial.aws.purchases() if bought["offering"].startswith("g6.")]
    assert launch["instance"]
    # Masters and workers have the rights of their roles alone, and need no more.
    decisions = trial.aws.decisions()
    assert [each for each in decisions if not each["allowed"]] == []
    asked = {(each["role"].split("-")[-2], each["action"]) for each in decisions}
    assert {("MasterRole", "ec2:RunInstances"), ("WorkerRole", "s3:PutObject")} <= asked


@pytest.mark.long
@pytest.mark.waits
@pytest.mark.timeout(1200)
def test_above_the_budget_the_cluster_goes_at_once(trial: Trial) -> None:
    process = trial.start("--budget", "0.000001")
    code = process.wait(DEADLINE_S)
    assert code == 1, trial.said() + trial.logs()
    (stopped,) = [each for each in trial.report()["steps"] if each["result"] == "failed"]
    assert "above the budget of $1e-06" in stopped["note"]
    ends = trial.results()["tear down"], trial.results()["nothing is left"]
    assert ends == ("done", "done"), json.dumps(trial.report()["steps"], indent=1)
    assert trial.alive() == trial.stacks() == [], trial.said()


@pytest.mark.long
@pytest.mark.waits
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("during", ["-- deploy", "-- jobs of the demo"])
def test_a_trial_that_is_cut_leaves_nothing(trial: Trial, during: str) -> None:
    process = trial.start()
    until(lambda: process.poll() or (during in trial.said() and trial.stacks()), "a step")
    assert process.poll() is None, trial.said()
    os.kill(process.pid, signal.SIGINT)
    # Another signal does not stop the removal.
    until(lambda: "-- tear down" in trial.said(), "the cluster is removed")
    os.kill(process.pid, signal.SIGTERM)
    assert process.wait(DEADLINE_S) == 130, trial.said() + trial.logs()
    assert trial.results()["interrupted"] == "failed"
    ends = trial.results()["tear down"], trial.results()["nothing is left"]
    assert ends == ("done", "done"), json.dumps(trial.report()["steps"], indent=1)
    assert trial.report()["remains"] == []
    assert trial.alive() == trial.stacks() == [], trial.said()


def test_each_check_belongs_to_one_assumption() -> None:
    table = list(rows())
    assert len(table) > 15
    for words in CHECKS:
        assert len([row for row in table if words in row]) == 1, words
