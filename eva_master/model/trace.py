"""What arrives at a cluster over time: recorded or made up, the same for every scheduler."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from eva_master.model.catalog import base_family
from eva_master.model.ids import MILLION, Family, Workload, base_of
from eva_master.model.resources import Resources


@dataclass(frozen=True, slots=True)
class TraceTask:
    """One task of a recorded job.

    Attributes:
        demand: What it needs on a family without an entry of its own, `None` if only the families
            in `demand_by_family` can host it.
        demand_by_family: What it needs on certain families, `None` where it cannot run. Sorted.
        image: What has to be on an instance before the task starts.
        fetch_ms: To bring its files to an instance.
        build_ms: To make its image, the first time that this meets an instance.
        kill_ms: To end it.
        upload_ms: To store its checkpoint after that.
        speed_by_family: How fast it runs on certain families, in millionths of the speed at which
            its job takes `TraceJob.duration_ms`; a million on all others. Sorted.
    """

    demand: Resources | None
    demand_by_family: tuple[tuple[Family, Resources | None], ...] = ()
    image: str = ""
    fetch_ms: int = 0
    build_ms: int = 0
    kill_ms: int = 0
    upload_ms: int = 0
    speed_by_family: tuple[tuple[Family, int], ...] = ()

    def speed_on(self, family: Family) -> int:
        """How fast it runs on a family, in millionths; how an instance is bought is no matter."""
        machine = base_family(family)
        return next((speed for name, speed in self.speed_by_family if name == machine), MILLION)

    def resolved(self, families: Iterable[Family]) -> tuple[tuple[Family, Resources], ...]:
        """The demand on each family that can host the task, sorted; the form of a `TaskSpec`."""
        own = dict(self.demand_by_family)
        needs = ((family, own.get(family, self.demand)) for family in sorted(set(families)))
        return tuple((family, need) for family, need in needs if need is not None)


@dataclass(frozen=True, slots=True)
class TraceJob:
    """A job as it arrives: a gang if it has several tasks.

    Attributes:
        id: Unique in the trace.
        workload: The class whose throughput is learned, such as ``resnet18[3]``; what stands
            before the bracket is its base, the row of the interference table.
        arrival_ms: After the beginning of the trace.
        duration_ms: Running alone, without delays, on families where its tasks' speed is a million.
        init_ms: From the start of its last task to first progress.
        steps_per_s: Running alone, in millionths of an iteration per second.
        total_steps: Whole iterations until it is done; 0 if it is shorter than one.
        tasks: At least one.
    """

    id: str
    workload: Workload
    arrival_ms: int
    duration_ms: int
    tasks: tuple[TraceTask, ...]
    init_ms: int = 0
    steps_per_s: int = 1_000_000
    total_steps: int = 0


@dataclass(frozen=True, slots=True)
class Trace:
    """Jobs in the order of their arrival.

    Attributes:
        name: For people.
        jobs: Sorted by arrival, then by id.
    """

    name: str
    jobs: tuple[TraceJob, ...]


@dataclass(frozen=True, slots=True)
class Interference:
    """How much tasks slow each other down, as it was measured: the truth of a simulation.

    Attributes:
        pairs: What a workload achieves beside one other, in millionths of what it achieves alone.
            Both are bases (see `eva_master.model.ids.base_of`).
        default_ppm: The same for a pair that was not measured.
    """

    pairs: Mapping[tuple[Workload, Workload], int] = field(default_factory=dict)
    default_ppm: int = MILLION

    def __call__(self, workload: Workload, others: tuple[Workload, ...]) -> float:
        """Normalised throughput beside any number of others: the product over the pairs.

        Args:
            workload: Whose throughput; a variant behaves as its base.
            others: Those that share its instance. In one order for one result, to the last bit.
        """
        base, speed = base_of(workload), 1.0
        for other in others:
            speed *= self.pairs.get((base, base_of(other)), self.default_ppm) / MILLION
        return speed
