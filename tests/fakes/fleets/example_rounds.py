"""The example of section II-A of Hadar, played by a policy round by round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from eva_master.model.catalog import Offering, Purchase
from eva_master.model.ids import MILLION, Family, Millis
from eva_master.model.planning.plan import Assign, PolicyMemory, Suspend
from eva_master.model.planning.snapshot import JobView, Snapshot
from eva_master.packing.valuation.job_valuation import JobValuation
from eva_master.ports import Policy
from eva_master.testing.plan_checks import check
from eva_master.testing.snapshots import START, Amounts, Cluster, offer, task
from tests.fakes.fleets.every_schedule import FLEET, GANGS, Gang

ROUND_MS = 360_000
_ENOUGH = 60
"""A policy that is not done by then never is."""


@dataclass
class Played:
    """How it went.

    Attributes:
        ends: In which round, counted from 1, each gang was done.
        types: The types that each gang was on, by round.
    """

    ends: dict[str, int] = field(default_factory=dict)
    types: list[dict[str, frozenset[str]]] = field(default_factory=list)

    @property
    def rounds(self) -> int:
        """How many there were."""
        return max(self.ends.values())

    @property
    def mean(self) -> float:
        """After how many rounds the mean gang was done."""
        return sum(self.ends.values()) / len(self.ends)


def played(policy: Policy, gangs: Mapping[str, Gang] = GANGS) -> Played:
    """Have a policy plan each round until all gangs are done; members wait for the slowest.

    Args:
        policy: Time-shares, with a lease no longer than a round. Each server has all of a type.
        gangs: Whose work is to be done, on the example's fleet.
    """
    left = {name: float(gang.epochs) for name, gang in gangs.items()}
    places: dict[str, tuple[str | None, ...]] = {
        name: (None,) * gang.gpus for name, gang in gangs.items()
    }
    began: dict[str, int] = {}
    found, memory = Played(), None
    for number in range(1, _ENOUGH + 1):
        now = START + number * ROUND_MS
        snapshot = _seen(gangs, left, places, began, now)
        memory = _carry_out(policy, snapshot, memory, places, began)
        found.types.append(
            {
                it: frozenset(str(place) for place in places[it])
                for it in left
                if None not in places[it]
            }
        )
        for name in list(left):
            if None in places[name]:
                continue
            rates = dict(zip(FLEET, gangs[name].rates, strict=True))
            left[name] -= min(rates[str(place)] for place in places[name])
            if left[name] <= 0:
                del left[name]
                found.ends[name] = number
        if not left:
            return found
    raise AssertionError(f"after {_ENOUGH} rounds there is still {left}")


def _seen(
    gangs: Mapping[str, Gang],
    left: Mapping[str, float],
    places: Mapping[str, tuple[str | None, ...]],
    began: Mapping[str, int],
    now: int,
) -> Snapshot:
    slots: dict[str, Amounts] = dict.fromkeys(FLEET, (1, 1, 1))
    cluster = Cluster(*_offerings())
    cluster.now_ms = Millis(now)
    for server in FLEET:
        cluster.instance(server, server)
    valuation = JobValuation(cluster.catalog)
    for name, epochs in left.items():
        rates = zip(FLEET, gangs[name].rates, strict=True)
        stated = sorted((Family(it), rate * MILLION * 1000 // ROUND_MS) for it, rate in rates)
        member = replace(task(name, **slots), throughput=tuple(stated))
        tasks = [member] * gangs[name].gpus
        left_s = round(epochs * MILLION / valuation.paces(tasks).home)
        cluster.job(name, *tasks, on=places[name], left_s=left_s)
    snapshot = cluster.snapshot()
    return replace(snapshot, jobs=tuple(_leased(job, began) for job in snapshot.jobs))


def _offerings() -> list[Offering]:
    return [
        replace(offer(name, (gpus, gpus, gpus), 1, family=name), purchase=Purchase.OWNED)
        for name, gpus in FLEET.items()
    ]


def _leased(job: JobView, began: Mapping[str, int]) -> JobView:
    at = began.get(job.id)
    return replace(job, lease_ms=None if at is None else Millis(at))


def _carry_out(
    policy: Policy,
    snapshot: Snapshot,
    memory: PolicyMemory | None,
    places: dict[str, tuple[str | None, ...]],
    began: dict[str, int],
) -> PolicyMemory | None:
    plan, memory = policy.plan(snapshot, memory)
    check(snapshot, plan)
    target = {run.id: run.instance for run in snapshot.runs}
    for entry in plan.entries:
        if isinstance(entry, Suspend):
            target[entry.run] = None
        elif isinstance(entry, Assign):
            assert isinstance(entry.on, str), "nothing can be bought"
            target[entry.run] = entry.on
    for job in snapshot.jobs:
        now = tuple(target[run] for run in job.runs)
        if now != places[job.id]:
            places[job.id] = now
            began.pop(job.id, None)
            if None not in now:
                began[job.id] = snapshot.now_ms
    return memory
