"""Consoles of instances, as GetConsoleOutput answers.

https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_GetConsoleOutput.html: the answer has
output that "was posted shortly after an instance transition state", and so none at first; "only the
most recent 64 KB" of it, in base64; with Latest "the latest serial console output at any time", of
instances "built on the Nitro System". The code for others: aws/aws-k8s-tester and others compare
with "UnsupportedOperation: This instance type does not support retrieving the latest console logs".
"""

from __future__ import annotations

import base64
from collections.abc import Mapping

MOST_BYTES = 64 * 1024


class Consoles:
    """The consoles of all instances."""

    def __init__(self) -> None:
        self._latest: dict[str, bytes] = {}
        self._posted: dict[str, bytes] = {}

    def write(self, ec2_id: str, text: str, *, post: bool) -> None:
        """Have an instance write to its console.

        Args:
            ec2_id: The instance.
            text: The text.
            post: Whether EC2 posts all that is there by now.
        """
        written = self._latest.get(ec2_id, b"") + text.encode()
        self._latest[ec2_id] = written[-MOST_BYTES:]
        if post:
            self._posted[ec2_id] = self._latest[ec2_id]

    def answer(self, form: Mapping[str, str], hypervisor: str) -> bytes:
        """The answer to a call; empty if that is an operation that the type does not support.

        Args:
            form: The call's.
            hypervisor: Of the instance's type, as EC2 names it.
        """
        ec2_id = form["InstanceId"]
        latest = form.get("Latest") == "true"
        if latest and hypervisor != "nitro":
            return b""
        output = (self._latest if latest else self._posted).get(ec2_id)
        encoded = "" if output is None else base64.b64encode(output).decode()
        element = f"<output>{encoded}</output>" if encoded else ""
        return (
            "<GetConsoleOutputResponse xmlns='http://ec2.amazonaws.com/doc/2016-11-15/'>"
            f"<requestId>0</requestId><instanceId>{ec2_id}</instanceId>"
            f"<timestamp>2026-01-01T00:00:00.000Z</timestamp>{element}</GetConsoleOutputResponse>"
        ).encode()
