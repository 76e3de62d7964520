"""How often the cloud takes spot instances back, as the cluster has seen it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from eva_master.model.planning.plan import Json
from eva_wire.values.ids import MILLION, MILLIS_PER_HOUR


@dataclass(frozen=True, slots=True)
class Interruptions:
    """The lives of spot instances that are over.

    Attributes:
        known: By instance type, how many were interrupted, and how long all lived together, in
            milliseconds.
    """

    known: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def seen(self, machine: str, lived_ms: int, *, interrupted: bool) -> Interruptions:
        """Take in the life of one instance."""
        count, total_ms = self.known.get(machine, (0, 0))
        life = (count + interrupted, total_ms + lived_ms)
        return Interruptions({**self.known, machine: life})

    def rate_ppm(self, machine: str, assumed_ppm: int) -> int:
        """How often an instance of a type is interrupted, in millionths of a time per hour.

        The assumption weighs as much as one interruption at the expected time.

        Args:
            machine: Name of the type.
            assumed_ppm: The rate assumed before any interruption was seen; 0 for a type that is
                never interrupted.
        """
        count, lived_ms = self.known.get(machine, (0, 0))
        if assumed_ppm == 0:
            return 0
        assumed_ms = MILLION * MILLIS_PER_HOUR // assumed_ppm
        return (1 + count) * MILLION * MILLIS_PER_HOUR // (assumed_ms + lived_ms)

    def to_json(self) -> dict[str, Json]:
        """The form in which the journal keeps it."""
        return {machine: list(life) for machine, life in sorted(self.known.items())}

    @classmethod
    def from_json(cls, document: Mapping[str, Json]) -> Interruptions:
        """The inverse of `to_json`; entries of another form are left out."""
        lives = {}
        for machine, life in document.items():
            match life:
                case [int(count), int(lived_ms)]:
                    lives[machine] = (count, lived_ms)
                case _:
                    pass
        return cls(lives)
