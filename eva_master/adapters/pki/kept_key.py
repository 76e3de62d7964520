"""Random keys that are kept in files."""

from __future__ import annotations

import secrets
from pathlib import Path

from eva_wire.files import write_file
from eva_wire.values.errors import InvalidConfig

_BYTES = 32
_LEAST_VARIETY = 8
"""Different bytes of a key: after a crash some file systems leave a file of zeros."""


def kept_key(path: Path, hint: str) -> bytes:
    """The 32 random bytes that a file holds; it is made if missing.

    Args:
        path: The file.
        hint: Follows "restore it from a backup; or" where the file holds no key.

    Raises:
        InvalidConfig: The file holds no key.
    """
    if not path.exists():
        write_file(path, secrets.token_hex(_BYTES).encode(), mode=0o600)
    try:
        key = bytes.fromhex(path.read_text(encoding="ascii").strip())
    except ValueError:
        key = b""
    if len(key) != _BYTES or len(set(key)) < _LEAST_VARIETY:
        raise InvalidConfig(
            f"{path} is no key: it has to have {2 * _BYTES} hexadecimal digits",
            hint=f"restore it from a backup; or {hint}",
        )
    return key
