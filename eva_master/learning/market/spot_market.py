"""Observations of the spot market."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from eva_master.learning.market.interruptions import Interruptions
from eva_master.learning.market.pools import SpotPool, SpotPools
from eva_master.model.catalog import Offering
from eva_master.model.changes import Deferred
from eva_wire.values.ids import MILLION, Millis


@dataclass(frozen=True, slots=True)
class SpotMarket:
    """Fates of instances, and durations of pools' availability.

    Attributes:
        lives: Lives of instances, and their interruptions.
        pools: Observations of the pools.
    """

    lives: Interruptions = field(default_factory=Interruptions)
    pools: SpotPools = field(default_factory=SpotPools)

    def sold(self, offering: Offering, now: Millis, *, held: bool = False) -> SpotMarket:
        """Record a launch that made an instance: see `SpotPools.sold`."""
        return replace(self, pools=self.pools.sold(pool_of(offering), now, held=held))

    def refused(self, offering: Offering, now: Millis, *, held: bool) -> SpotMarket:
        """Record a launch that was refused: see `SpotPools.refused`."""
        return replace(self, pools=self.pools.refused(pool_of(offering), now, held=held))

    def ended(
        self, offering: Offering, now: Millis, lived_ms: int, *, interrupted: bool
    ) -> SpotMarket:
        """Record the end of an instance: see `Interruptions.seen`."""
        lives = self.lives.seen(offering.type.name, lived_ms, interrupted=interrupted)
        return SpotMarket(lives, self.pools.ended(pool_of(offering), now))

    def rate_ppm(self, offering: Offering, now: Millis, *, held: bool) -> int:
        """How often an instance of an offering is taken back, in millionths of a time per hour.

        Args:
            offering: A spot offering.
            now: The time.
            held: Whether an instance of it is there.
        """
        assumed = self.lives.rate_ppm(offering.type.name, offering.interruptions_ppm)
        if not self.pools.spells:
            return assumed
        rate = max(1, assumed) / MILLION
        rate_seen = self.pools.loss_per_hour(pool_of(offering), now, held=held, assumed=rate)
        return assumed if rate_seen is None else round(rate_seen * MILLION)

    def mean_rate_ppm(self, offering: Offering) -> int:
        """The mean of `rate_ppm` over all ages of an instance."""
        assumed = self.lives.rate_ppm(offering.type.name, offering.interruptions_ppm)
        mean = self.pools.mean_loss(pool_of(offering), max(1, assumed) / MILLION)
        return assumed if mean is None else round(mean * MILLION)

    @property
    def documents(self) -> Mapping[str, Deferred]:
        """The documents in which the journal keeps it; those of the same part are equal."""
        return {"interruptions": self.lives.to_json, "spot_pools": self.pools.to_json}

    @classmethod
    def from_json(cls, documents: Mapping[str, object]) -> SpotMarket:
        """The inverse of `documents`, each as `to_json` has it; what is not there was not seen."""
        lives, pools = documents.get("interruptions"), documents.get("spot_pools")
        return cls(
            Interruptions.from_json(lives) if isinstance(lives, dict) else Interruptions(),
            SpotPools.from_json(pools) if isinstance(pools, dict) else SpotPools(),
        )


def pool_of(offering: Offering) -> SpotPool:
    """The pool that an offering is of."""
    return SpotPool(offering.type.name, offering.zone)
