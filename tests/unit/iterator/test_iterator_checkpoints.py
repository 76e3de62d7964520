"""Generations on disk: complete or not there, numbered upwards, the last two kept."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from eva_iterator import _checkpoints


def write(text: str):
    def save(directory: Path) -> None:
        (directory / "weights").write_text(text)

    return save


def test_numbers_generations_upwards(tmp_path: Path) -> None:
    directory = tmp_path / "made" / "for it"
    assert _checkpoints.newest(directory) == 0
    assert _checkpoints.publish(directory, write("a")) == 1
    assert _checkpoints.publish(directory, write("b")) == 2
    assert _checkpoints.newest(directory) == 2
    assert (directory / "00000002" / "weights").read_text() == "b"


def test_goes_on_after_a_restored_generation(tmp_path: Path) -> None:
    (tmp_path / "00000041").mkdir()
    assert _checkpoints.publish(tmp_path, write("a")) == 42


def test_is_invisible_until_complete(tmp_path: Path) -> None:
    seen = []

    def save(directory: Path) -> None:
        (directory / "weights").write_text("half")
        seen.append(_checkpoints.generations(tmp_path))

    _checkpoints.publish(tmp_path, save)
    assert seen == [[]]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_publishes_nothing_if_saving_fails(tmp_path: Path, error: type[BaseException]) -> None:
    def save(directory: Path) -> None:
        (directory / "weights").write_text("half")
        raise error

    with pytest.raises(error):
        _checkpoints.publish(tmp_path, save)
    assert list(tmp_path.iterdir()) == []


def test_keeps_the_last_two(tmp_path: Path) -> None:
    for text in "abcd":
        _checkpoints.publish(tmp_path, write(text))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["00000003", "00000004"]


def test_takes_the_next_number_if_another_process_was_faster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def save(directory: Path) -> None:
        _checkpoints.publish(tmp_path, write("theirs"))
        (directory / "weights").write_text("ours")

    # Both processes look before either renames.
    monkeypatch.setattr(_checkpoints, "newest", lambda directory: 0)
    assert _checkpoints.publish(tmp_path, save) == 2
    assert (tmp_path / "00000001" / "weights").read_text() == "theirs"
    assert (tmp_path / "00000002" / "weights").read_text() == "ours"


def test_ignores_what_is_no_generation(tmp_path: Path) -> None:
    for name in ("00000003", "best", "0000009", ".tmp-1-ab", "00000004.old"):
        (tmp_path / name).mkdir()
    assert _checkpoints.generations(tmp_path) == [3]


def test_is_on_disk_before_it_appears(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        name = Path(f"/proc/self/fd/{descriptor}").readlink().name
        synced.append((name, len(_checkpoints.generations(tmp_path))))
        real(descriptor)

    def save(directory: Path) -> None:
        (directory / "deep").mkdir()
        (directory / "deep" / "weights").write_text("w")
        (directory / "link").symlink_to("nowhere")

    monkeypatch.setattr(os, "fsync", fsync)
    _checkpoints.publish(tmp_path, save)
    before = [name for name, published in synced if not published]
    assert {"weights", "deep"} <= set(before)
    assert len(before) == 3  # and the draft itself
    assert synced[-1] == (tmp_path.name, 1)
