"""Which elastic gangs a round looks at, where there are more of them than it has time for.

Owners are looked at in turn, and the gangs of each in the order of their ids, from where the last
round ended. So a user who submits a thousand elastic gangs keeps nobody's gang from another size.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from eva_master.model.planning.job_view import JobView
from eva_master.model.planning.plan import Json


@dataclass(frozen=True, slots=True)
class GangTurn:
    """Gang up to which the last round came; empty at first.

    Attributes:
        owner: Owner whose turn it was last.
        jobs: By owner, the last gang that was looked at.
    """

    owner: str = ""
    jobs: Mapping[str, str] = field(default_factory=dict)

    def dump(self) -> Json:
        """For the memory of a policy."""
        return {"owner": self.owner, "jobs": dict(self.jobs)}

    @classmethod
    def load(cls, document: Json) -> GangTurn:
        """From the memory of a policy; at first if there is none."""
        if not isinstance(document, dict) or not isinstance(jobs := document.get("jobs"), dict):
            return cls()
        return cls(str(document.get("owner", "")), {name: str(job) for name, job in jobs.items()})


def in_turn(jobs: Sequence[JobView], most: int, turn: GangTurn) -> tuple[list[JobView], GangTurn]:
    """As many gangs as a round looks at, and where the next round goes on.

    Args:
        jobs: Elastic gangs; more than `most`.
        most: How many are looked at.
        turn: Where the last round ended.
    """
    by_owner: defaultdict[str, list[JobView]] = defaultdict(list)
    for job in jobs:
        by_owner[job.spec.owner].append(job)
    owners = deque(sorted(by_owner, key=lambda owner: (owner <= turn.owner, owner)))
    queues = {}
    for owner in owners:
        last = turn.jobs.get(owner, "")
        queues[owner] = deque(sorted(by_owner[owner], key=lambda job: (job.id <= last, job.id)))
    chosen: list[JobView] = []
    places = {owner: job for owner, job in turn.jobs.items() if owner in queues}
    while owners and len(chosen) < most:
        owner = owners.popleft()
        chosen.append(queues[owner].popleft())
        places[owner] = chosen[-1].id
        if queues[owner]:
            owners.append(owner)
    return chosen, GangTurn(chosen[-1].spec.owner if chosen else turn.owner, places)
