"""Lines of the log are short, whatever they quote."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import structlog

from eva_master.app import logs as of_the_master
from eva_worker.process import logging as of_the_agent

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


@pytest.mark.parametrize("bounded", [of_the_master.bounded, of_the_agent.bounded])
@pytest.mark.parametrize("kind", VALUES)
def test_a_value_is_cut(bounded: Callable[..., Any], kind: str) -> None:
    line = bounded(None, "info", {"event": "told", "value": VALUES[kind], "id": 7})
    assert (line["event"], line["id"]) == ("told", 7)
    text = structlog.processors.JSONRenderer()(None, "info", dict(line))
    assert len(text) < 120_000
    json.loads(text)


@pytest.mark.parametrize("bounded", [of_the_master.bounded, of_the_agent.bounded])
def test_short_lines_are_as_they_were(bounded: Callable[..., Any]) -> None:
    line = {
        "event": "e",
        "ms": {"boot": 3, "join": 4.5},
        "ports": [1, 2],
        "none": None,
        "yes": True,
    }
    assert bounded(None, "info", dict(line)) == line


@pytest.mark.parametrize("bounded", [of_the_master.bounded, of_the_agent.bounded])
def test_the_end_of_a_traceback_is_kept(bounded: Callable[..., Any]) -> None:
    trace = f"{LONG}\nValueError: the reason"
    line = bounded(None, "error", {"event": "e", "exception": trace})
    assert line["exception"].endswith("ValueError: the reason")
    assert len(line["exception"]) < 21_000
