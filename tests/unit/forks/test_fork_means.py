"""Averaging: exact where numbers are whole, blind to nothing that does not fit."""

from __future__ import annotations

import zipfile
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from eva_iterator import mean
from eva_iterator._forks import formats, merging, parts
from eva_iterator._forks.states import Unfit, check
from hypothesis import given, settings
from hypothesis import strategies as st

NUMBERS = st.integers(-(2**20), 2**20)
SHAPES = st.lists(st.integers(0, 3), max_size=3).map(tuple)


@st.composite
def forks(draw: st.DrawFn) -> tuple[list[np.ndarray], list[int]]:
    """Arrays of one shape and type, of whole numbers, and the steps of each."""
    shape = draw(SHAPES)
    dtype = draw(st.sampled_from([np.float16, np.float32, np.float64]))
    count = draw(st.integers(1, 5))
    size = int(np.prod(shape))
    small = st.integers(-2000, 2000) if dtype is np.float16 else NUMBERS
    rows = [draw(st.lists(small, min_size=size, max_size=size)) for _ in range(count)]
    arrays = [np.array(row, dtype=dtype).reshape(shape) for row in rows]
    return arrays, draw(st.lists(st.integers(1, 10**6), min_size=count, max_size=count))


@settings(max_examples=60, deadline=None)
@given(forks())
def test_whole_numbers_are_averaged_exactly(drawn: tuple[list[np.ndarray], list[int]]) -> None:
    arrays, steps = drawn
    states = [{"deep": [{"weights": array}]} for array in arrays]
    result = mean(states, steps)["deep"][0]["weights"]
    assert (result.shape, result.dtype) == (arrays[0].shape, arrays[0].dtype)
    for place in np.ndindex(*arrays[0].shape):
        total = sum(Fraction(int(a[place])) * s for a, s in zip(arrays, steps, strict=True))
        assert result[place] == arrays[0].dtype.type(float(total / sum(steps)))


def test_what_is_not_a_weight_is_that_of_the_fork_with_most_steps() -> None:
    states = [
        {
            "seen": np.array(n),
            "on": np.array([n > 2]),
            "step": n,
            "name": f"fork {n}",
            "rate": n / 2,
        }
        for n in (1, 2, 3)
    ]
    result = mean(states, [5, 7, 7])
    assert (result["seen"], result["step"], result["name"]) == (2, 2, "fork 2")
    assert result["on"].tolist() == [False]
    assert result["rate"] == (5 * 0.5 + 7 * 1.0 + 7 * 1.5) / 19


@pytest.mark.parametrize(
    "other",
    [
        {"a": np.zeros(3), "b": [1.0]},
        {"a": np.zeros(2, np.float32), "b": [1.0]},
        {"a": np.zeros(2), "b": [1.0, 2.0]},
        {"a": np.zeros(2), "b": (1.0,)},
        {"a": np.zeros(2), "b": [1]},
        {"a": np.zeros(2)},
        {"a": np.zeros(2), "c": [1.0]},
        [np.zeros(2)],
        None,
    ],
)
def test_other_forms_are_refused(other: object) -> None:
    with pytest.raises(Unfit):
        check({"a": np.zeros(2), "b": [1.0]}, other)


@pytest.mark.parametrize("steps", [[1], [0, 1], [], [1, 1, 1]])
def test_every_state_needs_steps(steps: list[int]) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        mean([1.0, 2.0], steps)


def test_objects_are_refused() -> None:
    with pytest.raises(Unfit, match="object"):
        mean([{"a": object()}, {"a": object()}], [1, 1])


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (Path.touch, (Path("pwned"),))  # type: ignore[return-value]


def part(path: Path, steps: object = 2) -> Path:
    path.mkdir(parents=True)
    (path / "part.json").write_text(f'{{"steps": {steps}, "check": null}}')
    return path


def test_pickles_are_never_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.save(tmp_path / "evil.npy", np.array([Evil()]), allow_pickle=True)
    np.savez(tmp_path / "evil.npz", a=np.array([Evil()], dtype=object))
    for name in ("evil.npy", "evil.npz"):
        with pytest.raises(Unfit, match="Python objects"):
            formats.read(tmp_path / name)
    assert not (tmp_path / "pwned").exists()


def test_a_file_that_unpacks_to_much_more_is_too_large(tmp_path: Path) -> None:
    own, other = part(tmp_path / "0"), part(tmp_path / "1")
    np.savez(own / "w.npz", w=np.zeros(10))
    np.savez_compressed(other / "w.npz", w=np.zeros(10**7))
    assert (other / "w.npz").stat().st_size < 200_000
    merge, _ = merging.select(tmp_path, own, own_function=False, goes_on=lambda: True)
    assert [one.fork for one in merge.kept] == [0]
    assert merge.left_out[0].reason == "w.npz: it is too large"


def test_a_header_that_promises_more_than_there_is(tmp_path: Path) -> None:
    with (tmp_path / "w.npy").open("wb") as file:
        header = {"descr": "<f8", "fortran_order": False, "shape": (2**40,)}
        np.lib.format.write_array_header_1_0(file, header)
    with pytest.raises(Unfit, match="torn"):
        formats.read(tmp_path / "w.npy")


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_spoiled_part_never_fails_the_merge(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    root = tmp_path_factory.mktemp("parts")
    own, other = part(root / "0"), part(root / "1")
    for path in (own, other):
        np.savez(path / "w.npz", w=np.arange(6.0).reshape(2, 3), n=np.array(3))
    name = data.draw(st.sampled_from(["w.npz", "part.json"]))
    content = bytearray((other / name).read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    (other / name).write_bytes(content[: data.draw(st.integers(0, len(content)))])
    merge, form = merging.select(root, own, own_function=False, goes_on=lambda: True)
    assert merge.kept[0].fork == 0
    assert len(merge.kept) + len(merge.left_out) == 2
    assert form is not None
    (root / "merged").mkdir()
    merging.write_mean(merge.kept, form, root / "merged", lambda: True)
    assert np.isfinite(formats.read(root / "merged/w.npz")["w.npy"]).all()


def test_fetched_parts_that_are_missing_are_named(tmp_path: Path) -> None:
    own = part(tmp_path / "3")
    np.save(own / "w.npy", np.ones(2))
    (tmp_path / "missing.json").write_text('{"1": "its digest differs", "99": "x", "3": "y"}')
    (tmp_path / "64").mkdir()
    merge, _ = merging.select(tmp_path, own, own_function=False, goes_on=lambda: True)
    assert [one.fork for one in merge.kept] == [3]
    assert merge.left_out == (parts.LeftOut(1, 0, "its digest differs"),)


def test_two_members_of_one_name_are_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "w.npz", "w") as archive:
        archive.writestr("a.npy", b"x")
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("a.npy", b"y")
    with pytest.raises(Unfit, match="one name"):
        formats.read(tmp_path / "w.npz")


def test_a_name_that_numpy_uses_itself_is_kept(tmp_path: Path) -> None:
    formats.write(tmp_path / "w.npz", {"file.npy": np.ones(2), "a/b.npy": np.zeros(1)})
    assert set(formats.read(tmp_path / "w.npz")) == {"file.npy", "a/b.npy"}
    with np.load(tmp_path / "w.npz") as state:
        assert set(state) == {"file", "a/b"}
