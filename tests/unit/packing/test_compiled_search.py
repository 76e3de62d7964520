"""Where there is no library for a system, the search runs in Python, and the master says so."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from deploy import kernel
from eva_master.packing.compiled import library as compiled


@pytest.fixture(autouse=True)
def _anew() -> None:
    compiled.library.cache_clear()


def test_a_machine_for_which_nothing_was_compiled_has_no_library(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    assert compiled.library() is None
    compiled.library.cache_clear()


def test_a_library_of_another_source_has_another_name() -> None:
    names = {compiled.library_name("linux", "x86_64", source) for source in (b"a", b"b")}
    assert len(names) == 2


def test_what_is_compiled_is_compiled_once(tmp_path: Path) -> None:
    (made,) = kernel.compile_kernel([kernel.here()], tmp_path)
    before = made.stat().st_mtime_ns
    assert kernel.compile_kernel([kernel.here(), ("linux", "riscv64")], tmp_path) == [made]
    assert made.stat().st_mtime_ns == before
    assert [path.name for path in tmp_path.iterdir()] == [made.name]
