"""Figures by which plans are made: a voice's own, else the median of others, else none.

A plan tells tasks apart by the names of their workloads. So each voice's workload has a *label*
here: the workload's plain name where its figures are the common ones, or as good as equal to them;
else a name of its own. Voices with equal figures share a label, so that what is remembered of tasks
that are alike serves all of them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from statistics import median_low
from typing import Any, TypeVar

from eva_master.learning.colocation import throughput_beside
from eva_master.learning.delays import Delay, two_digits
from eva_master.learning.voices.lessons import Lessons
from eva_master.learning.voices.names import OTHERS, Voice, marked, plain, split
from eva_master.model.planning.snapshot import StandaloneRates, ThroughputTable
from eva_wire.values.ids import VOICE_MARK, Family, Workload

VOICES_HEARD = 3
"""So many voices have to tell a figure before their median counts for others: one that lies is then
never the middle one alone. Two of three that lie together decide it."""
_ALIKE_PART = 10
"""Rates are as good as equal if they differ by one part in so many at most."""
_ALIKE_PPM = 50_000
"""Throughput in company is as good as equal if it differs by so much at most."""
_COMPANY_STEP_PPM = 10_000
_MOST_FURTHER = 8_192
"""So many rows of figures of others at most are shown for labels of single voices; pairs first."""

_Rates = Mapping[Family, int]
_Names = tuple[Workload, ...]
_Beside = Mapping[_Names, int]
_Entry = tuple[Workload, _Names]
_Known = Mapping[Voice, tuple[StandaloneRates, ThroughputTable]]
_NOTHING = StandaloneRates(), ThroughputTable()
_K = TypeVar("_K", bound=Hashable)
_R = TypeVar("_R", bound=tuple[tuple[Workload, Any], int])


@dataclass(frozen=True, slots=True)
class Resolved:
    """Figures for plans, and the labels under which plans see workloads.

    Attributes:
        standalone: Rates alone, by label.
        throughput: Throughput beside neighbours, by labels.
        labels: For each workload of a voice that has lessons about it.
        strangers: Label of a workload for voices without lessons about it, where that is not its
            plain name.
        known: Tables of the voices that the parts were computed from.
        parts: Labels and rows of each workload, kept so that unchanged ones are not computed again.
    """

    standalone: StandaloneRates = field(default_factory=StandaloneRates)
    throughput: ThroughputTable = field(default_factory=ThroughputTable)
    labels: Mapping[tuple[Voice, Workload], Workload] = field(default_factory=dict)
    strangers: Mapping[Workload, Workload] = field(default_factory=dict)
    known: _Known = field(default_factory=dict, repr=False, compare=False)
    parts: Mapping[Workload, _Part] = field(default_factory=dict, repr=False, compare=False)

    def label(self, voice: Voice, workload: Workload) -> Workload:
        """The name of a voice's workload in plans."""
        name = plain(workload)
        own = self.labels.get((voice, name))
        return self.strangers.get(name, name) if own is None else own

    def profiled(self, voice: Voice, workload: Workload) -> bool:
        """Whether plans know a rate of a voice's workload, or that it reports no iterations."""
        return bool(rows_of(self.standalone.measured, self.label(voice, workload)))


def _neighbours(row: tuple[_Entry, int]) -> int:
    return len(row[0][1])


def _workload(row: tuple[tuple[Workload, Any], int]) -> Workload:
    return row[0][0]


def known_of(voices: Mapping[Voice, Lessons]) -> _Known:
    """Tables that a resolution depends on; they are replaced only when they change."""
    return {
        voice: (lessons.standalone.known, lessons.throughput)
        for voice, lessons in voices.items()
        if lessons.standalone.known.measured or lessons.throughput.observed
    }


