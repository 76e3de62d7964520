"""What the policy carries from round to round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from eva_master.model.ids import JobId, Millis
from eva_master.model.planning.plan import Json, PolicyMemory
from eva_master.model.planning.snapshot import Snapshot
from eva_master.policies.slearn.ratio import Ratios

NAME = "slearn"
_VERSION = 1
_REFUSED_MS = 60_000
"""For so long a job comes last whose tasks were not let where the last plan put them."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """A job that has, or had, pilots.

    Attributes:
        ratio_ppm: The share of its tasks that they are; 0 if its user says how many.
        submitted_ms: When it came.
        work_ms: What it was found to have to do; 0 before.
    """

    ratio_ppm: int
    submitted_ms: Millis
    work_ms: int = 0


@dataclass(frozen=True, slots=True)
class Asked:
    """What became of jobs for which room was asked.

    Attributes:
        placed: How many of its tasks had had a place when a plan gave some more one, by job.
        refused: Since when a job comes last, as that plan was not carried out for it: its owner may
            have as many instances as is allowed, for example.
    """

    placed: Mapping[JobId, int] = field(default_factory=dict)
    refused: Mapping[JobId, Millis] = field(default_factory=dict)

    def after(self, snapshot: Snapshot, placed: Mapping[JobId, int]) -> Mapping[JobId, Millis]:
        """Those that come last now.

        Args:
            snapshot: The present one.
            placed: How many tasks of each job have had a place.
        """
        now, there = snapshot.now_ms, {job.id for job in snapshot.jobs}
        held = {run.job for run in snapshot.runs if run.held}
        kept = {
            job: at
            for job, at in self.refused.items()
            if job in there and at <= now < at + _REFUSED_MS
        }
        fresh = (job for job, had in self.placed.items() if job in held and placed[job] <= had)
        return {**kept, **dict.fromkeys(fresh, now)}


@dataclass(frozen=True, slots=True)
class Memory:
    """What is carried.

    Attributes:
        sampled: Jobs with pilots, as long as they are there.
        placed: The queues of jobs that stay in the one that they came to.
        ratios: What is known of shares of pilots.
        back: What the policy behind carries, if there is one.
        asked: What became of jobs for which that one was asked for room.
    """

    sampled: Mapping[JobId, Sampled] = field(default_factory=dict)
    placed: Mapping[JobId, int] = field(default_factory=dict)
    ratios: Ratios = field(default_factory=Ratios)
    back: PolicyMemory | None = None
    asked: Asked = field(default_factory=Asked)

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
            _behind(data.get("back")),
            Asked(*(_counted(data, it) for it in ("asked", "refused"))),
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
        if self.back is not None:
            data["back"] = asdict(self.back)
        for name, found in (("asked", self.asked.placed), ("refused", self.asked.refused)):
            if found:
                data[name] = {str(job): int(number) for job, number in found.items()}
        return PolicyMemory(NAME, _VERSION, data)


def _behind(document: Json) -> PolicyMemory | None:
    """The memory of the policy behind; `None` if there is none that can be read."""
    if not isinstance(document, dict):
        return None
    data = document.get("data")
    policy, version = str(document.get("policy")), _number(document.get("version"))
    return PolicyMemory(policy, version, data) if isinstance(data, dict) else None


def _counted(data: Mapping[str, Json], name: str) -> dict[JobId, Millis]:
    return {JobId(job): Millis(_number(it)) for job, it in _pairs(data, name)}


def _pairs(data: Mapping[str, Json], name: str) -> list[tuple[str, Json]]:
    found = data.get(name, {})
    return list(found.items()) if isinstance(found, dict) else []


def _numbers(data: Json) -> list[int]:
    return [_number(it) for it in data] if isinstance(data, list) else []


def _number(data: Json) -> int:
    return int(str(data))
