"""The lines in which short tasks wait: one for all rooms, or one at each server that is asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

from eva_master.model.catalog import Offering
from eva_master.model.job import TaskSpec
from eva_master.model.planning.snapshot import SharedInstance, Snapshot
from eva_master.model.planning.standing import Line, Newcomers, Pool
from eva_master.model.resources import NOTHING, Resources
from eva_master.model.values import sameness
from eva_master.packing.toolkit import UnplacedGroup
from eva_policies.cloudcoaster.config import Config
from eva_policies.cloudcoaster.filling import RowFilling
from eva_policies.cloudcoaster.market import is_spot
from eva_policies.cloudcoaster.memory import Memory
from eva_policies.cloudcoaster.order import first_served, task_ms
from eva_policies.cloudcoaster.probes import (
    ProbedServer,
    Probes,
    ProbingJob,
    Where,
    passed_over,
    probed,
    queues,
)
from eva_wire.values.ids import Family, InstanceId, JobId, Millis

STEADY, TRANSIENT, SHARED = "steady", "transient", "shared"


@dataclass(frozen=True, slots=True)
class ShortJobLines:
    """How those who wait stand in line.

    Attributes:
        pools: The room of others that is claimed.
        probes: The servers that each job has asked.
    """

    lines: tuple[Line, ...] = ()
    pools: tuple[Pool, ...] = ()
    probes: Probes = field(default_factory=dict)


def one_line(
    waits: Sequence[UnplacedGroup], filling: RowFilling, pools: Sequence[Pool], config: Config
) -> ShortJobLines:
    """A single line for all rooms, in which arriving jobs stand at once.

    Args:
        waits: Waiting groups in the order of the line.
        filling: The filling, which decides whether any instance could hold a job.
        pools: The pools that stay.
        config: The settings.
    """
    if not waits and not pools:
        return ShortJobLines()
    shared = _shared_pool([instance.id for instance in filling.shared])
    names = tuple(pool.name for pool in (*pools, *shared))
    kinds: dict[object, UnplacedGroup] = {}
    for unplaced in waits:
        kinds.setdefault((unplaced.group.job.id, sameness(unplaced.run.task)), unplaced)
    hosted = dict.fromkeys(
        unplaced.group.job.id
        for unplaced in kinds.values()
        if filling.can_ever_hold(unplaced.run.id)
    )
    patience_ms = config.long_patience_s * 1000
    line = Line(names, tuple(hosted), patience_ms=patience_ms, open_to=Newcomers())
    return ShortJobLines((line,) if names else (), shared)


def at_servers(
    snapshot: Snapshot,
    waits: Sequence[UnplacedGroup],
    servers: ProbeTargets,
    before: Memory,
    config: Config,
) -> ShortJobLines:
    """A line at each server that a job has asked.

    Args:
        snapshot: The cluster.
        waits: Groups without a place.
        servers: Servers that may be asked.
        before: Memory of the round before.
        config: The settings.
    """
    unknown_ms = config.clear_within_s * 1000
    tasks = Counter(unplaced.group.job.id for unplaced in waits)
    first = {unplaced.group.job.id: unplaced for unplaced in reversed(waits)}
    waiting = [
        ProbingJob(
            unplaced.group.job,
            tasks[job] + unplaced.group.job.array.unseen,
            task_ms(unplaced.group.job, unknown_ms),
            servers.of(unplaced.run.task),
        )
        for job, unplaced in sorted(first.items())
    ]
    submitted = {job_waiting.job.id: job_waiting.job.submitted_ms for job_waiting in waiting}
    elapsed_ms = snapshot.now_ms - before.at_ms
    probed_before = passed_over(before.probes, _running(snapshot), submitted, elapsed_ms)
    probes = probed(waiting, probed_before, config.seed)
    asked = dict.fromkeys(server for those in probes.values() for server in those)
    shared = _shared_pool(
        [server for server in asked if isinstance(server, str) and server in servers.shared]
    )
    order = first_served(snapshot.runs, snapshot.now_ms, unknown_ms, None)
    patience_ms = config.long_patience_s * 1000
    return ShortJobLines(
        queues(waiting, probes, order, config.age_cap, patience_ms), shared, probes
    )


def _running(snapshot: Snapshot) -> dict[Where, tuple[Millis, JobId]]:
    """Of the jobs with a task on each instance the one that was submitted last."""
    came = {job.id: (job.submitted_ms, job.id) for job in snapshot.jobs}
    job_of = {run.id: run.job for run in snapshot.runs}
    return {
        view.id: max(came[job_of[run]] for run in view.residents if run in job_of)
        for view in snapshot.instances
        if any(run in job_of for run in view.residents)
    }


class ProbeTargets:
    """Servers that short jobs may ask.

    Args:
        snapshot: The cluster.
        members: Members that stay, or are bought, for short tasks.
        shared: Instances of others.
        released: Members that only finish the tasks in their queues.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        members: Iterable[tuple[Where, Offering]],
        shared: Sequence[SharedInstance],
        released: Set[InstanceId] = frozenset(),
    ) -> None:
        self.shared = frozenset(instance.id for instance in shared)
        self._all = list(_servers(snapshot, members, shared, released))
        self._up: set[Where] = {view.id for view in snapshot.instances if view.ready}
        self._up |= self.shared
        self._known: dict[tuple[tuple[Family, Resources], ...], dict[Where, ProbedServer]] = {}

    def of(self, task: TaskSpec) -> Mapping[Where, ProbedServer]:
        """Servers that could hold a task if they were empty; if some are up, these alone.

        Released servers do not count as being up.
        """
        if task.demand not in self._known:
            needs = dict(task.demand)
            every = [
                server
                for server, offering in self._all
                if (need := needs.get(offering.type.family)) is not None
                and need.fits(offering.type.capacity)
            ]
            up = [server for server in every if server.id in self._up]
            asked = up if any(not server.released for server in up) else every
            self._known[task.demand] = {server.id: server for server in asked}
        return self._known[task.demand]


def _servers(
    snapshot: Snapshot,
    members: Iterable[tuple[Where, Offering]],
    shared: Sequence[SharedInstance],
    released: Set[InstanceId],
) -> Iterator[tuple[ProbedServer, Offering]]:
    long = {run.instance for run in snapshot.runs if run.long}
    for name, offering in members:
        spot = is_spot(offering)
        pool = TRANSIENT if spot else STEADY
        yield ProbedServer(name, pool, spot, not spot, name in long, name in released), offering
    for instance in shared:
        room = instance.room
        yield ProbedServer(instance.id, SHARED, long=room.own != NOTHING), room.offering


def _shared_pool(instances: Sequence[InstanceId]) -> tuple[Pool, ...]:
    if not instances:
        return ()
    reason = "room that other jobs leave free on their instances"
    return (Pool(SHARED, tuple(instances), reason, shared=True),)
