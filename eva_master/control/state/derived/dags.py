"""Which jobs are stages of one DAG."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from eva_master.learning.run_times.dags import PREDECESSORS_KEPT, EndedStage
from eva_master.model.records import Job
from eva_wire.values.ids import JobId, Millis, job_order
from eva_wire.values.states import TERMINAL_JOB

MOST_STAGES = 64
"""Most stages of a DAG that are followed before they end; any others are treated as single jobs."""
MOST_ENDED = 64
"""Most ended stages that are remembered, the latest ones."""
_Node = tuple[str, str, JobId]
"""A job that is a stage, or that a stage waits for, with the owner and label of that stage."""


@dataclass(frozen=True, slots=True)
class Dag:
    """Jobs of one owner and label that wait for each other.

    Attributes:
        label: Label of these jobs.
        members: The jobs that have not ended, in the order of their submission; never empty.
        ended: The ended jobs with remembered data: see `OwnerDags.ended`.
        submitted_ms: Time of the first submission of a member.
        whole: Whether no ended stage was forgotten.
    """

    label: str
    members: tuple[JobId, ...]
    ended: tuple[JobId, ...]
    submitted_ms: Millis
    whole: bool = True

    @property
    def first(self) -> JobId:
        """The stage that was submitted first."""
        return min((*self.members, *self.ended), key=job_order)


class _Group:
    """The jobs of one DAG, as they come and go."""

    __slots__ = ("dag", "ended", "members", "nodes", "whole")

    def __init__(self, node: _Node) -> None:
        self.nodes = {node}
        self.members: dict[JobId, Job] = {}
        self.ended: dict[JobId, tuple[JobId, ...]] = {}
        """Stages that have ended, with the jobs that they waited for."""
        self.dag: Dag | None = None
        self.whole = True

    def made(self, label: str) -> Dag:
        """The present DAG."""
        if self.dag is None:
            members = sorted(self.members, key=job_order)
            submitted = min(job.submitted_ms for job in self.members.values())
            ended = tuple(sorted(self.ended, key=job_order))
            self.dag = Dag(label, tuple(members), ended, submitted, self.whole)
        return self.dag


class Dags:
    """The DAGs that have not ended; it follows the records of jobs.

    Two jobs of one owner and label are of one DAG if one waits for the other, if both wait for a
    third, or if both are of one DAG with another one.

    Args:
        changed: Is told each job of whose DAG something else is known now.
    """

    def __init__(self, changed: Callable[[JobId], None]) -> None:
        self._groups: dict[_Node, _Group] = {}
        self._of: dict[JobId, _Group] = {}
        self._changed = changed

    def of(self, job: Job) -> Dag | None:
        """The DAG of a job; `None` if it is no stage of one, or has ended."""
        group = self._of.get(job.id)
        return None if group is None else group.made(job.spec.stage.dag)

    def note_finished(self, job: Job) -> None:
        """A task of a job has finished, which tells how long other stages of its DAG take."""
        if (group := self._of.get(job.id)) is not None:
            for member in group.members:
                self._changed(member)

    def follow(self, job: Job) -> None:
        """Take in the record of a job that was added or replaced."""
        if not job.spec.stage.dag:
            return
        over = job.state in TERMINAL_JOB
        group = self._of.get(job.id)
        if group is None:
            if over:
                return
            nodes = _nodes(job.spec.owner, job.spec.stage.dag, job.id, job.spec.stage.depends_on)
            if self._stages(nodes) >= MOST_STAGES:
                return
            group = self._joined(nodes)
            group.members[job.id] = job
            self._of[job.id] = group
        elif over:
            del group.members[job.id], self._of[job.id]
            group.ended[job.id] = job.spec.stage.depends_on
            self._changed(job.id)
            if not group.members:
                self._drop(group)
            else:
                self._trim(group, job.spec.owner, job.spec.stage.dag)
        else:
            arrives = group.members[job.id].waits and not job.waits
            group.members[job.id] = job
            if not arrives:
                return
        group.dag = None
        for member in group.members:
            self._changed(member)

    def restore(
        self, owners: Mapping[str, Mapping[JobId, EndedStage]]
    ) -> Iterable[tuple[str, JobId]]:
        """Take in the stages that had ended before a restart, after all jobs were followed.

        Returns:
            Stages whose DAG has ended as well, each with its owner.
        """
        for owner, stages in owners.items():
            for job, stage in stages.items():
                self._joined(_nodes(owner, stage.label, job, stage.after)).ended[job] = stage.after
        stale = []
        for owner, stages in owners.items():
            for job, stage in stages.items():
                group = self._groups.get((owner, stage.label, job))
                if group is None or not group.members:
                    stale.append((owner, job))
        for group in {id(other): other for other in self._groups.values()}.values():
            group.dag = None
            if not group.members:
                self._drop(group)
        return stale

    def _stages(self, nodes: Iterable[_Node]) -> int:
        """Number of stages that have not ended, of the DAGs of some nodes."""
        groups = {
            id(found_group): found_group
            for node in nodes
            if (found_group := self._groups.get(node)) is not None
        }
        return sum(len(group.members) for group in groups.values())

    def _trim(self, group: _Group, owner: str, label: str) -> None:
        """Forget the stages that ended longest ago, and jobs that no stage names any more."""
        while len(group.ended) > MOST_ENDED:
            del group.ended[next(iter(group.ended))]
            group.whole = False
        kept = set[_Node]()
        for name, after in group.ended.items():
            kept.update(_nodes(owner, label, name, after))
        for member in group.members.values():
            kept.update(_nodes(owner, label, member.id, member.spec.stage.depends_on))
        for node in group.nodes - kept:
            group.nodes.discard(node)
            del self._groups[node]

    def _joined(self, nodes: Iterable[_Node]) -> _Group:
        """The group of some nodes, which are of one from now on."""
        groups: dict[int, _Group] = {}
        for node in nodes:
            group = self._groups.get(node)
            if group is None:
                group = self._groups[node] = _Group(node)
            groups[id(group)] = group
        largest, *others = sorted(groups.values(), key=lambda it: -len(it.nodes))
        for other in others:
            largest.nodes |= other.nodes
            largest.members |= other.members
            largest.ended |= other.ended
            largest.whole &= other.whole
            self._groups.update(dict.fromkeys(other.nodes, largest))
            self._of.update(dict.fromkeys(other.members, largest))
        return largest

    def _drop(self, group: _Group) -> None:
        for node in group.nodes:
            del self._groups[node]


def _nodes(owner: str, label: str, job: JobId, after: Iterable[JobId]) -> list[_Node]:
    before = list(after)[:PREDECESSORS_KEPT]
    return [(owner, label, name) for name in (job, *before)]
