"""Forking as a policy's rule: jobs that may be forked are, into as many copies as there are nodes.

That is how HadarE's paper has it. Elsewhere each job file says how many copies there may be.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from eva_master.model.forks.merging import MergeRule
from eva_master.model.job import JobSpec
from eva_wire.values.bounds import MOST_FORKS, JobKind


@dataclass(frozen=True, slots=True)
class Forking:
    """The rule of a policy that has jobs forked.

    Attributes:
        every_ms: From one merge to the next, the policy's round.
    """

    every_ms: int

    def applied(self, spec: JobSpec, nodes: int) -> JobSpec:
        """A job as it is forked by the rule; one that may not be forked stays as it is.

        Its own rule of merges does not hold: there is one merge per round, and none is judged.

        Args:
            spec: As it is submitted.
            nodes: How many nodes there may be; of more than `MOST_FORKS` so many get a copy.
        """
        if not spec.forked or nodes < 2:
            return spec
        rule = MergeRule(every_ms=self.every_ms, at_last_fastest=True)
        return replace(
            spec, forking=replace(spec.forking, forks=min(nodes, MOST_FORKS), merge=rule)
        )


def forkable(spec: JobSpec) -> JobSpec:
    """A job whose program may be forked, if it is one task that counts its steps.

    Args:
        spec: A job whose program can do what forks must do, though its file says nothing of it.
    """
    counted = spec.total_steps is not None and spec.tasks[0].reports_steps
    if len(spec.tasks) > 1 or spec.kind is JobKind.ARRAY or not counted:
        return spec
    return replace(spec, kind=JobKind.ARRAY, forking=replace(spec.forking, forks=2))


def why_unforked(spec: JobSpec, forking: Forking | None) -> str:
    """Why a job is not forked though its policy has jobs forked; empty if nothing is amiss."""
    if forking is None or spec.forked:
        return ""
    if len(spec.tasks) > 1:
        return "it is not forked: only a job of one task can be"
    return (
        "it is not forked, as other jobs here are: its file does not say `forks`, and a program "
        "that cannot merge would do all of its steps in every copy"
    )
