"""An image registry for tests, on loopback, where an engine talks plain HTTP."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_TYPE = "application/vnd.docker.distribution.manifest.v2+json"


class Registry(ThreadingHTTPServer):
    """One image under any name and tag.

    Attributes:
        open: Cleared, layers stall in the middle.
        stalled: A layer does.
        pulls: How often the layer was asked for.
    """

    daemon_threads = True

    def __init__(self, layer: bytes) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        packed = gzip.compress(layer, 1)
        config = {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Env": ["PATH=/bin", "OF_REGISTRY=1"]},
            "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
        }
        self.blobs: dict[str, bytes] = {}
        document = {
            "schemaVersion": 2,
            "mediaType": _TYPE,
            "config": self._add("container.image.v1", json.dumps(config).encode()),
            "layers": [self._add("image.rootfs.diff.tar.gzip", packed)],
        }
        self.layer = _digest(packed)
        self.manifest = json.dumps(document).encode()
        self.open, self.stalled = threading.Event(), threading.Event()
        self.open.set()
        self.pulls = 0

    @property
    def image(self) -> str:
        """A reference of its image."""
        return f"127.0.0.1:{self.server_address[1]}/eva/test:1"

    def _add(self, kind: str, data: bytes) -> dict[str, object]:
        self.blobs[_digest(data)] = data
        media = f"application/vnd.docker.{kind}"
        if kind == "container.image.v1":
            media += "+json"
        return {"mediaType": media, "size": len(data), "digest": _digest(data)}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Registry

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def log_message(self, *_args: object) -> None:
        pass

    def _answer(self, *, body: bool) -> None:
        *_, kind, name = self.path.split("/")
        if self.path == "/v2/":
            data, media = b"{}", "application/json"
        elif kind == "manifests" and "no-such" not in self.path:
            data, media = self.server.manifest, _TYPE
        elif kind == "blobs" and name in self.server.blobs:
            data, media = self.server.blobs[name], "application/octet-stream"
        else:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Type", media)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Docker-Content-Digest", _digest(data))
        self.end_headers()
        if body:
            self._send(data, is_layer=name == self.server.layer)

    def _send(self, data: bytes, *, is_layer: bool) -> None:
        half = len(data) // 2
        with contextlib.suppress(OSError):
            self.wfile.write(data[:half])
            self.wfile.flush()
            if is_layer:
                self.server.pulls += 1
                if not self.server.open.is_set():
                    self.server.stalled.set()
                self.server.open.wait()
            self.wfile.write(data[half:])


@contextlib.contextmanager
def running(layer: bytes) -> Iterator[Registry]:
    """Run a registry that has an image of one layer, a tar file."""
    registry = Registry(layer)
    thread = threading.Thread(target=registry.serve_forever, daemon=True)
    thread.start()
    try:
        yield registry
    finally:
        registry.open.set()
        registry.shutdown()
        registry.server_close()
        thread.join()


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"