def resolve(known: _Known, before: Resolved) -> Resolved:
    """Compute the figures for plans.

    Only workloads with changed rows, and neighbours of workloads with changed labels, are computed
    anew.

    Args:
        known: See `known_of`.
        before: The last answer, whose equal rows are used again.
    """
    if len(known) == 1:
        ((voice, (standalone, throughput)),) = known.items()
        if not _has_marks(throughput):
            return _of_one(voice, standalone, throughput)
    changed = _changed(before.known, known, before.parts)
    labelled = {name: _labelled(lessons_of) for name, lessons_of in changed.items()}
    named = _named(before, labelled)
    parts = {**before.parts, **labelled}
    moved = {
        name
        for name, part in labelled.items()
        if (old := before.parts.get(name)) is None
        or (old.labels, old.strangers) != (part.labels, part.strangers)
    }
    for name, part in list(parts.items()):
        if not part.labels:
            del parts[name]
        elif name in changed or not moved.isdisjoint(part.told.neighbours):
            parts[name] = part.worked_out(named, parts)
    resolved = replace(named, parts=parts, known=known)
    return _assembled(resolved, before)


def _of_one(voice: Voice, standalone: StandaloneRates, throughput: ThroughputTable) -> Resolved:
    """The figures of the only voice that knows any, which are those of plans as they are."""
    names = {name for (name, _), _ in standalone.measured}
    names |= {name for (name, _), _ in throughput.observed}
    strangers = {} if voice == OTHERS else {name: marked(name, OTHERS) for name in names}
    return Resolved(standalone, throughput, {(voice, name): name for name in names}, strangers)


def _changed(
    before: _Known, known: _Known, parts: Mapping[Workload, _Part]
) -> dict[Workload, _Lessons]:
    """Lessons about the workloads of which a voice has other rows than before."""
    changed: dict[Workload, _Lessons] = {}
    for voice in {**before, **known}:
        old, new = before.get(voice, _NOTHING), known.get(voice, _NOTHING)
        rates = _different(old[0].measured, new[0].measured)
        company = _different(old[1].observed, new[1].observed)
        for name in {*rates, *company}:
            if name not in changed:
                part = parts.get(name)
                changed[name] = _Lessons(name) if part is None else part.told.copy()
            changed[name].tell(voice, *new)
    return {name: changed[name] for name in sorted(changed)}


def _different(before: tuple[_R, ...], after: tuple[_R, ...]) -> set[Workload]:
    """The workloads of the rows that are in one table alone, by identity."""
    if before is after:
        return set()
    old, new = set(map(id, before)), set(map(id, after))
    return {row[0][0] for row in before if id(row) not in new} | {
        row[0][0] for row in after if id(row) not in old
    }


def _named(before: Resolved, labelled: Mapping[Workload, _Part]) -> Resolved:
    """The labels of all workloads after those of some have changed."""
    labels, strangers = dict(before.labels), dict(before.strangers)
    if not before.parts:
        labels, strangers = {}, {}
    for name, part in labelled.items():
        old = before.parts.get(name)
        for voice in () if old is None else old.labels:
            labels.pop((voice, name), None)
        labels.update(((voice, name), label) for voice, label in part.labels.items())
        strangers.pop(name, None)
        if part.strangers is not None:
            strangers[name] = part.strangers
    return Resolved(
        labels=before.labels if labels == before.labels else labels,
        strangers=before.strangers if strangers == before.strangers else strangers,
    )


def _assembled(found: Resolved, before: Resolved) -> Resolved:
    """One table of the rows of all workloads; the one before if it is equal."""
    parts = [found.parts[name] for name in sorted(found.parts)]
    rates = sorted(row for part in parts for row in part.rates)
    company = [row for part in parts for row in part.company]
    further = (row for part in parts for row in part.further)
    company += islice(sorted(further, key=_neighbours), _MOST_FURTHER)
    measured = _reused(before.standalone.measured, rates)
    observed = _reused(before.throughput.observed, sorted(company))
    same_rates = measured is before.standalone.measured
    same_company = observed is before.throughput.observed
    return replace(
        found,
        standalone=before.standalone if same_rates else StandaloneRates(measured),
        throughput=before.throughput if same_company else ThroughputTable(observed),
    )


