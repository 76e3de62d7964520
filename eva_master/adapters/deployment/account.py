"""An AWS account that a cluster is deployed in, and its calls, whose errors are `CloudError`s."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import boto3
from botocore.exceptions import BotoCoreError, WaiterError

from eva_master.adapters.ec2.cloud_time import date_ms_of
from eva_wire.values.errors import CloudDenied, CloudError

_END_TIMEOUT_S = 900.0
"""For instances to stop or to be terminated."""
MOST_SKEW_S = 300
"""AWS refuses requests that are dated further off."""
_DENIED = ("AccessDenied", "UnauthorizedOperation", "AccessDeniedException")

Clients = Callable[..., Any]
"""Makes clients of boto3 by service and, if it is another one, region."""


class Absent(CloudError):
    """The subject of a call does not exist."""


@dataclass(frozen=True, slots=True)
class Account:
    """The account and region of a cluster.

    Attributes:
        cluster: Its name.
        region: AWS region.
        endpoint: URL of AWS's APIs, empty for AWS's own.
        poll_s: Seconds between two looks while waiting.
    """

    cluster: str
    region: str
    endpoint: str = ""
    poll_s: float = 5.0

    def clients(self) -> Clients:
        """Clients of boto3, one for each service; credentials as boto3 finds them.

        Their calls raise `CloudError` rather than boto3's errors: `Absent` where the subject does
        not exist, and `CloudDenied` where the caller lacks a permission.
        """
        session = boto3.session.Session()

        @cache
        def client(service: str, region: str = self.region) -> Any:
            made = session.client(service, region_name=region, endpoint_url=self.endpoint or None)
            made.meta.events.register("after-call", _check_answer)
            made.meta.events.register("after-call-error", _raise_unanswered)
            return made

        return client

    def await_state(self, ec2: Any, state: str, instances: Sequence[str]) -> None:
        """Wait until instances are ``stopped`` or ``terminated``; raises `CloudError`."""
        waiter = {"Delay": self.poll_s, "MaxAttempts": round(_END_TIMEOUT_S / self.poll_s)}
        try:
            ec2.get_waiter(f"instance_{state}").wait(InstanceIds=instances, WaiterConfig=waiter)
        except WaiterError as error:
            names = ", ".join(instances)
            raise CloudError(f"not {state}: {names}: {error}", hint="run it again") from error


def listed(client: Any, call: str, entries: str, **request: Any) -> Iterator[Any]:
    """All pages of a listing.

    Args:
        client: A client of `Account.clients`.
        call: The listing's name in boto3.
        entries: JMESPath of its entries in a page.
        request: Its arguments.
    """
    pages = client.get_paginator(call).paginate(**request)
    return (entry for entry in pages.search(entries) if entry is not None)


def ahead_s(answer: Mapping[str, Any]) -> float:
    """Seconds that this machine's clock is ahead of AWS's, by one of its answers."""
    date_ms = date_ms_of(answer)
    return 0.0 if date_ms is None else time.time() - date_ms / 1000


def off(ahead: float) -> str:
    """How far a clock is off, in words."""
    return f"{abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} AWS's"


def _check_answer(http_response: Any, parsed: Mapping[str, Any], **_: Any) -> None:
    if http_response.status_code < 300:
        return
    error = parsed.get("Error", {})
    code = str(error.get("Code", http_response.status_code))
    words = f"{code}: {error.get('Message', '')}"
    if abs(ahead := ahead_s(parsed)) > MOST_SKEW_S:
        raise CloudError(
            f"the clock of this machine is {off(ahead)}, and AWS refuses its calls",
            hint="set it: sudo chronyc makestep, or sudo timedatectl set-ntp true",
        )
    if code == "404" or "NoSuch" in code or "NotFound" in code or "does not exist" in words:
        raise Absent(words)
    if code in _DENIED:
        raise CloudDenied(words, hint="use credentials of an administrator of the account")
    raise CloudError(words)


def _raise_unanswered(exception: Exception, **_: Any) -> None:
    if isinstance(exception, BotoCoreError):
        raise CloudError(f"AWS: {exception}", hint="see AWS_PROFILE and --region") from exception
