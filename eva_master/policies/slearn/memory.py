"""What the policy carries from round to round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from eva_master.model.ids import JobId, Millis
from eva_master.model.planning.plan import Json, PolicyMemory
from eva_master.policies.slearn.ratio import Ratios

NAME = "slearn"
_VERSION = 1


@dataclass(frozen=True, slots=True)
class Sampled:
    """A job that has, or had, pilots.

    Attributes:
        ratio_ppm: The share of its tasks that they are.
        submitted_ms: When it came.
        work_ms: What it was found to have to do; 0 before.
    """

    ratio_ppm: int
    submitted_ms: Millis
    work_ms: int = 0


@dataclass(frozen=True, slots=True)
class Memory:
    """What is carried.

    Attributes:
        sampled: Jobs with pilots, as long as they are there.
        placed: The queues of jobs that stay in the one that they came to.
        ratios: What is known of shares of pilots.
    """

    sampled: Mapping[JobId, Sampled] = field(default_factory=dict)
    placed: Mapping[JobId, int] = field(default_factory=dict)
    ratios: Ratios = field(default_factory=Ratios)

    @staticmethod
    def read(memory: PolicyMemory | None) -> Memory:
        """That of the round before; an empty one if there is none that can be read."""
        if memory is None or memory.policy != NAME or memory.version != _VERSION:
            return Memory()
        try:
            return Memory._of(memory.data)
        except (TypeError, ValueError):
            return Memory()

    @staticmethod
    def _of(data: Mapping[str, Json]) -> Memory:
        sampled, placed, scores = (_pairs(data, it) for it in ("sampled", "placed", "scores"))
        return Memory(
            {
                JobId(job): Sampled(ratio, Millis(at), work)
                for job, (ratio, at, work) in ((job, _numbers(it)) for job, it in sampled)
            },
            {JobId(job): _number(queue) for job, queue in placed},
            Ratios(
                _number(data.get("started", 0)),
                {int(ratio): tuple(_numbers(found)) for ratio, found in scores},
            ),
        )

    def written(self) -> PolicyMemory:
        """The same for the next round."""
        data: dict[str, Json] = {
            "sampled": {
                job: [it.ratio_ppm, it.submitted_ms, it.work_ms] for job, it in self.sampled.items()
            },
            "placed": {str(job): queue for job, queue in self.placed.items()},
            "started": self.ratios.started,
            "scores": {str(ratio): list(found) for ratio, found in self.ratios.scores.items()},
        }
        return PolicyMemory(NAME, _VERSION, data)


def _pairs(data: Mapping[str, Json], name: str) -> list[tuple[str, Json]]:
    found = data.get(name, {})
    return list(found.items()) if isinstance(found, dict) else []


def _numbers(data: Json) -> list[int]:
    return [_number(it) for it in data] if isinstance(data, list) else []


def _number(data: Json) -> int:
    return int(str(data))
