"""Thousands of instances at once, which moto takes a minute for: as little of EC2 as they need."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

_NAMESPACE = "http://ec2.amazonaws.com/doc/2016-11-15/"


class Herd:
    """The instances of one cluster, all running; they are listed, tagged and terminated.

    Args:
        cluster: Cluster of the instances.
        count: How many; each was launched a second before the next.
    """

    PREFIX = "i-herd"

    def __init__(self, cluster: str, count: int) -> None:
        self._launched: dict[str, datetime] = {}
        self._tags: dict[str, dict[str, str]] = {}
        self._terminated: set[str] = set()
        start = datetime.now(UTC) - timedelta(seconds=count)
        for number in range(count):
            ec2_id = f"{self.PREFIX}{number:08d}"
            self._launched[ec2_id] = start + timedelta(seconds=number)
            self._tags[ec2_id] = {
                "eva:cluster": cluster,
                "eva:instance": f"i{number:05d}",
                "eva:attempt": "1",
            }
        self._calls: dict[str, Callable[[dict[str, str]], str]] = {
            "DescribeInstances": self._describe,
            "CreateTags": self._tag,
            "TerminateInstances": self._terminate,
        }

    @property
    def terminated(self) -> int:
        """How many are."""
        return len(self._terminated)

    def answer(self, form: dict[str, str]) -> bytes:
        """The answer to a call of EC2."""
        action = form["Action"]
        body = self._calls[action](form)
        root = f'{action}Response xmlns="{_NAMESPACE}"'
        return f"<{root}><requestId>0</requestId>{body}</{action}Response>".encode()

    def _describe(self, form: dict[str, str]) -> str:
        ids = list(self._launched)
        start = int(form.get("NextToken", 0))
        end = start + int(form.get("MaxResults", 1000))
        more = f"<nextToken>{end}</nextToken>" if end < len(ids) else ""
        items = "".join(map(self._item, ids[start:end]))
        return f"<reservationSet>{items}</reservationSet>{more}"

    def _item(self, ec2_id: str) -> str:
        tags = "".join(
            f"<item><key>{key}</key><value>{value}</value></item>"
            for key, value in self._tags[ec2_id].items()
        )
        ended = ec2_id in self._terminated
        state = "<code>48</code><name>terminated</name>" if ended else _RUNNING
        reason = "User initiated (2026-01-01 00:00:00 GMT)" if ended else ""
        return (
            f"<item><reservationId>r-{ec2_id[2:]}</reservationId><instancesSet><item>"
            f"<instanceId>{ec2_id}</instanceId><instanceState>{state}</instanceState>"
            f"<instanceType>c7i.large</instanceType><reason>{reason}</reason>"
            f"<launchTime>{self._launched[ec2_id]:%Y-%m-%dT%H:%M:%S.000Z}</launchTime>"
            "<placement><availabilityZone>us-east-1a</availabilityZone></placement>"
            f"<tagSet>{tags}</tagSet></item></instancesSet></item>"
        )

    def _tag(self, form: dict[str, str]) -> str:
        for ec2_id in _listed(form, "ResourceId"):
            self._tags[ec2_id][form["Tag.1.Key"]] = form["Tag.1.Value"]
        return "<return>true</return>"

    def _terminate(self, form: dict[str, str]) -> str:
        self._terminated.update(_listed(form, "InstanceId"))
        return "<instancesSet/>"


_RUNNING = "<code>16</code><name>running</name>"


def _listed(form: dict[str, str], name: str) -> Iterator[str]:
    number = 1
    while (value := form.get(f"{name}.{number}")) is not None:
        yield value
        number += 1
