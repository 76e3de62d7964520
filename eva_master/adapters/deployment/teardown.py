"""Tears a cluster down: the master first, so that it launches no new instances."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from botocore.exceptions import ClientError

from eva_master.adapters.deployment.stack import Stack
from eva_master.adapters.ec2.sightings import CLUSTER_TAG
from eva_wire.values.errors import CloudError

_ALIVE = ("pending", "running", "shutting-down", "stopping", "stopped")
_TERMINATION_TIMEOUT_S = 900.0
_PER_CALL = 500


def client_parameter(cluster: str) -> str:
    """Name of the parameter in which the master stores an operator's settings."""
    return f"/eva/{cluster}/client"


class Teardown:
    """Removes a cluster.

    Args:
        stack: Its stack.
        cluster: Its name.
        clients: Creates a boto3 client for a service.
        poll_s: Seconds between two looks at the instances.
    """

    def __init__(
        self, stack: Stack, cluster: str, clients: Callable[[str], Any], poll_s: float = 5.0
    ) -> None:
        self._stack = stack
        self._cluster = cluster
        self._clients = clients
        self._poll_s = poll_s

    def workers(self) -> list[str]:
        """Ids of the instances that the cluster has launched and that are not terminated."""
        return list(self._instances("tag:" + CLUSTER_TAG, self._cluster))

    def stored(self) -> tuple[int, int]:
        """The number of objects in the bucket and their total size in bytes."""
        bucket = self._stack.resources().get("Bucket")
        sizes = [entry["Size"] for entry in self._objects(bucket)] if bucket else []
        return len(sizes), sum(sizes)

    def run(self, told: Callable[[str], None]) -> None:
        """Remove everything; may be repeated until it succeeds.

        Args:
            told: Called with a message before each step.

        Raises:
            CloudError: Some resources are left.
        """
        made = self._stack.resources()
        # Otherwise the master would replace the workers that it loses.
        if master := made.get("Master"):
            told("Terminating the master")
            self._terminate([master])
            self._await_end("instance-id", master)
        if workers := self.workers():
            told(f"Terminating {len(workers)} instances")
            self._terminate(workers)
        self._await_end("tag:" + CLUSTER_TAG, self._cluster)
        if bucket := made.get("Bucket"):
            told(f"Emptying the bucket {bucket}")
            self._empty(bucket)
        self._forget(client_parameter(self._cluster))
        told(f"Deleting the stack {self._stack.name}")
        self._stack.delete()
        if remains := [*self.workers(), *self._volumes()]:
            raise CloudError(f"left of the cluster: {', '.join(remains)}", hint="run it again")

    def _instances(self, name: str, value: str) -> Iterator[str]:
        filters = [
            {"Name": name, "Values": [value]},
            {"Name": "instance-state-name", "Values": list(_ALIVE)},
        ]
        for page in (
            self._clients("ec2").get_paginator("describe_instances").paginate(Filters=filters)
        ):
            for reservation in page["Reservations"]:
                for instance in reservation["Instances"]:
                    yield instance["InstanceId"]

    def _terminate(self, ids: list[str]) -> None:
        for start in range(0, len(ids), _PER_CALL):
            try:
                self._clients("ec2").terminate_instances(InstanceIds=ids[start : start + _PER_CALL])
            except ClientError as error:
                if "NotFound" not in error.response["Error"]["Code"]:
                    raise CloudError(f"EC2: {error}") from error

    def _await_end(self, name: str, value: str) -> None:
        deadline = time.monotonic() + _TERMINATION_TIMEOUT_S
        while instances := list(self._instances(name, value)):
            if time.monotonic() > deadline:
                raise CloudError(f"not terminated: {', '.join(instances)}", hint="run it again")
            time.sleep(self._poll_s)

    def _volumes(self) -> Iterator[str]:
        filters = [{"Name": "tag:" + CLUSTER_TAG, "Values": [self._cluster]}]
        pages = self._clients("ec2").get_paginator("describe_volumes").paginate(Filters=filters)
        for page in pages:
            for volume in page["Volumes"]:
                # The network interfaces of instances that have just ended vanish by themselves.
                if volume["State"] == "available":
                    yield volume["VolumeId"]

    def _objects(self, bucket: str) -> Iterator[dict[str, Any]]:
        pages = self._clients("s3").get_paginator("list_objects_v2").paginate(Bucket=bucket)
        for page in pages:
            yield from page.get("Contents", ())

    def _empty(self, bucket: str) -> None:
        s3 = self._clients("s3")
        try:
            for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket):
                if keys := [{"Key": entry["Key"]} for entry in page.get("Contents", ())]:
                    s3.delete_objects(Bucket=bucket, Delete={"Objects": keys, "Quiet": True})
            for page in s3.get_paginator("list_multipart_uploads").paginate(Bucket=bucket):
                for upload in page.get("Uploads", ()):
                    s3.abort_multipart_upload(
                        Bucket=bucket, Key=upload["Key"], UploadId=upload["UploadId"]
                    )
        except ClientError as error:
            if error.response["Error"]["Code"] != "NoSuchBucket":
                raise CloudError(f"S3: {error}") from error

    def _forget(self, parameter: str) -> None:
        try:
            self._clients("ssm").delete_parameter(Name=parameter)
        except ClientError as error:
            if error.response["Error"]["Code"] != "ParameterNotFound":
                raise CloudError(f"SSM: {error}") from error
