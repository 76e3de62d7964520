"""The calls to EC2, each with a deadline, repeated when that may help."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from eva_master.adapters.ec2.faults import translate, worth_repeating
from eva_master.adapters.ec2.settings import Ec2Settings
from eva_master.adapters.ec2.sightings import CLUSTER_TAG, Sighting, sighting

TRIES = 5
FIRST_PAUSE_S = 0.2
IDS_PER_CALL = 500

_random = random.SystemRandom()


def boto_client(settings: Ec2Settings) -> Any:
    """A client of boto3, for any number of threads; credentials as boto3 finds them."""
    return boto3.session.Session().client(
        "ec2",
        region_name=settings.region,
        endpoint_url=settings.endpoint or None,
        config=Config(
            connect_timeout=settings.connect_timeout_s,
            read_timeout=settings.read_timeout_s,
            max_pool_connections=settings.threads + 1,
            # Repeating is this module's: botocore would also repeat what cannot succeed.
            retries={"total_max_attempts": 1},
        ),
    )


class Ec2Client:
    """EC2 as one cluster needs it.

    Every method blocks and raises `CloudError`; `Throttled` and `CloudUnsettled` only after
    several tries. Any thread may call.

    Args:
        client: Of boto3.
        settings: The cluster and the page size.
        closing: Set when nobody wants to wait any more; no try is then repeated.
    """

    def __init__(self, client: Any, settings: Ec2Settings, closing: threading.Event) -> None:
        self._client = client
        self._settings = settings
        self._closing = closing

    def instances(self) -> Iterator[Sighting]:
        """Every instance of the cluster that EC2 still knows, terminated ones included."""
        request: dict[str, Any] = {
            "Filters": [{"Name": f"tag:{CLUSTER_TAG}", "Values": [self._settings.cluster]}],
            "MaxResults": self._settings.page_size,
        }
        while True:
            page = self._call("describe_instances", request)
            for reservation in page["Reservations"]:
                yield from filter(None, map(sighting, reservation["Instances"]))
            if not page.get("NextToken"):
                return
            request["NextToken"] = page["NextToken"]

    def run(self, request: Mapping[str, Any]) -> str:
        """Launch one instance, which the request's client token makes safe to repeat.

        Returns:
            EC2's id of it.
        """
        answer = self._call("run_instances", request)
        return str(answer["Instances"][0]["InstanceId"])

    def terminate(self, ec2_ids: Sequence[str]) -> None:
        """Terminate instances; no error for those that are terminated already."""
        for start in range(0, len(ec2_ids), IDS_PER_CALL):
            chunk = ec2_ids[start : start + IDS_PER_CALL]
            self._call("terminate_instances", {"InstanceIds": chunk})

    def tag(self, ec2_ids: Sequence[str], key: str, value: str) -> None:
        """Give instances the same tag."""
        for start in range(0, len(ec2_ids), IDS_PER_CALL):
            chunk = ec2_ids[start : start + IDS_PER_CALL]
            self._call("create_tags", {"Resources": chunk, "Tags": [{"Key": key, "Value": value}]})

    def _call(self, name: str, request: Mapping[str, Any]) -> Any:
        longest = FIRST_PAUSE_S
        for left in reversed(range(TRIES)):
            try:
                return getattr(self._client, name)(**request)
            except (BotoCoreError, ClientError) as error:
                fault = translate(error)
                if not left or not worth_repeating(fault):
                    raise fault from error
                # From the upper half: many that failed together must not come again together.
                if self._closing.wait(_random.uniform(longest / 2, longest)):
                    raise fault from error
            longest *= 2
        raise AssertionError("unreachable: the last try returns or raises")
