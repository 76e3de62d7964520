"""AWS for tests: moto's server in a process of its own, and what moto lacks of EC2.

Added to moto: client tokens, a launch that takes time, and faults of RunInstances on order. Orders
go by cluster (the tag ``eva:cluster`` of a launch), so that all tests may share one server. And S3
can be out of order; that is for who has a server of its own.
"""

from __future__ import annotations

import atexit
import functools
import io
import json
import re
import subprocess
import sys
import threading
import time
import urllib.request
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import parse_qs

import boto3
import pytest

REGION = "us-east-1"
CREDENTIALS = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing"}
_ORDERS = "/eva-orders"
_OUTAGE = "/eva-outage"

STATUS = {
    "IdempotentParameterMismatch": 400,
    "InsufficientInstanceCapacity": 500,
    "InternalError": 500,
    "InvalidParameterValue": 400,
    "RequestLimitExceeded": 503,
    "ServiceUnavailable": 503,
    "UnauthorizedOperation": 403,
    "VcpuLimitExceeded": 400,
}
LOST = "lost"
"""A fault: the launch is done, and its answer comes too late."""
LATE_S = 1.0


class Aws:
    """The server, from outside; it ends with this process.

    Args:
        host: Where it listens.
    """

    def __init__(self, host: str = "127.0.0.1") -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.fakes.aws", host],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self._process.stdout is not None
        self.client = functools.cache(self._client)
        self.url = self._process.stdout.readline().decode().strip()
        assert self.url, "the server did not start"

    def _client(self, service: str) -> Any:
        """A client of boto3, for any number of threads."""
        return boto3.session.Session().client(
            service, region_name=REGION, endpoint_url=self.url, **CREDENTIALS
        )

    def order(self, cluster: str, *, faults: Iterable[str] = (), launch_ms: int = 0) -> None:
        """Have the next launches of a cluster fail, and all of them take so long."""
        order = {"cluster": cluster, "faults": list(faults), "launch_ms": launch_ms}
        request = urllib.request.Request(self.url + _ORDERS, json.dumps(order).encode())
        with urllib.request.urlopen(request, timeout=30):
            pass

    def break_s3(self) -> None:
        """Have S3 answer whatever it is asked with an error."""
        self._set_outage("PUT")

    def mend_s3(self) -> None:
        """Undo `break_s3`."""
        self._set_outage("DELETE")

    def _set_outage(self, method: str) -> None:
        request = urllib.request.Request(self.url + _OUTAGE, method=method)
        with urllib.request.urlopen(request, timeout=30):
            pass

    def make_bucket(self) -> str:
        """Make a bucket; returns its URL for an object store, with a prefix."""
        bucket = f"eva-{uuid.uuid4().hex}"
        self.client("s3").create_bucket(Bucket=bucket)
        return f"s3://{bucket}/some/prefix?region={REGION}&endpoint={self.url}"

    def stop(self) -> None:
        """End the server."""
        self._process.communicate()


@functools.cache
def shared() -> Aws:
    """The one server of this test process."""
    server = Aws()
    atexit.register(server.stop)
    return server


