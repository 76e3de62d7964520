"""A plain list scheduler for short and long tasks, by the rule of `short_jobs`' default.

The baseline has one queue of events, no plans and no agents. Differences from the control loop: a
server in its pools is never lost, and long tasks have no limit of patience.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush
from itertools import count

from eva_lab.experiments.fixed import ClusterSection
from eva_lab.simulator.cluster.attempt_log import Occupancy
from eva_lab.simulator.results.metrics import InstanceFigures, JobFigures, RunRecord
from eva_master.model.catalog import Purchase
from eva_master.model.trace import Trace, TraceJob
from eva_wire.values.ids import InstanceId, JobId, run_id

GAP_MS = 250
CLEAR_MS = 20_000
HOLD_MS = 300_000
AGE_CAP = 5
_SHARED = InstanceId("shared")


@dataclass(slots=True, eq=False)
class _Waiting:
    """A job with tasks that have not begun.

    Attributes:
        begun: Number of tasks that have begun, those with the lowest indexes.
        left_ms: Work of the tasks that have not ended.
    """

    job: TraceJob
    left_ms: int
    begun: int = 0

    @property
    def tasks(self) -> int:
        """Number of tasks that have not begun."""
        return len(self.job.tasks) - self.begun


@dataclass(slots=True, eq=False)
class _Server:
    """A server for short tasks alone.

    Attributes:
        ends_ms: When the last task on it ends; 0 before the first.
        leaving: Whether it takes no more tasks.
    """

    id: InstanceId
    spot: bool
    asked_ms: int
    up_ms: int
    ends_ms: int = 0
    leaving: bool = False


class ListScheduler:
    """One run over a trace.

    Args:
        trace: Arrays with a duration of each task.
        cluster: On what it runs.
        share: Which part of the money for short tasks goes to transient servers.
    """

    def __init__(self, trace: Trace, cluster: ClusterSection, share: float) -> None:
        self._trace, self._cluster = trace, cluster
        steady = int(cluster.short * (1 - share))
        self._most = int(cluster.short * share * cluster.spot_ratio)
        self._now, self._looked, self._look_at = 0, -GAP_MS, -1
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = count()
        self._line: list[_Waiting] = []
        self._long: deque[_Waiting] = deque()
        self._shared = cluster.servers - cluster.short
        self._servers: dict[_Server, None] = {}
        self._idle: tuple[list[_Server], list[_Server]] = [], []
        """Servers on demand, and transient ones."""
        self._needs: list[tuple[int, int]] = []
        self._occupancies: list[Occupancy] = []
        self._gone: list[InstanceFigures] = []
        first = min(job.arrival_ms for job in trace.jobs)
        self._at(first, lambda: self._add(steady, spot=False))

    def record(self) -> RunRecord:
        """Serve all jobs, and return what became of them."""
        for job in self._trace.jobs:
            self._at(job.arrival_ms, partial(self._arrived, job))
        while self._events:
            self._now, _, happens = heappop(self._events)
            happens()
        jobs = (
            JobFigures(
                job.id, job.workload, len(job.tasks), job.arrival_ms, 0, 0, 0, 0.0, 0, id=job.id
            )
            for job in self._trace.jobs
        )
        return RunRecord((), tuple(self._occupancies), tuple(jobs), tuple(self._gone))

    def _at(self, at: int, happens: Callable[[], None]) -> None:
        heappush(self._events, (at, next(self._numbers), happens))

    def _arrived(self, job: TraceJob) -> None:
        line = self._line if job.duration_ms < self._cluster.cutoff else self._long
        line.append(_Waiting(job, job.duration_ms * len(job.tasks)))
        self._fill()
        self._look_again(max(self._now, self._looked + GAP_MS))

    # -- tasks -----------------------------------------------------------------------------------

    def _fill(self) -> None:
        """Give free servers to short tasks in the order of the line, shared ones to long ones."""
        while self._line and (self._shared or any(self._idle)):
            server = next((idle.pop() for idle in self._idle if idle), None)
            self._start(self._line[0], server)
            if not self._line[0].tasks:
                self._line.pop(0)
        while self._long and self._shared:
            self._start(self._long[0], None)
            if not self._long[0].tasks:
                self._long.popleft()

    def _start(self, waiting: _Waiting, server: _Server | None) -> None:
        """Start the next task of a job; on a shared server if none for short tasks is given."""
        job, index, now = waiting.job, waiting.begun, self._now
        took = job.tasks[index].duration_ms
        took = job.duration_ms if took is None else took
        place = _SHARED if server is None else server.id
        run = run_id(JobId(job.id), index)
        self._occupancies.append(Occupancy(run, 1, place, now, now + took, took, took))
        waiting.begun += 1
        if server is None:
            self._shared -= 1
        else:
            server.ends_ms = now + took
        self._at(now + took, partial(self._ended, waiting, server))

    def _ended(self, waiting: _Waiting, server: _Server | None) -> None:
        waiting.left_ms -= waiting.job.duration_ms
        if server is None:
            self._shared += 1
        elif server.leaving:
            self._leave(server)
        else:
            self._idle[server.spot].append(server)
        self._fill()

    # -- servers ---------------------------------------------------------------------------------

    def _look_again(self, at: int) -> None:
        if not self._now <= self._look_at <= at:
            self._look_at = at
            self._at(at, partial(self._look, at))

    def _look(self, at: int) -> None:
        """Put the line in order, and have as many transient servers as were needed lately."""
        if at != self._look_at:
            return
        self._looked, self._look_at, now = at, -1, at
        self._line.sort(key=self._urgency)
        need = self._needed()
        self._needs = [it for it in self._needs if now - it[0] < HOLD_MS and it[1] > need]
        self._needs += [(now, need)] if need else []
        wanted = max((slots for _, slots in self._needs), default=0)
        spot = [server for server in self._servers if server.spot]
        stay = [server for server in spot if not server.leaving]
        boot = sum(not server.spot and server.up_ms > now for server in self._servers)
        self._add(min(need - len(stay) - boot, self._most - len(spot)), spot=True)
        stay.sort(key=lambda server: 0 if server.ends_ms <= now else server.ends_ms)
        for server in stay[: max(0, len(stay) - wanted)]:
            server.leaving = True
            if server.ends_ms <= now:
                self._leave(server)
        if self._line:
            self._look_again(now + CLEAR_MS // 2)
        elif self._needs:
            self._look_again(self._needs[0][0] + HOLD_MS)

    def _urgency(self, waiting: _Waiting) -> tuple[int, int, int]:
        waited, job = self._now - waiting.job.arrival_ms, waiting.job
        aged = waited if waited >= AGE_CAP * job.duration_ms else 0
        return -aged, waiting.left_ms, job.arrival_ms

    def _needed(self) -> int:
        """How many transient servers would have all that waits begin in time."""
        tasks = sum(waiting.tasks for waiting in self._line)
        work_ms = sum(waiting.tasks * waiting.job.duration_ms for waiting in self._line)
        steady = sum(not server.spot and server.up_ms <= self._now for server in self._servers)
        return max(0, min(tasks, -(-work_ms // CLEAR_MS) - steady - self._shared))

    def _add(self, servers: int, *, spot: bool) -> None:
        up_ms = self._now + self._cluster.provisioning
        for _ in range(servers):
            server = _Server(InstanceId(f"s{next(self._numbers)}"), spot, self._now, up_ms)
            self._servers[server] = None
            self._at(up_ms, partial(self._came, server))

    def _came(self, server: _Server) -> None:
        if server in self._servers:
            self._idle[server.spot].append(server)
            self._fill()

    def _leave(self, server: _Server) -> None:
        del self._servers[server]
        if server in self._idle[True]:
            self._idle[True].remove(server)
        if server.up_ms <= self._now:
            life = server.asked_ms, server.up_ms, self._now
            self._gone.append(InstanceFigures(server.id, "", *life, 0.0, Purchase.SPOT))
