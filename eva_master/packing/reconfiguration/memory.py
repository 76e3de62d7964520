"""A policy's memory of its last round, in the journal's form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from eva_master.model.planning.plan import Json
from eva_master.model.planning.snapshot import Snapshot
from eva_master.packing.reconfiguration.column_memory import Duals, NamedColumns
from eva_wire.values.ids import InstanceId, OfferingId


@dataclass(frozen=True, slots=True)
class ReconfigurationMemory:
    """Answers and proofs of the last rounds.

    Attributes:
        events: Arrivals and completions that were answered.
        pinned_instances: Instances that held pinned task runs when the last event was answered:
            their tasks could not be moved, so the answer is reconsidered when they can.
        learned: Digest of the co-location table of the last round.
        aimed_at: Digest of the state that the answer to the last events was to bring about.
        answers: Number of answers in a row that changed the aim of the one before.
        columns: Columns of the configuration LPs behind the packing, to begin the next round's
            with.
        bounded: Digest of the tasks and prices that `bound` is for.
        bound: The last lower bound, in millionths of micro-dollars per hour.
        settled: Whether further effort did not improve the bound.
        duals: Duals that prove the bound, as a start for the next proof. Packing uses neither these
            nor `proof`: plans do not depend on whether a bound is computed.
        proof: Further columns of the bound's LP, beside `columns`.
        spot: The spot offerings that were on sale in the last round, with their prices.
    """

    events: int = 0
    pinned_instances: tuple[InstanceId, ...] = ()
    learned: str = ""
    aimed_at: str = ""
    answers: int = 0
    columns: NamedColumns = field(default_factory=NamedColumns)
    bounded: str = ""
    bound: int = 0
    settled: bool = False
    duals: Duals = field(default_factory=Duals)
    proof: NamedColumns = field(default_factory=NamedColumns)
    spot: tuple[tuple[OfferingId, int], ...] = ()

    def to_json(self) -> dict[str, Json]:
        """The form in which the journal keeps it."""
        return {
            **({"spot": [list(price) for price in self.spot]} if self.spot else {}),
            "events": self.events,
            "hindered": list(self.pinned_instances),
            "learned": self.learned,
            "aimed_at": self.aimed_at,
            "answers": self.answers,
            "columns": self.columns.to_json(),
            "bounded": self.bounded,
            "bound": self.bound,
            "settled": self.settled,
            "duals": self.duals.to_json(),
            "proof": self.proof.to_json(),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> ReconfigurationMemory | None:
        """Read the journal's form; `None` where it is of another one.

        Columns, bound and duals may be missing: they only make a round faster.
        """
        match data:
            case {"events": int(events), "hindered": list(pinned), "learned": str(learned)}:
                return cls(
                    events,
                    tuple(InstanceId(str(instance)) for instance in pinned),
                    learned,
                    str(data.get("aimed_at", "")),
                    _whole(data.get("answers")),
                    NamedColumns.from_json(data.get("columns")),
                    str(data.get("bounded", "")),
                    _whole(data.get("bound")),
                    data.get("settled") is True,
                    Duals.from_json(data.get("duals")),
                    NamedColumns.from_json(data.get("proof")),
                    _prices(data.get("spot")),
                )
        return None

    @classmethod
    def afresh(cls, snapshot: Snapshot) -> ReconfigurationMemory:
        """The memory of a policy that takes over: only jobs that are still there concern it."""
        return cls(max(0, snapshot.arrivals + snapshot.completions - len(snapshot.jobs)))


def _prices(value: Json) -> tuple[tuple[OfferingId, int], ...]:
    prices = []
    for entry in value if isinstance(value, list) else ():
        match entry:
            case [str(name), int(price)]:
                prices.append((OfferingId(name), price))
    return tuple(prices)


def _whole(value: Json) -> int:
    return value if isinstance(value, int) else 0
