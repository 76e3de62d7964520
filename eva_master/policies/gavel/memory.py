"""What the policy carries from round to round: the division, and what of it was received."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from eva_master.model.ids import MILLION, Family, Millis, RunId
from eva_master.model.planning.plan import Json, PolicyMemory
from eva_master.model.resources import Resources
from eva_master.packing.valuation.vectors import vector
from eva_master.policies.gavel.allocation import Parts
from eva_master.policies.gavel.config import NAME

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
        """The same a while later; of jobs that have ended nothing is kept.

        Args:
            more: What each contender that there is has received meanwhile.
            capacity: All that there is of each type by now.
        """
        kept = {one: parts for one, parts in self.parts.items() if one in more}
        received = {one: _sum(self.received.get(one, {}), more[one]) for one in kept}
        stale = self.stale or self.parts.keys() != more.keys() or self.fleet != sizes(capacity)
        return Division(self.at_ms, self.fleet, kept, received, stale)


@dataclass(frozen=True, slots=True)
class Memory:
    """What is carried.

    Attributes:
        seen_ms: The time of the last round.
    """

    division: Division
    seen_ms: Millis

    @staticmethod
    def read(memory: PolicyMemory | None) -> Memory | None:
        """That of the round before, if there is one that can be read."""
        if memory is None or (memory.policy, memory.version) != (NAME, _VERSION):
            return None
        data = memory.data
        at, seen, fleet, jobs = (data.get(key) for key in ("divided", "seen", "fleet", "jobs"))
        if not (isinstance(at, int) and isinstance(seen, int)):
            return None
        if not (isinstance(fleet, dict) and isinstance(jobs, dict)):
            return None
        pairs = {RunId(one): it for one, it in jobs.items() if isinstance(it, list)}
        division = Division(
            Millis(at),
            {Family(family): _size(it) for family, it in fleet.items()},
            {one: _amounts(it[0]) for one, it in pairs.items()},
            {one: _amounts(it[1]) for one, it in pairs.items()},
            data.get("stale") is True,
        )
        return Memory(division, Millis(seen))

    def written(self) -> PolicyMemory:
        """The same for the next round."""
        it = self.division
        jobs: dict[str, Json] = {
            one: [_json(parts), _json(it.received.get(one, {}))] for one, parts in it.parts.items()
        }
        fleet: dict[str, Json] = {family: [*size] for family, size in it.fleet.items()}
        data: dict[str, Json] = {
            "divided": it.at_ms,
            "seen": self.seen_ms,
            "fleet": fleet,
            "jobs": jobs,
        }
        if it.stale:
            data["stale"] = True
        return PolicyMemory(NAME, _VERSION, data)


def sizes(capacity: Mapping[Family, Resources]) -> dict[Family, Size]:
    """A fleet as it is remembered."""
    return {family: vector(size) for family, size in capacity.items()}


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
    gpus, cpus, memory = (int(str(it)) for it in data)
    return gpus, cpus, memory
