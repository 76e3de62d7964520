"""Metrics are at one path, and nothing is at any other."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from wsgiref.util import setup_testing_defaults

import pytest

from eva_wire.service.scrapes import at_its_path


def hello(_: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
    start("200 OK", [])
    return [b"figures"]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/metrics", "200 OK"),
        *((path, "404 Not Found") for path in ("/", "", "/metrics/", "/metric", "/x/metrics")),
    ],
)
def test_one_path_answers_alone(path: str, status: str) -> None:
    environ: dict[str, Any] = {}
    setup_testing_defaults(environ)
    environ["PATH_INFO"] = path
    told: list[str] = []
    body = b"".join(at_its_path(hello)(environ, lambda line, _: told.append(line)))
    assert told == [status]
    assert body == (b"figures" if status == "200 OK" else b"metrics are at /metrics\n")
