"""Jobs that go before their equals, since they would be late behind them.

Slack is what a job may lose and still be done by its deadline. A job that waits for limited room
and whose slack would not outlast the work of those of its priority that wait for the same room
goes before them. Three things bound what users gain by stating near deadlines: such a job passes
equals alone, only while it can still be done in time, and nothing that has waited for `PASSED_MS`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from eva_master.model.catalog import Offering
from eva_master.model.planning.job_view import Due, JobView
from eva_master.model.planning.snapshot import UNLIMITED, RunView, Snapshot
from eva_master.model.resources import Resources
from eva_master.packing.valuation.reservation_price import Demand, hosts
from eva_wire.values.ids import JobId, Millis, OfferingId

PASSED_MS = 6 * 3_600_000
"""A job that has waited for so long is not passed any more by jobs with deadlines."""
_MOST_DEMANDS = 32
"""So many different demands of jobs with deadlines are looked at in one round."""
_THOUSAND = 1_000
_ENDLESS_MS = 10**15


def ahead_of_equals(seen: Snapshot, due: Mapping[JobId, Due], now: Millis) -> dict[JobId, int]:
    """Jobs that go before their equals, with the place of each among them.

    Args:
        seen: The jobs that a plan is about.
        due: How jobs stand to their deadlines.
        now: The time.
    """
    live = {view.id for view in seen.instances}
    waiting: defaultdict[JobId, list[RunView]] = defaultdict(list)
    for run in seen.runs:
        if run.instance not in live and not run.pinned:
            waiting[run.job].append(run)
    if due.keys().isdisjoint(waiting):
        return {}
    queue = _Queue(seen, waiting, now)
    jobs = {view.id: view for view in seen.jobs}
    hurried = {
        name: stands.slack_ms
        for name, stands in due.items()
        if name in waiting and stands.slack_ms <= queue.wait_ms(jobs[name])
    }
    if not hurried:
        return {}
    levels = {jobs[name].priority for name in hurried}
    passed = {
        name: -waited_ms
        for name, runs in waiting.items()
        if jobs[name].priority in levels and name not in hurried
        if (waited_ms := _waited_ms(runs, now)) >= PASSED_MS
    }
    return hurried | passed


def _waited_ms(runs: Iterable[RunView], now: Millis) -> int:
    return max((now - run.since_ms for run in runs if run.since_ms is not None), default=0)


@dataclass(slots=True)
class _Work:
    """Work of some task runs, in milliseconds; that of some may be unknown."""

    runs: int = 0
    ms: int = 0
    unknown: bool = False

    def add(self, run: RunView, now: Millis) -> None:
        """Count a task run."""
        self.runs += 1
        if run.remaining is None:
            self.unknown = True
        else:
            self.ms += run.remaining.standalone_ms(now)


class _Queue:
    """Task runs that wait, or have a place that still boots, by priority and demand.

    Args:
        seen: The jobs that a plan is about.
        waiting: Their task runs that wait.
        now: The time.
    """

    def __init__(
        self, seen: Snapshot, waiting: Mapping[JobId, Collection[RunView]], now: Millis
    ) -> None:
        self._waiting = waiting
        self._now = now
        endless = () if seen.leeway != UNLIMITED else seen.catalog
        self._endless = [
            offering for offering in endless if offering.limit is None and offering.available(now)
        ]
        self._tenants = {tenant.name for tenant in seen.tenants}
        self._offerings: dict[OfferingId, Offering] = {}
        self._number: defaultdict[OfferingId, int] = defaultdict(int)
        self._placed_ms: defaultdict[OfferingId, int] = defaultdict(int)
        self._works: defaultdict[tuple[int, Demand], _Work] = defaultdict(_Work)
        priorities = {view.id: view.priority for view in seen.jobs}
        booting = {view.id for view in seen.instances if not view.ready}
        places = {view.id: view.offering for view in seen.instances}
        for offering in places.values():
            self._offerings[offering.id] = offering
            self._number[offering.id] += 1
        for offering in seen.catalog:
            if offering.limit != 0:
                self._offerings[offering.id] = offering
                most = max(self._number[offering.id], offering.limit or 1)
                self._number[offering.id] = most
        for run in seen.runs:
            place = None if run.instance is None else places.get(run.instance)
            if run.instance in booting and not run.running:
                self._works[priorities[run.job], run.task.demand].add(run, now)
            elif place is not None and run.remaining is not None:
                part = run.remaining.goes_on_ms(now) * _share(run.task.demand, place)
                self._placed_ms[place.id] += part // _THOUSAND
        for name, runs in waiting.items():
            for run in runs:
                self._works[priorities[name], run.task.demand].add(run, now)
        self._known: dict[tuple[int, Demand], _Work] = {}

    def wait_ms(self, job: JobView) -> int:
        """Waiting time of a job behind all others of its priority or a higher one.

        Returns:
            Milliseconds; -1 if it waits for no other job.
        """
        own: defaultdict[Demand, _Work] = defaultdict(_Work)
        for run in self._waiting[job.id]:
            own[run.task.demand].add(run, self._now)
        limited = (
            (demand, work)
            for demand, work in own.items()
            if job.spec.tenant in self._tenants
            or not any(hosts(offering, demand) for offering in self._endless)
        )
        waits = (self._behind_ms(job.priority, demand, work) for demand, work in limited)
        return max(waits, default=-1)

    def _behind_ms(self, priority: int, demand: Demand, own: _Work) -> int:
        offerings = [offering for offering in self._offerings.values() if hosts(offering, demand)]
        number = sum(self._number[offering.id] for offering in offerings)
        all_ = self._all(priority, demand, offerings)
        if not number or all_.runs <= own.runs:
            return -1
        if all_.unknown:
            return _ENDLESS_MS
        share = min(_share(demand, offering) for offering in offerings)
        work_ms = all_.ms - own.ms * share // _THOUSAND
        return (work_ms + sum(self._placed_ms[offering.id] for offering in offerings)) // number

    def _all(self, priority: int, demand: Demand, offerings: Iterable[Offering]) -> _Work:
        """Work of this or a higher priority that wants some offerings, in instance-milliseconds."""
        if (priority, demand) in self._known:
            return self._known[priority, demand]
        total = _Work()
        if len(self._known) >= _MOST_DEMANDS:
            return total
        for (level, other), work in self._works.items():
            shares = [_share(other, offering) for offering in offerings if hosts(offering, other)]
            if level >= priority and shares:
                total.runs += work.runs
                total.unknown = total.unknown or work.unknown
                total.ms += work.ms * min(shares) // _THOUSAND
        self._known[priority, demand] = total
        return total


def _share(demand: Demand, offering: Offering) -> int:
    """The part of an instance that a task takes, in thousandths."""
    need = dict(demand).get(offering.type.family)
    if need is None:
        return _THOUSAND
    return min(_THOUSAND, max(_part(need, offering.type.capacity), 1))


def _part(need: Resources, capacity: Resources) -> int:
    pairs = (
        (need.gpus, capacity.gpus),
        (need.milli_cpus, capacity.milli_cpus),
        (need.memory_mib, capacity.memory_mib),
        (need.disk_mib, capacity.disk_mib),
    )
    return max(_THOUSAND * amount // room for amount, room in pairs if room)
