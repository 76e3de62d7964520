"""Forks: copies of one training job that run at once, and whose weights are merged."""

from __future__ import annotations

from dataclasses import dataclass

from eva_wire.values.ids import Millis

_GIVE_MS = 300_000
"""How long a fork may take to give its part once it is asked, beside the time between merges."""
_MERGE_MS = 900_000
"""How long a leader may take to merge, likewise."""


@dataclass(frozen=True, slots=True)
class MergeRule:
    """How the forks of a job are merged.

    Attributes:
        every_ms: From one merge to the next, the merge itself not counted.
        check: The program's own figure by which a merge is judged; empty if it is not.
        tolerance_ppm: How much worse than the best fork a merge may be, in millionths.
        larger: Whether a larger `check` is better.
        at_last_fastest: Whether the last job there is ends on the fastest of its nodes alone, if
            that is no later than on all of them with one more merge.
    """

    every_ms: int = 60_000
    check: str = ""
    tolerance_ppm: int = 20_000
    larger: bool = False
    at_last_fastest: bool = False

    @property
    def give_ms(self) -> int:
        """How long a fork may take to give its part once it is asked."""
        return self.every_ms + _GIVE_MS

    @property
    def lead_ms(self) -> int:
        """How long a leader may take to merge."""
        return self.every_ms + _MERGE_MS

    @property
    def patience_ms(self) -> int:
        """How long a fork has to wait for a merge at most, if one leader fails."""
        return self.every_ms + self.give_ms + 2 * self.lead_ms

    def worse(self, merged: float | None, best: float | None) -> bool:
        """Whether a merge is worse than the best of its parts by more than is tolerated."""
        if merged is None or best is None:
            return False
        lost = best - merged if self.larger else merged - best
        return not lost <= abs(best) * self.tolerance_ppm / 1_000_000


@dataclass(frozen=True, slots=True)
class AssignedSteps:
    """Steps assigned to one fork in an epoch.

    Attributes:
        attempt: The attempt that is to do the steps; a later attempt is too late for this epoch.
        steps: The number of steps.
    """

    fork: int
    attempt: int
    steps: int


@dataclass(frozen=True, slots=True)
class GivenWeights:
    """The weights that one fork has given to an epoch.

    Attributes:
        attempt: The attempt that gave them.
        digest: Digest of the list of its files in the object store.
    """

    fork: int
    attempt: int
    steps: int
    digest: str = ""


@dataclass(frozen=True, slots=True)
class Merging:
    """Progress of the forks of one job. Epoch `merged` + 1 is under way if any fork trains in it.

    Attributes:
        merged: The epoch that was merged last, 0 for none.
        steps: Steps of the job in the merges so far, each counted once.
        since_ms: When the epoch that is under way began, or its leader was named.
        shares: Work of the forks that train in it and have not given a part yet.
        parts: Parts given so far.
        leader: The fork that merges the parts, once no fork trains any more; `None` before.
        leader_attempt: The attempt of the leader that merges.
        told_to_give: Whether forks in training are to give their parts now.
        worse: Number of merges in a row that were worse than the best of their parts.
        missed: Forks that gave nothing in the last rounds that they were asked, with that number of
            rounds.
        refused: Forks whose part does not count in the present epoch, with the reason.
        left_out: Forks whose part did not count in the last merge, with the reason.
        unforked: Why the job goes on without forks; empty while it is forked.
        took_ms: Duration of the last merge, from its last part on.
        best: Whether training continues from the best part of the last merge instead of the merge.
        last: Whether the fastest forks do all remaining steps in the epoch under way, and the
            others rest.
        digest: Name of the last merge in the object store: the digest of the list of its files.
        idle: Number of rounds in a row that ended without a step of any fork.
        own: Steps that the task's own run had reported when the last merge was made; `None` before
            the first, and where that is not on record.
    """

    merged: int = 0
    steps: int = 0
    since_ms: Millis = Millis(0)
    shares: tuple[AssignedSteps, ...] = ()
    parts: tuple[GivenWeights, ...] = ()
    leader: int | None = None
    leader_attempt: int = 0
    told_to_give: bool = False
    worse: int = 0
    missed: tuple[tuple[int, int], ...] = ()
    refused: tuple[tuple[int, str], ...] = ()
    left_out: tuple[tuple[int, str], ...] = ()
    unforked: str = ""
    took_ms: int = 0
    best: bool = False
    last: bool = False
    digest: str = ""
    idle: int = 0
    own: int | None = None

    @property
    def epoch(self) -> int:
        """The epoch that is under way, or that begins next."""
        return self.merged + 1

    @property
    def open(self) -> bool:
        """Whether anybody has begun to train in that epoch."""
        return bool(self.shares or self.parts)

    def done(self, total: int, own: int) -> int:
        """The job's steps that are done: those in merges, and once it is unforked its own run's.

        Args:
            total: The job's steps.
            own: Steps that its own run has reported, as far as they are not lost.
        """
        if not self.unforked:
            return min(total, self.steps)
        base = self.own if self.merged else 0
        if base is None:
            return min(total, max(self.steps, own))
        # A run that began anew counts from its start.
        return min(total, self.steps + (own if own < base else own - base))

    def share_of(self, fork: int) -> AssignedSteps | None:
        """The share of a fork; `None` if it does not train in this epoch, or has given its part."""
        return next((share for share in self.shares if share.fork == fork), None)

    def part_of(self, fork: int) -> GivenWeights | None:
        """The part that a fork has given in this epoch; `None` if it has given none."""
        return next((part for part in self.parts if part.fork == fork), None)


NOT_BEGUN = Merging()


@dataclass(frozen=True, slots=True)
class MergeRound:
    """Instructions to a fork about the epoch that is under way; see `iterator.proto`.

    Attributes:
        epoch: The epoch in which it is to train.
        steps: Steps of the whole job in the weights that the epoch starts from.
        quota: Steps that it may do.
        forks: Number of forks that train in the epoch.
        average: Whether it is the leader and is to merge `parts`.
        give: Whether it is to give its part now.
        finished: Whether the job is done.
        parts: For the leader: the parts to merge.
        whole: Whether it continues alone for good, so that its own checkpoints count.
        best: Whether it is to continue from the best part of the epoch before, not from the merge.
        merge: Name of the merge of the epoch before in the object store.
    """

    epoch: int
    steps: int
    quota: int
    forks: int
    average: bool = False
    give: bool = False
    finished: bool = False
    parts: tuple[GivenWeights, ...] = ()
    whole: bool = False
    best: bool = False
    merge: str = ""


@dataclass(frozen=True, slots=True)
class PartFate:
    """The fate of one part in a merge.

    Attributes:
        reason: Why it was left out; empty if it was kept.
    """

    fork: int
    kept: bool
    reason: str = ""
