"""The parts of an instance's metadata service (IMDSv2) with notices of its end and credentials."""

from __future__ import annotations

import json
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.fakes.aws.instances.credentials import Miss, credentials

PREFIX = "/latest/meta-data/"
INTERRUPTION = "spot/instance-action"
REBALANCE = "events/recommendations/rebalance"
MAINTENANCE = "events/maintenance/scheduled"
"""Scheduled events, an empty list without any:
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/viewing_scheduled_events.html."""
_ROLES = "iam/security-credentials/"


class FakeMetadata:
    """A server in a thread, on any port of the loopback interface.

    Attributes:
        documents: Documents by path below `PREFIX`; to be changed at any time.
        token: Without this one nothing is answered.
        status: Status of all answers instead, if it is set.
        asked: How many questions with the right token there were.
        missed: How the next questions for credentials are missed, one each.
    """

    def __init__(self) -> None:
        self.documents: dict[str, bytes] = {}
        self.token = "first"
        self.status: HTTPStatus | None = None
        self.asked = 0
        self.missed: list[Miss] = []
        self._role = ""
        metadata = self

        class Handler(BaseHTTPRequestHandler):
            def do_PUT(self) -> None:
                if metadata.missed[:1] == [Miss.SILENCE]:
                    del metadata.missed[0]
                    self.rfile.read(1)  # Until the caller gives up.
                    return
                assert int(self.headers["X-aws-ec2-metadata-token-ttl-seconds"]) > 0
                metadata._answer(self, metadata.status or HTTPStatus.OK, metadata.token.encode())

            def do_GET(self) -> None:
                if self.headers["X-aws-ec2-metadata-token"] != metadata.token:
                    metadata._answer(self, HTTPStatus.UNAUTHORIZED, b"")
                    return
                metadata.asked += 1
                path = self.path.removeprefix(PREFIX)
                document = metadata.documents.get(path)
                if path.startswith(_ROLES) and path != _ROLES and metadata.missed:
                    if metadata.missed.pop(0) is Miss.ERROR:
                        metadata._answer(self, HTTPStatus.SERVICE_UNAVAILABLE, b"")
                        return
                    document = credentials(metadata._role, expired=True)
                status = HTTPStatus.NOT_FOUND if document is None else HTTPStatus.OK
                metadata._answer(self, metadata.status or status, document or b"")

            def log_message(self, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def give(self, role: str) -> None:
        """Give a role's credentials from now on."""
        self._role = role
        self.documents[_ROLES] = role.encode()
        self.documents[f"{_ROLES}{role}"] = credentials(role)

    def interrupt(self, time: str, action: str = "terminate") -> None:
        """Give notice, as of ``2026-11-21T08:00:00Z``."""
        self.documents[INTERRUPTION] = json.dumps({"action": action, "time": time}).encode()

    def stop(self) -> None:
        """Listen no more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @staticmethod
    def _answer(handler: BaseHTTPRequestHandler, status: HTTPStatus, body: bytes) -> None:
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)
