"""Converts what forks are told and what they say. Pure functions."""

from __future__ import annotations

import math
import re

from eva_master.model.actions import ForkOrder, TellMerge
from eva_master.model.events import PartGiven, PartsMerged
from eva_master.model.forks.merging import PartFate
from eva_wire._proto import worker_pb2 as pb
from eva_wire.values.bounds import MOST_FORKS
from eva_wire.values.ids import InstanceId, RunId

_LONGEST_REASON = 200
_MOST_COUNT = 2**53
_DIGEST = re.compile(r"[0-9a-f]{64}|")


def order_of(order: ForkOrder) -> pb.Fork:
    """The data that a fork needs of the others."""
    return pb.Fork(
        number=order.number,
        forks=order.forks,
        every_ms=order.every_ms,
        check=order.check,
        larger=order.larger,
        patience_ms=order.patience_ms,
    )


def tell_merge(action: TellMerge) -> pb.TellMerge:
    """The next step of a fork."""
    step = action.round
    return pb.TellMerge(
        run_id=action.run,
        attempt=action.attempt,
        epoch=step.epoch,
        base_steps=step.steps,
        quota=step.quota,
        forks=step.forks,
        average=step.average,
        give=step.give,
        finished=step.finished,
        parts=[
            pb.Part(fork=part.fork, steps=part.steps, digest=part.digest) for part in step.parts
        ],
        alone=step.whole,
        best=step.best,
        merge=step.merge,
    )


def given(instance: InstanceId, session: int, message: pb.PartGiven) -> PartGiven | None:
    """A fork's part; `None` if no agent can have sent it."""
    plausible = max(message.steps, message.epoch) < _MOST_COUNT
    if not plausible or not _DIGEST.fullmatch(message.digest):
        return None
    run = RunId(message.run_id)
    return PartGiven(
        instance,
        session,
        run,
        message.attempt,
        message.epoch,
        message.steps,
        message.digest,
    )


def merged(instance: InstanceId, session: int, message: pb.PartsMerged) -> PartsMerged | None:
    """A leader's merge; `None` if no agent can have sent it."""
    if message.epoch >= _MOST_COUNT or len(message.parts) > MOST_FORKS:
        return None
    if not _DIGEST.fullmatch(message.digest):
        return None
    kept = tuple(PartFate(part.fork, part.kept, _words(part.reason)) for part in message.parts)
    return PartsMerged(
        instance,
        session,
        RunId(message.run_id),
        message.attempt,
        message.epoch,
        kept,
        _figure(message.check_merged) if message.HasField("check_merged") else None,
        _figure(message.check_best) if message.HasField("check_best") else None,
        message.digest,
    )


def _figure(value: float) -> float:
    """A figure; one that is no number is worse than any other."""
    return value if math.isfinite(value) else math.nan


def _words(text: str) -> str:
    return "".join(
        character if character.isprintable() else "?" for character in text[:_LONGEST_REASON]
    )
