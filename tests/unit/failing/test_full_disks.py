"""Files of the master on a disk that is full."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from eva_wire import files
from eva_wire.values.errors import of_file


def test_a_file_that_does_not_fit_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    file = tmp_path / "server.pem"
    file.write_bytes(b"old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="server") as refused:
        files.write_file(file, b"new")
    told = of_file(refused.value)
    assert (told.message, told.hint) == (
        f"{file}: No space left on device",
        "make room on its disk",
    )
    assert file.read_bytes() == b"old"
