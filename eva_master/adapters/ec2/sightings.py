"""Instances as EC2's listing shows them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from eva_master.adapters.ec2.faults import RECLAIMED, end_in_words
from eva_wire.values.ids import InstanceId, Millis

CLUSTER_TAG = "eva:cluster"
INSTANCE_TAG = "eva:instance"
ATTEMPT_TAG = "eva:attempt"
UP_TAG = "eva:up"
"""Tag: when the instance was first seen running, hence billed. EC2 forgets whether a terminated
instance ever ran."""
GONE_TAG = "eva:gone"
"""Tag: when the instance was first seen terminated, if EC2 gives no time."""

_ENDED_AT = re.compile(r"\((\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (?:GMT|UTC)\)")


@dataclass(frozen=True, slots=True)
class Sighting:
    """One EC2 instance as listed.

    Attributes:
        instance: Its id in Eva.
        ec2_id: Its id in EC2.
        state: EC2's name of its state, such as ``running``.
        launched_ms: EC2's LaunchTime.
        was_up: Whether it has been seen running, by its `UP_TAG`.
        ended_ms: The time in `GONE_TAG`, or else in StateTransitionReason; `None` without either.
        why: EC2's StateReason in words; empty if it has none.
        reclaimed: Whether EC2 took it back, as a spot instance.
    """

    instance: InstanceId
    ec2_id: str
    state: str
    launched_ms: Millis
    was_up: bool
    ended_ms: Millis | None
    why: str = ""
    reclaimed: bool = False

    def dated(self, carried: Callable[[int], Millis]) -> Sighting:
        """This sighting with its times carried over from one clock to another."""
        ended_ms = None if self.ended_ms is None else carried(self.ended_ms)
        return replace(self, launched_ms=carried(self.launched_ms), ended_ms=ended_ms)

    @property
    def running(self) -> bool:
        """Whether it runs, and so is billed and usable."""
        return self.state == "running"

    @property
    def terminated(self) -> bool:
        """Whether it is terminated; EC2 lists it for about another hour."""
        return self.state == "terminated"

    @property
    def up_ms(self) -> Millis | None:
        """When billing began. LaunchTime is some seconds early, but EC2 has no later record."""
        return self.launched_ms if self.was_up or self.running else None


def sighting(described: Mapping[str, Any]) -> Sighting | None:
    """Read an instance of DescribeInstances; `None` if it has no Eva id."""
    tags = {tag["Key"]: tag["Value"] for tag in described.get("Tags", ())}
    if INSTANCE_TAG not in tags:
        return None
    ended = _ENDED_AT.search(described.get("StateTransitionReason", ""))
    recorded_end = _number(tags.get(GONE_TAG))
    if recorded_end is None and ended is not None:
        recorded_end = _millis(datetime.fromisoformat(ended[1]).replace(tzinfo=UTC))
    reason = described.get("StateReason", {})
    return Sighting(
        instance=InstanceId(tags[INSTANCE_TAG]),
        ec2_id=described["InstanceId"],
        state=described["State"]["Name"],
        launched_ms=_millis(described["LaunchTime"]),
        was_up=UP_TAG in tags,
        ended_ms=recorded_end,
        why=end_in_words(reason.get("Code", ""), reason.get("Message", "")),
        reclaimed=reason.get("Code", "") in RECLAIMED,
    )


def by_instance(sightings: Iterable[Sighting]) -> tuple[dict[InstanceId, Sighting], list[Sighting]]:
    """One sighting for each instance, and existing duplicates.

    There are duplicates only if EC2 forgot a client token. The oldest existing one counts.
    """
    ordered = sorted(sightings, key=lambda seen: (seen.terminated, seen.launched_ms, seen.ec2_id))
    first: dict[InstanceId, Sighting] = {}
    surplus = []
    for seen in ordered:
        if first.setdefault(seen.instance, seen) is not seen and not seen.terminated:
            surplus.append(seen)
    return first, surplus


def _millis(time: datetime) -> Millis:
    return Millis(int(time.timestamp()) * 1000 + time.microsecond // 1000)


def _number(tag: str | None) -> Millis | None:
    return Millis(int(tag)) if tag is not None and tag.isdecimal() else None
