"""A container engine without containers: it answers as one would, or fails as a test says.

The script speaks as much of the Docker Engine API as the fence of owned nodes needs, on a Unix
socket, so that the fence is tested where no engine can run, and against answers that no engine
gives on demand.
"""

from __future__ import annotations

import json
import socketserver
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.fakes.paths import short_tempdir

NOT_FOUND, CONFLICT, BROKEN = 404, 409, 500


@dataclass
class Container:
    """One container.

    Attributes:
        state: As the engine's lists have it.
        labels: Its labels.
        kill: The status with which the engine answers a kill; 204 ends it. 0 for no answer at all:
            the engine hangs up.
        look: Answer to an inspection of it.
        meets: Kills that it waits for before it answers.
    """

    state: str
    labels: Mapping[str, str]
    kill: int = 204
    look: int = 200
    meets: threading.Barrier | None = None


@dataclass
class ScriptedEngine:
    """Containers of the engine, and received requests.

    Attributes:
        listing: The status with which a list is answered.
        killed: The containers that were to be killed, in order.
    """

    url: str
    containers: dict[str, Container] = field(default_factory=dict)
    listing: int = 200
    killed: list[str] = field(default_factory=list)

    def answer(self, method: str, target: str) -> tuple[int, Any]:
        """The status and body of an answer; status 0 for none."""
        parts = urlsplit(target)
        path = parts.path.strip("/").split("/")
        path = path[1:] if path[0].startswith("v1.") else path
        match method, *path:
            case "GET", "version":
                return 200, {"ApiVersion": "1.44", "MinAPIVersion": "1.24"}
            case "GET", "containers", "json":
                return self._list(parse_qs(parts.query))
            case "GET", "containers", name, "json" if name in self.containers:
                it = self.containers[name]
                state = {"Status": it.state}
                return it.look, {"Id": name, "State": state, "Config": {"Labels": dict(it.labels)}}
            case "POST", "containers", name, "kill" if name in self.containers:
                return self._kill(name)
            case "DELETE", "containers", name if name in self.containers:
                del self.containers[name]
                return 204, None
            case _:
                return NOT_FOUND, {"message": f"there is no {target}"}

    def _list(self, query: Mapping[str, list[str]]) -> tuple[int, Any]:
        if self.listing != 200:
            return self.listing, {"message": "the engine is out of order"}
        filters = json.loads(query.get("filters", ["{}"])[0])
        wanted = [it.partition("=")[::2] for it in filters.get("label", [])]
        everyone = query.get("all", ["0"])[0] in ("1", "True", "true")
        return 200, [
            {"Id": name, "State": it.state, "Labels": dict(it.labels), "Names": [f"/{name}"]}
            for name, it in self.containers.items()
            if all(it.labels.get(label) == value for label, value in wanted)
            and (everyone or it.state == "running")
        ]

    def _kill(self, name: str) -> tuple[int, Any]:
        self.killed.append(name)
        it = self.containers[name]
        if it.meets is not None:
            try:
                it.meets.wait()
            except threading.BrokenBarrierError:
                return BROKEN, {"message": "nobody else was killed meanwhile"}
        if it.kill == 204:
            it.state = "exited"
            return 204, None
        if it.kill == NOT_FOUND:
            del self.containers[name]
        return it.kill, {"message": "it cannot be killed"}


@contextmanager
def running() -> Iterator[ScriptedEngine]:
    """An engine that listens."""
    with tempfile.TemporaryDirectory(dir=short_tempdir()) as folder:
        path = Path(folder) / "engine.sock"
        engine = ScriptedEngine(f"unix://{path}")

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _answer(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                status, body = engine.answer(self.command, self.path)
                if not status:
                    self.close_connection = True
                    return
                data = b"" if body is None else json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                if body is not None:
                    self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_DELETE = _answer  # noqa: N815 - the server's names

            def log_message(self, *_: object) -> None: ...

            def address_string(self) -> str:
                return "test"

        with socketserver.ThreadingUnixStreamServer(str(path), Handler) as server:
            server.daemon_threads = True
            thread = threading.Thread(target=server.serve_forever, daemon=True)
            thread.start()
            try:
                yield engine
            finally:
                server.shutdown()
                thread.join()
