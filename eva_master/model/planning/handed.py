"""Priorities that waiting jobs hand to the jobs that they wait for."""

from __future__ import annotations

from dataclasses import dataclass

from eva_master.model.ids import JobId


@dataclass(frozen=True, slots=True)
class Handed:
    """A priority that a job has from another one.

    Attributes:
        priority: The priority.
        by: The job of that priority which waits for this one, directly or through others.
    """

    priority: int
    by: JobId

    @property
    def words(self) -> str:
        """The priority for users, and its origin."""
        return f"priority {self.priority:,}, handed on by {self.by}"
