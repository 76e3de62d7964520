"""Members of gangs that are on instances, in groups, so that a booking need not look at each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from eva_master.control.state.derived.company import Company
from eva_master.learning.colocation import Key
from eva_master.model.job import TaskSpec
from eva_master.model.records import Instance, TaskRun
from eva_wire.values.ids import Family, InstanceId, JobId, RunId

KeyOf = Callable[[TaskRun], Key]
Likeness = tuple[int, Family, int]
"""The task, the family of the instance, and the share of each batch."""


@dataclass(frozen=True, slots=True)
class GangParts:
    """Members of a gang that have an instance.

    Attributes:
        alike: One of each group with the same task, family and share of batches, and how many.
        keys: Their workloads with those of the others that run on their instances.
        accompanied: Whether another task run runs where one of them is.
    """

    alike: Sequence[tuple[TaskRun, int]] = ()
    keys: Collection[Key] = ()
    accompanied: bool = False


@dataclass(frozen=True, slots=True)
class _There:
    """Members of a gang on one instance."""

    keys: frozenset[Key]
    accompanied: bool


class _Gang:
    """Members of one gang."""

    __slots__ = ("accompanied", "alike", "keys", "places", "there")

    def __init__(self) -> None:
        self.alike: dict[Likeness, dict[RunId, None]] = {}
        self.places: dict[InstanceId, dict[RunId, None]] = {}
        self.there: dict[InstanceId, _There] = {}
        self.keys: Counter[Key] = Counter()
        self.accompanied = 0


class GangPlaces:
    """The places of gang members; a change costs time in proportion to the tasks on its instance.

    Args:
        touched: The records of task runs.
        instances: The records of instances.
        company: Groups of task runs on each instance.
        task: Returns the task of a task run.
    """

    def __init__(
        self,
        touched: Mapping[RunId, TaskRun],
        instances: Mapping[InstanceId, Instance],
        company: Company,
        task: Callable[[TaskRun], TaskSpec],
    ) -> None:
        self._touched = touched
        self._instances = instances
        self._company = company
        self._task = task
        self._gangs: dict[JobId, _Gang] = {}
        self._known: dict[RunId, tuple[JobId, InstanceId, Likeness]] = {}
        self._moved: dict[RunId, None] = {}
        """Members that may have moved since the last look at their gang."""
        self._jobs_at: dict[InstanceId, dict[JobId, None]] = {}
        self._changed: dict[InstanceId, None] = {}
        """Instances with gang members that have changed since the last look."""

    def follow(self, place: InstanceId | None, run: TaskRun, *, gang: bool) -> None:
        """Follow the new record of a task run.

        Args:
            place: Instance of the task run before.
            run: The new record.
            gang: Whether the task run is a member of a gang.
        """
        if gang:
            # While records are restored, the instance of the run may not be known yet.
            self._moved[run.id] = None
        for changed in (place, run.instance):
            if changed is not None and changed in self._jobs_at:
                self._changed[changed] = None

    def _move(self, name: RunId) -> None:
        run, before, after = self._touched.get(name), self._known.get(name), None
        if run is not None and run.instance is not None:
            family = self._instances[run.instance].offering.type.family
            after = run.job, run.instance, (id(self._task(run)), family, run.batch_ppm)
        if before == after:
            return
        if before is not None:
            self._remove(name, *before)
        if after is not None:
            job, place, likeness = self._known[name] = after
            gang = self._gangs.setdefault(job, _Gang())
            gang.alike.setdefault(likeness, {})[name] = None
            gang.places.setdefault(place, {})[name] = None
            self._jobs_at.setdefault(place, {})[job] = None
            self._changed[place] = None

    def _remove(self, name: RunId, job: JobId, place: InstanceId, likeness: Likeness) -> None:
        del self._known[name]
        gang = self._gangs[job]
        alike, members_there = gang.alike[likeness], gang.places[place]
        del alike[name], members_there[name]
        if not alike:
            del gang.alike[likeness]
        self._changed[place] = None
        if members_there:
            return
        del gang.places[place], self._jobs_at[place][job]
        self._forget(gang, place)
        if not self._jobs_at[place]:
            del self._jobs_at[place], self._changed[place]
        if not gang.places:
            del self._gangs[job]

    def _forget(self, gang: _Gang, place: InstanceId) -> None:
        seen = gang.there.pop(place, None)
        if seen is None:
            return
        gang.accompanied -= seen.accompanied
        for each in seen.keys:
            gang.keys[each] -= 1
            if not gang.keys[each]:
                del gang.keys[each]

    def parts(self, job: JobId, key_of: KeyOf) -> GangParts:
        """The members of a gang that have an instance.

        Args:
            job: The gang.
            key_of: Returns the workload of a member with the workloads beside it.
        """
        for name in self._moved:
            self._move(name)
        self._moved.clear()
        for place in self._changed:
            for name_of_gang in self._jobs_at[place]:
                self._look(self._gangs[name_of_gang], place, key_of)
        self._changed.clear()
        gang = self._gangs.get(job)
        if gang is None:
            return GangParts()
        alike = [
            (self._touched[next(iter(members))], len(members)) for members in gang.alike.values()
        ]
        return GangParts(alike, gang.keys.keys(), gang.accompanied > 0)

    def _look(self, gang: _Gang, place: InstanceId, key_of: KeyOf) -> None:
        """Find the workloads beside the members on an instance."""
        self._forget(gang, place)
        runs = map(self._touched.__getitem__, gang.places[place])
        kinds = {
            (self._task(run).workload, self._company.runs_on(run.id, place)): run for run in runs
        }
        keys = frozenset(map(key_of, kinds.values()))
        gang.there[place] = seen = _There(keys, any(others for _, others in keys))
        gang.accompanied += seen.accompanied
        gang.keys.update(keys)
