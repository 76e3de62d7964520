"""Plans: the decisions of policies."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from eva_master.model.catalog import Offering
from eva_master.model.planning.reasons import Reasons
from eva_master.model.planning.standing import Line, Pool
from eva_master.model.tenants.tenancy import LoanTerms, Transfer
from eva_master.model.values import quick
from eva_wire.values.ids import InstanceId, JobId, Millis, RunId

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]


@dataclass(frozen=True, slots=True)
class PolicyMemory:
    """State that a policy carries from round to round; journalled with the round.

    Attributes:
        policy: Name of the policy. Another policy starts without memory.
        version: Version of the data's format. A policy ignores versions that it does not know.
        data: JSON-able.
    """

    policy: str
    version: int
    data: dict[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NewInstance:
    """An instance to launch.

    Attributes:
        key: Its name in the plan, which assignments refer to.
        reason: An unusual reason for buying it, for users; empty if there is none.
    """

    key: int
    offering: Offering
    reason: str = field(default="", compare=False)


@quick
@dataclass(frozen=True, slots=True)
class Assign:
    """Assign a task run to a live instance, or to a new one by its key."""

    run: RunId
    on: InstanceId | int


@dataclass(frozen=True, slots=True)
class Hold:
    """Leave a task run waiting, for a reason that the user is shown."""

    run: RunId
    reason: str


@dataclass(frozen=True, slots=True)
class Suspend:
    """Checkpoint the running task run and let it wait; one that waits gives up its place.

    Its room may be given to others in the same plan: they start once it has stopped. The members of
    a gang are suspended together.

    Attributes:
        reason: Shown to the user.
        job: The job that it makes room for as that comes first; `None` if that is not the reason.
    """

    run: RunId
    reason: str
    job: JobId | None = None


@dataclass(frozen=True, slots=True)
class Resize:
    """How many members of an elastic gang run: the first so many, the others rest.

    Members that are added need an `Assign`. The gang stops and starts again as a whole, once.

    Attributes:
        members: As many as `Elastic` allows.
        reason: Shown to the user.
    """

    job: JobId
    members: int
    reason: str


@dataclass(frozen=True, slots=True)
class ExtraRun:
    """Give a task one more run, on an instance where no other run of it is.

    Of an array's late task the first run to succeed counts, and the others are stopped then. The
    task of a forked job trains in all of its runs.

    Attributes:
        run: The task's own run.
        on: A live instance, or by its key a new one that others or a pool get; forks take live
            ones alone.
        reason: Shown to the user.
    """

    run: RunId
    on: InstanceId | int
    reason: str


@dataclass(frozen=True, slots=True)
class Retire:
    """Stop an extra run of a task for good; another run of the task goes on.

    Attributes:
        reason: Shown to the user.
    """

    run: RunId
    reason: str


@dataclass(frozen=True, slots=True)
class Again:
    """When to plan again at the latest, even if nothing else has changed.

    Attributes:
        at_ms: The time; `None` for never.
        milestones: Jobs, each with the number of ended tasks at which to plan again, though a line
            gives away the room that they leave.
    """

    at_ms: Millis | None = None
    milestones: tuple[tuple[JobId, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Loans:
    """Use that jobs make of the room of other tenants.

    Attributes:
        terms: Terms of the jobs, sorted by job. Terms of a job that is not mentioned end.
        transfers: Payments from tenant to tenant that are due now, once.
    """

    terms: tuple[LoanTerms, ...] = ()
    transfers: tuple[Transfer, ...] = ()


PlanEntry = Assign | Hold | Suspend | ExtraRun | Retire


@quick
@dataclass(frozen=True, slots=True)
class Plan:
    """A policy's decision for one round.

    Task runs without an entry stay as they are.

    Attributes:
        launches: New instances, each used by at least one `Assign`, `ExtraRun` or `Pool`.
        entries: At most one per task run, extra runs apart.
        figures: Statistics of the round: kind of plan, prices, effort.
        reasons: Why, per instance and per move. They do not count when plans are compared.
        pools: All pools there are to be: an instance that is in none of them stands in none.
        lines: All lines there are to be.
        sizes: At most one per elastic gang; a gang without an entry keeps its size.
        again: When to plan again.
        pilots: Tasks by their indexes whose run times are to be measured for the others of their
            jobs, where no line has them `chosen`. Plans see waiting pilots before all other tasks.
        loans: Use of the room of other tenants.
    """

    launches: tuple[NewInstance, ...] = ()
    entries: tuple[PlanEntry, ...] = ()
    figures: Mapping[str, int | float | str] = field(default_factory=dict)
    reasons: Reasons = field(default=Reasons(), compare=False)
    pools: tuple[Pool, ...] = ()
    lines: tuple[Line, ...] = ()
    sizes: tuple[Resize, ...] = ()
    again: Again = Again()
    pilots: tuple[tuple[JobId, tuple[int, ...]], ...] = ()
    loans: Loans = Loans()


def pooled(plan: Plan) -> tuple[int, ...]:
    """Keys of the new instances that pools have, in order."""
    if not plan.launches:
        return ()
    keys = (member for pool in plan.pools for member in pool.members if isinstance(member, int))
    return tuple(dict.fromkeys(keys))


def left(plan: Plan, gone: Collection[int]) -> Plan:
    """A plan without some new instances of pools on which no task run is placed."""
    if not gone:
        return plan
    pools = tuple(
        replace(pool, members=tuple(member for member in pool.members if member not in gone))
        for pool in plan.pools
    )
    launches = tuple(launch for launch in plan.launches if launch.key not in gone)
    return replace(plan, pools=pools, launches=launches)
