"""Figures by which plans are made, where several owners have workloads of one name."""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random

import pytest

from eva_master.learning.colocation import DEFAULT_PPM, key, lookup, recorded
from eva_master.learning.delays import Delay, DelayTable
from eva_master.learning.knowledge import Knowledge
from eva_master.learning.voices import resolution
from eva_master.learning.voices.lessons import Lessons
from eva_master.learning.voices.names import OTHERS, marked, plain, split
from eva_master.learning.voices.resolution import (
    Resolved,
    by_name,
    delay_of_others,
    known_of,
    resolve,
)
from eva_master.model.planning.snapshot import ThroughputTable
from eva_wire.values.ids import Family, Millis, Workload, base_of

W, V = Workload("resnet"), Workload("bert")
P3, G5 = Family("p3"), Family("g5")


def alone(*rates: float, family: Family = P3, name: Workload = W) -> Lessons:
    """Lessons of windows alone at these rates."""
    table = Lessons().standalone
    for at, rate in enumerate(rates):
        table = table.observe(name, family, rate, Millis(at))
    return Lessons(standalone=table)


def beside(*entries: tuple[Workload, list[Workload], int], rate: float = 10.0) -> Lessons:
    """Lessons of a workload that was alone once, and of windows in company."""
    lessons = alone(rate)
    for at, (name, others, ppm) in enumerate(entries):
        lessons = lessons.in_company([key(name, others)], ppm, Millis(at))
    return lessons


def resolved(voices: dict[str, Lessons], before: Resolved | None = None) -> Resolved:
    return resolve(known_of(voices), before or Resolved())


def rate(found: Resolved, voice: str, family: Family = P3, name: Workload = W) -> int | None:
    return dict(found.standalone.measured).get((found.label(voice, name), family))


def company(found: Resolved, voice: str, *others: tuple[str, Workload]) -> int:
    names = (found.label(whose, name) for whose, name in others)
    return lookup(found.throughput, key(found.label(voice, W), names))


def test_one_owner_s_tables_are_those_of_plans() -> None:
    ana = beside((W, [V], 700_000))
    found = resolved({"ana": ana})
    assert found.standalone is ana.standalone.known
    assert found.throughput is ana.throughput
    assert found.label("ana", W) == W
    assert rate(found, "ben") is None, "one other voice is no median of three"


def test_a_figure_of_one_s_own_goes_before_the_median_of_others() -> None:
    voices = {name: alone(10.0) for name in ("ana", "ben", "cem")} | {"dan": alone(2.0)}
    found = resolved(voices)
    assert [rate(found, name) for name in ("ana", "eve", "dan")] == [10**7, 10**7, 2 * 10**6]


@pytest.mark.parametrize("lie", [0.5, 1e6])
def test_one_voice_of_three_decides_nothing_for_others(lie: float) -> None:
    found = resolved({"ana": alone(10.0), "ben": alone(lie), "cem": alone(11.0)})
    told = rate(found, "eve")
    assert told is not None
    assert 10**7 <= told <= 11 * 10**6
    assert rate(found, "ana") in (10**7, 11 * 10**6)


def test_two_that_lie_together_decide_for_strangers_alone() -> None:
    """Users are created by operators; so much a median of three is worth and no more."""
    voices = {"ana": alone(10.0), "ben": alone(0.5), "cem": alone(0.5)}
    found = resolved(voices)
    assert rate(found, "eve") == 500_000
    assert rate(found, "ana") == 10**7, "an owner's own figure stands"


def test_with_two_voices_each_has_its_own_and_strangers_none() -> None:
    found = resolved({"ana": alone(10.0), "ben": alone(2.0)})
    assert [rate(found, name) for name in ("ana", "ben", "eve")] == [10**7, 2 * 10**6, None]
    assert len({found.label(name, W) for name in ("ana", "ben", "eve")}) == 3


def test_owners_with_figures_as_good_as_equal_share_a_label() -> None:
    voices = {f"u{n}": alone(10.0 + n / 100) for n in range(50)}
    found = resolved(voices)
    assert {found.label(name, W) for name in (*voices, "eve")} == {W}
    assert len(found.standalone.measured) == 1


