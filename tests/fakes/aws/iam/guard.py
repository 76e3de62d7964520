"""The stand-in's door: calls with a role's credentials do what the role's policies allow."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any
from urllib.parse import unquote

from tests.fakes.aws.iam import Call, allowed, demands
from tests.fakes.aws.iam.roles import (
    Made,
    access_key,
    facts_of_moto,
    policies_of,
    roles_of_profiles,
)
from tests.fakes.aws.instances.credentials import refusal

StartResponse = Callable[..., Any]
_OURS = "/eva/"
_FORM = "application/x-www-form-urlencoded"


class Guard:
    """WSGI around the stand-in. The account's own credentials may do everything.

    Args:
        inner: The stand-in.
        resources: All resources of stacks.
        lock: Of moto's state.
    """

    def __init__(
        self,
        inner: Callable[..., Iterable[bytes]],
        resources: Callable[[], list[Made]],
        lock: AbstractContextManager[Any],
    ) -> None:
        self._inner = inner
        self._resources = resources
        self._lock = lock
        self._decisions: list[dict[str, Any]] = []

    def __call__(self, environ: dict[str, Any], start: StartResponse) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if path == f"{_OURS}decisions":
            with self._lock:
                return _answer(start, json.dumps(self._decisions).encode(), "application/json")
        if path == f"{_OURS}forget":
            with self._lock:
                self._decisions.clear()
        if not path.startswith(_OURS) and (code := refusal(environ)):
            return _refused(environ, start, code, "the security token has expired")
        resources = [] if path.startswith(_OURS) else self._resources()
        role = access_key(environ)
        role = dict(roles_of_profiles(resources)).get(role, role)
        policies = policies_of(role, resources)
        if policies is None:
            return self._inner(environ, start)
        call = _call(environ)
        with self._lock:
            denied = self._denied(role, policies, resources, call)
        if not denied:
            return self._inner(environ, start)
        says = f"role {role} is not authorized to perform: {denied}"
        return _refused(environ, start, _denial(environ), says)

    def _denied(
        self,
        role: str,
        policies: list[Mapping[str, Any]],
        resources: list[Made],
        call: Call,
    ) -> str:
        """The first permission that the role lacks for a call; empty if it has all."""
        profiles = {
            name: f"arn:aws:iam::123456789012:role/{its}"
            for name, its in roles_of_profiles(resources)
        }
        denied = ""
        for demand in demands(call, facts_of_moto(profiles)):
            may = allowed(policies, demand)
            said = {
                "role": role,
                "action": demand.action,
                "resource": demand.resource,
                "context": {key: list(values) for key, values in demand.context.items()},
                "allowed": may,
            }
            self._decisions.append(said)
            if not may and not denied:
                denied = f"{demand.action} on {demand.resource}"
        return denied


def _call(environ: dict[str, Any]) -> Call:
    body, method = b"", environ["REQUEST_METHOD"]
    if method == "POST":
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        environ["wsgi.input"] = io.BytesIO(body)
    return Call(
        method,
        unquote(environ["PATH_INFO"]),
        environ.get("QUERY_STRING", ""),
        environ.get("HTTP_X_AMZ_TARGET", ""),
        body,
        environ.get("HTTP_X_AMZ_COPY_SOURCE", ""),
    )


def _denial(environ: Mapping[str, Any]) -> str:
    """The code of a refusal; EC2 has one of its own.

    https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html
    """
    if environ.get("HTTP_X_AMZ_TARGET"):
        return "AccessDeniedException"
    form = environ.get("CONTENT_TYPE", "").startswith(_FORM)
    return "UnauthorizedOperation" if form else "AccessDenied"


def _refused(
    environ: Mapping[str, Any], start: StartResponse, code: str, says: str
) -> Iterable[bytes]:
    """The refusal in the form of each protocol."""
    if environ.get("HTTP_X_AMZ_TARGET"):
        body = json.dumps({"__type": code, "message": says}).encode()
        return _answer(start, body, "application/x-amz-json-1.1", "400 Bad Request")
    error = f"<Error><Code>{code}</Code><Message>{says}</Message></Error>"
    if environ.get("CONTENT_TYPE", "").startswith(_FORM):
        error = f"<Response><Errors>{error}</Errors><RequestID>0</RequestID></Response>"
    return _answer(start, error.encode(), "text/xml", "403 Forbidden")


def _answer(
    start: StartResponse, body: bytes, kind: str, status: str = "200 OK"
) -> Iterable[bytes]:
    start(status, [("Content-Type", kind), ("Content-Length", str(len(body)))])
    return [body]