def is_news(before: Resolved, after: Resolved, workload: Workload) -> bool:
    """Whether plans use other figures of a workload after a lesson of a voice.

    A throughput beside neighbours that is close to the assumed one calls for no plan: many voices
    each learn what others know already, and most of it is no surprise.

    Args:
        before: Figures before the lesson.
        after: Figures after the lesson.
        workload: Its plain name.
    """
    if before is after:
        return False
    old, new = before.parts.get(workload), after.parts.get(workload)
    if old is None or new is None:
        return True
    if old is new:
        return False
    if (old.labels, old.strangers) != (new.labels, new.strangers):
        return True
    if set(old.rates) != set(new.rates):
        return True
    assumed, current = dict(old.company + old.further), dict(new.company + new.further)
    return any(
        abs(throughput_beside(assumed.get, entry) - throughput_beside(current.get, entry))
        > _ALIKE_PPM
        for entry in {entry for entry, _ in assumed.items() ^ current.items()}
    )


def rows_of(rows: tuple[_R, ...], name: Workload) -> tuple[_R, ...]:
    """The rows of a workload in a table that is sorted by workload."""
    first = bisect_left(rows, name, key=_workload)
    return rows[first : bisect_right(rows, name, lo=first, key=_workload)]


def by_name(voices: Mapping[Voice, Lessons]) -> ThroughputTable:
    """Throughput beside neighbours by plain names: the voices' median, for replays and reports."""
    pooled: dict[tuple[Workload, _Names], list[int]] = {}
    for lessons in voices.values():
        for (workload, others), ppm in lessons.throughput.observed:
            pooled.setdefault(
                (workload, tuple(sorted(split(other)[0] for other in others))), []
            ).append(ppm)
    return ThroughputTable(tuple(sorted((key, median_low(ppm)) for key, ppm in pooled.items())))


def delay_of_others(voices: Mapping[Voice, Lessons], kind: Delay, workload: Workload) -> int | None:
    """Delay of a workload's starts or stops for other voices, in ms; `None` if too few know it."""
    pooled = voices.get(OTHERS)
    delays = [
        delay
        for voice, lessons in voices.items()
        if voice != OTHERS and (delay := lessons.delays.measured(kind, workload)) is not None
    ]
    if len(delays) >= VOICES_HEARD:
        return median_low(delays)
    return None if pooled is None else pooled.delays.measured(kind, workload)


