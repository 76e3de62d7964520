"""The data server of an emulated instance, whose tasks share one throttled link.

Standard library only, as it runs in every host process.
"""

from __future__ import annotations

import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

CHUNK = 64 * 1024
"""Bytes that are sent to a reader at a time."""
BURST_S = 0.02
"""Burst of an idle link: what it could have carried in so many seconds."""

_PATTERN = bytes(range(256)) * (CHUNK // 256)


class TokenBucket:
    """A token bucket that readers draw from in turn.

    Each draw gets the next free slot of the link's time. A reader asks for its next chunk after it
    has sent the last one and so queues behind all others. Readers therefore share the link evenly.

    Args:
        rate: Bytes per second.
    """

    def __init__(self, rate: int) -> None:
        self.rate = rate
        self._free_at = time.monotonic()
        self._lock = threading.Lock()

    def draw(self, size: int) -> None:
        """Wait until `size` more bytes may pass."""
        with self._lock:
            now = time.monotonic()
            self._free_at = max(self._free_at, now - BURST_S) + size / self.rate
            wait = self._free_at - now
        if wait > 0:
            time.sleep(wait)


class DataServer:
    """Serves ``GET /read?bytes=N`` (byte i is i mod 256) and ``GET /rate``.

    Args:
        rate: Bytes per second for all readers together.
        address: Address of this machine that the readers reach.
    """

    def __init__(self, rate: int, address: str = "127.0.0.1") -> None:
        self._server = _Server((address, 0), _Handler)
        self._server.link = TokenBucket(rate)
        self.url = f"http://{address}:{self._server.server_port}"
        """The port that it listens on."""

    def start(self) -> None:
        """Serve in threads that end with the process."""
        threading.Thread(target=self._server.serve_forever, name="data", daemon=True).start()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    link: TokenBucket


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        if url.path == "/rate":
            body = str(self.server.link.rate).encode()
            self._head(len(body), "text/plain")
            self.wfile.write(body)
        elif url.path == "/read":
            size = parse_qs(url.query).get("bytes", [""])[-1]
            if size.isascii() and size.isdecimal():
                self._send(int(size))
            else:
                self.send_error(HTTPStatus.BAD_REQUEST, "bytes must be a whole number")
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    def _send(self, size: int) -> None:
        self._head(size, "application/octet-stream")
        try:
            for start in range(0, size, CHUNK):
                length = min(CHUNK, size - start)
                self.server.link.draw(length)
                self.wfile.write(_PATTERN[:length])
        except ConnectionError:
            # The reader has disconnected.
            self.close_connection = True

    def _head(self, size: int, kind: str) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(size))
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as inherited
        """Say nothing: a line per read would drown the instance's log."""
