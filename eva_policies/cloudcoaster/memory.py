"""Memory of the policy from round to round."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from eva_master.model.planning.plan import Json, PolicyMemory
from eva_policies.cloudcoaster.probes import Probes, Where
from eva_wire.values.ids import InstanceId, JobId, Millis

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
        """The needs after so many slots were needed; needs older than `hold_ms` are forgotten."""
        kept = [peak for peak in self.peaks if now - peak[0] < hold_ms and peak[1] > slots]
        return Needs((*kept, (now, slots)) if slots else tuple(kept))


@dataclass(frozen=True, slots=True)
class Memory:
    """State carried from round to round.

    Attributes:
        probes: Servers asked by the jobs with waiting tasks.
        at_ms: The time of these probes.
        released: Transient members that finish the tasks in their queues, and then go.
    """

    needs: Needs = Needs()
    probes: Probes = field(default_factory=dict)
    at_ms: Millis = Millis(0)
    released: frozenset[InstanceId] = frozenset()

    @staticmethod
    def read(memory: PolicyMemory | None) -> Memory:
        """The memory of the round before; an empty one if there is none that can be read."""
        if memory is None or memory.policy != NAME or memory.version != _VERSION:
            return Memory()
        data = memory.data
        peaks, probes = data.get("needs", []), data.get("probes", {})
        released = data.get("released", [])
        assert isinstance(peaks, list)
        assert isinstance(probes, dict)
        assert isinstance(released, list)
        pairs = (peak for peak in peaks if isinstance(peak, list))
        asked = ((job, those) for job, those in probes.items() if isinstance(those, dict))
        return Memory(
            Needs(tuple((Millis(int(str(at))), int(str(slots))) for at, slots in pairs)),
            {
                JobId(job): {
                    InstanceId(server): int(str(passed)) for server, passed in those.items()
                }
                for job, those in asked
            },
            Millis(int(str(data.get("at", 0)))),
            frozenset(InstanceId(str(instance)) for instance in released),
        )

    def asked_by(self, jobs: Iterable[JobId]) -> frozenset[Where]:
        """Servers in whose queues some jobs stand."""
        return frozenset(
            server for job in dict.fromkeys(jobs) for server in self.probes.get(job, ())
        )

    def written(self) -> PolicyMemory | None:
        """The memory for the next round."""
        data: dict[str, Json] = {}
        if self.needs.peaks:
            data["needs"] = [[at, slots] for at, slots in self.needs.peaks]
        if self.probes:
            data["probes"] = {
                job: {
                    server: passed for server, passed in servers.items() if isinstance(server, str)
                }
                for job, servers in self.probes.items()
            }
            data["at"] = self.at_ms
        if self.released:
            data["released"] = [*sorted(self.released)]
        return PolicyMemory(NAME, _VERSION, data) if data else None
