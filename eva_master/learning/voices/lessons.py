"""Figures that the jobs of one voice have taught, as one value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from eva_master.learning.attribution import attribute
from eva_master.learning.bounds import ENTRIES_KEPT, without_oldest
from eva_master.learning.colocation import Key, forget, key, observe, recorded
from eva_master.learning.delays import DelayTable
from eva_master.learning.estimate import MeasuredEstimate, taken
from eva_master.learning.speeds.scaling import ScalingTable
from eva_master.learning.standalone import StandaloneTable
from eva_master.learning.voices.evidence import Evidence
from eva_master.model.planning.plan import Json
from eva_master.model.planning.snapshot import ThroughputTable
from eva_master.model.values import replace
from eva_wire.values.ids import Millis, Workload

_NOISE_PPM = 20_000
"""An estimate that differs by less from what the policies know is not news; else every window
would be, and each would call for a new plan."""


@dataclass(frozen=True, slots=True)
class Lessons:
    """Figures of one voice's workloads.

    Attributes:
        throughput: Slowdowns of its workloads by neighbours, as policies use them.
        evidence: The estimates behind `throughput`, in millionths, with the same keys.
        standalone: Rates of its workloads alone.
        scaling: Rates of its elastic gangs by number of members.
        delays: Delays of starts and stops of its workloads.
    """

    throughput: ThroughputTable = field(default_factory=ThroughputTable)
    evidence: Evidence = field(default_factory=Evidence)
    standalone: StandaloneTable = field(default_factory=StandaloneTable)
    scaling: ScalingTable = field(default_factory=ScalingTable)
    delays: DelayTable = field(default_factory=DelayTable)

    @property
    def size(self) -> int:
        """Number of entries of all tables together."""
        measured = len(self.evidence) + len(self.standalone.rates)
        return measured + len(self.scaling.rates) + len(self.delays.known)

    def in_company(self, members: Sequence[Key], observed_ppm: int, at: Millis) -> Lessons:
        """Record a window of a job of which at least one task shared its instance.

        The only task of a job is measured again and again: its windows make an estimate. A gang's
        window gives only a bound for one of its members (see `attribution.attribute`), which stands
        as it is.

        Args:
            members: The entry of each task of the job that runs, see `colocation.key`.
            observed_ppm: The job's normalised throughput, in millionths.
            at: When the window ended.
        """
        lesson = attribute(self.throughput, members, observed_ppm)
        if lesson is None:
            return self
        entry, value = lesson
        before = self.evidence.get(entry)
        if before is None or len(members) == 1:
            after = taken(before, value, at)
        else:
            after = MeasuredEstimate(value, at, before.samples + 1)
        before_ppm = recorded(self.throughput, entry)
        news = before_ppm is None or abs(before_ppm - after.value) >= _NOISE_PPM
        table = observe(self.throughput, entry, after.value) if news else self.throughput
        lessons = replace(self, throughput=table, evidence=self.evidence.told(entry, after))
        crowded = len(lessons.evidence) > ENTRIES_KEPT
        return lessons._without_company() if crowded else lessons

    def _without_company(self) -> Lessons:
        """Lessons without the oldest entry of company, see `Evidence.oldest`."""
        oldest = self.evidence.oldest()
        return replace(
            self,
            throughput=forget(self.throughput, oldest),
            evidence=self.evidence.without(oldest),
        )

    def without_oldest(self) -> Lessons:
        """Lessons without the oldest entry of the largest table, which is not empty."""
        sizes = {
            "evidence": len(self.evidence),
            "standalone": len(self.standalone.rates),
            "scaling": len(self.scaling.rates),
            "delays": len(self.delays.known),
        }
        largest = max(sizes, key=lambda name: sizes[name])
        if largest == "evidence":
            return self._without_company()
        if largest == "standalone":
            rates = without_oldest(self.standalone.rates)
            return replace(self, standalone=self.standalone.restricted(rates))
        if largest == "scaling":
            sizes_known = without_oldest(self.scaling.rates)
            return replace(self, scaling=self.scaling.restricted(sizes_known))
        estimates = without_oldest(self.delays.known)
        return replace(self, delays=self.delays.restricted(estimates))

    def to_json(self) -> dict[str, Json]:
        """The journal's form; tables without entries are left out."""
        rows: list[Json] = [
            [workload, list(others), ppm, self._evidence((workload, others), ppm).to_json()]
            for (workload, others), ppm in self.throughput.observed
        ]
        tables: dict[str, Json] = {
            "colocation": rows,
            "standalone": self.standalone.to_json(),
            "delays": self.delays.to_json(),
            "scaling": self.scaling.to_json(),
        }
        return {name: written for name, written in tables.items() if written}

    def _evidence(self, entry: Key, ppm: int) -> MeasuredEstimate:
        return self.evidence.get(entry) or MeasuredEstimate(ppm, Millis(0))

    @staticmethod
    def from_json(data: Json) -> Lessons:
        """Read what `to_json` wrote.

        Raises:
            ValueError: The data has another form.
        """
        if not isinstance(data, dict):
            raise ValueError("what a voice taught is an object")
        observed, evidence = _colocation(data.get("colocation", []))
        return Lessons(
            throughput=ThroughputTable(tuple(sorted(observed.items()))),
            evidence=evidence,
            standalone=StandaloneTable.from_json(data.get("standalone", [])),
            scaling=ScalingTable.from_json(data.get("scaling", [])),
            delays=DelayTable.from_json(data.get("delays", [])),
        )


NOTHING = Lessons()
"""Nothing was learned yet."""


def _colocation(data: Json) -> tuple[dict[Key, int], Evidence]:
    if not isinstance(data, list):
        raise ValueError("learned co-location is a list")
    observed: dict[Key, int] = {}
    evidence: dict[Key, MeasuredEstimate] = {}
    for row in data:
        match row:
            case [str(workload), list(others), int(ppm), list(estimate)]:
                entry = key(Workload(workload), (Workload(str(other)) for other in others))
                observed[entry], evidence[entry] = ppm, MeasuredEstimate.from_json(estimate)
            case _:
                raise ValueError(f"not an entry of learned co-location: {row!r}")
    by_age = sorted(evidence.items(), key=lambda item: (item[1].at_ms, item[0]))
    return observed, Evidence(by_age)