def bucket_url(monkeypatch: pytest.MonkeyPatch) -> str:
    """A new bucket on the shared server, with the credentials for it in the environment."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name.upper(), value)
    return shared().make_bucket()


# -- inside the server's process -----------------------------------------------------------------

StartResponse = Callable[..., Any]


class Ec2Front:
    """WSGI around moto's application."""

    def __init__(self, moto: Callable[..., Iterable[bytes]]) -> None:
        self._moto = moto
        self._lock = threading.Lock()
        self._faults: dict[str, list[str]] = defaultdict(list)
        self._launch_ms: dict[str, int] = {}
        self._launches: dict[str, tuple[dict[str, Any], bytes]] = {}
        self._pending: dict[str, datetime] = {}
        self._outage = False

    def __call__(self, environ: dict[str, Any], start: StartResponse) -> Iterable[bytes]:
        if environ["PATH_INFO"] == _ORDERS:
            return self._take_order(environ, start)
        if environ["PATH_INFO"] == _OUTAGE:
            self._outage = environ["REQUEST_METHOD"] == "PUT"
            start("200 OK", [("Content-Length", "0")])
            return []
        if not environ.get("CONTENT_TYPE", "").startswith("application/x-www-form-urlencoded"):
            if self._outage:
                return _refuse(start, "ServiceUnavailable")
            return self._moto(environ, start)
        body = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
        environ["wsgi.input"] = io.BytesIO(body)
        form = {key: values[0] for key, values in parse_qs(body.decode()).items()}
        with self._lock:
            self._come_up()
        if form.get("Action") == "RunInstances":
            return self._run_instances(form, environ, start)
        return self._moto(environ, start)

    def _take_order(self, environ: dict[str, Any], start: StartResponse) -> Iterable[bytes]:
        order = json.loads(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])))
        self._faults[order["cluster"]].extend(order["faults"])
        self._launch_ms[order["cluster"]] = order["launch_ms"]
        start("200 OK", [("Content-Length", "0")])
        return []

    def _run_instances(
        self, form: dict[str, str], environ: dict[str, Any], start: StartResponse
    ) -> Iterable[bytes]:
        cluster = next(
            (
                form[key.replace(".Key", ".Value")]
                for key, value in form.items()
                if value == "eva:cluster" and key.endswith(".Key")
            ),
            "",
        )
        with self._lock:
            fault = self._faults[cluster].pop(0) if self._faults[cluster] else ""
            if fault and fault != LOST:
                return _refuse(start, fault)
            token = form.pop("ClientToken")
            if token not in self._launches:
                self._launches[token] = form, self._launch(cluster, environ)
            parameters, answer = self._launches[token]
        if fault == LOST:
            time.sleep(LATE_S)
        if parameters != form:
            return _refuse(start, "IdempotentParameterMismatch")
        start("200 OK", [("Content-Type", "text/xml"), ("Content-Length", str(len(answer)))])
        return [answer]

    def _launch(self, cluster: str, environ: dict[str, Any]) -> bytes:
        answer = b"".join(self._moto(environ, lambda *_: None))
        if delay_ms := self._launch_ms.get(cluster, 0):
            made = re.search(rb"<instanceId>(.+?)</instanceId>", answer)
            assert made is not None, answer
            instance = _instances()[made[1].decode()]
            _set_state(instance, "pending", 0)
            # A delay is read off the record: LaunchTime, which EC2 keeps in whole seconds.
            late = instance.launch_time + timedelta(milliseconds=delay_ms, microseconds=999_999)
            instance.launch_time = late.replace(microsecond=0)
            self._pending[instance.id] = instance.launch_time
        return answer

    def _come_up(self) -> None:
        from moto.core.utils import utcnow

        for ec2_id, due in list(self._pending.items()):
            instance = _instances()[ec2_id]
            if instance.state != "pending":
                del self._pending[ec2_id]
            elif due <= utcnow():
                _set_state(instance, "running", 16)
                del self._pending[ec2_id]


def _instances() -> dict[str, Any]:
    from moto.core import DEFAULT_ACCOUNT_ID
    from moto.ec2 import ec2_backends

    backend = ec2_backends[DEFAULT_ACCOUNT_ID][REGION]
    return {
        instance.id: instance
        for reservation in backend.reservations.values()
        for instance in reservation.instances
    }


def _set_state(instance: Any, name: str, code: int) -> None:
    instance._state.name, instance._state.code = name, code


def _refuse(start: StartResponse, code: str) -> Iterable[bytes]:
    body = (
        f"<Response><Errors><Error><Code>{code}</Code><Message>{code} on order</Message></Error>"
        "</Errors><RequestID>0</RequestID></Response>"
    ).encode()
    start(
        f"{STATUS[code]} Refused",
        [("Content-Type", "text/xml"), ("Content-Length", str(len(body)))],
    )
    return [body]


def main() -> None:
    """Serve until standard input ends, as it does when the tests' process dies."""
    from moto.server import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
    from werkzeug.serving import make_server

    server = make_server(
        sys.argv[1],
        0,
        Ec2Front(DomainDispatcherApplication(create_backend_app)),
        threaded=True,
        request_handler=MotoRequestHandler,
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"http://{sys.argv[1]}:{server.port}", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