class _Lessons:
    """Lessons of the voices about one workload.

    Args:
        name: Its plain name.

    Attributes:
        name: Its plain name.
        alone: Rates by voice.
        company: Throughput beside others by voice, with the names that the voice has for them.
        common: Whether there are common figures; made by `settle`, as are the next two.
        rates_heard: Rates that count for others.
        company_heard: Throughput beside others that counts for others, by plain names.
    """

    def __init__(self, name: Workload) -> None:
        self.name = name
        self.alone: dict[Voice, dict[Family, int]] = {}
        self.company: dict[Voice, dict[_Names, int]] = {}
        self.common = False
        self.rates_heard: _Rates = {}
        self.company_heard: _Beside = {}

    def settle(self) -> None:
        """Find the common figures once all voices have told theirs."""
        self.rates_heard = _heard(self.alone, two_digits)
        self.company_heard = _heard(
            {voice: _by_plain_names(rows) for voice, rows in self.company.items()}, _two_decimals
        )
        self.common = bool(self.rates_heard or self.company_heard)

    def copy(self) -> _Lessons:
        """A copy of these lessons, to which more may be added."""
        other = _Lessons(self.name)
        other.alone, other.company = dict(self.alone), dict(self.company)
        return other

    def tell(self, voice: Voice, standalone: StandaloneRates, throughput: ThroughputTable) -> None:
        """Take in the lessons of a voice about the workload, in place of its earlier ones."""
        rates = rows_of(standalone.measured, self.name)
        company = rows_of(throughput.observed, self.name)
        self.alone.pop(voice, None)
        self.company.pop(voice, None)
        if rates:
            self.alone[voice] = {family: rate for (_, family), rate in rates}
        if company:
            self.company[voice] = {others: ppm for (_, others), ppm in company}

    @property
    def neighbours(self) -> set[Workload]:
        """Plain names of all neighbours."""
        rows = self.company.values()
        return {
            split(other)[0]
            for rows_of_voice in rows
            for others in rows_of_voice
            for other in others
        }

    @property
    def voices(self) -> list[Voice]:
        """Voices that tell anything, in order."""
        return sorted({*self.alone, *self.company})

    def is_common(self, voice: Voice) -> bool:
        """Whether a voice's figures are as good as equal to the common ones."""
        for family, rate in self.alone.get(voice, {}).items():
            heard = self.rates_heard.get(family)
            if heard is None or abs(rate - heard) * _ALIKE_PART > heard:
                return False
        return all(
            abs(ppm - throughput_beside(self._look_up, (self.name, others))) <= _ALIKE_PPM
            for others, ppm in _by_plain_names(self.company.get(voice, {})).items()
        )

    def _look_up(self, entry: tuple[Workload, _Names]) -> int | None:
        return self.company_heard.get(entry[1])

    def rates(
        self, labels: Mapping[Voice, Workload]
    ) -> Iterator[tuple[tuple[Workload, Family], int]]:
        """Rates by label: the common ones, and those of each voice with a label of its own."""
        tables: dict[Workload, _Rates] = {self.name: self.rates_heard} if self.common else {}
        for voice in self.voices:
            tables.setdefault(labels[voice], self.alone.get(voice) or self.rates_heard)
        for label, table in tables.items():
            for family, rate in table.items():
                yield (label, family), rate

    def beside(self, found: Resolved) -> _Company:
        """Throughput beside neighbours by labels; the figures of others where a voice has none."""
        labelled = {voice: _by_labels(voice, rows, found) for voice, rows in self.company.items()}
        heard = {**self.company_heard, **_heard(labelled, _two_decimals)}
        own: dict[Workload, _Beside] = {self.name: heard} if self.common else {}
        for voice, rows in labelled.items():
            own.setdefault(found.labels[voice, self.name], rows)
        return _Company(own, heard)


@dataclass(frozen=True, slots=True)
class _Company:
    """Throughput of one workload in company.

    Attributes:
        own: By label: the common figures, or those of a voice with a label of its own.
        heard: Figures that count for all labels where there are none of one's own.
    """

    own: Mapping[Workload, _Beside]
    heard: _Beside

    def rows(self) -> dict[_Entry, int]:
        """Rows that voices tell."""
        return {
            (label, others): ppm
            for label, table in self.own.items()
            for others, ppm in table.items()
        }

    def further(self) -> Iterator[tuple[_Entry, int]]:
        """Rows of others for labels of single voices."""
        for label, table in self.own.items():
            for others, ppm in self.heard.items():
                if others not in table:
                    yield (label, others), ppm


