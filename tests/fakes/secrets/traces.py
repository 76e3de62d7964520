"""Finds a secret on disk, however it is written down."""

from __future__ import annotations

import base64
import gzip
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

_LEADS = (0, 2, 3)
"""Letters of base 64 that depend on so many bytes before a value."""
_FOR_URLS = bytes.maketrans(b"+/", b"-_")


def forms(value: str) -> dict[str, bytes]:
    """The forms in which a value may be written, by their names."""
    raw = value.encode()
    by_name = {
        "as it is": raw,
        "in hex": raw.hex().encode(),
        "in a URL": quote(value, safe="").encode(),
        "in JSON": "".join(f"\\u{ord(letter):04x}" for letter in value).encode(),
        "in UTF-16": value.encode("utf-16-le"),
        "backwards": raw[::-1],
        "in octal": "".join(f"\\{byte:03o}" for byte in raw).encode(),
        "as numbers": ", ".join(map(str, raw)).encode(),
    }
    for shift, lead in enumerate(_LEADS):
        # Base 64 depends on what was before the value, and so do its first and last letters.
        packed = base64.b64encode(b"x" * shift + raw).rstrip(b"=")[lead:]
        packed = packed[:-1] if (shift + len(raw)) % 3 else packed
        by_name[f"in base 64 after {shift}"] = packed
        by_name[f"in base 64 for URLs after {shift}"] = packed.translate(_FOR_URLS)
    return by_name


def traces(value: str, *roots: Path) -> list[str]:
    """The files below some directories that hold a value, or have it in their names."""
    wanted = forms(value)
    return [
        f"{path}: {how}"
        for root in roots
        for path, data in _files(root)
        for how, form in wanted.items()
        if form in data or form in os.fsencode(path)
    ]


def _files(root: Path) -> Iterator[tuple[str, bytes]]:
    for folder, _, names in os.walk(root):
        for name in names:
            path = Path(folder, name)
            try:
                if path.is_symlink():
                    yield str(path), os.fsencode(path.readlink())
                elif path.is_file():
                    data = path.read_bytes()
                    yield str(path), data + _unpacked(data)
            except OSError:
                continue  # it is gone by now


def _unpacked(data: bytes) -> bytes:
    for unpack in (gzip.decompress, zlib.decompress):
        try:
            return unpack(data)
        except (OSError, EOFError, zlib.error):
            continue
    return b""
