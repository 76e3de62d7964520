"""Learned figures as they are asked for: a voice's own, and those by which plans are made."""

from __future__ import annotations

from operator import is_

from eva_master.learning.colocation import DEFAULT_PPM, Key, lookup
from eva_master.learning.knowledge import Knowledge
from eva_master.learning.voices.lessons import Lessons
from eva_master.learning.voices.names import Voice
from eva_master.learning.voices.resolution import Resolved, known_of, resolve
from eva_master.model.planning.snapshot import StandaloneRates
from eva_wire.values.ids import MILLION

_SETS_REMEMBERED = 65_536


class Figures:
    """Learned figures, with looked-up values remembered until the figures change.

    Attributes:
        learned: All learned figures. written: The figures that the journal has.
        resolved: The figures of the last plan.
    """

    def __init__(self) -> None:
        self.learned = self.written = Knowledge()
        self._looked_up: dict[tuple[Voice, Key, int], int] = {}
        self.resolved = Resolved()
        self._resolved_of = known_of({})
        self._seen = self.learned.voices

    def learn(self, learned: Knowledge) -> list[Voice]:
        """Take in new learned figures.

        Returns:
            The voices whose standalone rates have changed.
        """
        before, self.learned = self.learned, learned
        if learned.voices is before.voices:
            return []
        changed, earlier, voices = [], before.voices, learned.voices
        taught = [name for name, lessons in voices.items() if earlier.get(name) is not lessons]
        for voice in (*taught, *(name for name in earlier if name not in voices)):
            old, new = before.of(voice), learned.of(voice)
            if new.throughput is not old.throughput:
                self._looked_up.clear()
            if new.standalone.known is not old.standalone.known:
                changed.append(voice)
        return changed

    def teach(self, voice: Voice, lessons: Lessons) -> bool:
        """Take in new lessons of one voice; whether its standalone rates have changed."""
        before, self.learned = self.learned.of(voice), self.learned.taught(voice, lessons)
        if lessons.throughput is not before.throughput:
            self._looked_up.clear()
        return lessons.standalone.known is not before.standalone.known

    def resolve(self) -> Resolved:
        """The figures for plans; the same object until there is news."""
        if self._seen is self.learned.voices:
            return self.resolved
        self._seen, tables_by_voice = self.learned.voices, known_of(self.learned.voices)
        before = self._resolved_of
        same = tables_by_voice.keys() == before.keys() and all(
            all(map(is_, tables, before[voice])) for voice, tables in tables_by_voice.items()
        )
        if not same:
            self._resolved_of, self.resolved = (
                tables_by_voice,
                resolve(tables_by_voice, self.resolved),
            )
        return self.resolved

    def rates(self, voice: Voice) -> StandaloneRates:
        """Standalone rates that a voice's own jobs have taught."""
        return self.learned.of(voice).standalone.known

    def expected_ppm(self, voice: Voice, entry: Key) -> int:
        """Expected speed beside others, see `FigureRecords.expected_ppm`."""
        return self._beside(voice, entry, DEFAULT_PPM)

    def observed_ppm(self, voice: Voice, entry: Key) -> int:
        """Observed speed beside others, see `FigureRecords.observed_ppm`."""
        return self._beside(voice, entry, MILLION)

    def _beside(self, voice: Voice, entry: Key, default_ppm: int) -> int:
        key = voice, entry, default_ppm
        ppm = self._looked_up.get(key)
        if ppm is None:
            if len(self._looked_up) >= _SETS_REMEMBERED:
                self._looked_up.clear()
            ppm = lookup(self.learned.of(voice).throughput, entry, default_ppm)
            self._looked_up[key] = ppm
        return ppm
