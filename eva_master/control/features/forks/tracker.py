"""The epochs of a forked job, as pure functions: who may do how many steps, and what counts.

An epoch begins when forks run that may train in it: the remaining steps are split over them by
their speeds. The epoch ends when each has given its part or is struck out. The leader then merges
the parts, and the steps of the parts that it kept are the job's. So every step counts once: no part
has more steps than its share, shares add up to the remaining steps, and an epoch has one merge,
which all know by its digest.

A message about another epoch, another attempt or another leader changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from eva_master.model.forks.merging import (
    AssignedSteps,
    GivenWeights,
    MergeRound,
    MergeRule,
    Merging,
    PartFate,
)
from eva_master.model.values import replace
from eva_wire.values.ids import Millis

MOST_MISSED = 2
"""After so many rounds in a row in which a fork gave nothing the job goes on unforked."""
MOST_IDLE = 2
"""After so many rounds in a row in which no fork made a step, likewise."""
MOST_WORSE = 2
"""After so many merges in a row that were worse than a part of theirs, likewise."""
_LONGEST_REASON = 200
_GUARD = "merging has made {check} worse twice in a row"


@dataclass(frozen=True, slots=True)
class Runner:
    """A fork whose program runs.

    Attributes:
        attempt: Which attempt of it.
        speed: Steps per second, by what is known.
    """

    fork: int
    attempt: int
    speed: float


def opened(
    now: Merging, left: int, runners: Iterable[Runner], at: Millis, *, last: bool = False
) -> Merging:
    """Begin an epoch, if any fork can train in it and any steps remain.

    Args:
        now: The state of the job's merges.
        left: Steps of the job that are in no merge.
        runners: The forks that run.
        at: The present time.
        last: Whether only the forks train with which the job ends soonest, as no other job wants
            the nodes.
    """
    running = list(runners)
    chosen = soonest(running, left, now.took_ms) if last else running
    trainers = sorted(chosen, key=lambda it: it.fork)
    if now.open or left <= 0 or not trainers or now.unforked:
        return now
    steps = split(left, [trainer.speed for trainer in trainers])
    shares = tuple(
        AssignedSteps(trainer.fork, trainer.attempt, many)
        for trainer, many in zip(trainers, steps, strict=True)
        if many
    )
    rest = len(trainers) < len(running)
    return replace(now, shares=shares, since_ms=at, told_to_give=False, refused=(), last=rest)


def soonest(runners: Iterable[Runner], left: int, merge_ms: int) -> list[Runner]:
    """The fastest forks with which a job ends soonest; a single one needs no further merge.

    Args:
        runners: The forks that run.
        left: Remaining steps.
        merge_ms: Duration of a merge.
    """
    order = sorted(runners, key=lambda it: (-it.speed, it.fork))
    ends, speed = [], 0.0
    for count, runner in enumerate(order, 1):
        speed += runner.speed
        ends.append((1000 * left / speed + (merge_ms if count > 1 else 0), count))
    return order[: min(ends)[1]] if ends else []


def split(steps: int, speeds: Sequence[float]) -> list[int]:
    """Divide steps in proportion to speeds, the largest remainders rounded up."""
    whole = sum(speeds)
    exact = [steps * speed / whole for speed in speeds]
    parts = [min(steps, int(amount)) for amount in exact]
    rest = steps - sum(parts)
    order = sorted(range(len(parts)), key=lambda place: (parts[place] - exact[place], place))
    for place in order * (1 + max(0, rest) // len(order)):
        if rest <= 0:
            break
        parts[place] += 1
        rest -= 1
    return parts


def asked(now: Merging, at: Millis) -> Merging:
    """Have those who train give what they have."""
    return replace(now, told_to_give=True, since_ms=at) if now.shares else now


def gave(now: Merging, epoch: int, part: GivenWeights) -> Merging:
    """Record a part; one with more steps than its fork's share does not count."""
    share = now.share_of(part.fork)
    if epoch != now.epoch or share is None or share.attempt != part.attempt:
        return now
    if not 0 <= part.steps <= share.steps:
        fault = f"it claims {part.steps} steps where it was to do {share.steps} at most"
        now = _missed(_refused(struck(now, part.fork), part.fork, fault), (part.fork,))
        if dict(now.missed)[part.fork] < MOST_MISSED:
            return now
        return unforked(now, f"fork {part.fork}: {fault}")
    if not part.steps:
        return _idle(_refused(struck(now, part.fork), part.fork, "it holds no step"))
    shares = tuple(share for share in now.shares if share.fork != part.fork)
    return replace(now, shares=shares, parts=(*now.parts, part), idle=0)


