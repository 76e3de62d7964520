"""S3 that takes longer for a copy than for any other request."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from eva_worker.files import objects
from eva_worker.files.objects import Objects
from tests.fakes.aws.service import CREDENTIALS

SCALE = 1 / 30
"""All times are shortened alike: the copy takes 45 s against limits of 30 s and of 10 minutes."""
COPY_S = 45 * SCALE
COPIED = (
    b'<CopyObjectResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><ETag>"e"</ETag>'
    b"<LastModified>2026-01-01T00:00:00.000Z</LastModified></CopyObjectResult>"
)


class SlowS3(ThreadingHTTPServer):
    """S3 that copies slowly; it counts copies."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.copies = 0
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"s3://bucket/p?region=us-east-1&endpoint=http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: SlowS3

    def do_PUT(self) -> None:
        assert "x-amz-copy-source" in self.headers
        self.server.copies += 1
        time.sleep(COPY_S)
        self.send_response(200)
        self.send_header("Content-Length", str(len(COPIED)))
        self.end_headers()
        self.wfile.write(COPIED)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowS3]:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name.upper(), value)
    monkeypatch.setattr(objects, "_ORDINARY_S", objects._ORDINARY_S * SCALE)
    monkeypatch.setattr(objects, "_PATIENT_S", objects._PATIENT_S * SCALE)
    server = SlowS3()
    yield server
    server.shutdown()
    server.server_close()


def test_the_limits_are_those_of_the_scale() -> None:
    assert (objects._ORDINARY_S, objects._PATIENT_S) == (30, 600)


async def test_a_copy_that_takes_45_s_is_made_once(s3: SlowS3) -> None:
    async with asyncio.timeout(objects._PATIENT_S):
        await Objects(s3.url).copy("a", "b")
    assert s3.copies == 1
