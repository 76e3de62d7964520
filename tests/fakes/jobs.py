"""Small catalogs, jobs and policies for tests of the control loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from eva_master.model.catalog import InstanceType, Offering
from eva_master.model.job import JobSpec, Program, TaskSpec
from eva_master.model.planning.plan import Assign, NewInstance, Plan, PolicyMemory
from eva_master.model.planning.snapshot import Snapshot
from eva_master.model.resources import Resources
from eva_master.testing.job_views import with_values
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import Family, InstanceId, Price, RunId, Workload

CPU = Family("c")


def offering(cpus: int, price: int, **more: object) -> Offering:
    """A type ``c.N`` with N vCPUs and 2 GiB for each."""
    capacity = Resources(0, cpus * 1000, cpus * 2048)
    kind = InstanceType(f"c.{cpus}", CPU, capacity, acquisition_ms=10_000, setup_ms=60_000)
    return Offering(kind, Price(price), **more)  # type: ignore[arg-type]


SMALL, MEDIUM, LARGE = offering(2, 100_000), offering(4, 190_000), offering(8, 370_000)
CATALOG = (SMALL, MEDIUM, LARGE)


def task(cpus: int, workload: str = "w", rate_ppm: int | None = None) -> TaskSpec:
    """A task of so many vCPUs, that runs on family ``c`` only."""
    demand = ((CPU, Resources(0, cpus * 1000, 1024)),)
    throughput = () if rate_ppm is None else ((CPU, rate_ppm),)
    return TaskSpec(Workload(workload), Program("true"), demand, throughput)


def job(name: str, *cpus: int, minutes: float = 10, array: bool = False, **more: object) -> JobSpec:
    """A job with one task per number of vCPUs.

    Args:
        more: Other values, see `eva_master.testing.job_views`.
    """
    spec = JobSpec(
        name,
        "me",
        tuple(task(n, name) for n in cpus),
        kind=JobKind.ARRAY if array else JobKind.GANG,
        duration_ms=round(minutes * 60_000),
    )
    return with_values(spec, more)


class Script:
    """A policy that follows instructions: where task runs are to be, by the name of a place.

    Waiting task runs without an instruction get an instance of their own; a place that does not
    exist yet is launched.

    Attributes:
        wanted: Copy to place; a place is a name of the test's own.
        offerings: Offerings of places, by name; `SMALL` by default.
    """

    name = "script"

    def __init__(self, wanted: Mapping[str, str], offerings: Mapping[str, Offering]) -> None:
        self.wanted = dict(wanted)
        self.offerings = dict(offerings)
        self.where: dict[str, InstanceId] = {}
        self._placed: dict[RunId, str] = {}
        self.veto: Callable[[RunId], bool] = lambda _run: False

    def plan(
        self, snapshot: Snapshot, memory: PolicyMemory | None
    ) -> tuple[Plan, PolicyMemory | None]:
        self._learn_names(snapshot)
        launches: dict[str, NewInstance] = {}
        entries = []
        for run in snapshot.runs:
            place = self.wanted.get(run.id, run.id)
            on: InstanceId | int | None = self.where.get(place)
            if run.pinned or (on is not None and on == run.instance) or self.veto(run.id):
                continue
            if on is None:
                if place not in launches:
                    kind = self.offerings.get(place, SMALL)
                    launches[place] = NewInstance(len(launches), kind)
                on = launches[place].key
            entries.append(Assign(run.id, on))
            self._placed[run.id] = place
        return Plan(tuple(launches.values()), tuple(entries)), memory

    def _learn_names(self, snapshot: Snapshot) -> None:
        live = {view.id for view in snapshot.instances}
        self.where = {name: i for name, i in self.where.items() if i in live}
        for run in snapshot.runs:
            place = self._placed.get(run.id)
            if place is not None and run.instance in live:
                self.where.setdefault(place, run.instance)
