"""Removals of stored files that are decided and not carried out yet, as the journal has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from eva_master.model.changes import Deferred
from eva_master.model.planning.plan import Json
from eva_wire.values.ids import JobId, Millis


@dataclass(frozen=True, slots=True)
class Removals:
    """Ended jobs whose stored files are to go.

    Attributes:
        pending: The user who had each removed; empty for the end of `results_kept`.
        expired_ms: Jobs that ended up to this time have been looked at for `results_kept`.
    """

    pending: Mapping[JobId, str] = field(default_factory=dict)
    expired_ms: Millis = Millis(0)

    @property
    def documents(self) -> Mapping[str, Deferred]:
        """The document in which the journal keeps them."""
        return {"removals": self.to_json}

    def to_json(self) -> Json:
        """The document of the journal."""
        pending: dict[str, Json] = {str(job): by for job, by in self.pending.items()}
        return {"pending": pending, "expired_ms": int(self.expired_ms)}

    @classmethod
    def from_json(cls, document: Json) -> Removals:
        """The removals of a document; none of one that is damaged."""
        if not isinstance(document, dict):
            return cls()
        pending, expired = document.get("pending"), document.get("expired_ms")
        return cls(
            {JobId(job): str(by) for job, by in pending.items()}
            if isinstance(pending, dict)
            else {},
            Millis(expired if isinstance(expired, int) else 0),
        )
