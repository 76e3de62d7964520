"""Demand of jobs for room, and their order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from eva_master.model.planning.elastic import Scaling
from eva_master.model.resources import Resources
from eva_wire.values.ids import MILLION, Family

_LEAST_MS = 1_000
"""Least time assumed until a job is done."""
_LINEAR = Scaling()
_NEAR_PPM = 1_070_000
"""A type on which a job is at most this much slower is as good as its fastest."""


@dataclass(frozen=True, slots=True)
class RoomRequest:
    """Demand of a gang, or of a task of an array. A gang of a fixed size counts as one member.

    Attributes:
        id: Id of its first task run; of a job in a twin.
        job: Its job.
        tenant: The tenant whose quota it may use.
        loss: Cost of an hour of waiting, in micro-dollars.
        need: Demand of a member, by type.
        left_ms: Remaining time of one member on each of these types.
        came: Its submission and id, which order asks that are otherwise equal.
        least: Fewest members.
        most: Most members.
        scaling: Growth of its speed with its members.
        priority: Higher priorities go first.
        now: Number of members that have a place; 0 if none or not all have.
        on: The type on which they have it, if it is a single one.
        began_ms: Since when they have been running.
        move_ms: How long it does not run if it is moved or stopped.
        start_ms: Duration of a start.
        fixed: Whether it keeps its room in any case.
        leased: Whether it keeps its room unless a lender wants it.
        guessed: Whether its length is unknown.
        elastic: Whether its number of members may be chosen.
        unlent: Why it is lent no room of other tenants; empty if it may borrow.
    """

    id: str
    job: str
    tenant: str
    loss: int
    need: Mapping[Family, Resources]
    left_ms: Mapping[Family, int]
    came: tuple[int, str]
    least: int = 1
    most: int = 1
    scaling: Scaling = _LINEAR
    priority: int = 0
    now: int = 0
    on: Family | None = None
    began_ms: int = 0
    move_ms: int = 0
    start_ms: int = 0
    fixed: bool = False
    leased: bool = False
    guessed: bool = False
    elastic: bool = False
    unlent: str = ""

    @property
    def types(self) -> tuple[Family, ...]:
        """The types that it can use: its present one if that is good enough, then the fastest."""
        order = sorted(self.left_ms, key=lambda it: (self.left_ms[it], it))
        if self.on not in self.left_ms or self.on is None:
            return tuple(order)
        near = self.left_ms[self.on] * MILLION <= self.left_ms[order[0]] * _NEAR_PPM
        rest = tuple(family for family in order if family != self.on)
        return (self.on, *rest) if near or self.leased or self.fixed else tuple(order)

    def gpus(self, family: Family) -> int:
        """GPUs of a member on a type."""
        return self.need[family].gpus

    def speed_ppm(self, members: int) -> int:
        """How fast so many members are against one, in millionths."""
        return self.scaling.speed_ppm(members) if members > 1 else MILLION

    @property
    def per_gpu_hour(self) -> int:
        """Cost of waiting per GPU-hour that it could use, in micro-dollars."""
        most = max((self.gpus(family) for family in self.need), default=0) * self.most
        return self.loss // max(1, most)

    @property
    def against_work(self) -> Fraction:
        """Cost of an hour of waiting relative to the remaining work in GPU-milliseconds.

        A running job would have to stop and start again; a waiting one has to start.
        """
        if not self.left_ms:
            return Fraction(0)
        family = self.types[0]
        each = max(1, self.gpus(family))
        whole = self.left_ms[family] * self.most * MILLION // self.speed_ppm(self.most)
        more = -self.move_ms if self.now else self.start_ms
        return Fraction(self.loss, max(_LEAST_MS, whole + more * self.most) * each)

    @property
    def rank(self) -> tuple[object, ...]:
        """The smaller, the earlier it chooses; those of unknown length choose last."""
        value = self.against_work
        began = self.began_ms if self.now else float("inf")
        return -self.priority, self.guessed, -value, began, *self.came

    def pays_to_grow(self, members: int, horizon_ms: int) -> bool:
        """Whether a restart with more members is made up for within a time."""
        family = self.on if self.on in self.left_ms and self.on is not None else self.types[0]
        before, after = self.speed_ppm(self.now), self.speed_ppm(members)
        ends = self.left_ms[family] * MILLION // max(1, before)
        horizon = min(horizon_ms, ends)
        return (after - before) * horizon > after * self.move_ms