def test_equal_tables_stay_the_same_objects() -> None:
    voices = {f"u{n}": beside((W, [V], 700_000)) for n in range(4)}
    first = resolved(voices)
    more = resolved({**voices, "u9": alone(10.0)}, first)
    assert more.standalone is first.standalone
    assert more.throughput is first.throughput


def test_an_own_rate_on_one_family_does_not_mix_with_others_that_are_of_another_program() -> None:
    fast = {
        name: Lessons(standalone=alone(10.0).standalone.observe(W, G5, 5.0, Millis(9)))
        for name in ("ana", "ben", "cem")
    }
    found = resolved({**fast, "dan": alone(100.0), "eve": alone(10.2)})
    assert rate(found, "dan", G5) is None, "no tenfold speed on one of two families"
    assert rate(found, "eve", G5) == 5 * 10**6


def test_company_with_one_owner_s_workload_says_nothing_of_another_s() -> None:
    ana = beside((W, [marked(V, "ben")], 100_000), (W, [V], 900_000))
    voices = {"ana": ana, "ben": alone(3.0, name=V), "cem": alone(9.0, name=V)}
    found = resolved(voices)
    assert company(found, "ana", ("ben", V)) == 100_000
    assert company(found, "ana", ("ana", V)) == 900_000
    assert company(found, "ana", ("cem", V)) == DEFAULT_PPM


def test_one_voice_makes_no_workload_of_others_a_bad_neighbour() -> None:
    honest = {name: beside((W, [W], 900_000)) for name in ("ana", "cem", "dan")}
    spoilt = resolved({**honest, "ben": beside((W, [W], 1), (W, [marked(W, "ana")], 1))})
    for voice in ("ana", "cem", "eve"):
        assert company(spoilt, voice, ("ana", W)) == 900_000
    assert company(spoilt, "ben", ("ben", W)) == 1, "its own figure is its own"


def test_company_of_three_voices_counts_for_all() -> None:
    voices = {
        name: beside((W, [marked(W, "zoe")], ppm))
        for name, ppm in zip(("ana", "ben", "cem"), (700_000, 710_000, 690_000), strict=True)
    }
    found = resolved(voices)
    assert company(found, "eve", ("fay", W)) == 700_000
    assert len({found.label(name, W) for name in (*voices, "eve")}) == 1


def test_a_deviating_neighbour_is_judged_as_others_of_its_name_until_it_is_measured() -> None:
    voices = {name: beside((W, [W], 600_000)) for name in ("ana", "ben", "cem")}
    found = resolved({**voices, "dan": alone(99.0)})
    assert found.label("dan", W) != W
    assert company(found, "ana", ("dan", W)) == 600_000


def test_rows_of_journals_that_told_no_voices_apart_are_those_of_others() -> None:
    old = {
        "version": 3,
        "colocation": [["resnet", ["bert"], 700_000, [700_000, 5, 3, []]]],
        "standalone": [["resnet", "p3", [10_000_000, 5, 3, []], 10_000_000]],
        "delays": [
            ["start", "resnet", [30_000, 5, 4, []], 31_000],
            ["setup", "p3.2xlarge", [60_000, 5, 4, []]],
        ],
        "runtimes": [],
        "scaling": [["resnet", "p3", 2, False, [19_000_000, 5, 1, []], 19_000_000]],
    }
    known = Knowledge.from_json(old)
    assert list(known.voices) == [OTHERS]
    assert known.of("ana").standalone.lookup(W, P3) is None, "nobody's own"
    found = resolved(dict(known.voices))
    assert rate(found, "ana") == 10**7
    assert company(found, "ana", ("ben", V)) == 700_000
    assert delay_of_others(known.voices, Delay.START, W) == 30_000
    assert known.delays.measured(Delay.SETUP, "p3.2xlarge") == 60_000
    assert not known.delays.parted([Delay.START])[0].known
    assert Knowledge.from_json(json.loads(json.dumps(known.to_json()))) == known


