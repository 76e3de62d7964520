"""Values of secrets on their way to a task: in memory alone, and in no text of this object."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from typing import NoReturn


class SecretValues:
    """The secrets of one attempt.

    Args:
        values: The value of each variable.
    """

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, str] | None = None) -> None:
        self._values = dict(values or {})

    def __repr__(self) -> str:
        return f"<{len(self._values)} secrets>"

    def __bool__(self) -> bool:
        return bool(self._values)

    def __reduce__(self) -> NoReturn:
        raise TypeError("secrets are written nowhere")

    def has(self, names: Iterable[str]) -> bool:
        """Whether each of some names has a value."""
        return all(name in self._values for name in names)

    def only(self, names: Iterable[str]) -> SecretValues:
        """The secrets that have one of some names."""
        return SecretValues({name: self._values[name] for name in names if name in self._values})

    def reveal(self) -> Mapping[str, str]:
        """The values by their names, for the task alone."""
        return self._values

    def in_memory(self) -> int:
        """Write the values, as JSON, into a file that has no name; returns its descriptor.

        The file is gone once no process has it open. Children inherit it only where they are told.

        Raises:
            OSError: There is no memory.
        """
        descriptor = os.memfd_create("eva-secrets", os.MFD_CLOEXEC)
        try:
            with os.fdopen(os.dup(descriptor), "wb") as file:
                file.write(json.dumps(self._values).encode())
            os.lseek(descriptor, 0, os.SEEK_SET)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor


NO_SECRETS = SecretValues()
