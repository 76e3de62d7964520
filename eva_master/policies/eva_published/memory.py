"""Memory of the published Eva from round to round."""

from __future__ import annotations

from dataclasses import dataclass

from eva_master.learning.rates import EventRates
from eva_master.model.planning.plan import PolicyMemory
from eva_master.model.planning.snapshot import Snapshot
from eva_master.packing.reconfiguration.memory import ReconfigurationMemory

NAME = "eva_published"
_WRITERS = (NAME, "eva")
"""Names of policies whose memory can be read: in earlier versions this was a preset of `eva`."""
_VERSION = 2
_READABLE = (1, 2)
"""Version 1 had no columns and no bound."""


@dataclass(frozen=True, slots=True)
class Memory:
    """The published Eva's memory.

    Attributes:
        rounds: Answers and proofs of the last rounds.
        rates: Rates of events and of full reconfigurations.
    """

    rounds: ReconfigurationMemory
    rates: EventRates

    def dump(self) -> PolicyMemory:
        """The form in which the journal keeps it."""
        data = {**self.rounds.to_json(), "rates": self.rates.to_json()}
        return PolicyMemory(policy=NAME, version=_VERSION, data=data)


def load(memory: PolicyMemory | None, snapshot: Snapshot) -> Memory:
    """Read a memory; start afresh where there is none of a form known here."""
    if memory is not None and memory.policy in _WRITERS and memory.version in _READABLE:
        rounds, rates = ReconfigurationMemory.from_json(memory.data), memory.data.get("rates")
        if rounds is not None and rates is not None:
            return Memory(rounds, EventRates.from_json(rates))
    now = snapshot.now_ms
    return Memory(ReconfigurationMemory.afresh(snapshot), EventRates(first_ms=now, at_ms=now))
