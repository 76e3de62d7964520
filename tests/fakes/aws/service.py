"""AWS for tests: moto's server in a process of its own, and what moto lacks of EC2.

The server's side is in `tests.fakes.aws.server`. Orders go by cluster (the tag ``eva:cluster``), so
that all tests may share one server. And S3 can be out of order; that is for who has a server of
its own.
"""

from __future__ import annotations

import atexit
import functools
import json
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import boto3
import botocore.session
import pytest

from tests.fakes.patience import DEADLINE_S

REGION = "us-east-1"
CREDENTIALS = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing"}
DEPLOYER = "arn:aws:iam::123456789012:user/deployer"
"""The identity that these credentials are."""
IMAGE = "ssm:/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64"
"""Of those that moto knows."""

AHEAD = "p9.48xlarge"
"""A type, made up, that is sold only as capacity that is paid ahead."""

LOST = "lost"
"""A fault: the call is carried out, and its answer comes too late."""

# Descriptions of services are large, and each session would read them anew.
botocore.session.create_loader = functools.cache(botocore.session.create_loader)


class Aws:
    """The server, from outside; it ends with this process.

    Args:
        host: Where it listens.
    """

    def __init__(self, host: str = "127.0.0.1") -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.fakes.aws.server", host],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self._process.stdout is not None
        self.client = functools.cache(self._client)
        self.url = self._process.stdout.readline().decode().strip()
        assert self.url, "the server did not start"

    def _client(self, service: str) -> Any:
        """A client of boto3, for any number of threads."""
        return boto3.session.Session().client(
            service, region_name=REGION, endpoint_url=self.url, **CREDENTIALS
        )

    def order(
        self,
        cluster: str,
        *,
        faults: Iterable[str] = (),
        calls: Mapping[str, Iterable[str]] | None = None,
        launch_ms: int = 0,
        sold_out: Iterable[str] = (),
        ends: Iterable[str] = (),
    ) -> None:
        """Have calls of a cluster fail.

        Args:
            cluster: Name of the cluster.
            faults: Of its next launches: codes of errors, or `LOST`.
            calls: Faults of its next calls of other kinds, such as ``DescribeInstances``; none for
                a kind makes all well again.
            launch_ms: So long its launches take from now on.
            sold_out: There is no capacity for these from now on, until the next order: ``TYPE``,
                ``TYPE@ZONE`` or ``TYPE@ZONE/spot``.
            ends: Codes of StateReason, such as ``Client.VolumeLimitExceeded``: so many of its next
                launches succeed, and a moment later the instance is terminated for that reason.
        """
        self._post(
            "orders",
            {
                "cluster": cluster,
                "calls": {
                    action: list(codes)
                    for action, codes in {"RunInstances": faults or None, **(calls or {})}.items()
                    if codes is not None
                },
                "launch_ms": launch_ms,
                "sold_out": list(sold_out),
                "ends": list(ends),
            },
        )

    def purchases(self) -> list[dict[str, Any]]:
        """All launches, in order.

        Each has ``at``, ``cluster``, ``instance``, ``offering``, ``ec2_id``, ``gib`` of volume and
        ``address`` (whether it got a public one).
        """
        answer: list[dict[str, Any]] = self._post("purchases", {})
        return answer

    def quotes(self) -> dict[str, list[tuple[float, str]]]:
        """Prices on the spot market by ``TYPE@ZONE``, each with its time, oldest first."""
        answer: dict[str, list[tuple[float, str]]] = self._post("quotes", {})
        return answer

    def calls(self, cluster: str) -> list[dict[str, Any]]:
        """Calls for a cluster: ``action``, ``outcome`` (empty or a code) and ``at``."""
        answer: list[dict[str, Any]] = self._post("calls", {"cluster": cluster})
        return answer

    def decisions(self) -> list[dict[str, Any]]:
        """Permissions that calls of stacks' roles took: ``role``, ``action``, ``resource``,
        ``context`` and whether it was ``allowed``.
        """
        answer: list[dict[str, Any]] = self._post("decisions", {})
        return answer

    def as_role(self, role: str, service: str) -> Any:
        """A client of boto3 with the credentials of a stack's role.

        Args:
            role: Its name in the account, which is the name of its access key here.
            service: As for `client`.
        """
        secret = CREDENTIALS["aws_secret_access_key"]
        return boto3.session.Session().client(
            service,
            region_name=REGION,
            endpoint_url=self.url,
            aws_access_key_id=role,
            aws_secret_access_key=secret,
        )

    def populate(self, cluster: str, count: int) -> None:
        """Give a cluster so many running instances, which do little (`tests.fakes.aws.herd`)."""
        self._post("populate", {"cluster": cluster, "count": count})

    def terminated(self, cluster: str) -> int:
        """How many instances of such a cluster are terminated."""
        return int(self._post("terminated", {"cluster": cluster}))

    def set_spot_prices(self, prices: Mapping[str, str]) -> None:
        """Change prices on the spot market, in dollars per hour, by ``TYPE@ZONE``; for all."""
        self._post("spot", dict(prices))

    def sell(self, prices: Mapping[str, str], *, gone: Sequence[str] = ()) -> None:
        """Change what is sold for good, and to all: dollars per hour by type, and types that go."""
        self._post("sell", {"prices": dict(prices), "gone": list(gone)})

    def forget(self) -> None:
        """Be as after the start; faster than a new server."""
        self._post("forget", {})
        reset = urllib.request.Request(f"{self.url}/moto-api/reset", method="POST")
        urllib.request.urlopen(reset, timeout=DEADLINE_S).close()

    def publish(self, parameter: str, value: str) -> None:
        """Have Amazon put another value into a public parameter of Systems Manager.

        ``zones`` stands for what CloudFormation finds to be the region's zones.
        """
        self._post("publish", {parameter: value})

    def fail_resources(self, reasons: Mapping[str, str]) -> None:
        """Have CloudFormation fail to make or change resources, by their names."""
        self._post("fail", dict(reasons))

    def be(self, **facts: Any) -> None:
        """Have the account be otherwise than usual, in place of what was said before.

        Args:
            facts: ``free`` (its plan); ``quotas`` (vCPUs by code); ``skew_s`` (how far AWS's clock
                is behind); ``forbidden`` (types, and actions for a simulated policy); ``unsold``
                (types that are sold nowhere after all); ``denied`` (targets of JSON calls, or
                ``SimulatePrincipalPolicy``).
        """
        self._post("preflight", facts)

    def know(self, identities: Mapping[str, Mapping[str, str]]) -> None:
        """Have STS know more callers: ``secret``, ``arn`` and ``token`` by access key."""
        self._post("identities", dict(identities))

    def take_snapshots(self) -> list[tuple[str, str]]:
        """Have a day pass for the lifecycle policies of stacks: volumes with their snapshots."""
        taken = self._post("snapshots", {})
        return [(volume, snapshot) for volume, snapshot in taken]

    def write_on_console(self, ec2_id: str, text: str, *, post: bool = True) -> None:
        """Have an instance write to its console; see `instances.consoles`."""
        self._post("console", {"ec2_id": ec2_id, "text": text, "post": post})

    def slow_stacks(self, looks: int) -> None:
        """Have so many looks at a stack pass before what was begun on it is done."""
        self._post("slow", {"looks": looks})

    def break_s3(self) -> None:
        """Have S3 answer whatever it is asked with an error."""
        self._post("outage", {"s3": True})

    def mend_s3(self) -> None:
        """Undo `break_s3`."""
        self._post("outage", {"s3": False})

    def _post(self, path: str, document: Mapping[str, Any]) -> Any:
        request = urllib.request.Request(f"{self.url}/eva/{path}", json.dumps(document).encode())
        with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
            return json.load(answer)

    def make_bucket(self) -> str:
        """Make a bucket; returns its URL for an object store, with a prefix."""
        bucket = f"eva-{uuid.uuid4().hex}"
        self.client("s3").create_bucket(Bucket=bucket)
        return f"s3://{bucket}/some/prefix?region={REGION}&endpoint={self.url}"

    def stop(self) -> None:
        """End the server."""
        self._process.communicate()


@functools.cache
def shared() -> Aws:
    """The one server of this test process."""
    server = Aws()
    atexit.register(server.stop)
    return server


def bucket_url(monkeypatch: pytest.MonkeyPatch) -> str:
    """A new bucket on the shared server, with the credentials for it in the environment."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name.upper(), value)
    return shared().make_bucket()