def _idle(now: Merging) -> Merging:
    """Count a round if it has ended without a step: such a program would go round for ever."""
    if now.open:
        return now
    now = replace(now, idle=now.idle + 1)
    if now.idle < MOST_IDLE:
        return now
    return unforked(now, f"no fork made a step in {MOST_IDLE} rounds in a row")


def struck(now: Merging, fork: int) -> Merging:
    """Let an epoch go on without a fork that has not given its part."""
    shares = tuple(share for share in now.shares if share.fork != fork)
    return now if shares == now.shares else replace(now, shares=shares)


def without(now: Merging, there: Collection[tuple[int, int]]) -> Merging:
    """Let an epoch go on without forks whose attempt is over, or cut off: that is no fault.

    Args:
        now: The state of the job's merges.
        there: The forks that are present, each with its attempt.
    """
    for share in now.shares:
        if (share.fork, share.attempt) not in there:
            now = struck(now, share.fork)
    if now.leader is None or (now.leader, now.leader_attempt) in there:
        return now
    return replace(now, leader=None, leader_attempt=0)  # its part is in the object store


def overdue(now: Merging) -> Merging:
    """Let an epoch go on without forks that gave nothing though they were asked.

    A program that does so repeatedly cannot be merged.
    """
    asked = now.shares
    now = replace(_missed(now, [share.fork for share in asked]), shares=())
    rounds_missed = dict(now.missed)
    late = next((share for share in asked if rounds_missed[share.fork] >= MOST_MISSED), None)
    if late is None:
        return now
    return unforked(now, f"fork {late.fork} gave no part in {MOST_MISSED} rounds in a row")


def _missed(now: Merging, forks: Iterable[int]) -> Merging:
    """Count a round in which forks gave nothing that counts."""
    rounds_missed = dict(now.missed)
    for fork in forks:
        rounds_missed[fork] = rounds_missed.get(fork, 0) + 1
    return replace(now, missed=tuple(sorted(rounds_missed.items())))


def led(now: Merging, runners: Iterable[Runner], at: Millis) -> Merging:
    """Name the leader, once no fork trains any more: the fastest that gave a part and still runs.

    If none of these runs, it is the fastest of all: the parts are in the object store.
    """
    candidates = list(runners)
    if now.shares or not now.parts or now.leader is not None or not candidates:
        return now
    gave_it = {(part.fork, part.attempt) for part in now.parts}
    able = [
        candidate for candidate in candidates if (candidate.fork, candidate.attempt) in gave_it
    ] or candidates
    first = min(able, key=lambda it: (-it.speed, it.fork))
    return replace(now, leader=first.fork, leader_attempt=first.attempt, since_ms=at)


def deposed(now: Merging) -> Merging:
    """Let an epoch go on without a leader that does not merge: its own part does not count."""
    if now.leader is None:
        return now
    parts = tuple(part for part in now.parts if part.fork != now.leader)
    rounds_missed = dict(now.missed)
    rounds_missed[now.leader] = rounds_missed.get(now.leader, 0) + 1
    missed = tuple(sorted(rounds_missed.items()))
    fork, now = now.leader, replace(now, parts=parts, leader=None, leader_attempt=0, missed=missed)
    if rounds_missed[fork] < MOST_MISSED:
        return now
    return unforked(now, f"fork {fork} was to merge {MOST_MISSED} times and did not")


@dataclass(frozen=True, slots=True)
class Done:
    """A leader's report of its merge.

    Attributes:
        kept: The fate of each part; parts that are not named were left out.
        check_merged: The check metric of the merge; `None` if there is none.
        check_best: The check metric of the best part.
        digest: Name of the merge in the object store.
    """

    epoch: int
    fork: int
    attempt: int
    kept: tuple[PartFate, ...]
    check_merged: float | None = None
    check_best: float | None = None
    digest: str = ""


