"""Eva with elastic gangs: it tries sizes, and adopts those with which the cluster costs less.

A gang starts with the number of members whose work costs least, as far as there is room. The worth
of further members' work is the least cost of a unit of the gang's work. So a gang grows where paid
room would stand idle, or where more members cost less per unit of work; and it shrinks where others
wait for the room, or where fewer cost less. A change of size stops the whole gang, and has to pay
for that like a move. Each change makes the cluster cheaper or places more, so an unchanging cluster
comes to rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from eva_master.model.planning.job_view import JobView
from eva_master.model.planning.plan import Json, PolicyMemory, Resize
from eva_master.model.planning.sizes import resizable, with_sizes
from eva_master.model.planning.snapshot import Snapshot
from eva_master.packing import round_work
from eva_master.packing.elastic.room import most_ever, most_now
from eva_master.packing.elastic.trial import SizeTrial, TrialInputs
from eva_master.packing.elastic.turns import GangTurn, in_turn
from eva_master.packing.elastic.worth import cheapest
from eva_master.packing.policy_wrapper import PolicyWrapper
from eva_master.policies.eva.memory import load
from eva_master.policies.eva.policy import Eva
from eva_master.ports import Planned
from eva_wire.values.ids import JobId, Millis, RunId

_TRIED = 4
"""So many gangs are tried with other sizes in a round, first who was resized longest ago."""
_KEY = "resized"
_TURN = "sizes_turn"

_CHEAPEST = "its work costs least with so many"
_ROOM = "there is room for no more now"
_IDLE = "room that is paid for would stand idle"
_OTHERS = "others wait for room"
_CHEAPER = "that costs less"


class ElasticEva(PolicyWrapper[Eva]):
    """See the module; without elastic gangs it is `Eva`."""

    def plan(self, snapshot: Snapshot, memory: PolicyMemory | None) -> Planned:
        """Decide on one round's plan, sizes included."""
        if all(job.sharing.elastic is None for job in snapshot.jobs):
            return self._inner.plan(snapshot, memory)
        return _ElasticRound(self._inner, snapshot, memory).plan()


