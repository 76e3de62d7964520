"""How a task's script is started: from a file, by the interpreter that its first line names."""

from __future__ import annotations

import re
from pathlib import Path

from eva_worker.process.durable_files import write_file

PATH = ".eva/run"
"""Path of a script below the directory of its task's temporary files."""
_FIRST_LINE = re.compile(r"#![ \t]*(/[^ \t\n\r]*)(?:[ \t]+(.*?))?[ \t\r]*(?:\n|\Z)")


def interpreter(script: str) -> list[str]:
    """The program that a script is for, and its argument if there is one.

    The first line is read as the kernel reads it: everything behind the program is one argument.

    Returns:
        Nothing for a script whose first line names no program by an absolute path: bash is for that
        where there is one, else sh.
    """
    match = _FIRST_LINE.match(script)
    return [part for part in match.groups() if part] if match else []


def write(script: str, temporary: Path) -> None:
    """Write a script for a task that has not begun.

    Args:
        script: The script.
        temporary: Directory of the task's temporary files, which exists.

    Raises:
        OSError: The disk is full.
    """
    place = temporary / PATH
    place.parent.mkdir(exist_ok=True)
    write_file(place, script.encode(errors="replace"), sync=False)
