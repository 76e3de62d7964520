"""Durations for which pools of spot instances were available and sold out, as observed.

A pool is the spot market for one type in one zone. Its instances run out and come back all at once,
and its age predicts more than its mean: a pool that has just come back is soon sold out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from eva_master.learning.market.survival import AGES_MS, UNSEEN, Survival
from eva_master.model.planning.plan import Json
from eva_wire.values.ids import MILLIS_PER_HOUR, Millis

FIRST_PAUSE_MS = 60_000
LONGEST_PAUSE_MS = 600_000
_MOST_DOUBLINGS = 8
_WATCHED_MS = 2 * LONGEST_PAUSE_MS
"""An observation from this long ago may have changed twice since."""
_STEPS = 12
"""The forecast for an hour is computed in this many steps."""
_SHOCK_MS = 600_000
"""Pools of a region that run dry so soon after each other do so for one reason."""
_YOUNG_MS = MILLIS_PER_HOUR
"""Before any observation, half of the pools this old are assumed to last as long again."""


class SpotPool(NamedTuple):
    """One type in one zone."""

    type: str
    zone: str

    def __str__(self) -> str:
        return f"{self.type}@{self.zone}"

    @property
    def region(self) -> str:
        """The region of the zone, whose name is that of the region and a letter."""
        return self.zone[:-1]

    @property
    def scopes(self) -> tuple[str, str, str, str]:
        """Scopes of the pool, from all pools to itself alone."""
        return "", self.region, self.type, str(self)


@dataclass(frozen=True, slots=True)
class Spell:
    """A time for which a pool has been there, or away.

    Attributes:
        there: Which of the two.
        since_ms: Since when, as far as is known.
        began: Whether it began then; it was so before anybody asked otherwise.
        seen_ms: When it was last seen so.
        tries: Launches that were refused one after the other; 0 if it is there.
        retry_ms: When the next launch may be tried.
    """

    there: bool
    since_ms: Millis
    began: bool
    seen_ms: Millis
    tries: int = 0
    retry_ms: Millis = Millis(0)

    def age_ms(self, now: Millis) -> int | None:
        """How long it has lasted; `None` if unknown."""
        recent = self.began and now - self.seen_ms <= _WATCHED_MS
        return max(0, now - self.since_ms) if recent else None


@dataclass(frozen=True, slots=True)
class SpotPools:
    """Observations of pools.

    Attributes:
        spells: State of each pool when it was last seen.
        up: Durations for which pools were available, by scope: see `Pool.scopes`.
        away: Durations for which they were sold out.
        dropped: When a pool of each region last ran dry.
    """

    spells: Mapping[str, Spell] = field(default_factory=dict)
    up: Mapping[str, Survival] = field(default_factory=dict)
    away: Mapping[str, Survival] = field(default_factory=dict)
    dropped: Mapping[str, Millis] = field(default_factory=dict)

    def sold(self, pool: SpotPool, now: Millis, *, held: bool = False) -> SpotPools:
        """Record a launch that made an instance.

        Args:
            pool: Pool of the instance.
            now: The time.
            held: Whether another instance of the pool was there until now.
        """
        old = self.spells.get(str(pool))
        if old is not None and old.there:
            if not held and now - old.seen_ms > _WATCHED_MS:
                # The pool may have been away any number of times meanwhile.
                return self._with(pool, Spell(there=True, since_ms=now, began=False, seen_ms=now))
            return self._with(pool, replace(old, seen_ms=max(now, old.seen_ms)))
        return self._turned(pool, old, now, there=True)

    def refused(self, pool: SpotPool, now: Millis, *, held: bool = False) -> SpotPools:
        """Record a launch that was refused.

        Several refusals at once count as one try.

        Args:
            pool: Pool of the launch.
            now: The time.
            held: Whether an instance of the pool was there until now.
        """
        old = self.spells.get(str(pool))
        if old is None or old.there:
            if old is not None and held:
                old = replace(old, seen_ms=now)
            after = self._turned(pool, old, now, there=False)
        else:
            if old.retry_ms > now:
                return self
            after = self._with(pool, replace(old, seen_ms=now))
        spell = after.spells[str(pool)]
        pause_ms = min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS << min(spell.tries, _MOST_DOUBLINGS))
        again = replace(spell, tries=spell.tries + 1, retry_ms=Millis(now + pause_ms))
        return after._with(pool, again)

    def ended(self, pool: SpotPool, now: Millis) -> SpotPools:
        """An instance is gone that was there until now, for whatever reason."""
        old = self.spells.get(str(pool))
        if old is None or not old.there:
            return self
        return self._with(pool, replace(old, seen_ms=max(now, old.seen_ms)))

    def retry_ms(self, pool: SpotPool) -> Millis:
        """When the next launch may be tried."""
        spell = self.spells.get(str(pool))
        return Millis(0) if spell is None else spell.retry_ms

    def age_ms(self, pool: SpotPool, now: Millis, *, held: bool) -> int | None:
        """For how long a pool has been as it is; `None` if that is not known.

        Args:
            pool: Which.
            now: The time.
            held: Whether an instance of it is there.
        """
        spell = self.spells.get(str(pool))
        if spell is None or (held and not spell.there):
            return None
        return (replace(spell, seen_ms=now) if held else spell).age_ms(now)

    def loss_per_hour(
        self, pool: SpotPool, now: Millis, *, held: bool, assumed: float
    ) -> float | None:
        """How often per hour a pool of its age runs dry; `None` if it was not seen yet.

        Args:
            pool: The pool.
            now: The time.
            held: Whether an instance of it is there.
            assumed: The rate assumed without any observation.
        """
        spell = self.spells.get(str(pool))
        if spell is None or (spell.there and not self.up):
            return None
        if not spell.there:
            return self.loss_at(pool, 0)  # An instance bought when the pool comes back has age 0.
        age_ms = self.age_ms(pool, now, held=held)
        if age_ms is not None:
            return self.loss_at(pool, age_ms)
        return self.mean_loss(pool, assumed)

    def mean_loss(self, pool: SpotPool, assumed: float) -> float | None:
        """The mean of `loss_per_hour` over all ages; `None` if no pool was seen to run dry."""
        return _mean_rate(self.up, pool, assumed) if self.up else None

    def as_old_until(self, now: Millis) -> float:
        """The time until which every available pool stays in its present class of age."""
        since = (spell.since_ms for spell in self.spells.values() if spell.there and spell.began)
        ends = (begin + age_ms for begin in since for age_ms in AGES_MS)
        return min((end for end in ends if end > now), default=math.inf)

    def loss_at(self, pool: SpotPool, age_ms: int) -> float:
        """How often per hour a pool runs dry that has been there for a time."""
        return _rate(self.up, pool, age_ms)

    def return_at(self, pool: SpotPool, age_ms: int) -> float:
        """How often per hour a pool comes back that has been away for a time."""
        return _rate(self.away, pool, age_ms)

    def stays(self, pool: SpotPool, now: Millis, *, held: bool) -> float:
        """The chance that a pool that was seen is still as it is an hour later.

        Args:
            pool: Which.
            now: The time.
            held: Whether an instance of it is there.
        """
        curves = self.up if self.spells[str(pool)].there else self.away
        age_ms = self.age_ms(pool, now, held=held)
        if age_ms is None:
            return math.exp(-_mean_rate(curves, pool, 1.0))
        steps = range(age_ms, age_ms + MILLIS_PER_HOUR, MILLIS_PER_HOUR // _STEPS)
        return math.exp(-sum(_rate(curves, pool, age) for age in steps) / _STEPS)

    def there_share(self, pool: SpotPool) -> float:
        """The part of the time for which a pool is there, if nothing is known of it now."""
        lost, back = (_mean_rate(curves, pool, 1.0) for curves in (self.up, self.away))
        return back / (back + lost)

    def _turned(self, pool: SpotPool, old: Spell | None, now: Millis, *, there: bool) -> SpotPools:
        """The pools after a change of one of them, or its first observation."""
        name = str(pool)
        if old is None:
            return self._with(pool, Spell(there, now, began=False, seen_ms=now))
        recent = now - old.seen_ms <= _WATCHED_MS
        turned = Millis((old.seen_ms + now) // 2) if recent else None
        until = old.seen_ms if turned is None else turned
        shock = not there and turned is not None and self._shaken(pool, turned)
        curves = dict(self.up if old.there else self.away)
        for scope in pool.scopes:
            ends = turned is not None and (scope == name or not shock)
            curve = curves.get(scope, UNSEEN)
            lasted_ms = max(0, until - old.since_ms)
            curves[scope] = curve.watched(lasted_ms, began=old.began, ended=ends)
        dropped = self.dropped
        if not there and turned is not None:
            dropped = {**dropped, pool.region: turned}
        up, away = (curves, self.away) if old.there else (self.up, curves)
        after = SpotPools(self.spells, up, away, dropped)
        began = turned is not None
        return after._with(pool, Spell(there, turned or now, began=began, seen_ms=now))

    def _shaken(self, pool: SpotPool, at: Millis) -> bool:
        last = self.dropped.get(pool.region)
        return last is not None and abs(at - last) <= _SHOCK_MS

    def _with(self, pool: SpotPool, spell: Spell) -> SpotPools:
        return replace(self, spells={**self.spells, str(pool): spell})

    def to_json(self) -> dict[str, Json]:
        """The form in which the journal keeps it."""
        return {
            "spells": {
                name: [
                    spell.there,
                    spell.since_ms,
                    spell.began,
                    spell.seen_ms,
                    spell.tries,
                    spell.retry_ms,
                ]
                for name, spell in sorted(self.spells.items())
            },
            "up": {scope: curve.to_json() for scope, curve in sorted(self.up.items())},
            "away": {scope: curve.to_json() for scope, curve in sorted(self.away.items())},
            "dropped": dict(sorted(self.dropped.items())),
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Json]) -> SpotPools:
        """The inverse of `to_json`; what is not of its form is left out."""
        dropped = ((name, at) for name, at in _items(document, "dropped") if isinstance(at, int))
        return cls(
            dict(_spells(document)),
            dict(_curves(document, "up")),
            dict(_curves(document, "away")),
            {name: Millis(at) for name, at in dropped},
        )


def _rate(curves: Mapping[str, Survival], pool: SpotPool, age_ms: int) -> float:
    """From the widest scope to the pool itself; each leans on the one before."""
    rate = 1 / ((age_ms + _YOUNG_MS) / MILLIS_PER_HOUR)
    for scope in pool.scopes:
        rate = curves.get(scope, UNSEEN).rate(age_ms, rate)
    return rate


def _mean_rate(curves: Mapping[str, Survival], pool: SpotPool, rate: float) -> float:
    """The mean rate over all ages, starting from the assumed `rate`."""
    for scope in pool.scopes:
        rate = curves.get(scope, UNSEEN).mean_rate(rate)
    return rate


def _items(document: Mapping[str, Json], key: str) -> Iterator[tuple[str, Json]]:
    part = document.get(key)
    yield from part.items() if isinstance(part, Mapping) else ()


def _spells(document: Mapping[str, Json]) -> Iterator[tuple[str, Spell]]:
    for name, spell in _items(document, "spells"):
        match spell:
            case [bool(there), int(since), bool(began), int(seen), int(tries), int(retry)]:
                times = Millis(since), Millis(seen), Millis(retry)
                yield name, Spell(there, times[0], began, times[1], tries, times[2])
            case _:
                pass


def _curves(document: Mapping[str, Json], key: str) -> Iterator[tuple[str, Survival]]:
    for scope, curve in _items(document, key):
        if (read := Survival.from_json(curve)) is not None:
            yield scope, read
