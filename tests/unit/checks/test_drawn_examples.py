"""`make test` draws the first of the examples that `make long` draws."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import drawing


def examples(count: int) -> list[int]:
    """The examples of a property with so many of them."""
    found: list[int] = []

    @drawing.drawn(count, derandomize=True, database=None)
    @given(st.integers())
    def check(number: int) -> None:
        found.append(number)

    assert "drawn" in [mark.name for mark in _marks(check)]
    check()
    return found


def _marks(test: Any) -> list[pytest.Mark]:
    return list(test.pytestmark)


@pytest.mark.parametrize(("all_of_them", "fewer"), [(60, 20), (15, 6), (4, 4)])
def test_fewer_examples_are_the_first_third(
    all_of_them: int, fewer: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drawing, "NEW", False)
    monkeypatch.setattr(drawing, "FEWER", False)
    everything = examples(all_of_them)
    monkeypatch.setattr(drawing, "FEWER", True)
    assert examples(all_of_them) == everything[:fewer]
    assert len(everything) == all_of_them
