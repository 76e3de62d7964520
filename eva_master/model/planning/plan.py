"""What a policy decides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from eva_master.model.catalog import Offering
from eva_master.model.ids import InstanceId, RunId
from eva_master.model.planning.reasons import Reasons

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]


@dataclass(frozen=True, slots=True)
class PolicyMemory:
    """What a policy carries from round to round; journalled with the round.

    Attributes:
        policy: Whose memory it is; another policy starts with none.
        version: Of the data's form; a policy ignores a memory of a version it does not know.
        data: JSON-able.
    """

    policy: str
    version: int
    data: dict[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NewInstance:
    """An instance to be launched.

    Attributes:
        key: Names it within the plan; placements refer to it.
    """

    key: int
    offering: Offering


@dataclass(frozen=True, slots=True)
class Place:
    """Run the task run on a live instance, or on a new one by its key."""

    run: RunId
    on: InstanceId | int


@dataclass(frozen=True, slots=True)
class Hold:
    """Leave the waiting task run without a place, for a reason that the user is shown."""

    run: RunId
    reason: str


@dataclass(frozen=True, slots=True)
class Suspend:
    """Checkpoint the running task run and let it wait."""

    run: RunId
    reason: str


PlanEntry = Place | Hold | Suspend


@dataclass(frozen=True, slots=True)
class Plan:
    """A policy's decision for one round.

    Task runs without an entry stay as they are.

    Attributes:
        launches: New instances, each used by at least one `Place`.
        entries: At most one per task run.
        figures: What the round came to (kind of plan, prices, effort), for statistics.
        reasons: Why, per instance and per move. Plans that do the same are equal, whatever
            their reasons.
    """

    launches: tuple[NewInstance, ...] = ()
    entries: tuple[PlanEntry, ...] = ()
    figures: Mapping[str, int | float | str] = field(default_factory=dict)
    reasons: Reasons = field(default=Reasons(), compare=False)
