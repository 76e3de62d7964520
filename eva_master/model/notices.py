"""Notices to receivers outside the cluster, and the wishes of each of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from eva_master.model.accounting.tenants import OwnerPatterns
from eva_wire.values.ids import Millis
from eva_wire.values.notices import Topic

MOST_WAITING = 1_000
"""Notices that wait to be sent; beyond that the oldest are dropped."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The wishes of a receiver.

    Attributes:
        topics: Topics that it is told of, whatever jobs ask for.
        asked: Whether it is told what the job files ask for.
        owners: Owners of whose jobs it is told; `None` for all.
    """

    topics: frozenset[Topic] = frozenset()
    asked: bool = True
    owners: OwnerPatterns | None = None

    def of_cluster(self, topics: frozenset[Topic], owner: str) -> bool:
        """Whether it wants to be told of an event about no job.

        Args:
            topics: Topics of the event.
            owner: The owner that it is about; empty if it is about none.
        """
        if owner and self.owners is not None and not self.owners.match(owner):
            return False
        return bool(topics & self.topics)

    def of_job(self, topics: frozenset[Topic], owner: str, asked: frozenset[Topic]) -> bool:
        """Whether it wants to be told of an event about a job.

        Args:
            topics: Topics of the event.
            owner: Owner of the job.
            asked: Topics that the job asks for.
        """
        if self.owners is not None and not self.owners.match(owner):
            return False
        return bool(topics & self.topics) or (self.asked and bool(topics & asked))


@dataclass(frozen=True, slots=True)
class Notice:
    """A notice to one receiver.

    Attributes:
        id: Its delivery, the same whenever it is sent again.
        receiver: Name of the receiver.
        at_ms: When the first of its events happened, by the wall clock.
        topic: Topic of its events; empty for a trial.
        kind: Kind of its first event, see `FeedKind`.
        text: The sentence of that event.
        count: Of how many events it tells.
        job: Id of the job; empty if it is about none.
        name: Name of the job.
        owner: Owner of the job.
        tenant: Tenant of the job.
        task: The task run, where its first event is about one.
        instance: The instance, where its first event is about one.
        tasks: How many tasks of the job are in each state, for jobs of several.
    """

    id: str
    receiver: str
    at_ms: Millis
    topic: str
    kind: str
    text: str
    count: int = 1
    job: str = ""
    name: str = ""
    owner: str = ""
    tenant: str = ""
    task: str = ""
    instance: str = ""
    tasks: Mapping[str, int] = field(default_factory=dict)

    @property
    def counts_along(self) -> bool:
        """Whether others of its topic say nothing new, so that they are only counted."""
        return not self.job and self.topic != Topic.BUDGET
