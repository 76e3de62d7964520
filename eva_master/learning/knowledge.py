"""All that the cluster has learned about its workloads and instances, as one value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile

from eva_master.learning.attribution import attribute
from eva_master.learning.bounds import ENTRIES_KEPT
from eva_master.learning.colocation import (
    Key,
    forget,
    key,
    observe,
    recorded,
    table_from_json,
)
from eva_master.learning.delays import Delays
from eva_master.learning.estimate import Estimate, taken
from eva_master.learning.run_times.dags import DagTimes
from eva_master.learning.runtimes import RunTimes
from eva_master.learning.speeds.scaling import ScalingTable
from eva_master.learning.standalone import StandaloneTable
from eva_master.model.ids import Millis, Workload
from eva_master.model.planning.plan import Json
from eva_master.model.planning.snapshot import ThroughputTable

_VERSION = 3
_READABLE = (2, 3)
"""Version 2 did not have what policies know of standalone throughput."""
_NOISE_PPM = 20_000
"""An estimate that differs by less from what the policies know is not news; else every window
would be, and each would call for a new plan."""


@dataclass(frozen=True, slots=True)
class Knowledge:
    """What was learned.

    Attributes:
        throughput: How much workloads slow each other down, as the policies know it.
        evidence: The estimates behind it, in millionths, with the same keys; those first that
            were measured longest ago.
        standalone: What workloads achieve alone.
        delays: How long starts, stops and launches take.
        run_times: How long the tasks of each owner's jobs take.
        scaling: How fast elastic gangs are with some number of members.
        dags: How the run times of the stages of each owner's DAGs hang together.
    """

    throughput: ThroughputTable = field(default_factory=ThroughputTable)
    evidence: Mapping[Key, Estimate] = field(default_factory=dict)
    standalone: StandaloneTable = field(default_factory=StandaloneTable)
    delays: Delays = field(default_factory=Delays)
    run_times: RunTimes = field(default_factory=RunTimes)
    scaling: ScalingTable = field(default_factory=ScalingTable)
    dags: DagTimes = field(default_factory=DagTimes)

    def in_company(self, members: Sequence[Key], observed_ppm: int, at: Millis) -> Knowledge:
        """After a window of a job of which at least one task shared its instance.

        The only task of a job is measured again and again: its windows make an estimate. What a
        gang's window says of one of its members is a bound (see `attribution.attribute`), which
        stands as it is.

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
            after = Estimate(value, at, before.samples + 1)
        known = recorded(self.throughput, entry)
        news = known is None or abs(known - after.value) >= _NOISE_PPM
        table = observe(self.throughput, entry, after.value) if news else self.throughput
        evidence = dict(self.evidence)
        if before is None or after.at_ms > before.at_ms:
            evidence.pop(entry, None)  # it becomes the last one
        evidence[entry] = after
        return replace(self, throughput=table, evidence=evidence)._bounded()

    def _bounded(self) -> Knowledge:
        if len(self.evidence) <= ENTRIES_KEPT:
            return self
        estimates = iter(self.evidence.items())
        first, longest = next(estimates)
        alike = takewhile(lambda item: item[1].at_ms == longest.at_ms, estimates)
        oldest = min([first, *(entry for entry, _ in alike)])
        evidence = dict(self.evidence)
        del evidence[oldest]
        return replace(self, throughput=forget(self.throughput, oldest), evidence=evidence)

    def to_json(self) -> dict[str, Json]:
        """The journal's form, with its version."""
        rows: list[Json] = [
            [workload, list(others), ppm, self._evidence((workload, others), ppm).to_json()]
            for (workload, others), ppm in self.throughput.observed
        ]
        return {
            "version": _VERSION,
            "colocation": rows,
            "standalone": self.standalone.to_json(),
            "delays": self.delays.to_json(),
            # Releases that do not know them pass them over, so they take no new version.
            "runtimes": self.run_times.to_json(),
            **({"scaling": self.scaling.to_json()} if self.scaling.rates else {}),
            **({"dags": self.dags.to_json()} if self.dags.owners else {}),
        }

    def _evidence(self, entry: Key, ppm: int) -> Estimate:
        return self.evidence.get(entry) or Estimate(ppm, Millis(0))

    @staticmethod
    def from_json(data: Mapping[str, Json]) -> Knowledge:
        """Read what `to_json` wrote, in this version or the first one, which had no number.

        Raises:
            ValueError: The data has another form, or is of a later version.
        """
        version = data.get("version", 1)
        if version == 1:
            table = table_from_json(data.get("throughput"))
            return Knowledge(
                throughput=table,
                evidence={entry: Estimate(ppm, Millis(0)) for entry, ppm in table.observed},
                standalone=StandaloneTable.from_json(data.get("standalone")),
            )
        if version not in _READABLE:
            raise ValueError(f"what was learned is of version {version}, not {_VERSION}")
        observed, evidence = _colocation(data.get("colocation"))
        return Knowledge(
            throughput=ThroughputTable(tuple(sorted(observed.items()))),
            evidence=evidence,
            standalone=StandaloneTable.from_json(data.get("standalone")),
            delays=Delays.from_json(data.get("delays")),
            run_times=RunTimes.from_json(data.get("runtimes", [])),
            scaling=ScalingTable.from_json(data.get("scaling", [])),
            dags=DagTimes.from_json(data.get("dags", [])),
        )


def _colocation(data: Json) -> tuple[dict[Key, int], dict[Key, Estimate]]:
    if not isinstance(data, list):
        raise ValueError("learned co-location is a list")
    observed: dict[Key, int] = {}
    evidence: dict[Key, Estimate] = {}
    for row in data:
        match row:
            case [str(workload), list(others), int(ppm), list(estimate)]:
                entry = key(Workload(workload), (Workload(str(other)) for other in others))
                observed[entry], evidence[entry] = ppm, Estimate.from_json(estimate)
            case _:
                raise ValueError(f"not an entry of learned co-location: {row!r}")
    by_age = sorted(evidence.items(), key=lambda item: (item[1].at_ms, item[0]))
    return observed, dict(by_age)
