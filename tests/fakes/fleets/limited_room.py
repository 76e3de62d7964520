"""Simulated clusters with limited room, whose jobs are named and run for so long."""

from __future__ import annotations

from collections.abc import Mapping

from eva_lab.simulator.cluster.delays import EqualDelays
from eva_lab.simulator.cluster.work import Work
from eva_lab.simulator.simulated_cluster import SimulatedCluster
from eva_master.control.settings import Settings
from eva_master.model.catalog import InstanceType, Offering
from eva_master.model.job import JobSpec, Program, TaskSpec
from eva_master.model.resources import Resources
from eva_master.ports import Policy
from eva_master.testing.job_views import with_values
from eva_wire.values.ids import Family, Price, RunId, Workload
from eva_wire.values.states import RunState

CPU = Family("c")
SECOND_MS, MINUTE_MS = 1_000, 60_000
GAP_MS = 5_000
DELAYS = EqualDelays(fetch_ms=0, start_ms=1_000, stop_ms=1_000, report_ms=5_000)


def sold(cpus: int, limit: int | None, boot_s: int = 20) -> Offering:
    """An offering of so many CPUs that takes so many seconds to order and boot."""
    size = Resources(0, cpus * 1_000, cpus * 2_048)
    kind = InstanceType(f"box.{cpus}", CPU, size, boot_s * SECOND_MS // 2, boot_s * SECOND_MS // 2)
    return Offering(kind, Price(cpus * 50_000), limit=limit)


class World(SimulatedCluster):
    """A cluster whose jobs are named, and run for so long.

    Args:
        policy: The scheduler.
        catalog: Offerings on sale.
        settings: Of the control loop, over its own.
    """

    def __init__(
        self, policy: Policy | Mapping[str, Policy], *catalog: Offering, **settings: object
    ) -> None:
        self.seconds: dict[str, float] = {}
        rules = {"round_gap_ms": GAP_MS, **settings}
        super().__init__(
            catalog,
            policy,
            settings=Settings(**rules),  # type: ignore[arg-type]
            delays=DELAYS,
            work_of=self._work,
        )

    def _work(self, run: RunId) -> Work:
        return Work(self.seconds[run.rsplit("-", 1)[0]] * SECOND_MS)

    def job(
        self,
        name: str,
        cpus: int,
        seconds: float,
        *,
        at_s: float = 0,
        tasks: int = 1,
        **more: object,
    ) -> None:
        """Submit a job later on."""
        self.seconds[name] = seconds
        task = TaskSpec(Workload(name), Program("true"), ((CPU, Resources(0, cpus * 1_000, 512)),))
        spec = with_values(JobSpec(name, "me", (task,) * tasks), more)
        self.timeline.after(
            round(at_s * SECOND_MS) - self.timeline.now(), lambda: self.submit(spec)
        )

    def began_ms(self, name: str) -> int:
        """When the first of a job's tasks first ran."""
        job = next(it for it in self.state.jobs.values() if it.spec.name == name)
        runs = self.state.members(job.id)
        return min(at for run in runs for state, at in run.history if state == RunState.RUNNING)

    def ended(self) -> bool:
        """Whether all jobs have ended."""
        return self.timeline.now() > MINUTE_MS and not self.state.active
