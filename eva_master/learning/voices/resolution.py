"""Figures by which plans are made: a voice's own, else the median of others, else none.

A plan tells tasks apart by the names of their workloads. So each voice's workload has a *label*
here: the workload's plain name where its figures are the common ones, or as good as equal to them;
else a name of its own. Voices with equal figures share a label, so that what is remembered of tasks
that are alike serves all of them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import ChainMap
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from statistics import median_low
from typing import Any, TypeVar, cast

from eva_master.learning.colocation import throughput_beside
from eva_master.learning.delays import Delay, two_digits
from eva_master.learning.voices.lessons import Lessons
from eva_master.learning.voices.names import OTHERS, Voice, marked, plain, split
from eva_master.model.ids import VOICE_MARK, Family, Workload
from eva_master.model.planning.snapshot import StandaloneRates, ThroughputTable

VOICES_HEARD = 3
"""So many voices have to tell a figure before their median counts for others: one that lies is then
never the middle one alone. Two of three that lie together decide it."""
_ALIKE_PART = 10
"""Rates are as good as equal if they differ by one part in so many at most."""
_ALIKE_PPM = 50_000
"""Throughput in company is as good as equal if it differs by so much at most."""
_COMPANY_STEP_PPM = 10_000
_FILLED_IN = 65_536
"""Pairs that are filled in for neighbours with labels of their own at most."""

_Rates = Mapping[Family, int]
_Names = tuple[Workload, ...]
_Company = Mapping[_Names, int]
_Labels = Mapping[tuple[Voice, Workload], Workload]
_Known = tuple[tuple[Voice, StandaloneRates, ThroughputTable], ...]
_K = TypeVar("_K", bound=Hashable)
_R = TypeVar("_R", bound=tuple[tuple[Workload, Any], int])


@dataclass(frozen=True, slots=True)
class Resolved:
    """Figures by which plans are made, and the labels that they are kept under.

    Attributes:
        standalone: What was measured alone, by label.
        throughput: What was measured in company, by labels.
        labels: Of each workload of a voice of which something was learned.
        strangers: Label of a workload for voices that taught nothing of it, where that is not its
            plain name.
    """

    standalone: StandaloneRates = field(default_factory=StandaloneRates)
    throughput: ThroughputTable = field(default_factory=ThroughputTable)
    labels: Mapping[tuple[Voice, Workload], Workload] = field(default_factory=dict)
    strangers: Mapping[Workload, Workload] = field(default_factory=dict)

    def label(self, voice: Voice, workload: Workload) -> Workload:
        """The name of a voice's workload in plans."""
        name = plain(workload)
        own = self.labels.get((voice, name))
        return self.strangers.get(name, name) if own is None else own

    def profiled(self, voice: Voice, workload: Workload) -> bool:
        """Whether plans know a rate of a voice's workload, or that it reports no iterations."""
        return bool(rows_of(self.standalone.measured, self.label(voice, workload)))


def _workload(row: tuple[tuple[Workload, Any], int]) -> Workload:
    return row[0][0]


def known_of(voices: Mapping[Voice, Lessons]) -> _Known:
    """Tables that a resolution depends on; they are replaced only when there is news."""
    return tuple(
        (voice, known.standalone.known, known.throughput)
        for voice, known in sorted(voices.items())
        if known.standalone.known.measured or known.throughput.observed
    )


