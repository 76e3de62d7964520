"""The pools and lines of the last plan, indexed so that room is filled as it becomes free.

None of it is journalled, but for the pool of each instance: the first plan after a restart states
everything again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from eva_master.control.standing.claim import ClaimKey, LineClaim
from eva_master.control.standing.claims import Claims
from eva_master.control.standing.queue import Queue, Shape
from eva_master.control.standing.rooms import MemberGroups, MemberRoom
from eva_master.model.planning.standing import Line, Newcomers, Pool
from eva_master.model.records import Job, TaskRun
from eva_master.model.values import quick
from eva_wire.values.ids import InstanceId, JobId, Millis, RunId
from eva_wire.values.states import RunState


@quick
@dataclass(frozen=True, slots=True)
class Head:
    """The waiting task that is to take room, and where."""

    job: JobId
    index: int
    instance: InstanceId


class Standing:
    """The lines of jobs and the free room on members of pools, for one partition.

    Attributes:
        pools: Pools of the last plan, with instances in place of keys.
        lines: Lines of the last plan, with instances in place of keys.
        pool_of: The pool of each member that may take tasks from a line.
        shared: The members of shared pools.
        taken: The task runs that took room since `taken` was last emptied.
        joined: Jobs that have arrived and stand in a line open to them, and that no plan has seen
            yet.
    """

    def __init__(self) -> None:
        self.pools: tuple[Pool, ...] = ()
        self.lines: tuple[Line, ...] = ()
        self.pool_of: dict[InstanceId, str] = {}
        self.shared: frozenset[InstanceId] = frozenset()
        self.taken: set[RunId] = set()
        self.joined: dict[JobId, None] = {}
        self._queues: dict[JobId, Queue] = {}
        self._claims = Claims()
        self._counted: dict[RunId, InstanceId] = {}
        self._due: dict[ClaimKey, Millis] = {}
        """Times at which the heads of claims that others have passed get the first offer of room.
        """
        self._rooms = MemberGroups()
        self._news = MemberGroups()
        """Members on which a waiting head may fit; unless `_all_new`, no head fits any other
        member.
        """
        self._changed = False
        """Whether the free room of any of these members has changed."""
        self._all_new = False
        self._jobs: dict[JobId, None] = {}
        """Jobs whose tasks may find room; unless `_all_new`, no other job does."""
        self._instances: dict[InstanceId, None] = {}
        """Instances on which room may have become free."""

    # -- stating ---------------------------------------------------------------------------------

    def state(
        self,
        pools: tuple[Pool, ...],
        lines: tuple[Line, ...],
        queue_of: Callable[[JobId], Queue],
        in_hand: Callable[[JobId], Iterable[TaskRun]],
    ) -> None:
        """Store the pools and lines of a plan, and look at all of them anew.

        Args:
            pools: Pools of live instances.
            lines: Lines of present jobs, over stated pools.
            queue_of: Returns the waiting tasks of a job.
            in_hand: Returns the task runs of a job that have an instance or a target.
        """
        before = self.pool_of
        self.pools, self.lines = pools, lines
        self.pool_of = {
            member: pool.name
            for pool in pools
            for member in pool.instances
            if member not in pool.closed
        }
        names = dict.fromkeys(job for line in lines for job in line.jobs)
        self.shared = frozenset().union(*[pool.instances for pool in pools if pool.shared])
        # The queues of jobs that stood in a line before are still valid.
        self._queues = {job: self._queues.get(job) or queue_of(job) for job in names}
        self._claims = Claims(
            [LineClaim(number, line, self._queues) for number, line in enumerate(lines)]
        )
        stated = {claim.key for claim in self._claims} if self._due else ()
        self._due = {key: at for key, at in self._due.items() if key in stated}
        self._count_all(run for job in names for run in in_hand(job))
        self._keep_rooms(before)
        self._all_new = True
        self._news.clear()
        self._jobs = {}

    def _count_all(self, runs: Iterable[TaskRun]) -> None:
        """Count what new claims hold; of task runs with an instance or a target."""
        self._counted = {}
        held: Counter[tuple[JobId, InstanceId]] = Counter()
        for run in runs:
            place = run.instance if run.instance is not None else run.target
            if run.target in self.pool_of and place is not None and place in self.pool_of:
                self._counted[run.id] = place
                held[run.job, place] += 1
        self._claims.hold_all(held, self.pool_of)

    def _keep_rooms(self, pool_of: Mapping[InstanceId, str]) -> None:
        """Keep the free room of members that stay in their pools.

        Args:
            pool_of: The pool of each member before.
        """
        for instance in pool_of.keys() - self.pool_of.keys():
            self._rooms.drop(instance)
            self._instances.pop(instance, None)
        changed = [
            name
            for name, pool in self.pool_of.items()
            if name not in pool_of or pool_of[name] != pool
        ]
        self._instances.update(dict.fromkeys(changed))

    def join(self, job: JobId, queue: Queue, takes: Callable[[Newcomers], bool]) -> bool:
        """Add an arriving job to the lines that are open to it.

        Args:
            job: The job.
            queue: Its waiting tasks.
            takes: Returns whether lines that are open to some newcomers are open to the job.

        Returns:
            Whether any line is open to the job.
        """
        open_claims = [
            claim for claim in self._claims if claim.line.open_to and takes(claim.line.open_to)
        ]
        if not open_claims:
            return False
        self._queues.setdefault(job, queue)
        for claim in open_claims:
            self._claims.join(job, claim)
        self.lines = tuple(claim.line for claim in self._claims)
        self.joined[job] = None
        self.touch_job(job)
        return True

    # -- following -------------------------------------------------------------------------------

    def follow(self, run: TaskRun, now: Millis, *, covered: bool = False) -> None:
        """A task's own run has changed, or the time has come at which it may start.

        Args:
            run: As it is now.
            now: The time.
            covered: Whether an extra run of its task is in hand, so that it needs no room.
        """
        queue = self._queues.get(run.job)
        if queue is None:
            return
        if _waits(run) and not covered:
            queue.put(run.index, ready=run.not_before_ms <= now)
        else:
            queue.take(run.index)
        self.count(run)

    def count(self, run: TaskRun) -> None:
        """Count what claims hold, extra runs of tasks included."""
        if run.job not in self._queues:
            return
        place = run.instance if run.instance is not None else run.target
        member = place if place is not None and place in self.pool_of else None
        before = self._counted.get(run.id)
        if member == before:
            return
        if before is not None:
            self._claims.hold(run.job, before, self.pool_of[before], -1)
            del self._counted[run.id]
        if member is not None:
            self._claims.hold(run.job, member, self.pool_of[member], 1)
            self._counted[run.id] = member

    def touch_job(self, job: JobId) -> None:
        """Tasks of a job may wait that did not, or may start that might not."""
        if job in self._queues:
            self._jobs[job] = None

    def touch_instance(self, instance: InstanceId) -> None:
        """Something may be free on an instance that was not."""
        if instance in self.pool_of:
            self._instances[instance] = None

    # -- filling ---------------------------------------------------------------------------------

    def next(
        self,
        room_of: Callable[[InstanceId], MemberRoom | None],
        admitted: Callable[[JobId], bool],
        now: Millis,
    ) -> Head | None:
        """The next task that takes room; `None` if no waiting head fits anywhere.

        Args:
            room_of: Returns the free room on a member, without reservations of the lines; `None` if
                it takes no task now.
            admitted: Returns whether tasks of a job may start now.
            now: The time.
        """
        if not self._claims:
            return None
        self._look(room_of)
        for job in tuple(self._jobs):
            if not self._has_room(job, admitted):
                del self._jobs[job]
        if self._changed or self._jobs or self._all_new or self._claims.awake:
            head = self._served(admitted, now)
            if head is not None:
                return head
        self._news.clear()
        self._changed = self._all_new = False
        return None

    def _served(self, admitted: Callable[[JobId], bool], now: Millis) -> Head | None:
        """The first head that fits on a member which may be new to it."""
        due = {key for key, at in self._due.items() if at <= now}
        for claim in self._claims.in_turn(due):
            rooms: dict[Shape, InstanceId] = {}
            for shape in claim.shapes:
                member = self._find(claim, shape)
                if member is not None:
                    rooms[shape] = member
            for place, shape in claim.heads(admitted, rooms) if rooms else ():
                job = claim.line.jobs[place]
                index = claim.first(job, shape)
                assert index is not None, "a head waits"
                self._pass_over(claim, rooms[shape], admitted, now)
                return Head(job, index, rooms[shape])
            self._claims.sleep(claim)
        return None

    def _find(self, claim: LineClaim, shape: Shape) -> InstanceId | None:
        """A member that may be new to a claim, with room for a task."""
        pools = claim.line.pools
        if claim.line.only:
            return self._rooms.find_among(self._claims.members(claim), pools, shape)
        return (self._rooms if self._all_new else self._news).find(pools, shape)

    def _pass_over(
        self, winner: LineClaim, at: InstanceId, admitted: Callable[[JobId], bool], now: Millis
    ) -> None:
        """A claim takes room: remember whose heads could have had it that come after it."""
        if self._due:
            self._due.pop(winner.key, None)
        patience_ms, room = winner.line.patience_ms, self._rooms.get(at)
        if patience_ms is None or room is None:
            return
        for claim in self._claims.on(at):
            if claim.line.rank <= winner.line.rank or claim.key in self._due:
                continue
            shapes = [shape for shape in claim.shapes if claim.could_use(room, shape)]
            if claim.heads(admitted, shapes):
                self._due[claim.key] = Millis(now + patience_ms)

    def _look(self, room_of: Callable[[InstanceId], MemberRoom | None]) -> None:
        """See what is free on instances that have changed."""
        for instance in self._instances:
            room = room_of(instance)
            if room is None:
                self._rooms.drop(instance)
                self._news.drop(instance)
                continue
            if self._rooms.put(instance, room):
                self._changed = True
                self._claims.wake_on(instance)
            self._news.put(instance, room)
        self._instances = {}

    def _has_room(self, job: JobId, admitted: Callable[[JobId], bool]) -> bool:
        """Whether there may be room for a task of a job; notes the member for the next look."""
        queue = self._queues[job]
        waiting = [shape for shape in queue.shapes if queue.first(shape) is not None]
        may_start, any_room = bool(waiting) and admitted(job), False
        for claim in self._claims.of(job):
            claim.offer(job)  # a job admitted later need not be touched again
            if not may_start or not claim.admits(job):
                continue
            if claim.line.only:
                self._claims.wake(claim)
                continue
            for shape in waiting:
                if claim.first(job, shape) is None:
                    continue
                place = self._rooms.find(claim.line.pools, shape)
                if place is not None and (room := self._rooms.get(place)) is not None:
                    self._news.put(place, room)
                    any_room = True
        return any_room


def _waits(run: TaskRun) -> bool:
    return run.state is RunState.WAITING and run.target is None


def queue_of(job: Job, touched: Iterable[TaskRun], now: Millis) -> Queue:
    """The waiting tasks of a job.

    Args:
        job: The job.
        touched: Its task runs that have a record.
        now: The time; a task that waits after a failure may not start yet.
    """
    runs = tuple(touched)
    covered = {run.index for run in runs if run.extra and run.in_hand}
    waiting = {
        run.index: run for run in runs if _waits(run) and not run.extra and run.index not in covered
    }
    begun = (run.index for run in runs if run.index not in waiting)
    queue = Queue(job.spec.tasks, begun, job.spec.indices)
    for run in waiting.values():
        queue.put(run.index, ready=run.not_before_ms <= now)
    return queue


def named(
    pools: tuple[Pool, ...], lines: tuple[Line, ...], names: Mapping[int, InstanceId]
) -> tuple[tuple[Pool, ...], tuple[Line, ...]]:
    """Pools and lines with the ids of new instances in place of their keys."""

    def ids(members: tuple[InstanceId | int, ...]) -> tuple[InstanceId | int, ...]:
        if not names:
            return members
        return tuple(names[member] if isinstance(member, int) else member for member in members)

    return (
        tuple(
            Pool(pool.name, ids(pool.members), pool.reason, ids(pool.closed), pool.shared)
            for pool in pools
        ),
        tuple(replace(line, only=ids(line.only)) if line.only else line for line in lines),
    )
