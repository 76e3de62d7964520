"""All that the cluster has learned about its workloads and instances, as one value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from eva_master.learning.colocation import table_from_json
from eva_master.learning.delays import OF_TYPES, DelayTable
from eva_master.learning.estimate import MeasuredEstimate
from eva_master.learning.run_times.dags import DagTimes
from eva_master.learning.runtimes import RunTimes
from eva_master.learning.standalone import StandaloneTable
from eva_master.learning.voices.evidence import Evidence
from eva_master.learning.voices.lessons import NOTHING, Lessons
from eva_master.learning.voices.names import OTHERS, Voice
from eva_master.model.planning.plan import Json
from eva_master.model.values import replace
from eva_wire.values.ids import Millis

_VERSION = 4
_POOLED = (2, 3)
"""Versions that did not tell voices apart. Version 2 did not have what policies know of standalone
throughput."""
VOICES_KEPT = 1_024
"""So many voices at most have tables; who taught nothing for longest loses its own first."""
ROWS_KEPT = 32_768
"""So many entries at most all voices have together; the voice with most loses its oldest."""


@dataclass(frozen=True, slots=True)
class Knowledge:
    """All that was learned, by voice and owner.

    Attributes:
        voices: Lessons from the jobs of each voice; the voices that taught longest ago come first.
        delays: How long launches of instance types take.
        run_times: How long the tasks of each owner's jobs take.
        dags: How the run times of the stages of each owner's DAGs depend on each other.
    """

    voices: Mapping[Voice, Lessons] = field(default_factory=dict)
    delays: DelayTable = field(default_factory=DelayTable)
    run_times: RunTimes = field(default_factory=RunTimes)
    dags: DagTimes = field(default_factory=DagTimes)

    def of(self, voice: Voice) -> Lessons:
        """Lessons of a voice; the same object until there are more."""
        return self.voices.get(voice, NOTHING)

    def taught(self, voice: Voice, lessons: Lessons) -> Knowledge:
        """The knowledge with other lessons of one voice, all those about its workloads now."""
        voices = dict(self.voices)
        voices.pop(voice, None)  # makes it the last one
        voices[voice] = lessons
        return replace(self, voices=voices)

    def bounded(self) -> Knowledge:
        """The knowledge with at most `VOICES_KEPT` voices and `ROWS_KEPT` entries."""
        sizes = {name: lessons.size for name, lessons in self.voices.items()}
        if len(sizes) <= VOICES_KEPT and sum(sizes.values()) <= ROWS_KEPT:
            return self
        voices = dict(self.voices)
        for name in list(voices)[: max(0, len(voices) - VOICES_KEPT)]:
            del voices[name], sizes[name]
        for _ in range(sum(sizes.values()) - ROWS_KEPT):
            largest = max(sizes, key=lambda name: sizes[name])
            voices[largest] = voices[largest].without_oldest()
            sizes[largest] -= 1
        return replace(self, voices=voices)

    def to_json(self) -> dict[str, Json]:
        """The journal's form, with its version."""
        return {
            "version": _VERSION,
            "voices": [[voice, lessons.to_json()] for voice, lessons in self.voices.items()],
            "delays": self.delays.to_json(),
            "runtimes": self.run_times.to_json(),
            **({"dags": self.dags.to_json()} if self.dags.owners else {}),
        }

    @staticmethod
    def from_json(data: Mapping[str, Json]) -> Knowledge:
        """Read what `to_json` wrote, in this version or an earlier one.

        Rows of versions that did not tell voices apart are those of `OTHERS`.

        Raises:
            ValueError: The data has another form, or is of a later version.
        """
        version = data.get("version", 1)
        if version == 1:
            return Knowledge({OTHERS: _first_version(data)})
        if version not in (*_POOLED, _VERSION):
            raise ValueError(f"what was learned is of version {version}, not {_VERSION}")
        delays = DelayTable.from_json(data.get("delays"))
        of_types, of_workloads = delays.parted(OF_TYPES)
        if version in _POOLED:
            tables = {name: data.get(name) for name in ("colocation", "standalone")}
            pooled = Lessons.from_json({**tables, "scaling": data.get("scaling", [])})
            pooled = replace(pooled, delays=of_workloads)
            voices = {OTHERS: pooled} if pooled.size else {}
        else:
            voices = _voices(data.get("voices"))
        return Knowledge(
            voices=voices,
            delays=of_types,
            run_times=RunTimes.from_json(data.get("runtimes", [])),
            dags=DagTimes.from_json(data.get("dags", [])),
        )


def _first_version(data: Mapping[str, Json]) -> Lessons:
    table = table_from_json(data.get("throughput"))
    return Lessons(
        throughput=table,
        evidence=Evidence(
            (entry, MeasuredEstimate(ppm, Millis(0))) for entry, ppm in table.observed
        ),
        standalone=StandaloneTable.from_json(data.get("standalone")),
    )


def _voices(data: Json) -> dict[Voice, Lessons]:
    if not isinstance(data, list):
        raise ValueError("what voices taught is a list")
    voices: dict[Voice, Lessons] = {}
    for row in data:
        match row:
            case [str(voice), dict(tables)]:
                voices[voice] = Lessons.from_json(tables)
            case _:
                raise ValueError(f"not what a voice taught: {row!r}")
    return voices
