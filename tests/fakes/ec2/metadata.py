"""The instance metadata service of a test instance, version 2 alone, at the usual address."""

from __future__ import annotations

import base64
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.fakes.aws.instances.credentials import credentials
from tests.fakes.hosts.process import run

ADDRESS = "169.254.169.254"
_TOKEN = "a-token"
_ROLE = "eva-worker"


class Metadata:
    """Serves in a thread that ends with the process.

    Args:
        instance: Description of the instance: the ids, the user data in base64.
        notices: Directory where tests put ``spot/instance-action`` and the like.
        region: The instance's.
    """

    def __init__(self, instance: dict[str, str], notices: Path, region: str) -> None:
        run("ip", "addr", "add", f"{ADDRESS}/32", "dev", "lo")
        self._server = ThreadingHTTPServer((ADDRESS, 80), _Handler)
        self._server.daemon_threads = True
        roles = "/latest/meta-data/iam/security-credentials/"
        _Handler.documents = {
            "/latest/meta-data/instance-id": instance["id"].encode(),
            "/latest/meta-data/placement/region": region.encode(),
            "/latest/user-data": base64.b64decode(instance["user_data"]),
            roles: _ROLE.encode(),
            roles + _ROLE: credentials(),
        }
        _Handler.notices = notices

    def start(self) -> None:
        """Listen."""
        threading.Thread(target=self._server.serve_forever, daemon=True).start()


class _Handler(BaseHTTPRequestHandler):
    documents: dict[str, bytes]
    notices: Path

    def do_PUT(self) -> None:
        wanted = self.path == "/latest/api/token"
        self._answer(HTTPStatus.OK if wanted else HTTPStatus.NOT_FOUND, _TOKEN.encode())

    def do_GET(self) -> None:
        if self.headers.get("X-aws-ec2-metadata-token") != _TOKEN:
            self._answer(HTTPStatus.UNAUTHORIZED, b"")
            return
        document = self.documents.get(self.path)
        notice = self.notices / self.path.removeprefix("/latest/meta-data/")
        if document is None and notice.is_file():
            document = notice.read_bytes()
        self._answer(HTTPStatus.NOT_FOUND if document is None else HTTPStatus.OK, document or b"")

    def _answer(self, status: HTTPStatus, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass
