"""Tears a cluster down: the master first, so that it launches no new instances."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

from eva_master.adapters.deployment.account import Absent, Account, listed
from eva_master.adapters.deployment.stack import Stack
from eva_master.adapters.ec2.sightings import CLUSTER_TAG
from eva_wire.values.errors import CloudError

_ALIVE = ["pending", "running", "shutting-down", "stopping", "stopped"]
_UNUSED = {"Name": "status", "Values": ["available"]}
_PER_CALL = 500
STATE_TAG = "eva:state"
"""On the volume of a master's state and on its snapshots: the cluster."""


def client_parameter(cluster: str) -> str:
    """Name of the parameter in which the master stores an operator's settings."""
    return f"/eva/{cluster}/client"


class Teardown:
    """Removes a cluster.

    Args:
        account: Where it is.

    Raises:
        NotFound: There is no such stack.
    """

    def __init__(self, account: Account) -> None:
        self._account = account
        self._clients = account.clients()
        self._stack = Stack(self._clients("cloudformation"), account.cluster, account.poll_s)
        self._stack.remove_shell()
        self._made = self._stack.resources()

    def workers(self) -> list[str]:
        """Ids of the instances that the cluster has launched and that are not terminated."""
        alive = {"Name": "instance-state-name", "Values": _ALIVE}
        return self._tagged("instances", "Reservations[].Instances[].InstanceId", alive)

    def stored(self) -> tuple[int, int]:
        """The number of objects in the bucket and their total size in bytes."""
        if not (bucket := self._made.get("Bucket")):
            return 0, 0
        s3 = self._clients("s3")
        sizes = list(listed(s3, "list_objects_v2", "Contents[].Size", Bucket=bucket))
        return len(sizes), sum(sizes)

    def run(self, told: Callable[[str], None]) -> None:
        """Remove everything; may be repeated until it succeeds.

        Args:
            told: Called with a message before each step.

        Raises:
            CloudError: Some resources are left.
        """
        # Otherwise the master would replace the workers that it loses.
        if master := self._made.get("Master"):
            told("Terminating the master")
            self._terminate([master])
        while workers := self.workers():
            told(f"Terminating {len(workers)} instances")
            self._terminate(workers)
        if bucket := self._made.get("Bucket"):
            told(f"Emptying the bucket {bucket}")
            with contextlib.suppress(Absent):
                self._empty(bucket)
        with contextlib.suppress(Absent):
            self._clients("ssm").delete_parameter(Name=client_parameter(self._account.cluster))
        told(f"Deleting the stack {self._stack.name}")
        self._stack.delete()
        self._forget_state(told)
        # The volumes of instances that have just ended are still in use, and vanish by themselves.
        volumes = self._tagged("volumes", "Volumes[].VolumeId", _UNUSED)
        if remains := [*self.workers(), *volumes]:
            raise CloudError(f"left of the cluster: {', '.join(remains)}", hint="run it again")

    def _terminate(self, instances: list[str]) -> None:
        """Terminate instances, and wait for their end."""
        ec2 = self._clients("ec2")
        chunks = [instances[at : at + _PER_CALL] for at in range(0, len(instances), _PER_CALL)]
        with contextlib.suppress(Absent):
            for chunk in chunks:
                ec2.terminate_instances(InstanceIds=chunk)
            for chunk in chunks:
                self._account.await_state(ec2, "terminated", chunk)

    def _forget_state(self, told: Callable[[str], None]) -> None:
        """Delete the snapshots of the master's state, and volumes that were made of one."""
        ec2 = self._clients("ec2")
        if names := self._tagged("snapshots", "Snapshots[].SnapshotId", tag=STATE_TAG):
            told(f"Deleting {len(names)} snapshots of the master's state")
        for name in names:
            with contextlib.suppress(Absent):
                ec2.delete_snapshot(SnapshotId=name)
        for name in self._tagged("volumes", "Volumes[].VolumeId", _UNUSED, tag=STATE_TAG):
            with contextlib.suppress(Absent):
                ec2.delete_volume(VolumeId=name)

    def _tagged(
        self, kind: str, ids: str, *filters: Mapping[str, Any], tag: str = CLUSTER_TAG
    ) -> list[str]:
        """Ids of one kind that EC2 lists for the cluster by a tag and other filters."""
        ours = {"Name": f"tag:{tag}", "Values": [self._account.cluster]}
        owned = {"OwnerIds": ["self"]} if kind == "snapshots" else {}
        ec2 = self._clients("ec2")
        return list(listed(ec2, f"describe_{kind}", ids, Filters=[ours, *filters], **owned))

    def _empty(self, bucket: str) -> None:
        s3 = self._clients("s3")
        for keys in listed(s3, "list_objects_v2", "[Contents[].{Key: Key}]", Bucket=bucket):
            s3.delete_objects(Bucket=bucket, Delete={"Objects": keys, "Quiet": True})
        uploads = "Uploads[].{Key: Key, UploadId: UploadId}"
        for upload in listed(s3, "list_multipart_uploads", uploads, Bucket=bucket):
            s3.abort_multipart_upload(Bucket=bucket, **upload)