class _ElasticRound:
    """One round with elastic gangs."""

    def __init__(self, inner: Eva, snapshot: Snapshot, memory: PolicyMemory | None) -> None:
        self._inner = inner
        self._snapshot = snapshot
        self._memory = memory
        self._work = snapshot.work
        """The work that the plans so far have left for the next one, in microseconds."""
        self._last_work = 0
        """The work of the last plan."""
        self._resized = _recalled(memory, snapshot)
        looked_at = self._looked_at()
        self._open = {job.id: job for job in resizable(snapshot) if job.id in looked_at}
        best_sizes = {
            job.id: cheapest(snapshot, job, most_ever(snapshot, job)) for job in looked_at.values()
        }
        self._best = {job: members for job, (members, _) in best_sizes.items()}
        self._question = TrialInputs(
            snapshot,
            inner.terms,
            self._latest(),
            {job: worth for job, (_, worth) in best_sizes.items()},
            inner.problem,
        )
        self._reasons: dict[JobId, str] = {}

    def _looked_at(self) -> dict[JobId, JobView]:
        """Elastic gangs for which the round has time; the others stay as they are."""
        snapshot, present = self._snapshot, {run.job for run in self._snapshot.runs}
        elastic, tasks = [], len(snapshot.runs)
        for job in snapshot.jobs:
            if (size := job.sharing.elastic) is not None and job.id in present:
                elastic.append(job)
                tasks += size.most - len(job.runs)
        self._turn: GangTurn | None = None
        most = round_work.gangs_resized(snapshot.work, tasks)
        if len(elastic) > most:
            recorded = None if self._memory is None else self._memory.data.get(_TURN)
            elastic, self._turn = in_turn(elastic, most, GangTurn.load(recorded))
        return {job.id: job for job in elastic}

    def plan(self) -> Planned:
        """Try sizes, one gang after the other, for as long as the round has time."""
        sizes = dict(self._starting())
        best = self._grown(self._trial(sizes))
        if best.unplaced & sizes.keys():
            best = self._smaller_starts(best, sizes)
        for job in self._tried():
            for size, reason in self._other_sizes(job, best):
                if self._work < self._last_work:
                    break
                other = self._grown(self._trial({**best.sizes, job.id: size}))
                if other.better(best):
                    best = other
                    self._reasons[job.id] = reason
        return self._answer(best)

    def _trial(self, sizes: Mapping[JobId, int]) -> SizeTrial:
        now = {job.id: len(job.runs) for job in self._snapshot.jobs}
        changed = {job: size for job, size in sizes.items() if size != now[job]}
        asked = replace(self._snapshot, work=self._work)
        plan, memory = self._inner.plan(with_sizes(asked, changed), self._memory)
        work = round_work.after(plan, asked).work - round_work.for_placing(asked)
        self._last_work, self._work = self._work - work, max(1, work)
        return SizeTrial(self._question, changed, plan, memory)

    def _starting(self) -> Iterator[tuple[JobId, int]]:
        """The sizes of gangs that have no place."""
        placed = {run.job for run in self._snapshot.runs if run.instance is not None}
        for job in self._open.values():
            if job.id not in placed:
                best, room = self._best[job.id], most_now(self._snapshot, job)
                self._reasons[job.id] = _CHEAPEST if best <= room else _ROOM
                yield job.id, min(best, room)

    def _smaller_starts(self, before: SizeTrial, sizes: Mapping[JobId, int]) -> SizeTrial:
        """Others want the same room: those that found none start with their least number."""
        fewer = dict(sizes)
        for name in before.unplaced & sizes.keys():
            elastic = self._open[JobId(name)].sharing.elastic
            assert elastic is not None
            fewer[JobId(name)] = elastic.least
        after = self._trial(fewer)
        if len(after.unplaced) >= len(before.unplaced):
            return before
        self._reasons.update(dict.fromkeys(before.unplaced & sizes.keys(), _ROOM))  # type: ignore[arg-type]
        return self._grown(after)

    def _tried(self) -> list[JobView]:
        """Gangs that run, whose sizes may change."""
        running = {run.job for run in self._snapshot.runs if run.running}
        jobs = [job for job in self._open.values() if job.id in running]
        if self._turn is None:
            jobs.sort(key=lambda job: (self._resized.get(job.id, 0), job.id))
        return jobs[:_TRIED]

    def _other_sizes(self, job: JobView, best: SizeTrial) -> Iterator[tuple[int, str]]:
        assert job.sharing.elastic is not None
        size = best.sizes.get(job.id, len(job.runs))
        if best.unplaced and size > job.sharing.elastic.least:
            yield job.sharing.elastic.least, _OTHERS
        if size != self._best[job.id]:
            yield self._best[job.id], _CHEAPER

    def _grown(self, trial: SizeTrial) -> SizeTrial:
        """The trial with further members on room that would stand idle, where that pays."""
        for name in self._open:
            job = next(view for view in trial.seen.jobs if view.id == name)
            assert job.sharing.elastic is not None
            if name in trial.unplaced or len(job.runs) >= job.sharing.elastic.most:
                continue
            seats = trial.seats(job)[: job.sharing.elastic.most - len(job.runs)]
            while seats:
                larger = trial.grown(job, seats)
                if larger.better(trial):
                    trial = larger
                    self._reasons[name] = _IDLE
                    break
                seats = seats[: len(seats) // 2]
        return trial

    def _latest(self) -> dict[RunId, Millis]:
        """When task runs were moved last, or their gangs resized."""
        latest = dict(load(self._memory, self._snapshot).moved)
        for job in self._snapshot.jobs:
            if job.id in self._resized:
                latest.update(dict.fromkeys(job.runs, self._resized[job.id]))
        return latest

    def _answer(self, best: SizeTrial) -> Planned:
        running = {run.job for run in self._snapshot.runs if run.running}
        resized = dict(self._resized)
        resized.update((job, self._snapshot.now_ms) for job in best.sizes if job in running)
        memory = best.memory
        more: dict[str, Json] = {}
        if resized:
            more[_KEY] = {job: int(at) for job, at in resized.items()}
        if self._turn is not None:
            more[_TURN] = self._turn.dump()
        if memory is not None and more:
            memory = replace(memory, data={**memory.data, **more})
        done = {round_work.WORK_DONE: self._snapshot.work - self._work}
        if not best.sizes:
            return replace(best.plan, figures={**best.plan.figures, **done}), memory
        sizes = tuple(
            Resize(job, size, self._reasons.get(job, _CHEAPER))
            for job, size in sorted(best.sizes.items())
        )
        figures = {**best.plan.figures, **done, "resizes": len(sizes)}
        return replace(best.plan, sizes=sizes, figures=figures), memory


def _recalled(memory: PolicyMemory | None, snapshot: Snapshot) -> dict[JobId, Millis]:
    """Time of the last change of size, of gangs that still exist."""
    recorded = None if memory is None else memory.data.get(_KEY)
    if not isinstance(recorded, dict):
        return {}
    present = {job.id for job in snapshot.jobs if job.sharing.elastic is not None}
    return {
        JobId(job): Millis(at)
        for job, at in recorded.items()
        if isinstance(at, int) and job in present
    }