def resolve(known: _Known, before: Resolved) -> Resolved:
    """Work out by which figures plans are made.

    Args:
        known: See `known_of`.
        before: The last answer, whose equal rows are used again.
    """
    if len(known) == 1 and not _has_marks(known[0][2]):
        voice, standalone, throughput = known[0]
        names = {name for (name, _), _ in standalone.measured}
        names.update(name for (name, _), _ in throughput.observed)
        strangers = {} if voice == OTHERS else {name: marked(name, OTHERS) for name in names}
        return Resolved(standalone, throughput, {(voice, name): name for name in names}, strangers)
    workloads = _by_workload(known)
    found = _labelled(workloads)
    rates = sorted(row for told in workloads for row in told.rates(found.labels))
    company: dict[tuple[Workload, _Names], int] = {}
    for told in workloads:
        company.update(told.beside(found))
    _fill_in(company, workloads, found.labels)
    measured = _reused(before.standalone.measured, rates)
    observed = _reused(before.throughput.observed, sorted(company.items()))
    if measured is not before.standalone.measured:
        found = replace(found, standalone=StandaloneRates(measured))
    else:
        found = replace(found, standalone=before.standalone)
    if observed is not before.throughput.observed:
        return replace(found, throughput=ThroughputTable(observed))
    return replace(found, throughput=before.throughput)


def is_news(
    before: Mapping[Voice, Lessons],
    after: Mapping[Voice, Lessons],
    workload: Workload,
    known: Resolved,
) -> bool:
    """Whether plans reckon with other figures of a workload after a voice has taught some of it.

    Only this workload is looked at, by a few rows of each voice, since false reports may teach
    something with every window.

    Args:
        before: What the voices had taught.
        after: What they have taught now.
        workload: Its plain name.
        known: The labels of all other workloads.
    """
    return _of_workload(before, workload, known) != _of_workload(after, workload, known)


def _of_workload(voices: Mapping[Voice, Lessons], name: Workload, known: Resolved) -> object:
    """Labels and rows of one workload."""
    told = _Told(name)
    for voice, lessons in voices.items():
        rates = rows_of(lessons.standalone.known.measured, name)
        if rates:
            told.alone[voice] = {family: rate for (_, family), rate in rates}
        company = rows_of(lessons.throughput.observed, name)
        if company:
            told.company[voice] = {others: ppm for (_, others), ppm in company}
    if not told.voices:
        return None
    own = _labelled([told])
    strangers = {it: label for it, label in known.strangers.items() if it != name}
    found = Resolved(
        labels=ChainMap[tuple[Voice, Workload], Workload](
            dict(own.labels), cast(dict[tuple[Voice, Workload], Workload], known.labels)
        ),
        strangers={**strangers, **own.strangers},
    )
    return own.labels, sorted(told.rates(found.labels)), sorted(told.beside(found))


def rows_of(rows: tuple[_R, ...], name: Workload) -> tuple[_R, ...]:
    """The rows of a workload in a table that is sorted by workload."""
    first = bisect_left(rows, name, key=_workload)
    return rows[first : bisect_right(rows, name, lo=first, key=_workload)]


def by_name(voices: Mapping[Voice, Lessons]) -> ThroughputTable:
    """Throughput in company by plain names: the median of the voices, for replays and reports."""
    told: dict[tuple[Workload, _Names], list[int]] = {}
    for known in voices.values():
        for (workload, others), ppm in known.throughput.observed:
            told.setdefault((workload, tuple(sorted(split(it)[0] for it in others))), []).append(
                ppm
            )
    return ThroughputTable(tuple(sorted((key, median_low(ppm)) for key, ppm in told.items())))


def delay_of_others(voices: Mapping[Voice, Lessons], kind: Delay, workload: Workload) -> int | None:
    """Time that starts or stops of a workload take others, in ms; `None` if too few tell."""
    pooled = voices.get(OTHERS)
    told = [
        delay
        for voice, known in voices.items()
        if voice != OTHERS and (delay := known.delays.measured(kind, workload)) is not None
    ]
    if len(told) >= VOICES_HEARD:
        return median_low(told)
    return None if pooled is None else pooled.delays.measured(kind, workload)


