"""Descriptors of the operating system, each with one owner that closes it."""

from __future__ import annotations

import os
from typing import Self


class Descriptor:
    """A descriptor that is closed once: by its context, or when nothing refers to it any more.

    Args:
        fd: Number of the descriptor; negative for none.
    """

    fd = -1
    """Of one whose making failed, there is nothing to close."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def close(self) -> None:
        """Close the descriptor; does nothing the second time."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()
