"""Shows text that others wrote on a terminal, so that it cannot control the terminal."""

from __future__ import annotations

import codecs
import re
from typing import IO

_HARMFUL = re.compile(
    # Control characters but tabs and line ends, lone surrogates, line and paragraph separators,
    # and characters that reverse the direction of what stands around them.
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff"
    "\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]"
)
_CAREFREE = re.compile(rb"[\t\n\r -~]*")


def visible(text: str) -> str:
    """Text in which every character that would act on a terminal is written out, such as ``^[``."""
    return _HARMFUL.sub(_written_out, text)


def escaped_json(text: str) -> str:
    """JSON that means the same, without characters that would act on a terminal."""
    return _HARMFUL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _written_out(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < 0x20 or code == 0x7F:
        return f"^{chr(code ^ 0x40)}"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


class VisibleBytes:
    """Writes a task's output to a stream, with `visible` text and bytes that are no text as hex.

    Args:
        out: Gets UTF-8.
    """

    def __init__(self, out: IO[bytes]) -> None:
        self._out = out
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
        self._pending = False

    def write(self, data: bytes) -> None:
        """Write a piece of the output. A character may be spread over several pieces."""
        if not self._pending and _CAREFREE.fullmatch(data):
            self._out.write(data)
            return
        text = self._decoder.decode(data)
        self._pending = bool(self._decoder.getstate()[0])
        self._out.write(visible(text).encode())

    def flush(self) -> None:
        """Hand on what was written so far."""
        self._out.flush()

    def close(self) -> None:
        """Write what is left of a character that never came to its end; the stream stays open."""
        self._out.write(visible(self._decoder.decode(b"", final=True)).encode())
        self._out.flush()
