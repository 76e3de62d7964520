"""Calls to AWS, with timeouts, rate limits, and repetitions where they may help."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from eva_master.adapters.ec2.cloud_time import CloudTime
from eva_master.adapters.ec2.faults import (
    CloudUnsettled,
    lacks_credentials,
    translate,
    worth_repeating,
)
from eva_master.adapters.ec2.limits import RateLimiter, limiter_of
from eva_master.adapters.ec2.settings import Ec2Settings
from eva_master.adapters.ec2.sightings import CLUSTER_TAG, Sighting, sighting
from eva_master.adapters.loop.clock import SystemClock
from eva_master.ports import Clock
from eva_wire.values.errors import CloudDenied, CloudError, Throttled

TRIES = 5
FIRST_PAUSE_S = 0.2
IDS_PER_CALL = 500
THREADS = 8
"""Concurrent launches."""

ClientFactory = Callable[[Ec2Settings, str], Any]

_random = random.SystemRandom()


def boto_client(settings: Ec2Settings, service: str, read_timeout_s: float = 30.0) -> Any:
    """Create a boto3 client, which any number of threads may use; boto3 finds the credentials."""
    return boto3.session.Session().client(
        service,
        region_name=settings.region,
        endpoint_url=settings.endpoint or None,
        config=Config(
            connect_timeout=5.0,
            read_timeout=read_timeout_s,
            max_pool_connections=THREADS + 1,
            # This module repeats calls itself: botocore would also repeat calls that cannot
            # succeed.
            retries={"total_max_attempts": 1},
        ),
    )


class Aws:
    """Calls any AWS service in one region. Any thread may call.

    Args:
        settings: The account's settings.
        closing: Set at shutdown; from then on no call is repeated.
        client_factory: Creates a boto3 client for a service.
        clock: The loop's time; outside of a master the wall clock does.
        allowance: Rate of calls as a share of that in `limits`.

    Attributes:
        time: Follows EC2's clock with each answer.
    """

    def __init__(
        self,
        settings: Ec2Settings,
        closing: threading.Event,
        client_factory: ClientFactory = boto_client,
        clock: Clock | None = None,
        allowance: float = 1.0,
    ) -> None:
        self.time = CloudTime(clock or SystemClock())
        self._settings = settings
        self._closing = closing
        self._factory = client_factory
        self._allowance = allowance
        self._clients: dict[str, Any] = {}
        self._lock = threading.Lock()
        self._limiters: dict[str, RateLimiter] = {}

    def call(self, service: str, name: str, request: Mapping[str, Any]) -> Any:
        """Call a method of a service.

        Args:
            service: The service's name in boto3.
            name: Name of the method of boto3's client.
            request: Its arguments.

        Raises:
            CloudError: `Throttled` and `CloudUnsettled` only after several tries.
        """
        limiter = self._limiter(name)
        longest = FIRST_PAUSE_S
        for tries_left in reversed(range(TRIES)):
            if (pause := limiter.take()) > 0 and self._closing.wait(pause):
                raise CloudUnsettled(f"EC2: {name} was not called, since Eva is shutting down")
            asked_ms = self.time.asked()
            try:
                answer = getattr(self._client(service), name)(**request)
            except (BotoCoreError, ClientError) as error:
                fault = translate(error)
                if stale := lacks_credentials(error):
                    with self._lock:
                        self._clients.pop(service, None)
                if isinstance(fault, Throttled):
                    limiter.throttled()
                if not tries_left or not (stale or worth_repeating(fault)):
                    raise fault from error
                # Drawn from the upper half, so that many calls that failed together do not repeat
                # together.
                if self._closing.wait(_random.uniform(longest / 2, longest)):
                    raise fault from error
            else:
                limiter.succeeded()
                self.time.answered(asked_ms, answer)
                return answer
            longest *= 2
        raise AssertionError("unreachable: the last try returns or raises")

    def pages(
        self, service: str, name: str, request: Mapping[str, Any]
    ) -> Iterator[Mapping[str, Any]]:
        """Call a method whose answer comes in pages; raises as `call` does."""
        request = dict(request)
        while True:
            page = self.call(service, name, request)
            yield page
            if not page.get("NextToken"):
                return
            request["NextToken"] = page["NextToken"]

    def _client(self, service: str) -> Any:
        with self._lock:
            if service not in self._clients:
                self._clients[service] = self._factory(self._settings, service)
            return self._clients[service]

    def _limiter(self, name: str) -> RateLimiter:
        with self._lock:
            if name not in self._limiters:
                self._limiters[name] = limiter_of(name, time.monotonic, self._allowance)
            return self._limiters[name]


class Ec2Client:
    """The calls to EC2 that a cluster needs. Any thread may call; every method raises `CloudError`.

    Args:
        aws: Makes the calls.
        settings: The cluster's.
    """

    def __init__(self, aws: Aws, settings: Ec2Settings) -> None:
        self._aws = aws
        self._settings = settings

    def instances(self) -> Iterator[Sighting]:
        """List all instances of the cluster that EC2 knows, including terminated ones.

        Their times are the loop's.
        """
        request: dict[str, Any] = {
            "Filters": [{"Name": f"tag:{CLUSTER_TAG}", "Values": [self._settings.cluster]}],
            "MaxResults": 1_000,
        }
        for page in self._aws.pages("ec2", "describe_instances", request):
            for reservation in page["Reservations"]:
                for seen in filter(None, map(sighting, reservation["Instances"])):
                    yield seen.dated(self._aws.time.loop_ms)

    def terminate(self, ec2_ids: Sequence[str]) -> dict[str, CloudError]:
        """Terminate instances; already terminated ones are no error.

        EC2 refuses a call as a whole. A refused call is repeated in halves, so that an instance
        that may not be terminated does not keep others alive.

        Returns:
            The instances that EC2 refuses to terminate, with its error.
        """
        refused: dict[str, CloudError] = {}
        chunks = [ec2_ids[at : at + IDS_PER_CALL] for at in range(0, len(ec2_ids), IDS_PER_CALL)]
        while chunks:
            chunk = chunks.pop()
            try:
                self._aws.call("ec2", "terminate_instances", {"InstanceIds": chunk})
            except CloudError as error:
                if worth_repeating(error) or isinstance(error, CloudDenied):
                    raise
                middle = len(chunk) // 2
                if middle:
                    chunks += [chunk[:middle], chunk[middle:]]
                else:
                    refused[chunk[0]] = error
        return refused

    def tag(self, ec2_ids: Sequence[str], key: str, value: str) -> None:
        """Add a tag to instances."""
        for start in range(0, len(ec2_ids), IDS_PER_CALL):
            chunk = ec2_ids[start : start + IDS_PER_CALL]
            tags = [{"Key": key, "Value": value}]
            self._aws.call("ec2", "create_tags", {"Resources": chunk, "Tags": tags})
