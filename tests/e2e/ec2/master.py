"""A master whose instances come from the fake EC2, and stay without a worker."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import yaml

from tests.e2e.cluster import Cluster, until
from tests.fakes.aws.purchases import check_ended
from tests.fakes.aws.service import CREDENTIALS, IMAGE, REGION, shared

LARGE, XLARGE = "c7i.large", "c7i.xlarge"
ZONES = [f"{REGION}a", f"{REGION}b"]


class Ec2Master(Cluster):
    """A master with a cluster of its own in the account of all tests."""

    def __init__(self, home: Path, **settings: Any) -> None:
        self.aws = shared()
        self.name = uuid.uuid4().hex
        section = {
            "region": REGION,
            "zones": ZONES,
            "endpoint": self.aws.url,
            "images": {"x86_64": IMAGE},
            "poll": "500ms",
            **settings.pop("ec2", {}),
        }
        ours = {
            "cloud": "ec2",
            "cluster": self.name,
            "advertise": "127.0.0.1",
            "objects": self.aws.make_bucket(),
            "ec2": section,
            "catalog": {"only": [LARGE, XLARGE]},
            **settings,
        }
        super().__init__(home, command="master", settings=ours)

    def environment(self) -> dict[str, str]:
        """See `Cluster.environment`."""
        credentials = {name.upper(): value for name, value in CREDENTIALS.items()}
        return {**super().environment(), **credentials}

    def change(self, **section: Any) -> None:
        """Change settings of EC2, for the next start."""
        document = yaml.safe_load(self._config.read_text())
        document["ec2"] |= section
        self._config.write_text(yaml.safe_dump(document))

    def made(self) -> list[dict[str, Any]]:
        """The instances in the API's own record, those gone included, oldest first."""
        tag = {"Name": "tag:eva:cluster", "Values": [self.name]}
        pages = self.aws.client("ec2").get_paginator("describe_instances").paginate(Filters=[tag])
        found = [
            instance
            for page in pages
            for reservation in page["Reservations"]
            for instance in reservation["Instances"]
        ]
        return sorted(found, key=name_of)

    def alive(self) -> list[dict[str, Any]]:
        """Those that cost money."""
        return [it for it in self.made() if it["State"]["Name"] not in ("terminated",)]

    def launches(self) -> list[str]:
        """What became of the calls of RunInstances."""
        log = self.aws.calls(self.name)
        return [call["outcome"] for call in log if call["action"] == "RunInstances"]

    def told(self, job: str) -> str:
        """Why a job of one task waits."""
        return str(self.task(job).waiting_for)

    def status(self, job: str) -> str:
        """What its owner is shown of a job, in one line."""
        result = self.eva("status", job, COLUMNS="400")
        assert result.returncode == 0, result.stderr
        return " ".join(result.stdout.split())

    def end(self, job: str) -> None:
        """Cancel a job, and see that nothing is left of what was bought for it."""
        self.client.cancel(job)
        until(lambda: not self.alive(), "nothing is paid for")

    def close(self) -> None:
        """See `Cluster.close`."""
        super().close()
        check_ended(self.aws, self.state_dir / "journal.db", self.name)
        if left := [it["InstanceId"] for it in self.alive()]:
            self.aws.client("ec2").terminate_instances(InstanceIds=left)


def name_of(instance: dict[str, Any]) -> str:
    """The master's name of an instance."""
    return next(tag["Value"] for tag in instance["Tags"] if tag["Key"] == "eva:instance")
