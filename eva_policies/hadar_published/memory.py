"""Memory of the policy from round to round."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from eva_master.model.planning.plan import Json, PolicyMemory
from eva_policies.hadar_published.config import NAME, Config
from eva_policies.hadar_published.prices import Extremes
from eva_wire.values.ids import Family

_VERSION = 1


@dataclass(frozen=True, slots=True)
class Memory:
    """State carried from round to round.

    Attributes:
        extremes: Extremes over all jobs that ever came, by the types on which they could run.
        sizes: Iterations of the fleet's contenders, by job; for an array those of its largest task
            seen.
        rested: Digest of the contenders and instances of the last plan that placed all contenders;
            empty if there was none.
    """

    extremes: Mapping[Family, Extremes] = field(default_factory=dict)
    sizes: Mapping[str, float] = field(default_factory=dict)
    rested: str = ""

    @staticmethod
    def read(memory: PolicyMemory | None, config: Config) -> Memory:
        """The memory of the round before; an empty one if there is none that can be read."""
        if memory is None or memory.policy != NAME or memory.version != _VERSION:
            return Memory()
        try:
            sizes = {
                name: float(str(size)) for name, size in _mapping(memory.data["sizes"]).items()
            }
            return Memory(_extremes(memory.data, config), sizes, str(memory.data["rested"]))
        except (KeyError, TypeError, ValueError):
            return Memory()

    def written(self, config: Config) -> PolicyMemory:
        """The state as JSON-able data."""
        extremes: dict[str, Json] = {
            family: [extreme.high, extreme.low, extreme.least_s]
            for family, extreme in sorted(self.extremes.items())
        }
        data: dict[str, Json] = {
            "extremes": extremes,
            "utility": config.utility,
            "horizon_s": config.horizon_s,
            "sizes": {name: float(f"{size:.6g}") for name, size in sorted(self.sizes.items())},
            "rested": self.rested,
        }
        return PolicyMemory(NAME, _VERSION, data)


def joined(
    known: Mapping[Family, Extremes], found: Mapping[Family, Extremes], there: Iterable[Family]
) -> dict[Family, Extremes]:
    """Known and new extremes together, for the present types."""
    both = {}
    for family in there:
        ones = [extremes[family] for extremes in (known, found) if family in extremes]
        if ones:
            both[family] = ones[0].and_also(ones[-1])
    return both


def digest(names: Iterable[str]) -> str:
    """A short name of a set of names."""
    return hashlib.sha256("\0".join(sorted(names)).encode()).hexdigest()[:16]


def _extremes(data: Mapping[str, Json], config: Config) -> dict[Family, Extremes]:
    if (data["utility"], data["horizon_s"]) != (config.utility, config.horizon_s):
        return {}
    by_family = {}
    for family, row in _mapping(data["extremes"]).items():
        if not isinstance(row, list):
            raise TypeError("extremes of a type are a list")
        high, low, least_s = (float(str(figure)) for figure in row)
        if min(high, low, least_s) <= 0:
            raise ValueError("extremes are above 0")
        by_family[Family(family)] = Extremes(high, low, least_s)
    return by_family


def _mapping(value: Json) -> dict[str, Json]:
    if not isinstance(value, dict):
        raise TypeError("this is by name")
    return value
