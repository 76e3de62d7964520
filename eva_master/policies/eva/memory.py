"""Memory of Eva from round to round."""

from __future__ import annotations

from dataclasses import dataclass

from eva_master.model.planning.plan import PolicyMemory
from eva_master.model.planning.snapshot import Snapshot
from eva_master.packing.reconfiguration.memory import ReconfigurationMemory
from eva_master.policies.eva.config import NAME
from eva_master.policies.eva.recent_moves import Moved, from_json, to_json

_VERSION = 2
_READABLE = (1, 2)
"""Version 1 had no columns and no bound."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Eva's memory.

    Attributes:
        rounds: Answers and proofs of the last rounds.
        moved: Task runs that were moved recently, and when.
    """

    rounds: ReconfigurationMemory
    moved: Moved = ()

    def dump(self) -> PolicyMemory:
        """The form in which the journal keeps it."""
        data = {**self.rounds.to_json(), "moved": to_json(self.moved)}
        return PolicyMemory(policy=NAME, version=_VERSION, data=data)


def load(memory: PolicyMemory | None, snapshot: Snapshot) -> Memory:
    """Read a memory; start afresh where there is none of a form known here."""
    if memory is not None and memory.policy == NAME and memory.version in _READABLE:
        rounds = ReconfigurationMemory.from_json(memory.data)
        if rounds is not None:
            return Memory(rounds, from_json(memory.data.get("moved")))
    return Memory(ReconfigurationMemory.afresh(snapshot))
