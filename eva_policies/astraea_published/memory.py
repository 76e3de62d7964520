"""Memory of the policy from plan to plan: its clock, its prices and its calendar."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from eva_master.model.planning.plan import Json, PolicyMemory
from eva_policies.astraea_published.config import NAME
from eva_policies.astraea_published.theta import LEAST, Full
from eva_wire.values.ids import Millis

_VERSION = 1
_BEFORE = (-1, 0)


@dataclass(frozen=True, slots=True)
class Entry:
    """A job in the calendar.

    Attributes:
        start_ms: When it is to start.
        end_ms: When it is expected to be done.
        family: The type of GPU.
        members: Number of members.
        began: Whether it has had its place.
        gpus: Number of its GPUs that tenants lend; 0 within its tenant's quota.
        earned: Income of each tenant per hour, in micro-dollars.
        lent: Number of GPUs that each of these lends, in thousandths.
    """

    start_ms: int
    end_ms: int
    family: str
    members: int
    began: bool = False
    gpus: int = 0
    earned: tuple[tuple[str, int], ...] = ()
    lent: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Memory:
    """State carried from plan to plan.

    Attributes:
        epoch_ms: When the clock began; `None` if no job is to be scheduled.
        rounds: Lambda since then.
        last: Batch and number of the last round that was scheduled.
        full: The prices of the batch that is scheduled now.
        seen: The prices that the jobs of all batches so far would set.
        entries: The calendar, by contender.
    """

    epoch_ms: Millis | None = None
    rounds: int = 1
    last: tuple[int, int] = _BEFORE
    full: Full = LEAST
    seen: Full = LEAST
    entries: Mapping[str, Entry] = field(default_factory=dict)

    def stopped(self) -> Memory:
        """This state without a clock."""
        return replace(self, epoch_ms=None, last=_BEFORE)

    def started(self, epoch_ms: Millis, rounds: int) -> Memory:
        """This state with a clock that begins anew."""
        return replace(self, epoch_ms=epoch_ms, rounds=rounds, last=_BEFORE, full=self.seen)

    @staticmethod
    def read(memory: PolicyMemory | None) -> Memory:
        """The memory of the last plan; an empty one if there is none that can be read."""
        if memory is None or memory.policy != NAME or memory.version != _VERSION:
            return Memory()
        data = memory.data
        try:
            return Memory(
                None if data["epoch"] is None else Millis(_whole(data["epoch"])),
                _whole(data["rounds"]),
                _two(data["last"]),
                Full(*_two(data["full"])),
                Full(*_two(data["seen"])),
                {name: _entry(document) for name, document in _mapping(data["entries"]).items()},
            )
        except (KeyError, TypeError, ValueError):
            return Memory()

    def written(self) -> PolicyMemory:
        """The state as JSON-able data."""
        entries: dict[str, Json] = {
            name: _json(entry) for name, entry in sorted(self.entries.items())
        }
        data: dict[str, Json] = {
            "epoch": self.epoch_ms,
            "rounds": self.rounds,
            "last": list(self.last),
            "full": [self.full.gpu, self.full.ps],
            "seen": [self.seen.gpu, self.seen.ps],
            "entries": entries,
        }
        return PolicyMemory(NAME, _VERSION, data)


def _json(it: Entry) -> Json:
    earned: list[Json] = [[name, amount] for name, amount in it.earned]
    whole: list[Json] = [it.start_ms, it.end_ms, it.family, it.members, it.began, it.gpus]
    return [*whole, earned, list(it.lent)]


def _entry(value: Json) -> Entry:
    match value:
        case [
            int(start),
            int(end),
            str(family),
            int(members),
            bool(began),
            int(gpus),
            list(earned),
            list(lent),
        ]:
            amounts = tuple(_amount(amount) for amount in earned)
            return Entry(
                start,
                end,
                family,
                members,
                began,
                gpus,
                amounts,
                tuple(_whole(count) for count in lent),
            )
    raise ValueError("not an entry of a calendar")


def _amount(value: Json) -> tuple[str, int]:
    match value:
        case [str(name), int(amount)]:
            return name, amount
    raise ValueError("not an amount")


def _mapping(value: Json) -> Mapping[str, Json]:
    if not isinstance(value, dict):
        raise TypeError("not a mapping")
    return value


def _two(value: Json) -> tuple[int, int]:
    match value:
        case [int(first), int(second)]:
            return first, second
    raise ValueError("not two integers")


def _whole(value: Json) -> int:
    if type(value) is not int:
        raise TypeError("not an integer")
    return value
