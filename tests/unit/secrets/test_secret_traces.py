"""The search for secrets on disk finds what is there."""

from __future__ import annotations

import base64
import gzip
import json
import zlib
from pathlib import Path

import pytest

from tests.fakes.secrets.traces import traces

VALUE = 's3cr3t "quoted" \\ é value'


@pytest.mark.parametrize(
    "data",
    [
        b"before " + VALUE.encode() + b" after",
        base64.b64encode(VALUE.encode()),
        base64.b64encode(b"1" + VALUE.encode() + b"12345"),
        base64.urlsafe_b64encode(b"12" + VALUE.encode() + b"1"),
        VALUE.encode().hex().encode(),
        gzip.compress(VALUE.encode(), mtime=0),
        zlib.compress(VALUE.encode()),
        VALUE.encode("utf-16"),
        json.dumps(list(VALUE.encode())).encode(),
    ],
)
def test_a_value_is_found_in_any_form(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "deep").mkdir()
    file = tmp_path / "deep" / "file"
    file.write_bytes(data)
    assert traces(VALUE, tmp_path)
    file.write_bytes(data[3:-9])
    assert traces(VALUE, tmp_path) == []


def test_a_value_is_found_in_names_and_links(tmp_path: Path) -> None:
    (tmp_path / "a-s3cret-b").touch()
    (tmp_path / "link").symlink_to("/nowhere/s3cret-2")
    paths = {line.partition(": ")[0] for line in traces("s3cret", tmp_path)}
    assert paths == {str(tmp_path / "a-s3cret-b"), str(tmp_path / "link")}
