"""Users are told when a job ends that states nothing, from what its program reports."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from eva_lab.simulator.cluster.delays import EqualDelays
from eva_lab.simulator.cluster.work import Work
from eva_lab.simulator.simulated_cluster import SimulatedCluster
from eva_master.app.policy_registry import policies
from eva_master.control.readside.publisher import Publisher
from eva_master.control.settings import Settings
from eva_wire.values.ids import JobId, Workload
from eva_wire.values.states import TERMINAL_JOB, RunState
from tests.fakes.jobs import job, offering

CATALOG = (offering(4, 200_000), offering(8, 390_000))
DELAYS = EqualDelays(fetch_ms=0, start_ms=2_000, stop_ms=1_000, report_ms=5_000)
FORMS = {"single": {}, "gang": {"tasks": 3}, "array": {"tasks": 3, "array": True}}
FACTOR = 1.5
DAY_MS = 86_400_000


class World:
    """An owner's jobs, of which programs report steps and their total every five seconds."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)
        self._seconds: dict[str, float] = {}
        per_s = self._draw.choice((0.3, 1.0, 5.0))
        kind = policies()["eva"]
        self.cluster = SimulatedCluster(
            CATALOG,
            kind.build(kind.config()),
            settings=Settings(),
            delays=DELAYS,
            work_of=lambda run: Work(
                self._seconds[run.rpartition("-")[0]] * 1_000, steps_per_s=per_s
            ),
        )

    def submit(
        self, name: str, workload: str = "w", tasks: int = 1, *, array: bool = False
    ) -> None:
        """Submit a job whose tasks take one to two minutes each, and say so nowhere."""
        self._seconds[name] = self._draw.uniform(60, 120)
        spec = job(name, *[2] * tasks, array=array)
        alike = tuple(replace(it, workload=Workload(workload)) for it in spec.tasks)
        self.cluster.submit(replace(spec, tasks=alike, duration_ms=None))

    def history(self) -> None:
        for number in range(4):
            self.submit(f"h{number}", self._draw.choice(("w", f"other{number}")))
        assert self.cluster.run(self.cluster.quiet, limit_ms=DAY_MS)

    def told(self, name: str) -> tuple[int, int, dict[int, int | None]]:
        """When a job began and ended, and the ETA that was told at each second of its run."""
        cluster = self.cluster
        cluster.run(lambda: any(it.spec.name == name for it in cluster.state.jobs.values()))
        id_: JobId = next(it.id for it in cluster.state.jobs.values() if it.spec.name == name)
        members = cluster.state.members
        cluster.run(lambda: all(it.state is RunState.RUNNING for it in members(id_)))
        began, told = cluster.timeline.now(), dict[int, int | None]()
        publisher = Publisher(cluster.state, Settings())
        while cluster.state.jobs[id_].state not in TERMINAL_JOB:
            at = cluster.timeline.now() + 1_000
            cluster.timeline.after(1_000, lambda: None)
            cluster.run(lambda at=at: cluster.timeline.now() >= at)  # type: ignore[misc]
            model = publisher.publish(cluster.timeline.now())
            whole, _ = model.outlooks(model.record(id_, model.at_ms), model.at_ms)
            told[model.at_ms] = whole.eta_ms
        ended = cluster.state.jobs[id_].finished_ms
        assert ended is not None
        return began, ended, told


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("history", [False, True], ids=["first", "with-history"])
@pytest.mark.parametrize("seed", range(2))
def test_the_eta_is_right_within_a_half_from_the_first_quarter_on(
    seed: int, form: str, *, history: bool
) -> None:
    world = World(seed)
    if history:
        world.history()
    world.submit("x", **FORMS[form])  # type: ignore[arg-type]
    began, ended, told = world.told("x")
    for part in (0.25, 0.5, 0.75):
        moment = began + part * (ended - began)
        at = min(told, key=lambda it: abs(it - moment))
        eta_ms = told[at]
        assert eta_ms is not None, part
        assert (ended - at) / FACTOR <= eta_ms - at <= (ended - at) * FACTOR, part
