"""The epochs of a forked job, as pure functions: who may do how many steps, and what counts.

An epoch begins when forks run that may train in it: the steps that are left are split over them by
their speeds. It ends when each has given its part or is struck out. The leader then merges the
parts, and the steps of those that it kept are the job's. So every step counts once: no part has
more steps than its share, shares add up to what is left, and an epoch has one merge, which all
know by its digest.

A message that is about another epoch, another attempt or another leader changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from eva_master.model.forks.merging import Kept, MergeRound, MergeRule, Merging, Part, Share
from eva_master.model.ids import Millis
from eva_master.model.values import replace

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
    """Begin an epoch, if there is anybody to train in it and anything left to do.

    Args:
        now: What there is.
        left: Steps of the job that are in no merge.
        runners: The forks that run.
        at: The present time.
        last: Whether those alone train with whom it ends soonest, as nobody else wants the nodes.
    """
    found = list(runners)
    chosen = soonest(found, left, now.took_ms) if last else found
    there = sorted(chosen, key=lambda it: it.fork)
    if now.open or left <= 0 or not there or now.unforked:
        return now
    steps = split(left, [it.speed for it in there])
    shares = tuple(
        Share(it.fork, it.attempt, many) for it, many in zip(there, steps, strict=True) if many
    )
    rest = len(there) < len(found)
    return replace(now, shares=shares, since_ms=at, told_to_give=False, refused=(), last=rest)


def soonest(runners: Iterable[Runner], left: int, merge_ms: int) -> list[Runner]:
    """The fastest forks with which a job ends soonest; one alone needs no more merge.

    Args:
        runners: Those that run.
        left: Steps that are left.
        merge_ms: What a merge takes.
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
    parts = [min(steps, int(it)) for it in exact]
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


def gave(now: Merging, epoch: int, part: Part) -> Merging:
    """Take in a part; one with more steps than its fork's share does not count."""
    share = now.share_of(part.fork)
    if epoch != now.epoch or share is None or share.attempt != part.attempt:
        return now
    if not 0 <= part.steps <= share.steps:
        told = f"it claims {part.steps} steps where it was to do {share.steps} at most"
        now = _missed(_refused(struck(now, part.fork), part.fork, told), (part.fork,))
        if dict(now.missed)[part.fork] < MOST_MISSED:
            return now
        return unforked(now, f"fork {part.fork}: {told}")
    if not part.steps:
        return _idle(_refused(struck(now, part.fork), part.fork, "it holds no step"))
    shares = tuple(it for it in now.shares if it.fork != part.fork)
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
    shares = tuple(it for it in now.shares if it.fork != fork)
    return now if shares == now.shares else replace(now, shares=shares)


def without(now: Merging, there: Collection[tuple[int, int]]) -> Merging:
    """Let an epoch go on without those whose attempt is over, or cut off: that is no fault.

    Args:
        now: What there is.
        there: The forks that are there, each with its attempt.
    """
    for share in now.shares:
        if (share.fork, share.attempt) not in there:
            now = struck(now, share.fork)
    if now.leader is None or (now.leader, now.leader_attempt) in there:
        return now
    return replace(now, leader=None, leader_attempt=0)  # its part is in the object store


def overdue(now: Merging) -> Merging:
    """Let an epoch go on without those who gave nothing though they were asked.

    A program that does so time and again cannot be merged.
    """
    asked = now.shares
    now = replace(_missed(now, [it.fork for it in asked]), shares=())
    known = dict(now.missed)
    late = next((it for it in asked if known[it.fork] >= MOST_MISSED), None)
    if late is None:
        return now
    return unforked(now, f"fork {late.fork} gave no part in {MOST_MISSED} rounds in a row")


def _missed(now: Merging, forks: Iterable[int]) -> Merging:
    """Count a round in which forks gave nothing that counts."""
    known = dict(now.missed)
    for fork in forks:
        known[fork] = known.get(fork, 0) + 1
    return replace(now, missed=tuple(sorted(known.items())))


def led(now: Merging, runners: Iterable[Runner], at: Millis) -> Merging:
    """Name who merges, once nobody trains any more: the fastest that gave and still runs.

    If none of them does, it is the fastest of all: the parts are in the object store.
    """
    there = list(runners)
    if now.shares or not now.parts or now.leader is not None or not there:
        return now
    gave_it = {(part.fork, part.attempt) for part in now.parts}
    able = [it for it in there if (it.fork, it.attempt) in gave_it] or there
    first = min(able, key=lambda it: (-it.speed, it.fork))
    return replace(now, leader=first.fork, leader_attempt=first.attempt, since_ms=at)


