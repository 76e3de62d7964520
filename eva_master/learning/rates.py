"""How often jobs come and go, and how often that leads to a full reconfiguration (Eva, 4.5).

Both estimates forget: an event of one half-life ago counts half, so they follow a changing load.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from eva_master.model.planning.plan import Json
from eva_master.model.values import replace
from eva_wire.values.ids import MILLIS_PER_HOUR, Millis

_LONGEST_MS = 365 * 24 * MILLIS_PER_HOUR
"""No configuration is expected to last longer than a year."""


@dataclass(frozen=True, slots=True)
class EventRates:
    """Weighted counts of events and of full reconfigurations.

    Attributes:
        events: Job arrivals and completions, weighted by age as of `at_ms`.
        full: Full reconfigurations, weighted likewise.
        exposure_ms: The time in which these were counted, weighted likewise.
        first_ms: When the first event was seen.
        at_ms: When the values were last brought up to date.
    """

    first_ms: Millis
    at_ms: Millis
    events: float = 0.0
    full: float = 0.0
    exposure_ms: float = 0.0

    def aged(self, now: Millis, half_life_ms: int) -> EventRates:
        """This evidence as of `now`; a time before `at_ms` changes nothing."""
        elapsed = max(0, now - self.at_ms)
        kept = 0.5 ** (elapsed / half_life_ms)
        gained = half_life_ms / math.log(2) * (1 - kept)
        return replace(
            self,
            at_ms=max(now, self.at_ms),
            events=self.events * kept,
            full=self.full * kept,
            exposure_ms=self.exposure_ms * kept + gained,
        )

    def counted(self, events: int, *, full: bool) -> EventRates:
        """The evidence after a round, as of `at_ms`: see `aged` first.

        Args:
            events: Jobs that arrived or ended since the round before.
            full: Whether the round led to a full reconfiguration.
        """
        return replace(self, events=self.events + events, full=self.full + full)

    def rate_per_hour(self, min_exposure_ms: int) -> float:
        """The λ of section 4.5: events per hour.

        Args:
            min_exposure_ms: Evidence of a shorter time is taken as of this time, so that a
                burst of jobs into a new cluster does not pass for its usual load.
        """
        return self.events / max(self.exposure_ms, min_exposure_ms, 1) * MILLIS_PER_HOUR

    @property
    def full_share(self) -> float:
        """The p of section 4.5: the share of events that led to a full reconfiguration."""
        return min(1.0, self.full / self.events) if self.events > 0 else 0.0

    def to_json(self) -> dict[str, Json]:
        """The form in which the journal keeps it."""
        return {
            "first_ms": self.first_ms,
            "at_ms": self.at_ms,
            "events": self.events,
            "full": self.full,
            "exposure_ms": self.exposure_ms,
        }

    @staticmethod
    def from_json(data: Json) -> EventRates:
        """Read what `to_json` wrote.

        Raises:
            ValueError: The data has another form.
        """
        match data:
            case {
                "first_ms": int(first),
                "at_ms": int(at),
                "events": int() | float() as events,
                "full": int() | float() as full,
                "exposure_ms": int() | float() as exposure,
            }:
                return EventRates(
                    Millis(first), Millis(at), float(events), float(full), float(exposure)
                )
            case _:
                raise ValueError(f"not event rates: {data!r}")


def horizon_ms(rates: EventRates, min_horizon_ms: int) -> int:
    """D̂ of section 4.5: the expected time until the next full reconfiguration, in milliseconds.

    D̂ = -1 / (λ ln(1 - p)). The horizon is zero if every event leads to a full reconfiguration
    (p = 1). Before the first one (p = 0) the formula is unbounded, so the time since the first
    event is taken instead, but at least `min_horizon_ms`.

    Args:
        rates: Rates aged to the present.
        min_horizon_ms: The least horizon; also the least time over which λ is measured, see
            `EventRates.rate_per_hour`.
    """
    share = rates.full_share
    if share >= 1:
        return 0
    per_hour = rates.rate_per_hour(min_horizon_ms)
    if share <= 0 or per_hour <= 0:
        return max(min_horizon_ms, rates.at_ms - rates.first_ms)
    return round(min(-MILLIS_PER_HOUR / (per_hour * math.log1p(-share)), _LONGEST_MS))
