"""Standard streams that are closed, and output that has no room or no reader any more."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from eva_client.cli.views.errors import report
from eva_wire.values.errors import EvaError


class _Output(io.FileIO):
    """Standard output that remembers its failure, which no other error is taken for."""

    failure: OSError | None = None

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            self.failure = error
            raise


_STREAMS = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))


def fill_closed_streams() -> None:
    """Put an empty file in place of standard streams that the caller has closed.

    Otherwise the next file that is opened, such as a socket, would pass for one of them.
    """
    for descriptor in range(len(_STREAMS)):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # Takes the lowest descriptor that is free.
    for name, mode in _STREAMS:
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115


@contextmanager
def failing_output() -> Iterator[None]:
    """Have a command whose output cannot be written end with one line and exit code 1.

    A reader that is gone is no error: nothing is said of it.
    """
    output = _watched()
    try:
        yield
    except OSError as error:
        if output is None or output.failure is None:
            raise
        _give_up(output, error)
    except SystemExit:
        if output is None or output.failure is None:
            raise
        _give_up(output, output.failure)


def _watched() -> _Output | None:
    """Put a raw file that remembers failures below standard output; `None` in place of a file."""
    stdout = sys.stdout
    if stdout is not sys.__stdout__ or not isinstance(stdout, io.TextIOWrapper):
        return None
    try:
        stdout.flush()
        output = _Output(stdout.fileno(), "wb", closefd=False)
    except (OSError, ValueError):
        return None
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(output),
        encoding=stdout.encoding,
        errors=stdout.errors,
        line_buffering=stdout.line_buffering,
        write_through=stdout.write_through,
    )
    return output


def _give_up(output: _Output, error: OSError) -> None:
    # Output that is left goes nowhere, so that no second error follows at the end.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, output.fileno())
    os.close(nowhere)
    if error.errno != errno.EPIPE:
        report(EvaError(f"standard output: {error.strerror}"))
    sys.exit(1)