def deposed(now: Merging) -> Merging:
    """Let an epoch go on without a leader that does not merge: its own part does not count."""
    if now.leader is None:
        return now
    parts = tuple(it for it in now.parts if it.fork != now.leader)
    known = dict(now.missed)
    known[now.leader] = known.get(now.leader, 0) + 1
    missed = tuple(sorted(known.items()))
    fork, now = now.leader, replace(now, parts=parts, leader=None, leader_attempt=0, missed=missed)
    if known[fork] < MOST_MISSED:
        return now
    return unforked(now, f"fork {fork} was to merge {MOST_MISSED} times and did not")


@dataclass(frozen=True, slots=True)
class Done:
    """What a leader says of its merge.

    Attributes:
        kept: What became of each part; parts that are not named were left out.
        check_merged: The merge's figure; `None` if there is none.
        check_best: That of the best part.
        digest: Names the merge in the object store.
    """

    epoch: int
    fork: int
    attempt: int
    kept: tuple[Kept, ...]
    check_merged: float | None = None
    check_best: float | None = None
    digest: str = ""


def merged(now: Merging, done: Done, rule: MergeRule, at: Millis) -> Merging:
    """Close an epoch: the steps of the parts that were kept are the job's from now on."""
    if done.epoch != now.epoch or (done.fork, done.attempt) != (now.leader, now.leader_attempt):
        return now
    kept = {it.fork: it for it in done.kept}
    steps, out = 0, list(now.refused)
    for part in now.parts:
        told = kept.get(part.fork)
        if told is not None and told.kept:
            steps += part.steps
        else:
            why = "its leader does not say why" if told is None else told.reason
            out.append((part.fork, (why or "no reason is given")[:_LONGEST_REASON]))
    worse = now.worse + 1 if rule.worse(done.check_merged, done.check_best) else 0
    closed = Merging(
        merged=now.epoch,
        steps=now.steps + steps,
        since_ms=at,
        worse=worse,
        took_ms=max(0, at - now.since_ms),
        missed=tuple(it for it in now.missed if now.part_of(it[0]) is None),
        left_out=tuple(out),
        digest=done.digest,
    )
    if not steps:
        # All go on from where they were: a program whose parts never count would not end.
        closed = _missed(replace(closed, missed=now.missed), [it.fork for it in now.parts])
        if max(dict(closed.missed).values(), default=0) >= MOST_MISSED:
            return unforked(closed, f"no part of it counted in {MOST_MISSED} rounds in a row")
    if worse < MOST_WORSE:
        return closed
    return replace(unforked(closed, _GUARD.format(check=rule.check)), best=True)


def unforked(now: Merging, why: str) -> Merging:
    """Have a job go on without forks for good; what was given and not merged does not count."""
    return replace(now, shares=(), parts=(), leader=None, leader_attempt=0, unforked=why)


def told(now: Merging, fork: int, attempt: int, total: int) -> MergeRound:
    """What a fork is to be told.

    Args:
        now: What there is.
        fork: Which.
        attempt: The attempt of it that runs.
        total: Steps of the job.
    """
    left = max(0, total - now.steps)
    forks = max(2, len(now.shares) + len(now.parts))
    base = MergeRound(now.epoch, now.steps, 0, forks, merge=now.digest)
    if not left:
        return replace(base, forks=0, finished=True)
    if now.unforked:
        return replace(base, quota=left, forks=1, whole=True, finished=fork != 0, best=now.best)
    if (fork, attempt) == (now.leader, now.leader_attempt):
        return replace(base, average=True, parts=now.parts)
    share, part = now.share_of(fork), now.part_of(fork)
    if share is not None and share.attempt == attempt:
        # One that is alone ends by itself with its share, which then has to be all that is left.
        alone = share.steps >= left
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
    others = tuple(it for it in now.refused if it[0] != fork)
    return replace(now, refused=(*others, (fork, why[:_LONGEST_REASON])))


def may_succeed(now: Merging, fork: int, attempt: int, total: int) -> bool:
    """Whether the end of a fork's program, with success, is that of its job.

    It is once all steps are done, or if it did all that were left on its own; that of fork 0 always
    is, which says by itself when it is done, like a program without forks.
    """
    left, share = total - now.steps, now.share_of(fork)
    if not fork or left <= 0:
        return True
    return share is not None and share.attempt == attempt and share.steps >= left
