"""Plans: the decisions of policies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from eva_master.model.catalog import Offering
from eva_master.model.ids import InstanceId, RunId
from eva_master.model.planning.reasons import Reasons

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
    """

    key: int
    offering: Offering


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
    """Checkpoint the running task run and let it wait."""

    run: RunId
    reason: str


PlanEntry = Assign | Hold | Suspend


@dataclass(frozen=True, slots=True)
class Plan:
    """A policy's decision for one round.

    Task runs without an entry stay as they are.

    Attributes:
        launches: New instances, each used by at least one `Assign`.
        entries: At most one per task run.
        figures: Statistics of the round: kind of plan, prices, effort.
        reasons: Why, per instance and per move. They do not count when plans are compared.
    """

    launches: tuple[NewInstance, ...] = ()
    entries: tuple[PlanEntry, ...] = ()
    figures: Mapping[str, int | float | str] = field(default_factory=dict)
    reasons: Reasons = field(default=Reasons(), compare=False)
