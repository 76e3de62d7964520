"""What the policy carries from round to round."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from eva_master.model.ids import InstanceId, JobId, Millis
from eva_master.model.planning.plan import Json, PolicyMemory
from eva_master.policies.cloudcoaster.probes import Probes, Where

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
        """The most slots of all peaks."""
        return max((slots for _, slots in self.peaks), default=0)

    def after(self, now: Millis, slots: int, hold_ms: int) -> Needs:
        """The same once so many are needed; what is older than `hold_ms` is forgotten."""
        kept = [it for it in self.peaks if now - it[0] < hold_ms and it[1] > slots]
        return Needs((*kept, (now, slots)) if slots else tuple(kept))


@dataclass(frozen=True, slots=True)
class Memory:
    """What is carried.

    Attributes:
        probes: What the jobs have asked of which tasks wait.
        at_ms: When that was so.
        released: Transient members that finish what stands in their queues, and then go.
    """

    needs: Needs = Needs()
    probes: Probes = field(default_factory=dict)
    at_ms: Millis = Millis(0)
    released: frozenset[InstanceId] = frozenset()

    @staticmethod
    def read(memory: PolicyMemory | None) -> Memory:
        """That of the round before; an empty one if there is none that can be read."""
        if memory is None or memory.policy != NAME or memory.version != _VERSION:
            return Memory()
        data = memory.data
        peaks, probes = data.get("needs", []), data.get("probes", {})
        released = data.get("released", [])
        assert isinstance(peaks, list)
        assert isinstance(probes, dict)
        assert isinstance(released, list)
        pairs = (one for one in peaks if isinstance(one, list))
        asked = ((job, those) for job, those in probes.items() if isinstance(those, dict))
        return Memory(
            Needs(tuple((Millis(int(str(at))), int(str(slots))) for at, slots in pairs)),
            {
                JobId(job): {InstanceId(it): int(str(passed)) for it, passed in those.items()}
                for job, those in asked
            },
            Millis(int(str(data.get("at", 0)))),
            frozenset(InstanceId(str(it)) for it in released),
        )

    def asked_by(self, jobs: Iterable[JobId]) -> frozenset[Where]:
        """The servers in whose queues some jobs stand."""
        return frozenset(it for job in dict.fromkeys(jobs) for it in self.probes.get(job, ()))

    def written(self) -> PolicyMemory | None:
        """The same for the next round."""
        data: dict[str, Json] = {}
        if self.needs.peaks:
            data["needs"] = [[at, slots] for at, slots in self.needs.peaks]
        if self.probes:
            data["probes"] = {
                job: {server: passed for server, passed in it.items() if isinstance(server, str)}
                for job, it in self.probes.items()
            }
            data["at"] = self.at_ms
        if self.released:
            data["released"] = [*sorted(self.released)]
        return PolicyMemory(NAME, _VERSION, data) if data else None
