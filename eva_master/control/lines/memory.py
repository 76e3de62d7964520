"""Memory of pools and of the lines before them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from eva_master.control.standing.standings import Standings
from eva_master.control.turn.turn import Feature, Turn
from eva_master.model.records import TaskRun
from eva_wire.values.ids import InstanceId, JobId
from eva_wire.values.states import HOLDING, RunState


class LineMemory(Feature):
    """Memory of pools and of the lines before them.

    Args:
        partitions: Names of the partitions; the empty name only if the cluster is not divided.

    Attributes:
        standings: The pools and lines of all partitions.
        rooms_left: Number of tasks that have ended on a member of a pool in this turn, less tasks
            that lines have placed there.
        ended: Jobs of these tasks.
        came: Jobs that have joined lines in this turn.
        over_quota: Jobs that stand in lines and wait for their tenant's quota, by tenant.
        claimed: Instances with room kept for waiting task runs, by partition, as of its last plan;
            a restart forgets them, and plans.
    """

    def __init__(self, partitions: Iterable[str]) -> None:
        self.standings = Standings(partitions)
        self.rooms_left: Counter[InstanceId] = Counter()
        self.ended: set[JobId] = set()
        self.came: set[JobId] = set()
        self.over_quota: dict[str, set[JobId]] = {}
        self.claimed: dict[str, set[InstanceId]] = {}

    def run_changed(self, turn: Turn, old: TaskRun | None, run: TaskRun) -> None:
        """Have lines follow a task run, and look for tasks that may have its room."""
        if old is None:
            self.follow(turn, run)
            if run.target is not None:
                self.standings.touch_instance(run.target)
            return
        moves = old.instance != run.instance or old.target != run.target
        if not moves and RunState.WAITING not in (old.state, run.state):
            return  # no line is about such a change
        self.follow(turn, run)
        if not moves:
            return
        for place in {run.instance: None, run.target: None, old.instance: None, old.target: None}:
            if place is not None:
                self.standings.touch_instance(place)
        if run.state is RunState.SUCCEEDED and old.state in HOLDING:
            self._vacated(turn, old)

    def follow(self, turn: Turn, run: TaskRun) -> None:
        """Have lines follow whether a task waits: its own run, while no other is in hand."""
        runs = turn.state.runs
        for own in runs.others(run)[:1] if run.extra else (run,):
            covered = bool(own.replicas) and not turn.state.jobs[own.job].spec.forked
            covered = covered and any(replica.in_hand for replica in runs.others(own))
            self.standings.follow(own, turn.now, covered=covered)
        if run.extra:
            self.standings.count(run)

    def _vacated(self, turn: Turn, run: TaskRun) -> None:
        """A task run has ended: there is to be a plan, unless its room is that of a pool.

        Then there is one if others wait, and a line gives it to none of them; or if the room is
        kept for a task run that waits.
        """
        if self.over_quota:
            tenant = turn.state.jobs[run.job].spec.tenant
            for job in sorted(self.over_quota.pop(tenant, ())):
                self.standings.touch_job(job)
        place = run.instance
        if place is not None and (run.pool or turn.state.instances[place].stands):
            self.rooms_left[place] += 1
            self.ended.add(run.job)
            self.plan_if_claimed(turn, place)
        else:
            turn.plan_wanted = True

    def plan_if_claimed(self, turn: Turn, instance: InstanceId) -> None:
        """Have a plan made if room on an instance is kept for task runs that wait."""
        if any(instance in kept for kept in self.claimed.values()):
            turn.plan_wanted = True
