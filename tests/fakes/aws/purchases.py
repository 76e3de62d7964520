"""A purchase meter, and the bill that AWS would send, both by the stand-in's own records.

The meter counts how often something was bought in a row with nothing to show for it.

Instances, volumes and addresses are each billed by the second, and for a minute at least
(https://aws.amazon.com/ec2/pricing/on-demand/, https://aws.amazon.com/vpc/pricing/ and
https://aws.amazon.com/ebs/pricing/, whose example has a month of 30 days). An instance
costs from when it runs, a volume from when it is made. On the spot market "you pay the Spot price
that's in effect, billed to the nearest second":
https://docs.aws.amazon.com/whitepapers/latest/cost-optimization-leveraging-ec2-spot-instances/
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

from eva_master.adapters.store.journal import SqlJournal
from tests.fakes.aws.service import Aws

_GP3_MONTH = Fraction(8, 100)
"""Dollars for a GiB, in us-east-1."""
_ADDRESS_HOUR = Fraction(5, 1000)
_MONTH_S = 30 * 86_400
_MINUTE_S = 60
_NEVER_RAN = "Client.InternalError"
"""Code of a launch that came to nothing, which AWS does not bill."""
_ENDED_AT = re.compile(r"\((\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) UTC\)")
MOST_IN_A_ROW = 4
"""So often an offering may be bought before one of its instances has registered."""


@dataclass(frozen=True)
class Purchase:
    """A launch in the endpoint's own record.

    Attributes:
        at_ms: When it was asked for.
        instance: The cluster's name of it.
        offering: ``TYPE@ZONE``, with ``/spot`` if it was bought on the spot market.
    """

    at_ms: int
    instance: str
    offering: str


def purchases(aws: Aws, cluster: str = "") -> list[Purchase]:
    """Purchases, oldest first; of all clusters if none is given."""
    return [
        Purchase(round(it["at"] * 1000), it["instance"], it["offering"])
        for it in aws.purchases()
        if cluster in ("", it["cluster"])
    ]


def in_a_row(bought: Iterable[Purchase], ready_ms: Mapping[str, int | None]) -> dict[str, int]:
    """How often each offering was bought at most before one of its instances registered.

    Args:
        bought: Everything that was.
        ready_ms: When the worker of an instance registered, by the cluster's name of it.
    """
    events: list[tuple[int, int, str]] = []
    for it in bought:
        events.append((it.at_ms, 1, it.offering))
        if (ready := ready_ms.get(it.instance)) is not None:
            events.append((ready, 0, it.offering))
    row: Counter[str] = Counter()
    most: dict[str, int] = {}
    for _, buys, offering in sorted(events):
        row[offering] = row[offering] + 1 if buys else 0
        most[offering] = max(most.get(offering, 0), row[offering])
    return most


def check(
    bought: Iterable[Purchase], ready_ms: Mapping[str, int | None], most: int = MOST_IN_A_ROW
) -> None:
    """Nothing was bought again and again although it never became of use."""
    found = {name: row for name, row in in_a_row(bought, ready_ms).items() if row > most}
    assert not found, f"bought in a row with no worker that registered: {found}"


def check_ended(aws: Aws, journal: Path, cluster: str = "") -> None:
    """Check a cluster whose master has ended, by its journal's file."""
    if journal.exists():
        with SqlJournal.open(f"sqlite:///{journal}") as written:
            ready_ms = {str(it.id): it.ready_ms for it in written.load().instances}
        check(purchases(aws, cluster), ready_ms)


@dataclass(frozen=True)
class AwsBill:
    """Dollars for everything that a cluster has bought; all of it must have ended."""

    instances: Fraction
    volumes: Fraction
    addresses: Fraction

    @property
    def total(self) -> Fraction:
        """All together."""
        return self.instances + self.volumes + self.addresses


def aws_bill(aws: Aws, cluster: str, on_demand: Mapping[str, str]) -> AwsBill:
    """The bill for a cluster.

    Args:
        aws: The stand-in.
        cluster: Name of the cluster.
        on_demand: Dollars per hour by type.
    """
    instances = volumes = addresses = Fraction(0)
    quotes = aws.quotes()
    for bought in (launch for launch in aws.purchases() if launch["cluster"] == cluster):
        (described,) = _described(aws, bought["ec2_id"])
        if described["StateReason"]["Code"] == _NEVER_RAN:
            continue
        match = _ENDED_AT.search(described["StateTransitionReason"])
        assert match is not None, described
        ended = int(datetime.fromisoformat(match[1]).replace(tzinfo=UTC).timestamp())
        up = int(described["LaunchTime"].timestamp())
        volume_s = max(_MINUTE_S, ended - math.floor(bought["at"]))
        volumes += _GP3_MONTH * bought["gib"] * volume_s / _MONTH_S
        seconds = range(up, up + max(_MINUTE_S, ended - up))
        if bought["address"]:
            addresses += _ADDRESS_HOUR * len(seconds) / 3600
        machine, _, place = bought["offering"].partition("@")
        zone, _, market = place.partition("/")
        if market == "spot":
            for second in seconds:
                at = [price for since, price in quotes[f"{machine}@{zone}"] if since <= second + 1]
                instances += Fraction(at[-1]) / 3600
        else:
            instances += Fraction(on_demand[machine]) * len(seconds) / 3600
    return AwsBill(instances, volumes, addresses)


def _described(aws: Aws, ec2_id: str) -> list[dict[str, Any]]:
    pages = aws.client("ec2").describe_instances(InstanceIds=[ec2_id])["Reservations"]
    return [instance for reservation in pages for instance in reservation["Instances"]]
