"""What Eva carries from round to round."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from eva_master.learning.rates import EventRates
from eva_master.model.ids import InstanceId
from eva_master.model.planning.plan import Json, PolicyMemory
from eva_master.model.planning.snapshot import Snapshot, StandaloneRates, ThroughputTable
from eva_master.packing.interference.incremental import Lineage
from eva_master.packing.reconfiguration.column_memory import Columns, Duals
from eva_master.policies.eva.moved import Moved, from_json, to_json

NAME = "eva"
_VERSION = 2
_READABLE = (1, 2)
"""Version 1 had no columns and no bound; what else is missing in one is empty."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Eva's memory.

    Attributes:
        rates: Of events and of full reconfigurations.
        events: Arrivals and completions that were answered.
        hindered: Instances that held pinned task runs when the last event was answered: their tasks
            could not be moved, so the answer is to be reconsidered when they can.
        learned: Digest of the co-location table that the last round went by.
        columns: Of the configuration LP, to begin the next round's with.
        bounded: Digest of the tasks and prices that `bound` is for.
        bound: The last lower bound, in millionths of micro-dollars per hour.
        settled: Whether it is as good as it gets.
        duals: That prove it, to begin with when it is proven anew, or better.
        moved: Task runs that were moved a short time ago, and when.
    """

    rates: EventRates
    events: int = 0
    hindered: tuple[InstanceId, ...] = ()
    learned: str = ""
    columns: Columns = field(default_factory=Columns)
    bounded: str = ""
    bound: int = 0
    settled: bool = False
    duals: Duals = field(default_factory=Duals)
    moved: Moved = ()

    def dump(self) -> PolicyMemory:
        """The journal's form."""
        return PolicyMemory(
            policy=NAME,
            version=_VERSION,
            data={
                "rates": self.rates.to_json(),
                "events": self.events,
                "hindered": list(self.hindered),
                "learned": self.learned,
                "columns": self.columns.to_json(),
                "bounded": self.bounded,
                "bound": self.bound,
                "settled": self.settled,
                "duals": self.duals.to_json(),
                "moved": to_json(self.moved),
            },
        )


def load(memory: PolicyMemory | None, snapshot: Snapshot) -> Memory:
    """Read a memory; start afresh where there is none of a form known here."""
    if memory is not None and memory.policy == NAME and memory.version in _READABLE:
        match memory.data:
            case {
                "events": int(events),
                "hindered": list(hindered),
                "learned": str(learned),
                "rates": rates,
            }:
                instances = tuple(InstanceId(str(instance)) for instance in hindered)
                return Memory(
                    EventRates.from_json(rates),
                    events,
                    instances,
                    learned,
                    Columns.from_json(memory.data.get("columns")),
                    str(memory.data.get("bounded", "")),
                    _whole(memory.data.get("bound")),
                    memory.data.get("settled") is True,
                    Duals.from_json(memory.data.get("duals")),
                    from_json(memory.data.get("moved")),
                )
    # Of what happened before this policy took over, only the jobs that are there concern it.
    earlier = max(0, snapshot.arrivals + snapshot.completions - len(snapshot.jobs))
    return Memory(EventRates(first_ms=snapshot.now_ms, at_ms=snapshot.now_ms), earlier)


def _whole(value: Json) -> int:
    return value if isinstance(value, int) else 0


def digest(table: ThroughputTable, rates: StandaloneRates | None = None) -> str:
    """Tell apart what was learned of company, and of tasks on their own."""
    total = _COMPANY.of(table.observed)
    if rates is not None:
        total += _ALONE.of(rates.measured)
    return f"{total:016x}"


def _marked(total: int, _: Sequence[object], gone: Sequence[object], new: Sequence[object]) -> int:
    """The sum of the marks of all rows: those alone are needed that changed."""
    return total - sum(map(_mark, gone)) + sum(map(_mark, new))


_COMPANY = Lineage[object, int](0, _marked)
_ALONE = Lineage[object, int](0, _marked)


def _mark(entry: object) -> int:
    """A number that hardly any other entry has."""
    return int.from_bytes(hashlib.sha256(repr(entry).encode()).digest()[:6], "big")
