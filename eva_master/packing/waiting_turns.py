"""Which tasks that wait a policy is shown in a round, where more of them wait than it has time for.

Half of a round goes to the tasks that come first by priority, deadline and submission, so that room
is not given to others before they are looked at. The other half goes to all of them in turn: to the
owners one after the other, and to the jobs of each in the order of their submission, from where the
last round ended. So a user who submits ten thousand jobs delays no other user, and jobs for which
there is no room keep nobody from being looked at. A gang that is large for a round is shown whole,
in a round with at most one of them.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from heapq import heappop, heapreplace, nsmallest

from eva_master.model.job import TaskSpec
from eva_master.model.planning.claims import Claim
from eva_master.model.planning.job_view import JobView
from eva_master.model.planning.plan import Hold, Json, Plan, PolicyMemory
from eva_master.model.planning.snapshot import RunView, Snapshot
from eva_master.packing.precedence import precedence
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import JobId, RunId, job_of

WAITS_ITS_TURN = "more tasks wait than one round plans for: it is looked at when it is its turn"
_NAME, _VERSION = "waiting turns", 1
_AT_ONCE = 125
"""So many tasks of an array are shown before it is the turn of the next job."""
_LARGE_PART = 4
"""A gang is large that takes more than this part of a round."""

_Place = tuple[int, str]
"""Place of a job in the order of submission: the time and its id."""


@dataclass(frozen=True, slots=True)
class LastTurn:
    """Job up to which the last round came; empty at first.

    Attributes:
        owner: Owner whose turn it was last.
        jobs: By owner, the last job that was shown.
    """

    owner: str = ""
    jobs: Mapping[str, _Place] = field(default_factory=dict)


AT_FIRST = LastTurn()


@dataclass(frozen=True, slots=True)
class Turns:
    """Turns of the jobs that wait, and of gangs that are large for a round."""

    small: LastTurn = AT_FIRST
    large: LastTurn = AT_FIRST

    def dump(self) -> PolicyMemory | None:
        """Memory for the journal; `None` if there is nothing to remember."""
        if self == NO_TURNS:
            return None
        data: dict[str, Json] = {
            name: {"owner": turn.owner, "jobs": {job: [*at] for job, at in turn.jobs.items()}}
            for name, turn in (("small", self.small), ("large", self.large))
        }
        return PolicyMemory(_NAME, _VERSION, data)

    @classmethod
    def load(cls, memory: PolicyMemory | None) -> Turns:
        """Turns from the journal; those at first if it has none, or none of this version."""
        if memory is None or (memory.policy, memory.version) != (_NAME, _VERSION):
            return cls()
        return cls(_turn(memory.data.get("small")), _turn(memory.data.get("large")))


NO_TURNS = Turns()


def _turn(document: Json) -> LastTurn:
    if not isinstance(document, dict) or not isinstance(jobs := document.get("jobs"), dict):
        return LastTurn()
    places = {
        owner: (int(str(at[0])), str(at[1]))
        for owner, at in jobs.items()
        if isinstance(at, list) and len(at) == 2
    }
    return LastTurn(str(document.get("owner", "")), places)


@dataclass(frozen=True, slots=True)
class Shown:
    """Part of a snapshot that a policy is shown.

    Attributes:
        snapshot: The part.
        turns: Turns that are left to the next round.
        hidden: Task runs that wait and are not shown.
        rounds: Rounds that it takes until each has been shown, this one included.
    """

    snapshot: Snapshot
    turns: Turns = NO_TURNS
    hidden: tuple[RunView, ...] = ()
    rounds: int = 1

    def with_reasons(self, plan: Plan) -> Plan:
        """A plan with the reason for tasks that were never looked at so far."""
        fresh = [run for run in self.hidden if not run.held]
        if not fresh:
            return plan
        holds = (Hold(run.id, WAITS_ITS_TURN) for run in fresh)
        return replace(plan, entries=(*plan.entries, *holds))


@dataclass(slots=True)
class _Waiting:
    """Tasks of a job that wait.

    Attributes:
        job: The job.
        runs: Task runs not yet chosen, in their order.
        whole: Whether they are shown together or not at all.
    """

    job: JobView
    runs: deque[RunView]
    whole: bool

    @property
    def place(self) -> _Place:
        return self.job.submitted_ms, self.job.id

    def take(self, most: int) -> list[RunView]:
        """Remove and return some that come next; for a gang, all."""
        count = len(self.runs) if self.whole else min(most, len(self.runs))
        return [self.runs.popleft() for _ in range(count)]


def shown(
    snapshot: Snapshot, turns: Turns, most: int, first: Iterable[JobId] = (), *, lines: bool = False
) -> Shown:
    """Part of a snapshot with as many waiting tasks as a round has time for.

    Args:
        snapshot: The cluster, with claims.
        turns: The turns of jobs and owners.
        most: Limit of the waiting tasks shown; the whole snapshot is shown if there are no more.
        first: Jobs for which there is room already.
        lines: Whether jobs stand in lines, which are stated with each plan: these are all shown.
    """
    if sum(map(len, snapshot.waiting.values())) <= most:
        return Shown(snapshot)
    waiting = _waiting(snapshot, lines=lines)
    if sum(len(each.runs) for each in waiting.values()) <= most:
        return Shown(snapshot)
    choice = _Choice(waiting, most)
    claims = choice.claimants(snapshot.claims)
    choice.urgent(first)
    after = choice.in_turn(turns)
    return choice.shown(replace(snapshot, claims=claims), after)


def _waiting(snapshot: Snapshot, *, lines: bool) -> dict[JobId, _Waiting]:
    """Waiting tasks by job, without gangs that have a place already."""
    waiting, runs = {}, snapshot.waiting
    for job in snapshot.jobs:
        ours = [run for run in runs.get(job.id, {}).values() if not run.replica]
        if not ours or (lines and job.stands_in_line):
            continue
        whole = job.spec.kind is JobKind.GANG
        if not whole or len(ours) == len(job.runs):
            waiting[job.id] = _Waiting(job, deque(ours if whole else _mixed(ours)), whole)
    return waiting


def _mixed(runs: Sequence[RunView]) -> list[RunView]:
    """Tasks of an array with those of each kind in turn."""
    counts: defaultdict[TaskSpec, int] = defaultdict(int)
    ranked = []
    for number, run in enumerate(runs):
        ranked.append((counts[run.task], number))
        counts[run.task] += 1
    ranked.sort()
    return [runs[number] for _, number in ranked]


class _Choice:
    """Chooses tasks until there are enough for a round."""

    def __init__(self, waiting: Mapping[JobId, _Waiting], most: int) -> None:
        self._waiting = waiting
        self._most = most
        self._large = most // _LARGE_PART
        self._left = most
        self._shown: set[RunId] = set()
        small: Counter[str] = Counter()
        large: Counter[str] = Counter()
        for each in waiting.values():
            if self._is_large(each):
                large[each.job.spec.owner] += 1
            else:
                small[each.job.spec.owner] += len(each.runs)
        self._rounds = max(_rounds(small, most - most // 2), _rounds(large, 1))

    def _is_large(self, each: _Waiting) -> bool:
        return each.whole and len(each.runs) > self._large

    def _take(self, each: _Waiting, most: int) -> int:
        """Show some of a job's tasks; returns how many."""
        runs = each.take(most)
        self._shown.update(run.id for run in runs)
        self._left -= len(runs)
        return len(runs)

    def claimants(self, claims: Sequence[Claim]) -> tuple[Claim, ...]:
        """Show the first of each claim, and more of them while there is time; the claims for these.

        Room is kept for a claim all the same if some of its task runs are shown in a later round.
        """
        kept = []
        for claim in claims:
            runs: list[RunId] = []
            for run in claim.runs:
                each = self._waiting.get(job_of(run))
                if each is None:
                    runs.append(run)
                    continue
                if run not in self._shown and (not runs or self._left > self._most * 3 // 4):
                    self._show(each, run)
                if run in self._shown:
                    runs.append(run)
            kept.append(replace(claim, runs=tuple(runs)) if len(runs) < len(claim.runs) else claim)
        return tuple(kept)

    def _show(self, each: _Waiting, run: RunId) -> None:
        """Show one task run, with its gang."""
        if not each.whole:
            each.runs = deque(sorted(each.runs, key=lambda it: it.id != run))
        if each.runs:
            self._take(each, 1)

    def urgent(self, first: Iterable[JobId]) -> None:
        """Show tasks in the order of precedence, in half of the round."""
        half = self._most // 2
        jobs = dict.fromkeys(job for job in first if job in self._waiting)
        rest = (entry.job for entry in self._waiting.values() if entry.job.id not in jobs)
        jobs.update(dict.fromkeys(job.id for job in nsmallest(half, rest, key=precedence)))
        for name in jobs:
            each = self._waiting[name]
            if self._left <= self._most - half:
                return
            if each.runs and not self._is_large(each):
                self._take(each, self._left - (self._most - half))

    def in_turn(self, turns: Turns) -> Turns:
        """Show tasks of all owners in turn, and one gang that is large.

        Returns:
            Turns that are left to the next round.
        """
        rest = [each for each in self._waiting.values() if each.runs]
        small = [each for each in rest if not self._is_large(each)]
        large = [each for each in rest if self._is_large(each)]
        return Turns(
            self._round_robin(small, turns.small, len(self._waiting) + self._most),
            self._round_robin(large, turns.large, 1),
        )

    def _round_robin(self, jobs: Sequence[_Waiting], turn: LastTurn, most: int) -> LastTurn:
        """Show tasks of jobs until there is no time left; the owner with the fewest comes next.

        Args:
            jobs: Jobs of which tasks are left.
            turn: Where the last round ended.
            most: How often tasks are shown at most, once in any case if it is the only time.
        """
        queues = _queues(jobs, turn)
        heap = [(0, rank, owner) for rank, owner in enumerate(queues)]
        places = {owner: place for owner, place in turn.jobs.items() if owner in queues}
        last = turn.owner
        for _ in range(most):
            if not heap or (self._left <= 0 and most > 1):
                break
            given, rank, last = heap[0]
            queue = queues[last]
            each = queue[0]
            given += self._take(each, min(_AT_ONCE, max(1, self._left)))
            places[last] = each.place
            queue.rotate(-1)
            if not each.runs:
                queue.pop()
            if queue:
                heapreplace(heap, (given, rank, last))
            else:
                heappop(heap)
        return LastTurn(last, places)

    def shown(self, snapshot: Snapshot, turns: Turns) -> Shown:
        """The part of a snapshot with what was chosen."""
        hidden = {run.id: run for each in self._waiting.values() for run in each.runs}
        counts = {name: len(each.runs) for name, each in self._waiting.items() if each.runs}
        jobs = []
        for job in snapshot.jobs:
            count = counts.get(job.id, 0)
            if not count:
                jobs.append(job)
            elif count < len(job.runs):
                kept = tuple(run for run in job.runs if run not in hidden)
                array = replace(job.array, unseen=job.array.unseen + count)
                jobs.append(replace(job, runs=kept, array=array))
        runs = tuple(run for run in snapshot.runs if run.id not in hidden)
        part = replace(snapshot, jobs=tuple(jobs), runs=runs)
        return Shown(part, turns, tuple(hidden.values()), self._rounds)


def _rounds(waiting: Mapping[str, int], most: int) -> int:
    """Rounds until everything was shown that waits, if owners have equal shares of each.

    Args:
        waiting: How much waits of each owner.
        most: How much is shown in a round.
    """
    room = Fraction(most)
    for rank, count in enumerate(sorted(waiting.values())):
        share = room / (len(waiting) - rank)
        if count > share:
            return math.ceil(max(waiting.values()) / share) + 1
        room -= count
    return 1


def _queues(jobs: Sequence[_Waiting], turn: LastTurn) -> dict[str, deque[_Waiting]]:
    """Jobs by owner in the order of their turns, the owners as well."""
    by_owner: defaultdict[str, list[_Waiting]] = defaultdict(list)
    for each in jobs:
        by_owner[each.job.spec.owner].append(each)
    owners = sorted(by_owner, key=lambda owner: (owner <= turn.owner, owner))
    queues = {}
    for owner in owners:
        after = turn.jobs.get(owner, (0, ""))
        queues[owner] = deque(sorted(by_owner[owner], key=lambda it: (it.place <= after, it.place)))
    return queues
