"""Which estimate of company is forgotten, and how much is looked at to find it."""

from __future__ import annotations

from random import Random

import pytest

from eva_master.learning.colocation import Key, key
from eva_master.learning.estimate import MeasuredEstimate
from eva_master.learning.voices import evidence
from eva_master.learning.voices.evidence import Evidence
from eva_master.learning.voices.names import Voice, marked, split
from eva_wire.values.ids import Millis, Workload

VOICES = ("ana", "ben", "cem")


def random_entry(rng: Random, names: int) -> Key:
    """A workload beside one or two neighbours, of which some belong to other voices."""
    others = [Workload(f"w{rng.randrange(names)}") for _ in range(rng.randint(1, 2))]
    return key(
        Workload(f"w{rng.randrange(names)}"),
        [marked(other, rng.choice(VOICES)) if rng.random() < 0.5 else other for other in others],
    )


def neighbours(entry: Key) -> tuple[Voice, ...]:
    voices = {voice for _, voice in map(split, entry[1])}
    return tuple(sorted(voice for voice in voices if voice is not None))


def oldest(plain: dict[Key, MeasuredEstimate]) -> Key:
    """The oldest entry of the largest group, by a look at all estimates in order."""
    groups: dict[tuple[Voice, ...], list[Key]] = {}
    for entry in plain:
        groups.setdefault(neighbours(entry), []).append(entry)
    group = groups[max(groups, key=lambda voices: (len(groups[voices]), voices))]
    return min(entry for entry in group if plain[entry].at_ms == plain[group[0]].at_ms)


@pytest.mark.parametrize("seed", range(4))
def test_the_oldest_of_the_largest_group_is_the_one_that_a_look_at_all_finds(seed: int) -> None:
    rng, plain, kept = Random(seed), dict[Key, MeasuredEstimate](), Evidence()
    for at in range(400):
        entry, estimate = random_entry(rng, 4), MeasuredEstimate(at, Millis(at // 3))
        if entry in plain and estimate.at_ms > plain[entry].at_ms:
            del plain[entry]
        plain[entry] = estimate
        kept = kept.told(entry, estimate)
        assert kept.oldest() == oldest(plain)
        if len(plain) > 40:
            last = kept.oldest()
            del plain[last]
            kept = kept.without(last)
        assert dict(kept) == plain
        assert len(kept) == len(plain)


def test_a_table_of_which_all_is_forgotten_is_empty() -> None:
    kept = Evidence()
    for number in range(3):
        kept = kept.told(
            key(Workload("a"), [Workload(f"b{number}")]), MeasuredEstimate(1, Millis(0))
        )
    for remaining in (2, 1, 0):
        kept = kept.without(kept.oldest())
        assert len(kept) == len(list(kept)) == remaining
    assert kept == Evidence()


def test_no_name_of_other_entries_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    rng, kept = Random(0), Evidence()
    for at in range(500):
        kept = kept.told(random_entry(rng, 20), MeasuredEstimate(1, Millis(at)))
    names: list[Workload] = []
    monkeypatch.setattr(evidence, "split", lambda name: names.append(name) or split(name))
    new = kept.told(key(Workload("new"), [Workload("w1")]), MeasuredEstimate(1, Millis(1_000)))
    new.without(new.oldest())
    assert len(names) <= 4