def merged(now: Merging, done: Done, rule: MergeRule, at: Millis) -> Merging:
    """Close an epoch: the steps of the parts that were kept are the job's from now on."""
    if done.epoch != now.epoch or (done.fork, done.attempt) != (now.leader, now.leader_attempt):
        return now
    kept = {fate.fork: fate for fate in done.kept}
    steps, out = 0, list(now.refused)
    for part in now.parts:
        fate_of_part = kept.get(part.fork)
        if fate_of_part is not None and fate_of_part.kept:
            steps += part.steps
        else:
            why = "its leader does not say why" if fate_of_part is None else fate_of_part.reason
            out.append((part.fork, (why or "no reason is given")[:_LONGEST_REASON]))
    worse = now.worse + 1 if rule.worse(done.check_merged, done.check_best) else 0
    closed = Merging(
        merged=now.epoch,
        steps=now.steps + steps,
        since_ms=at,
        worse=worse,
        took_ms=max(0, at - now.since_ms),
        missed=tuple(miss for miss in now.missed if now.part_of(miss[0]) is None),
        left_out=tuple(out),
        digest=done.digest,
    )
    if not steps:
        # All forks continue from where they were: a program whose parts never count would not end.
        closed = _missed(replace(closed, missed=now.missed), [part.fork for part in now.parts])
        if max(dict(closed.missed).values(), default=0) >= MOST_MISSED:
            return unforked(closed, f"no part of it counted in {MOST_MISSED} rounds in a row")
    if worse < MOST_WORSE:
        return closed
    return replace(unforked(closed, _GUARD.format(check=rule.check)), best=True)


def unforked(now: Merging, why: str) -> Merging:
    """Have a job go on without forks for good; what was given and not merged does not count."""
    return replace(now, shares=(), parts=(), leader=None, leader_attempt=0, unforked=why)


def instructions(now: Merging, fork: int, attempt: int, total: int) -> MergeRound:
    """Instructions to a fork about the epoch.

    Args:
        now: The state of the job's merges.
        fork: The fork.
        attempt: Its running attempt.
        total: Steps of the job.
    """
    steps_left = max(0, total - now.steps)
    forks = max(2, len(now.shares) + len(now.parts))
    base = MergeRound(now.epoch, now.steps, 0, forks, merge=now.digest)
    if not steps_left:
        return replace(base, forks=0, finished=True)
    if now.unforked:
        return replace(
            base, quota=steps_left, forks=1, whole=True, finished=fork != 0, best=now.best
        )
    if (fork, attempt) == (now.leader, now.leader_attempt):
        return replace(base, average=True, parts=now.parts)
    share, part = now.share_of(fork), now.part_of(fork)
    if share is not None and share.attempt == attempt:
        # A fork alone ends by itself with its share, which then must be all that remains.
        alone = share.steps >= steps_left
        forks = 1 if alone else forks
        return replace(base, quota=share.steps, forks=forks, give=now.told_to_give)
    if part is not None and part.attempt == attempt:
        return replace(base, quota=part.steps)
    return base


def ended(now: Merging, fork: int, attempt: int, total: int) -> Merging:
    """Count the steps of a fork that did alone all that were left, and gave no part of them."""
    share = now.share_of(fork)
    if share is None or share.attempt != attempt or share.steps < total - now.steps:
        return now
    return replace(now, steps=total, shares=())


def _refused(now: Merging, fork: int, why: str) -> Merging:
    others = tuple(refusal for refusal in now.refused if refusal[0] != fork)
    return replace(now, refused=(*others, (fork, why[:_LONGEST_REASON])))


def may_succeed(now: Merging, fork: int, attempt: int, total: int) -> bool:
    """Whether the successful end of a fork's program is that of its job.

    The answer is yes once all steps are done, or if the fork did all remaining ones on its own; and
    always for fork 0, which knows by itself when it is done, like a program without forks.
    """
    steps_left, share = total - now.steps, now.share_of(fork)
    if not fork or steps_left <= 0:
        return True
    return share is not None and share.attempt == attempt and share.steps >= steps_left