def test_three_voices_replace_the_rows_of_old_journals() -> None:
    found = resolved({OTHERS: alone(1.0), **{it: alone(10.0) for it in ("ana", "ben", "cem")}})
    assert rate(found, "eve") == 10**7
    assert rate(resolved({OTHERS: alone(1.0), "ana": alone(10.0)}), "eve") == 10**6


def test_delays_of_others_are_medians_of_three() -> None:
    def starts(ms: int) -> Lessons:
        return Lessons(delays=DelayTable().observe(Delay.START, W, ms, Millis(0)))

    voices = {"ana": starts(10_000), "ben": starts(36_000_000)}
    assert delay_of_others(voices, Delay.START, W) is None
    assert delay_of_others({**voices, "cem": starts(12_000)}, Delay.START, W) == 12_000


def test_a_user_cannot_name_a_workload_after_another_s_label() -> None:
    voices = {"ana": alone(10.0), "ben": alone(2.0)}
    found = resolved(voices)
    theirs = found.label("ben", W)
    assert theirs != W
    assert found.label("eve", theirs) != theirs
    assert plain(theirs) == "resnet ben"
    assert split(theirs) == (W, "ben")


def test_variants_of_a_workload_teach_each_other_within_a_label() -> None:
    assert base_of(marked(Workload("resnet[3]"), "ben")) == marked(W, "ben")
    assert base_of(Workload("resnet[3]")) == W


def test_replays_take_medians_by_plain_names() -> None:
    voices = {
        "ana": Lessons(ThroughputTable(((key(W, [marked(V, "ben")]), 500_000),))),
        "ben": Lessons(ThroughputTable(((key(W, [V]), 700_000),))),
        "cem": Lessons(ThroughputTable(((key(W, [V]), 800_000),))),
    }
    assert recorded(by_name(voices), key(W, [V])) == 700_000


# -- bounds


def test_a_flood_of_names_costs_its_owner_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eva_master.learning.knowledge.ROWS_KEPT", 20)
    known = Knowledge().taught("ana", alone(10.0))
    for number in range(100):
        lessons = known.of("ben")
        name = Workload(f"w{number}")
        table = lessons.standalone.observe(name, P3, 1.0, Millis(number))
        known = known.taught("ben", Lessons(standalone=table)).bounded()
    assert known.of("ana").standalone.lookup(W, P3) == 10.0
    rates = known.of("ben").standalone
    assert len(rates.rates) == len(rates.known.measured) == 19
    assert rates.lookup(Workload("w99"), P3) == 1.0, "the oldest go first"


def test_every_table_of_the_owner_with_most_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eva_master.learning.knowledge.ROWS_KEPT", 5)
    lessons = beside((W, [V], 700_000), (W, [W], 600_000))
    scaling = lessons.scaling.observe((W, P3, 2, False), 19.0, Millis(1))
    delays = lessons.delays.observe(Delay.START, W, 9_000, Millis(1))
    full = Lessons(lessons.throughput, lessons.evidence, lessons.standalone, scaling, delays)
    assert full.size == 5
    known = Knowledge().taught("ana", full).taught("ben", alone(1.0))
    for number in range(4):
        table = known.of("ben").standalone.observe(Workload(f"w{number}"), P3, 1.0, Millis(2))
        known = known.taught("ben", Lessons(standalone=table)).bounded()
        assert sum(it.size for it in known.voices.values()) == 5
        kept = known.of("ana")
        assert {entry for entry, _ in kept.throughput.observed} == set(kept.evidence)
    assert known.of("ana").size >= 2


def test_the_number_of_voices_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eva_master.learning.knowledge.VOICES_KEPT", 3)
    known = Knowledge()
    for name in ("ana", "ben", "ana", "cem", "dan"):
        known = known.taught(name, alone(10.0)).bounded()
    assert list(known.voices) == ["ana", "cem", "dan"], "who taught nothing for longest goes"


