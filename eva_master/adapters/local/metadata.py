"""The metadata service of an emulated spot instance, as far as it tells of interruptions (IMDSv2).

Standard library only, as it runs in host processes.
"""

from __future__ import annotations

import json
import os
import threading
from datetime import UTC, datetime
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_TOKEN_PATH = "/latest/api/token"  # noqa: S105 - no password
_ACTION_PATH = "/latest/meta-data/spot/instance-action"
_TOKEN_HEADER = "X-aws-ec2-metadata-token"  # noqa: S105 - no password


class MetadataServer:
    """Says on the loopback interface when the cloud takes the instance back, once it does."""

    def __init__(self) -> None:
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        """The port that it listens on."""

    def start(self) -> None:
        """Serve in threads that end with the process."""
        threading.Thread(target=self._server.serve_forever, name="metadata", daemon=True).start()

    def announce(self, at_ms: int) -> None:
        """Tell whoever asks from now on that the instance is terminated.

        Args:
            at_ms: When, in milliseconds since the epoch.
        """
        at = datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")
        self._server.action = json.dumps({"action": "terminate", "time": at}).encode()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    token = os.urandom(16).hex()
    action = b""
    """The notice; empty while there is none."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_PUT(self) -> None:
        token_asked = self.path == _TOKEN_PATH
        self._answer(
            HTTPStatus.OK if token_asked else HTTPStatus.NOT_FOUND, self.server.token.encode()
        )

    def do_GET(self) -> None:
        if self.headers[_TOKEN_HEADER] != self.server.token:
            self._answer(HTTPStatus.UNAUTHORIZED)
        elif self.path == _ACTION_PATH and self.server.action:
            self._answer(HTTPStatus.OK, self.server.action)
        else:
            self._answer(HTTPStatus.NOT_FOUND)

    def _answer(self, status: HTTPStatus, body: bytes = b"") -> None:
        sent = body if status is HTTPStatus.OK else b""
        self.send_response(status)
        self.send_header("Content-Length", str(len(sent)))
        self.end_headers()
        self.wfile.write(sent)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as inherited
        """Say nothing: a worker asks every few seconds."""