class _Told:
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
        self.company_heard: _Company = {}

    def settle(self) -> None:
        """Find the common figures once all voices have told theirs."""
        self.rates_heard = _heard(self.alone, two_digits)
        self.company_heard = _heard(
            {voice: _by_plain_names(rows) for voice, rows in self.company.items()}, _two_decimals
        )
        self.common = bool(self.rates_heard or self.company_heard)

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

    def rates(self, labels: _Labels) -> Iterator[tuple[tuple[Workload, Family], int]]:
        """Rates by label: the common ones, and those of each voice with a label of its own."""
        tables: dict[Workload, _Rates] = {self.name: self.rates_heard} if self.common else {}
        for voice in self.voices:
            tables.setdefault(labels[voice, self.name], self.alone.get(voice) or self.rates_heard)
        for label, table in tables.items():
            for family, rate in table.items():
                yield (label, family), rate

    def beside(self, found: Resolved) -> Iterator[tuple[tuple[Workload, _Names], int]]:
        """Throughput in company by labels; that of others where a voice tells nothing itself."""
        told = {voice: _by_labels(voice, rows, found) for voice, rows in self.company.items()}
        heard = {**self.company_heard, **_heard(told, _two_decimals)}
        tables: dict[Workload, _Company] = {self.name: heard} if self.common else {}
        for voice, own in told.items():
            tables.setdefault(found.labels[voice, self.name], {**heard, **own})
        for label, table in tables.items():
            for others, ppm in table.items():
                yield (label, others), ppm


def _by_workload(known: _Known) -> list[_Told]:
    """Lessons about each workload, in the order of their names."""
    workloads: dict[Workload, _Told] = {}
    for voice, standalone, throughput in known:
        for (name, family), rate in standalone.measured:
            told = workloads.setdefault(name, _Told(name))
            told.alone.setdefault(voice, {})[family] = rate
        for (name, others), ppm in throughput.observed:
            told = workloads.setdefault(name, _Told(name))
            told.company.setdefault(voice, {})[others] = ppm
    return [workloads[name] for name in sorted(workloads)]


def _labelled(workloads: Sequence[_Told]) -> Resolved:
    """Name the workloads of all voices."""
    labels: dict[tuple[Voice, Workload], Workload] = {}
    strangers: dict[Workload, Workload] = {}
    for told in workloads:
        told.settle()
        name, (first, *_) = told.name, told.voices
        for voice in told.voices:
            as_others = told.is_common(voice) if told.common else voice == first
            labels[voice, name] = name if as_others or voice == OTHERS else marked(name, voice)
        if not told.common:
            strangers[name] = marked(name, OTHERS)
    return Resolved(labels=labels, strangers=strangers)


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
    told: dict[_Names, list[int]] = {}
    for others, ppm in rows.items():
        told.setdefault(tuple(sorted(map(name, others))), []).append(ppm)
    return {others: median_low(those) for others, those in told.items()}


def _fill_in(
    company: dict[tuple[Workload, _Names], int], workloads: Sequence[_Told], labels: _Labels
) -> None:
    """Add pairs with neighbours that have a label of their own, by the common figures of these."""
    own: dict[Workload, list[Workload]] = {}
    for told in workloads:
        found = sorted({labels[voice, told.name] for voice in told.voices} - {told.name})
        if told.common and found:
            own[told.name] = found
    pairs = [(key, ppm) for key, ppm in company.items() if len(key[1]) == 1 and key[1][0] in own]
    rows = (((label, (other,)), ppm) for (label, (name,)), ppm in pairs for other in own[name])
    for key, ppm in islice(rows, _FILLED_IN):
        company.setdefault(key, ppm)


def _reused(before: tuple[_R, ...], rows: Iterable[_R]) -> tuple[_R, ...]:
    """Rows, with equal ones of before in place of new ones: changes are found by identity."""
    same = {row: row for row in before}
    found = tuple(same.get(row, row) for row in rows)
    return before if found == before else found


def _has_marks(table: ThroughputTable) -> bool:
    return any(VOICE_MARK in name for (_, others), _ in table.observed for name in others)
