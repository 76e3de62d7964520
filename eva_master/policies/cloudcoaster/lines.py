"""The lines in which short tasks wait: one for all rooms, or one at each server that is asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

from eva_master.model.catalog import Offering
from eva_master.model.ids import Family, InstanceId, JobId, Millis
from eva_master.model.job import TaskSpec
from eva_master.model.planning.snapshot import Lendable, Snapshot
from eva_master.model.planning.standing import Line, Newcomers, Pool
from eva_master.model.resources import NOTHING, Resources
from eva_master.packing.toolkit import UnplacedGroup
from eva_master.policies.cloudcoaster.config import Config
from eva_master.policies.cloudcoaster.filling import Filling
from eva_master.policies.cloudcoaster.market import is_spot
from eva_master.policies.cloudcoaster.memory import Memory
from eva_master.policies.cloudcoaster.order import first_served, task_ms
from eva_master.policies.cloudcoaster.probes import (
    Probes,
    Server,
    Waiting,
    Where,
    passed_over,
    probed,
    queues,
)

STEADY, TRANSIENT, SHARED = "steady", "transient", "shared"


@dataclass(frozen=True, slots=True)
class Lines:
    """How those who wait stand in line.

    Attributes:
        pools: The room of others that is claimed.
        probes: The servers that each job has asked.
    """

    lines: tuple[Line, ...] = ()
    pools: tuple[Pool, ...] = ()
    probes: Probes = field(default_factory=dict)


def one_line(
    waits: Sequence[UnplacedGroup], filling: Filling, pools: Sequence[Pool], config: Config
) -> Lines:
    """One line for all rooms; jobs that arrive stand in it at once.

    Args:
        waits: In the order of the line.
        filling: Knows who can be held at all.
        pools: Those that stay.
        config: The settings.
    """
    if not waits and not pools:
        return Lines()
    lent = _lent([it.id for it in filling.shared])
    names = tuple(pool.name for pool in (*pools, *lent))
    hosted = dict.fromkeys(it.group.job.id for it in waits if filling.can_ever_hold(it.run.id))
    patience_ms = config.long_patience_s * 1000
    line = Line(names, tuple(hosted), patience_ms=patience_ms, open_to=Newcomers())
    return Lines((line,) if names else (), lent)


def at_servers(
    snapshot: Snapshot,
    waits: Sequence[UnplacedGroup],
    servers: Servers,
    before: Memory,
    config: Config,
) -> Lines:
    """A line at each server that somebody has asked.

    Args:
        snapshot: The cluster.
        waits: Those without a place.
        servers: What may be asked.
        before: What is known of the round before.
        config: The settings.
    """
    unknown_ms = config.clear_within_s * 1000
    tasks = Counter(one.group.job.id for one in waits)
    first = {one.group.job.id: one for one in reversed(waits)}
    waiting = [
        Waiting(
            one.group.job,
            tasks[job] + one.group.job.unseen,
            task_ms(one.group.job, unknown_ms),
            servers.of(one.run.task),
        )
        for job, one in sorted(first.items())
    ]
    submitted = {one.job.id: one.job.submitted_ms for one in waiting}
    elapsed_ms = snapshot.now_ms - before.at_ms
    known = passed_over(before.probes, _running(snapshot), submitted, elapsed_ms)
    probes = probed(waiting, known, config.seed)
    asked = dict.fromkeys(it for those in probes.values() for it in those)
    lent = _lent([it for it in asked if isinstance(it, str) and it in servers.shared])
    order = first_served(snapshot.runs, snapshot.now_ms, unknown_ms, None)
    patience_ms = config.long_patience_s * 1000
    return Lines(queues(waiting, probes, order, config.age_cap, patience_ms), lent, probes)


def _running(snapshot: Snapshot) -> dict[Where, tuple[Millis, JobId]]:
    """Of the jobs with a task on each instance the one that was submitted last."""
    came = {job.id: (job.submitted_ms, job.id) for job in snapshot.jobs}
    job_of = {run.id: run.job for run in snapshot.runs}
    return {
        view.id: max(came[job_of[run]] for run in view.residents if run in job_of)
        for view in snapshot.instances
        if any(run in job_of for run in view.residents)
    }


class Servers:
    """What short jobs may ask.

    Args:
        snapshot: The cluster.
        members: What stays, or is bought, for short tasks.
        shared: Instances of others.
        released: Members that only finish what stands in their queues.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        members: Iterable[tuple[Where, Offering]],
        shared: Sequence[Lendable],
        released: Set[InstanceId] = frozenset(),
    ) -> None:
        self.shared = frozenset(it.id for it in shared)
        self._all = list(_servers(snapshot, members, shared, released))
        self._up: set[Where] = {view.id for view in snapshot.instances if view.ready}
        self._up |= self.shared
        self._known: dict[tuple[tuple[Family, Resources], ...], dict[Where, Server]] = {}

    def of(self, task: TaskSpec) -> Mapping[Where, Server]:
        """Those that could hold a task if nobody were there; if some are up, these alone.

        Those that are released do not count as being up.
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
    shared: Sequence[Lendable],
    released: Set[InstanceId],
) -> Iterator[tuple[Server, Offering]]:
    long = {run.instance for run in snapshot.runs if run.long}
    for name, offering in members:
        spot = is_spot(offering)
        pool = TRANSIENT if spot else STEADY
        yield Server(name, pool, spot, not spot, name in long, name in released), offering
    for one in shared:
        yield Server(one.id, SHARED, long=one.own != NOTHING), one.offering


def _lent(instances: Sequence[InstanceId]) -> tuple[Pool, ...]:
    if not instances:
        return ()
    reason = "room that other jobs leave free on their instances"
    return (Pool(SHARED, tuple(instances), reason, lent=True),)