@dataclass(frozen=True, slots=True)
class _Part:
    """Labels and rows of one workload.

    Attributes:
        told: Lessons of the voices about it.
        labels: Its label for each of them.
        strangers: Label for other voices, where it is not its plain name.
        rates: Its rows of rates.
        company: Its rows of throughput beside neighbours from the voices' own lessons.
        further: Further rows: for labels of single voices, by the figures of others; and for
            neighbours with a label of their own, by the common figures of these.
    """

    told: _Lessons
    labels: Mapping[Voice, Workload]
    strangers: Workload | None
    rates: tuple[tuple[tuple[Workload, Family], int], ...] = ()
    company: tuple[tuple[_Entry, int], ...] = ()
    further: tuple[tuple[_Entry, int], ...] = ()

    def worked_out(self, found: Resolved, parts: Mapping[Workload, _Part]) -> _Part:
        """This part with the rows that follow from the labels of all workloads.

        Args:
            found: The resolution with these labels.
            parts: Workloads for which rows are filled in where they are neighbours.
        """
        company = self.told.beside(found)
        own = company.rows()
        further = dict(islice(company.further(), _MOST_FURTHER))
        pairs = islice(self._filled_in({**own, **further}, parts), _MOST_FURTHER)
        return replace(
            self,
            rates=tuple(self.told.rates(self.labels)),
            company=tuple(own.items()),
            further=(*further.items(), *pairs),
        )

    @property
    def apart(self) -> list[Workload]:
        """Labels of single voices, where there are common figures too."""
        return sorted({*self.labels.values()} - {self.told.name}) if self.told.common else []

    @staticmethod
    def _filled_in(
        company: Mapping[_Entry, int], parts: Mapping[Workload, _Part]
    ) -> Iterator[tuple[_Entry, int]]:
        """Pairs with neighbours that have a label of their own, by the common figures of these."""
        pairs = [(key, ppm) for key, ppm in company.items() if len(key[1]) == 1]
        for (label, (name,)), ppm in pairs:
            for other in parts[name].apart if name in parts else ():
                if (label, (other,)) not in company:
                    yield (label, (other,)), ppm


def _labelled(told: _Lessons) -> _Part:
    """Name a workload of all voices; no labels if none tells of it."""
    told.settle()
    name, voices = told.name, told.voices
    labels: dict[Voice, Workload] = {}
    for voice in voices:
        as_others = told.is_common(voice) if told.common else voice == voices[0]
        labels[voice] = name if as_others or voice == OTHERS else marked(name, voice)
    strangers = marked(name, OTHERS) if voices and not told.common else None
    return _Part(told, labels, strangers)


def _heard(told: Mapping[Voice, Mapping[_K, int]], rounded: Callable[[int], int]) -> dict[_K, int]:
    """Figures that count for others: medians of enough voices, else those of old journals.

    Medians are rounded, so that one voice more is no news to plans.
    """
    values: dict[_K, list[int]] = {}
    for voice, figures in told.items():
        if voice != OTHERS:
            for key, value in figures.items():
                values.setdefault(key, []).append(value)
    heard = dict(told.get(OTHERS, {}))
    heard.update(
        (key, rounded(median_low(those)))
        for key, those in values.items()
        if len(those) >= VOICES_HEARD
    )
    return heard


def _two_decimals(ppm: int) -> int:
    return max(1, (ppm + _COMPANY_STEP_PPM // 2) // _COMPANY_STEP_PPM * _COMPANY_STEP_PPM)


def _by_labels(voice: Voice, rows: Mapping[_Names, int], found: Resolved) -> dict[_Names, int]:
    """A voice's figures by the labels of its neighbours; medians where names become one."""

    def label(other: Workload) -> Workload:
        name, whose = split(other)
        return found.label(voice if whose is None else whose, name)

    return _renamed(rows, label)


def _by_plain_names(rows: Mapping[_Names, int]) -> dict[_Names, int]:
    return _renamed(rows, lambda other: split(other)[0])


def _renamed(rows: Mapping[_Names, int], name: Callable[[Workload], Workload]) -> dict[_Names, int]:
    grouped: dict[_Names, list[int]] = {}
    for others, ppm in rows.items():
        grouped.setdefault(tuple(sorted(map(name, others))), []).append(ppm)
    return {others: median_low(those) for others, those in grouped.items()}


def _reused(before: tuple[_R, ...], rows: Iterable[_R]) -> tuple[_R, ...]:
    """Rows, with equal earlier ones reused, since changes are detected by identity."""
    same = {row: row for row in before}
    kept = tuple(same.get(row, row) for row in rows)
    return before if kept == before else kept


def _has_marks(table: ThroughputTable) -> bool:
    others = (others for (_, others), _ in table.observed)
    return VOICE_MARK in "".join(chain.from_iterable(others))
