"""Lines of the log are short, whatever they quote."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import structlog

from eva_wire.service.logs import bounded

LONG = "x" * 1_000_000
VALUES: dict[str, Any] = {
    "text": LONG,
    "list": [LONG] * 100,
    "nested": {"a": {"b": {"c": {"d": {"e": [LONG] * 50}}}}},
    "keys": {f"{LONG}{n}": 1 for n in range(100)},
    "bytes": LONG.encode(),
    "number": 10**100_000,
    "object": RuntimeError(LONG),
    "set": {LONG, "b"},
}


PROGRAM = """
import sys
from eva_wire.service.logs import configure
import structlog
configure(cluster="lab")
log = structlog.get_logger()
for number in range(3):
    log.error("told", number=number)
try:
    raise ValueError
except ValueError:
    log.exception("broken")
print("alive")
"""


@pytest.mark.parametrize("trouble", ["full", "closed", "unread"])
def test_a_log_that_cannot_be_written_stops_nobody(trouble: str) -> None:
    """Its disk is full, as the journal's may be at that time; or its reader is gone."""
    reader, unread = os.pipe()
    os.close(reader)
    with Path("/dev/full").open("w") as full, Path(os.devnull).open("w") as null:
        place = {"full": full, "unread": unread, "closed": null}[trouble]
        program = PROGRAM
        if trouble == "closed":
            program = program.replace("log = ", "sys.stderr.close(); log = ")
        done = subprocess.run(
            [sys.executable, "-c", program],
            stdout=subprocess.PIPE,
            stderr=place,
            text=True,
            check=False,
        )
    os.close(unread)
    assert done.stdout == "alive\n"


@pytest.mark.parametrize("kind", VALUES)
def test_a_value_is_cut(kind: str) -> None:
    line = bounded(None, "info", {"event": "told", "value": VALUES[kind], "id": 7})
    assert (line["event"], line["id"]) == ("told", 7)
    text = structlog.processors.JSONRenderer()(None, "info", dict(line))
    assert len(text) < 120_000
    json.loads(text)


def test_short_lines_are_as_they_were() -> None:
    line = {
        "event": "e",
        "ms": {"boot": 3, "join": 4.5},
        "ports": [1, 2],
        "none": None,
        "yes": True,
    }
    assert bounded(None, "info", dict(line)) == line


def test_the_end_of_a_traceback_is_kept() -> None:
    trace = f"{LONG}\nValueError: the reason"
    line = bounded(None, "error", {"event": "e", "exception": trace})
    assert line["exception"].endswith("ValueError: the reason")
    assert len(line["exception"]) < 21_000
