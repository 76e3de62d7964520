"""What the policy carries from round to round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from eva_master.model.ids import InstanceId, JobId, Millis
from eva_master.model.planning.plan import Json, PolicyMemory

NAME = "cloudcoaster"
_VERSION = 2


@dataclass(frozen=True, slots=True)
class Needs:
    """How many slots were needed lately beyond those that stay.

    Attributes:
        peaks: Times, with slots that none needed since then has exceeded; the last one last.
    """

    peaks: tuple[tuple[Millis, int], ...] = ()

    @property
    def most(self) -> int:
        """The most of them."""
        return max((slots for _, slots in self.peaks), default=0)

    def after(self, now: Millis, slots: int, hold_ms: int) -> Needs:
        """The same once so many are needed; what is older than `hold_ms` is forgotten."""
        kept = [it for it in self.peaks if now - it[0] < hold_ms and it[1] > slots]
        return Needs((*kept, (now, slots)) if slots else tuple(kept))


@dataclass(frozen=True, slots=True)
class Memory:
    """What is carried.

    Attributes:
        probes: The servers that each job has asked whose tasks wait.
    """

    needs: Needs = Needs()
    probes: Mapping[JobId, tuple[InstanceId, ...]] = field(default_factory=dict)

    @staticmethod
    def read(memory: PolicyMemory | None) -> Memory:
        """That of the round before; an empty one if there is none that can be read."""
        if memory is None or memory.policy != NAME or memory.version != _VERSION:
            return Memory()
        peaks, probes = memory.data.get("needs", []), memory.data.get("probes", {})
        assert isinstance(peaks, list)
        assert isinstance(probes, dict)
        pairs = (one for one in peaks if isinstance(one, list))
        asked = ((job, those) for job, those in probes.items() if isinstance(those, list))
        return Memory(
            Needs(tuple((Millis(int(str(at))), int(str(slots))) for at, slots in pairs)),
            {JobId(job): tuple(InstanceId(str(it)) for it in those) for job, those in asked},
        )

    def written(self) -> PolicyMemory | None:
        """The same for the next round."""
        data: dict[str, Json] = {}
        if self.needs.peaks:
            data["needs"] = [[at, slots] for at, slots in self.needs.peaks]
        if self.probes:
            data["probes"] = {job: list[Json](those) for job, those in self.probes.items()}
        return PolicyMemory(NAME, _VERSION, data) if data else None
