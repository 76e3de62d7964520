"""Memory of the policy from round to round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from eva_master.model.planning.plan import Json, PolicyMemory
from eva_master.model.planning.snapshot import Snapshot
from eva_policies.slearn.ratio import Ratios
from eva_wire.values.ids import JobId, Millis

NAME = "slearn"
_VERSION = 1
_REFUSED_MS = 60_000
"""For so long a job comes last whose tasks were not let where the last plan put them."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """A job that has, or had, pilots.

    Attributes:
        ratio_ppm: Share of its tasks that are pilots; 0 if its user states the number.
        submitted_ms: When it came.
        work_ms: Its work as found by the pilots; 0 before.
    """

    ratio_ppm: int
    submitted_ms: Millis
    work_ms: int = 0


@dataclass(frozen=True, slots=True)
class RequestOutcome:
    """Outcome of requests for room.

    Attributes:
        placed: Number of a job's tasks that had had a place when a plan gave more of them one, by
            job.
        refused: Since when a job comes last, as that plan was not carried out for it: its owner may
            have as many instances as is allowed, for example.
    """

    placed: Mapping[JobId, int] = field(default_factory=dict)
    refused: Mapping[JobId, Millis] = field(default_factory=dict)

    def after(self, snapshot: Snapshot, placed: Mapping[JobId, int]) -> Mapping[JobId, Millis]:
        """Jobs that come last now.

        Args:
            snapshot: The present snapshot.
            placed: Number of tasks of each job that have had a place.
        """
        now, present = snapshot.now_ms, {job.id for job in snapshot.jobs}
        held = {run.job for run in snapshot.runs if run.held}
        kept = {
            job: at
            for job, at in self.refused.items()
            if job in present and at <= now < at + _REFUSED_MS
        }
        fresh = (job for job, had in self.placed.items() if job in held and placed[job] <= had)
        return {**kept, **dict.fromkeys(fresh, now)}


@dataclass(frozen=True, slots=True)
class Memory:
    """State carried from round to round.

    Attributes:
        sampled: Present jobs with pilots.
        placed: The queues of jobs that stay in the one that they came to.
        ratios: Scores of shares of pilots.
        back: Memory of the policy behind, if there is one.
        asked: Outcome of requests for room to that policy.
    """

    sampled: Mapping[JobId, Sampled] = field(default_factory=dict)
    placed: Mapping[JobId, int] = field(default_factory=dict)
    ratios: Ratios = field(default_factory=Ratios)
    back: PolicyMemory | None = None
    asked: RequestOutcome = field(default_factory=RequestOutcome)

    @staticmethod
    def read(memory: PolicyMemory | None) -> Memory:
        """The memory of the round before; an empty one if there is none that can be read."""
        if memory is None or memory.policy != NAME or memory.version != _VERSION:
            return Memory()
        try:
            return Memory._of(memory.data)
        except (TypeError, ValueError):
            return Memory()

    @staticmethod
    def _of(data: Mapping[str, Json]) -> Memory:
        sampled, placed, scores = (_pairs(data, name) for name in ("sampled", "placed", "scores"))
        return Memory(
            {
                JobId(job): Sampled(ratio, Millis(at), work)
                for job, (ratio, at, work) in ((job, _numbers(row)) for job, row in sampled)
            },
            {JobId(job): _number(queue) for job, queue in placed},
            Ratios(
                _number(data.get("started", 0)),
                {int(ratio): tuple(_numbers(score)) for ratio, score in scores},
            ),
            _behind(data.get("back")),
            RequestOutcome(*(_counted(data, name) for name in ("asked", "refused"))),
        )

    def written(self) -> PolicyMemory:
        """The memory for the next round."""
        data: dict[str, Json] = {
            "sampled": {
                job: [sample.ratio_ppm, sample.submitted_ms, sample.work_ms]
                for job, sample in self.sampled.items()
            },
            "placed": {str(job): queue for job, queue in self.placed.items()},
            "started": self.ratios.started,
            "scores": {str(ratio): list(score) for ratio, score in self.ratios.scores.items()},
        }
        if self.back is not None:
            data["back"] = asdict(self.back)
        for name, numbers in (("asked", self.asked.placed), ("refused", self.asked.refused)):
            if numbers:
                data[name] = {str(job): int(number) for job, number in numbers.items()}
        return PolicyMemory(NAME, _VERSION, data)


def _behind(document: Json) -> PolicyMemory | None:
    """The memory of the policy behind; `None` if there is none that can be read."""
    if not isinstance(document, dict):
        return None
    data = document.get("data")
    policy, version = str(document.get("policy")), _number(document.get("version"))
    return PolicyMemory(policy, version, data) if isinstance(data, dict) else None


def _counted(data: Mapping[str, Json], name: str) -> dict[JobId, Millis]:
    return {JobId(job): Millis(_number(number)) for job, number in _pairs(data, name)}


def _pairs(data: Mapping[str, Json], name: str) -> list[tuple[str, Json]]:
    section = data.get(name, {})
    return list(section.items()) if isinstance(section, dict) else []


def _numbers(data: Json) -> list[int]:
    return [_number(number) for number in data] if isinstance(data, list) else []


def _number(data: Json) -> int:
    return int(str(data))
