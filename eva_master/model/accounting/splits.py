"""The bill, divided by a property of jobs, instances or time, to the micro-dollar."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from eva_master.model.accounting.totals import NO_COSTS, CostTotals
from eva_wire.values.errors import InvalidRequest
from eva_wire.values.ids import Exact, micro_usd

REST = ""
"""The name of all that is of no name of its own: it has none, or is no longer kept apart."""
INSTANCES = "instances"
"""Of the parts of the bill, all but volumes and addresses."""
_KEY = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")


class SplitKind(StrEnum):
    """Properties by which the bill is divided."""

    JOB = "job"
    OWNER = "owner"
    TENANT = "tenant"
    WORKLOAD = "workload"
    LABEL = "label"
    PARTITION = "partition"
    TYPE = "type"
    DAY = "day"
    PART = "part"

    @property
    def of_jobs(self) -> bool:
        """Whether jobs have it, so that what no task used belongs to no part."""
        return self not in (SplitKind.PARTITION, SplitKind.TYPE, SplitKind.DAY, SplitKind.PART)


@dataclass(frozen=True, slots=True)
class CostSplit:
    """A property by which the bill is divided.

    Attributes:
        kind: The kind.
        key: Key of the label, where the kind is that.
    """

    kind: SplitKind
    key: str = ""

    @classmethod
    def of(cls, text: str) -> CostSplit:
        """Read a property as users write it: `owner`, or `label:KEY`.

        Raises:
            InvalidRequest: The text names none.
        """
        kind, colon, key = text.partition(":")
        if kind == SplitKind.LABEL and _KEY.fullmatch(key):
            return cls(SplitKind.LABEL, key)
        plain = [kind.value for kind in SplitKind if kind is not SplitKind.LABEL]
        if not colon and kind in plain:
            return cls(SplitKind(kind))
        raise InvalidRequest(
            f"costs cannot be divided by {text[:80]!r}",
            hint=f"use one of: {', '.join(plain)}, label:KEY",
        )

    def __str__(self) -> str:
        return f"{self.kind}:{self.key}" if self.key else self.kind.value


@dataclass(frozen=True, slots=True)
class CostShare:
    """A part of the bill, in micro-dollars.

    Attributes:
        name: Name of the owner, the type, the day (`YYYY-MM-DD`) and so on; a label as `KEY=VALUE`.
            Empty for the rest.
        charged: The cloud's charges for it.
        idle: The part of `charged` that no task used; of jobs, zero.
        alone: The cost of the same work with one instance per task; of types and partitions, zero.
    """

    name: str
    charged: int
    idle: int
    alone: int


NO_SHARE = CostShare("", 0, 0, 0)


@dataclass(frozen=True, slots=True)
class DividedBill:
    """The bill and its parts, in micro-dollars.

    The `charged` of all parts and `between` add up to `charged`, to the micro-dollar.

    Attributes:
        split: The property.
        shares: The parts, dearest first and the rest last; days newest first.
        charged: The cloud's charges for everything.
        idle: The part of `charged` that no task used: boots, and instances that were empty.
        alone: The cost of the same work with one instance per task.
        between: The part of `charged` of none of the parts: `idle` where jobs have the property,
            else 0.
    """

    split: CostSplit
    shares: tuple[CostShare, ...]
    charged: int
    idle: int
    alone: int
    between: int

    @property
    def by_name(self) -> Mapping[str, CostShare]:
        """The parts by their names."""
        return {share.name: share for share in self.shares}


def divided(
    split: CostSplit, named: Mapping[str, CostTotals], whole: CostTotals, most: int | None = None
) -> DividedBill:
    """Round exact costs so that the parts add up to the bill.

    Each sum of the first parts is rounded, and a part gets the difference of two.

    Args:
        split: The property.
        named: Exact costs by name, which add up to the whole; with its idle part, if they are of
            jobs.
        whole: Exact costs of everything.
        most: Number of parts to keep apart; the cheapest others, or the earliest days, join the
            rest. `None` for all.
    """
    if split.kind is SplitKind.DAY:
        order = sorted((name for name in named if name != REST), reverse=True)
    else:
        order = sorted(
            (name for name in named if name != REST), key=lambda name: (-named[name].charged, name)
        )
    kept = order if most is None else order[:most]
    apart = frozenset(kept)
    rest = [name for name in named if name not in apart]
    costs = [(name, named[name]) for name in kept]
    if rest:
        costs.append((REST, sum((named[name] for name in rest), NO_COSTS)))
    between = whole.idle if split.kind.of_jobs else Exact(0)
    return DividedBill(
        split,
        tuple(_rounded(costs, between)),
        micro_usd(whole.charged),
        micro_usd(whole.idle),
        micro_usd(whole.alone),
        micro_usd(between),
    )


def _rounded(costs: Iterable[tuple[str, CostTotals]], between: Exact) -> Iterable[CostShare]:
    sums = CostTotals(between)
    for name, more in costs:
        before, sums = sums, sums + more
        yield CostShare(
            name,
            micro_usd(sums.charged) - micro_usd(before.charged),
            micro_usd(sums.idle) - micro_usd(before.idle),
            micro_usd(sums.alone) - micro_usd(before.alone),
        )
