"""Memory of the policy from round to round: the division, and the time received of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from eva_master.model.planning.plan import Json, PolicyMemory
from eva_master.model.resources import Resources
from eva_master.packing.valuation.vectors import vector
from eva_policies.gavel.allocation import Parts
from eva_policies.gavel.config import NAME
from eva_wire.values.ids import MILLION, Family, Millis, RunId

_VERSION = 1
Size = tuple[int, int, int]
"""GPUs, thousandths of a CPU, MiB."""
Received = Mapping[Family, int]
"""Milliseconds that a job was on each type."""


@dataclass(frozen=True, slots=True)
class Division:
    """How the fleet was divided, and what was received since.

    Attributes:
        at_ms: When that was.
        fleet: All that there was of each type.
        parts: Of each contender, in millionths; nothing of those that have come since.
        received: By the same contenders.
        stale: Whether the jobs or the fleet have changed since.
    """

    at_ms: Millis
    fleet: Mapping[Family, Size] = field(default_factory=dict)
    parts: Mapping[RunId, Mapping[Family, int]] = field(default_factory=dict)
    received: Mapping[RunId, Received] = field(default_factory=dict)
    stale: bool = False

    def part(self, one: RunId, family: Family) -> int:
        """A contender's part of its time on a type, in millionths."""
        return self.parts.get(one, {}).get(family, 0)

    def with_received(
        self, more: Mapping[RunId, Received], capacity: Mapping[Family, Resources]
    ) -> Division:
        """This division some time later, without jobs that have ended.

        Args:
            more: Time that each present contender has received meanwhile.
            capacity: Present capacity of each type.
        """
        kept = {contender: parts for contender, parts in self.parts.items() if contender in more}
        received = {
            contender: _sum(self.received.get(contender, {}), more[contender]) for contender in kept
        }
        stale = self.stale or self.parts.keys() != more.keys() or self.fleet != sizes(capacity)
        return Division(self.at_ms, self.fleet, kept, received, stale)


@dataclass(frozen=True, slots=True)
class Memory:
    """State carried from round to round.

    Attributes:
        seen_ms: The time of the last round.
    """

    division: Division
    seen_ms: Millis

    @staticmethod
    def read(memory: PolicyMemory | None) -> Memory | None:
        """The memory of the round before, if there is one that can be read."""
        if memory is None or (memory.policy, memory.version) != (NAME, _VERSION):
            return None
        data = memory.data
        at, seen, fleet, jobs = (data.get(key) for key in ("divided", "seen", "fleet", "jobs"))
        if not (isinstance(at, int) and isinstance(seen, int)):
            return None
        if not (isinstance(fleet, dict) and isinstance(jobs, dict)):
            return None
        pairs = {RunId(name): row for name, row in jobs.items() if isinstance(row, list)}
        division = Division(
            Millis(at),
            {Family(family): _size(size) for family, size in fleet.items()},
            {name: _amounts(row[0]) for name, row in pairs.items()},
            {name: _amounts(row[1]) for name, row in pairs.items()},
            data.get("stale") is True,
        )
        return Memory(division, Millis(seen))

    def written(self) -> PolicyMemory:
        """The memory for the next round."""
        division = self.division
        jobs: dict[str, Json] = {
            name: [_json(parts), _json(division.received.get(name, {}))]
            for name, parts in division.parts.items()
        }
        fleet: dict[str, Json] = {family: [*size] for family, size in division.fleet.items()}
        data: dict[str, Json] = {
            "divided": division.at_ms,
            "seen": self.seen_ms,
            "fleet": fleet,
            "jobs": jobs,
        }
        if division.stale:
            data["stale"] = True
        return PolicyMemory(NAME, _VERSION, data)


def sizes(capacity: Mapping[Family, Resources]) -> dict[Family, Size]:
    """A fleet as it is remembered."""
    return {family: vector(size)[:3] for family, size in capacity.items()}


def _sum(received: Received, more: Received) -> dict[Family, int]:
    families = sorted(received.keys() | more.keys())
    return {family: received.get(family, 0) + more.get(family, 0) for family in families}


def in_millionths(parts: Parts) -> dict[Family, int]:
    """Parts as they are remembered."""
    rounded = {family: round(part * MILLION) for family, part in parts.items()}
    return {family: part for family, part in rounded.items() if part}


def _json(amounts: Mapping[Family, int]) -> Json:
    return {str(family): amount for family, amount in amounts.items()}


def _amounts(data: Json) -> dict[Family, int]:
    assert isinstance(data, dict)
    return {Family(family): int(str(amount)) for family, amount in data.items()}


def _size(data: Json) -> Size:
    assert isinstance(data, list)
    gpus, cpus, memory = (int(str(amount)) for amount in data)
    return gpus, cpus, memory
