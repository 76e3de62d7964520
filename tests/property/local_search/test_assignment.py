"""The compiled assignment is SciPy's, ties included."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eva_master.packing.compiled.library import library
from eva_master.packing.configuration.assignment import assigned, assigned_by_scipy
from tests.drawing import drawn


@drawn(200)
@given(
    shape=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    most=st.sampled_from([0, 1, 3, 1_000, 1 << 50]),
    seed=st.integers(0, 1 << 32),
    whole=st.booleans(),
)
def test_the_same_cells_are_chosen(
    shape: tuple[int, int], most: int, seed: int, whole: bool
) -> None:
    assert library() is not None
    gains = np.random.default_rng(seed).integers(0, most, shape, endpoint=True)
    gains = gains if whole else gains / 7
    assert assigned(gains) == assigned_by_scipy(gains)


@pytest.mark.parametrize("shape", [(120, 120), (40, 200), (200, 40)])
@pytest.mark.parametrize("most", [2, 100_000])
def test_many_cells_are_chosen_alike(shape: tuple[int, int], most: int) -> None:
    gains = np.random.default_rng(most).integers(0, most, shape)
    assert assigned(gains) == assigned_by_scipy(gains)


def test_of_nothing_nothing_is_chosen() -> None:
    assert assigned(np.zeros((0, 3))) == ([], [])
