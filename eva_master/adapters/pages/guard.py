"""Refuses requests that no page of ours makes, and says to browsers what pages may do.

Everything is behind it: a page, a stream, a file and an error alike.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MOST_BODY_BYTES = 16 * 1024
_BODY_S = 10.0
_WRITE_S = 20.0
"""A browser that does not read a part of an answer for so long is disconnected."""
_LONGEST_TARGET = 4_096
_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "worker-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "content-security-policy": _POLICY,
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}


class Guard:
    """Lets requests of this site's own pages through.

    Args:
        app: The application that is guarded.
        is_host: Whether a name, without its port, is one of this server's.
    """

    def __init__(self, app: ASGIApp, is_host: Callable[[str], bool]) -> None:
        self._app = app
        self._is_host = is_host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or refuse it."""
        if scope["type"] != "http":
            return
        headers = Headers(scope=scope)
        send = _with_headers(send)
        if refusal := self._refusal(scope, headers):
            status, text = refusal
            await PlainTextResponse(text + "\n", status)(scope, receive, send)
            return
        if scope["method"] == "POST":
            body = await _body(receive)
            if body is None:
                text = f"a form has at most {MOST_BODY_BYTES:,} bytes, and comes within 10 s"
                await PlainTextResponse(text + "\n", 413)(scope, receive, send)
                return
            receive = _replayed(body, receive)
        await self._app(scope, receive, send)

    def _refusal(self, scope: Scope, headers: Headers) -> tuple[int, str] | None:
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._is_host(host_name(hosts[0])):
            return 421, "this server has no such name; use the address that `eva ui` prints"
        if len(scope["raw_path"]) + len(scope["query_string"]) > _LONGEST_TARGET:
            return 414, "no page has such a long address"
        if scope["method"] not in ("GET", "POST"):
            return 405, "pages are read with GET, and forms are sent with POST"
        if scope["method"] == "POST" and not _own_form(headers, f"{scope['scheme']}://{hosts[0]}"):
            return 403, "this form was not sent by a page of this server"
        return None


def _own_form(headers: Headers, origin: str) -> bool:
    """Whether a form comes from a page of this server.

    Pages that send no referrer have the browser write `null` for the origin of a form that is sent
    without a script; then the browser's own word is asked for, which no page can write.
    """
    site = headers.get("sec-fetch-site")
    if site not in (None, "same-origin"):
        return False
    stated = headers.getlist("origin")
    return stated == [origin] or (stated == ["null"] and site == "same-origin")


def host_name(host: str) -> str:
    """The name in a host and port."""
    name, _, port = host.rpartition(":")
    return name if name and port.isdigit() else host


def _with_headers(send: Send) -> Send:
    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(raw=message.setdefault("headers", []))
            headers.update(HEADERS)
            headers.setdefault("cache-control", "no-store")
            message["headers"] = headers.raw
        async with asyncio.timeout(_WRITE_S):
            await send(message)

    return sent


async def _body(receive: Receive) -> bytes | None:
    """The body of a request; `None` if it is too long, or takes too long."""
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(_BODY_S):
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    return None
                part: Any = message.get("body", b"")
                size += len(part)
                if size > MOST_BODY_BYTES:
                    return None
                parts.append(part)
                if not message.get("more_body"):
                    return b"".join(parts)
    except TimeoutError:
        return None


def _replayed(body: bytes, receive: Receive) -> Receive:
    taken = False

    async def again() -> Message:
        nonlocal taken
        if taken:
            return await receive()
        taken = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again
