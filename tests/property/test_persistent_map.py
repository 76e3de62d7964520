"""A persistent map is what a dictionary would be, and leaves every earlier one as it was."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eva_master.control.readside.persistent_map import PersistentMap

keys = st.integers(0, 3000)
steps = st.lists(
    st.tuples(
        st.dictionaries(keys, st.integers(), max_size=40), st.lists(keys, max_size=40, unique=True)
    ),
    max_size=12,
)
ranges = st.lists(st.tuples(keys, st.integers(0, 800), st.booleans()), max_size=6)


@settings(max_examples=150, deadline=None)
@given(begun=ranges, steps=steps, before=keys)
def test_a_map_is_what_a_dictionary_would_be(
    begun: list[tuple[int, int, bool]],
    steps: list[tuple[dict[int, int], list[int]]],
    before: int,
) -> None:
    long = [
        ({}, list(range(low, low + many)))
        if drop
        else ({k: -k for k in range(low, low + many)}, [])
        for low, many, drop in begun
    ]
    model: dict[int, int] = {}
    present: PersistentMap[int, int] = PersistentMap(lambda key: (key // 2, key % 2))
    past = [(present, dict(model))]
    for put, drop in [*long, *steps]:
        dropped = [key for key in drop if key not in put]
        present = present.updated(put, dropped)
        model.update(put)
        for key in dropped:
            model.pop(key, None)
        past.append((present, dict(model)))
    for then, expected in past:
        assert list(then) == sorted(expected)
        assert list(then.values()) == [expected[key] for key in sorted(expected)]
        assert list(then.items()) == sorted(expected.items())
        assert len(then) == len(expected)
        assert list(then.descending()) == sorted(expected, reverse=True)
        older = [key for key in sorted(expected, reverse=True) if key < before]
        assert list(then.descending(before)) == older
        assert then.get(before) == expected.get(before)
        assert (before in then) == (before in expected)
        mixed = sorted(expected, key=lambda key: (key % 7, -key))
        assert then.several(mixed) == [expected[key] for key in mixed]
        if before not in expected:
            with pytest.raises(KeyError):
                then.several([*mixed, before])
