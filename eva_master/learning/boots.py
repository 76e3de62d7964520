"""Boots that failed in a row, and what is therefore not bought for a while.

A boot fails if its instance ends, without having been asked to, before any task ran on it; or if
its worker does not register in time. Whatever was wrong with it, the image, the network, a quota or
a key, is likely to be wrong with the next one, too: with its offering, with its family, with all
that boot the same image. So failures are counted by scope, and pauses double with each in a row.

An instance that ends as soon as a task runs on it may have been brought down by the task. That says
nothing about its offering to others, so it is counted for the jobs alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

from eva_master.model.catalog import Offering, base_family
from eva_master.model.changes import Deferred
from eva_master.model.planning.plan import Json
from eva_wire.values.ids import JobId, Millis

Scope = str
"""Scope of a streak: ``offering ID``, ``family NAME``, ``image KIND``, ``job ID`` or, for instances
that ended as soon as a task of the job ran, ``lost ID``.
"""
_LOST = "lost "
_LONGEST_PAUSE_FACTOR = 12
"""The longest pause as a multiple of the first."""
_MEMBERS_KEPT = 8
_LOST_BY_CHANCE = 2
"""This many instances in a row that end as soon as a task runs are not a coincidence."""


def scopes(offering: Offering) -> tuple[Scope, Scope, Scope]:
    """The scopes that an offering is part of, the narrowest first."""
    machine = offering.type
    image = f"{machine.architecture}-gpu" if machine.capacity.gpus else machine.architecture
    return (
        f"offering {offering.id}",
        f"family {base_family(machine.family)}",
        f"image {image}",
    )


def job_scope(job: JobId) -> Scope:
    """The scope of all that is bought for a job."""
    return f"job {job}"


def lost_scope(job: JobId) -> Scope:
    """The scope of instances that ended as soon as a task of the job ran on them."""
    return f"{_LOST}{job}"


@dataclass(frozen=True, slots=True)
class Streak:
    """Failed boots in a row, since the last one after which a task ran.

    Attributes:
        failures: Number of failures; those of instances that were bought together count once.
        last_ms: When the last one was counted.
        until_ms: Nothing of the scope is bought before this time; 0 while there is no reason to
            wait.
        members: Offerings that failed; families if the scope is an image.
        why: Why the last one failed.
        registered: Whether a worker of the scope has registered since.
    """

    failures: int
    last_ms: Millis
    until_ms: Millis
    members: tuple[str, ...]
    why: str
    registered: bool = False

    def conclusive(self, scope: Scope) -> bool:
        """Whether nothing of the scope should be bought for a while.

        One offering is evidence about itself; a wider scope needs two. A single instance that ended
        once a task ran may be bad luck.
        """
        if scope.startswith(_LOST):
            return self.failures >= _LOST_BY_CHANCE
        return len(self.members) >= (1 if scope.startswith("offering ") else 2)


@dataclass(frozen=True, slots=True)
class Boots:
    """All streaks of failed boots.

    Attributes:
        streaks: By scope.
    """

    streaks: Mapping[Scope, Streak] = field(default_factory=dict)

    def failed(
        self,
        offering: Offering,
        jobs: Collection[JobId],
        *,
        requested_ms: Millis,
        now: Millis,
        pause_ms: int,
        why: str,
        lost: bool = False,
    ) -> Boots:
        """Count a failed boot, or an instance that ended as soon as a task ran on it.

        Args:
            offering: The offering that was bought.
            jobs: Jobs for which it was bought.
            requested_ms: When it was requested. A request before the last failure is no further
                evidence.
            now: When it failed.
            pause_ms: The first pause; each further one is twice as long.
            why: Reason of the failure, in words for the user.
            lost: Whether a task ran there: that counts against the jobs alone.
        """
        counted: dict[Scope, str]
        if lost:
            counted = {lost_scope(job): offering.id for job in jobs}
            return self._counted(counted, requested_ms, now, pause_ms, why)
        narrow, family, image = scopes(offering)
        counted = {narrow: offering.id, family: offering.id, image: family}
        counted.update((job_scope(job), offering.id) for job in jobs)
        return self._counted(counted, requested_ms, now, pause_ms, why)

    def _counted(
        self,
        counted: Mapping[Scope, str],
        requested_ms: Millis,
        now: Millis,
        pause_ms: int,
        why: str,
    ) -> Boots:
        streaks = dict(self.streaks)
        for scope, member in counted.items():
            old = streaks.get(scope)
            again = old is not None and requested_ms < old.last_ms
            failures = (old.failures if old is not None else 0) + (not again)
            members = {member, *(old.members if old is not None else ())}
            longest = pause_ms * _LONGEST_PAUSE_FACTOR
            doublings = failures - (_LOST_BY_CHANCE if scope.startswith(_LOST) else 1)
            streak = Streak(
                failures=failures,
                last_ms=old.last_ms if old is not None and again else now,
                until_ms=Millis(now + min(pause_ms << max(doublings, 0), longest)),
                members=tuple(sorted(members)[:_MEMBERS_KEPT]),
                why=why,
            )
            waits = streak.conclusive(scope)
            streaks[scope] = streak if waits else replace(streak, until_ms=Millis(0))
        return Boots(streaks)

    def registered(self, offering: Offering, jobs: Collection[JobId]) -> Boots:
        """A worker has registered: buying may go on, and the streak ends once a task runs."""
        met = {*scopes(offering), *map(job_scope, jobs)} & self.streaks.keys()
        opened = {
            scope: replace(self.streaks[scope], registered=True, until_ms=Millis(0))
            for scope in met
        }
        return Boots({**self.streaks, **opened})

    def worked(self, offering: Offering, jobs: Collection[JobId]) -> Boots:
        """A task runs on an instance: all is well again."""
        return self._without({*scopes(offering), *map(job_scope, jobs)})

    def proven(self, jobs: Collection[JobId]) -> Boots:
        """A task of these jobs has run for a while, or to its end: instances outlive them."""
        return self._without(set(map(lost_scope, jobs)))

    def of_jobs(self, active: Collection[JobId]) -> Boots:
        """All streaks except those of jobs that have ended."""
        kept = {scope(job) for scope in (job_scope, lost_scope) for job in active}
        of_jobs = {s for s in self.streaks if s.startswith(("job ", _LOST))}
        return self._without(of_jobs - kept)

    def _without(self, ended: set[Scope]) -> Boots:
        if ended.isdisjoint(self.streaks):
            return self
        return Boots({s: streak for s, streak in self.streaks.items() if s not in ended})

    def until(self, offering: Offering) -> Millis:
        """When an offering may be bought again as far as boots are concerned; 0 for now."""
        return max((streak.until_ms for _, streak in self.suspects(offering)), default=Millis(0))

    def suspects(self, offering: Offering) -> Iterator[tuple[Scope, Streak]]:
        """The scopes of an offering in which the last boot failed, and none registered since."""
        for scope in scopes(offering):
            streak = self.streaks.get(scope)
            if streak is not None and not streak.registered:
                yield scope, streak

    def of_job(self, job: JobId) -> Streak | None:
        """The streak for which nothing is bought for a job, if there is one."""
        streaks = [self.streaks.get(scope(job)) for scope in (job_scope, lost_scope)]
        paused = [streak for streak in streaks if streak is not None and streak.until_ms]
        return max(paused, key=lambda streak: streak.until_ms, default=None)

    def suspect_jobs(self) -> set[JobId]:
        """Jobs whose tasks seem to bring instances down; one task of each runs as a test."""
        scopes_of = {job: lost_scope(job) for job in self.doubted_jobs()}
        return {job for job, scope in scopes_of.items() if self.streaks[scope].conclusive(scope)}

    def doubted_jobs(self) -> tuple[JobId, ...]:
        """Jobs with a task whose instance ended as it ran there, one at least."""
        if not self.streaks:
            return ()
        lost = (scope for scope in self.streaks if scope.startswith(_LOST))
        return tuple(JobId(scope.removeprefix(_LOST)) for scope in lost)

    @property
    def documents(self) -> Mapping[str, Deferred]:
        """The document in which the journal keeps them."""
        return {"boots": self.to_json}

    def to_json(self) -> dict[str, Json]:
        """The form in which the journal keeps it."""
        return {
            scope: {
                "failures": streak.failures,
                "last_ms": streak.last_ms,
                "until_ms": streak.until_ms,
                "members": list(streak.members),
                "why": streak.why,
                "registered": streak.registered,
            }
            for scope, streak in sorted(self.streaks.items())
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Json]) -> Boots:
        """The inverse of `to_json`; what is not of its form is left out."""
        streaks = {}
        for scope, written in document.items():
            match written:
                case {
                    "failures": int(failures),
                    "last_ms": int(last_ms),
                    "until_ms": int(until_ms),
                    "members": list(members),
                    "why": str(why),
                    "registered": bool(registered),
                }:
                    names = tuple(map(str, members))
                    last, until = Millis(last_ms), Millis(until_ms)
                    streaks[scope] = Streak(failures, last, until, names, why, registered)
                case _:
                    pass
        return cls(streaks)
