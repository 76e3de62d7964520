"""That property tests have the same examples in every run."""

from __future__ import annotations

import importlib
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st


def drawn() -> list[int]:
    """What a property test is given."""
    found: list[int] = []

    @settings(max_examples=300, derandomize=True, database=None)
    @given(st.integers())
    def test(number: int) -> None:
        found.append(number)

    test()
    return found


def test_examples_do_not_depend_on_the_modules_that_are_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which modules are loaded depends on how tests are spread over processes."""
    before = drawn()
    monkeypatch.syspath_prepend(tmp_path)
    numbers = random.Random(0).sample(range(10_000, 10**9), 200)
    (tmp_path / "eva_other.py").write_text(f"NUMBERS = {numbers}\n")
    importlib.import_module("eva_other")
    assert drawn() == before