def test_new_names_of_a_neighbour_push_out_what_is_known_of_that_neighbour(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("eva_master.learning.voices.lessons.ENTRIES_KEPT", 6)
    ana = beside((W, [V], 700_000), (W, [marked(V, "cem")], 800_000))
    for number in range(20):
        strange = marked(Workload(f"w{number}"), "ben")
        ana = ana.in_company([key(W, [strange])], 500_000, Millis(10 + number))
    assert recorded(ana.throughput, key(W, [V])) == 700_000
    assert recorded(ana.throughput, key(W, [marked(V, "cem")])) == 800_000
    assert len(ana.evidence) == len(ana.throughput.observed) == 6


def random_lessons(rng: Random, lessons: Lessons, at: int) -> Lessons:
    """Lessons after one window more, of one of four workloads, alone or in company."""
    names = [Workload(f"w{number}") for number in range(4)]
    name = rng.choice(names)
    if rng.random() < 0.4:
        family, rate = rng.choice((P3, G5)), rng.choice((10.0, 10.3, 30.0))
        rates = lessons.standalone.observe(name, family, rate, Millis(at))
        return replace(lessons, standalone=rates)
    others = [
        other if rng.random() < 0.5 else marked(other, f"u{rng.randrange(6)}")
        for other in rng.choices(names, k=rng.randint(1, 2))
    ]
    return lessons.in_company([key(name, others)], rng.choice((900_000, 600_000)), Millis(at))


@pytest.mark.parametrize("seed", range(8))
def test_answers_that_follow_from_the_last_one_are_those_worked_out_anew(seed: int) -> None:
    rng = Random(seed)
    voices: dict[str, Lessons] = {}
    last = Resolved()
    for at in range(150):
        voice = rng.choice(("", "u0", "u1", "u2", "u3", "u4", "u5"))
        voices = {**voices, voice: random_lessons(rng, voices.get(voice, Lessons()), at)}
        if rng.random() < 0.05:
            del voices[rng.choice(sorted(voices))]
        if rng.random() < 0.7:
            last = resolved(voices, last)
            assert last == resolved(voices)


def test_news_of_one_workload_has_no_other_one_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = [Workload(f"w{number}") for number in range(20)]
    voices = {}
    for number in range(10):
        lessons = Lessons()
        for name in names:
            lessons = replace(
                lessons, standalone=lessons.standalone.observe(name, P3, 10.0, Millis(0))
            ).in_company([key(name, [name])], 800_000, Millis(0))
        voices[f"u{number}"] = lessons
    first = resolved(voices)
    counted: list[Workload] = []
    label = resolution._labelled

    def counting(told: resolution._Lessons) -> resolution._Part:
        counted.append(told.name)
        return label(told)

    monkeypatch.setattr(resolution, "_labelled", counting)
    more = voices["u3"].in_company([key(names[7], [names[2]])], 500_000, Millis(9))
    after = resolved({**voices, "u3": more}, first)
    assert counted == [names[7]]
    assert len(after.throughput.observed) > len(first.throughput.observed)


def test_figures_of_others_fill_no_more_rows_than_their_bound() -> None:
    """Else each label has a copy of all common figures: owners times workloads times pairs."""
    names = [Workload(f"w{number}") for number in range(12)]
    voices: dict[str, Lessons] = {}
    told = 0
    for number in range(24):
        rates = Lessons().standalone
        rows = {}
        for place, name in enumerate(names):
            rates = rates.observe(name, P3, 10.0 if number < 12 else 1.5**number, Millis(0))
            # Owners with a rate of their own tell of one neighbour; the others of all.
            others = names if number < 12 else names[place : place + 1]
            rows |= {key(name, [other]): 600_000 for other in others}
        table = ThroughputTable(tuple(sorted(rows.items())))
        told += len(rows)
        voices[f"u{number:02}"] = Lessons(standalone=rates, throughput=table)
    found = resolved(voices)
    assert len(found.throughput.observed) <= told + 8_192
    assert company(resolved({"a": beside((W, [V], 600_000))}), "a", ("a", V)) == 600_000
