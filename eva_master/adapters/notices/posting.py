"""One POST to a receiver: bounded in time and size, to the address that was checked."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Protocol

import h11

from eva_master.adapters.answers import MOST_READ, AnswerReader, AnswerTooLarge
from eva_master.adapters.notices.addresses import IpAddress, Target, refusal
from eva_wire.values.errors import NoticeNotSent

TIMEOUT_S = 5.0
"""For the name, the connection, and the answer's first line."""
_BODY_S = 1.0
"""How long the rest of an answer is read, which nobody looks at."""
_LINE_BYTES = 16 << 10
_ADDRESSES_TRIED = 3
_CONTEXT_S = 300.0
_LONGEST_PAUSE_S = 3_600

Resolve = Callable[[str, int], list[IpAddress]]
"""The addresses of a host, in the order in which they are tried; may block, raises `OSError`."""


class Trust(Protocol):
    """Makes the context that a receiver's certificate is checked with."""

    def __call__(self) -> ssl.SSLContext:
        """The context."""
        ...


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer of a receiver.

    Attributes:
        status: Its HTTP status.
        pause_s: How long it asks to be left alone, in seconds; 0 if it does not.
    """

    status: int
    pause_s: int = 0

    @property
    def accepted(self) -> bool:
        """Whether the notice was taken."""
        return 200 <= self.status < 300

    @property
    def about_notice(self) -> bool:
        """Whether this notice is refused, rather than all at present."""
        return 400 <= self.status < 500 and self.status not in (401, 403, 404, 408, 410, 425, 429)


def addresses_of(host: str, port: int) -> list[IpAddress]:
    """Ask the machine's resolver.

    Raises:
        OSError: There is no such host.
    """
    entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(ip_address(str(entry[4][0]).partition("%")[0]) for entry in entries))


class Poster:
    """Sends to one receiver, one notice at a time.

    Args:
        target: Where to.
        trust: Makes the context for its certificate.
        resolve: Looks names up, on a thread of its own.
    """

    def __init__(self, target: Target, trust: Trust, resolve: Resolve = addresses_of) -> None:
        self.target = target
        self._trust = trust
        self._resolve = resolve
        self._looking: asyncio.Future[list[IpAddress]] | None = None
        self._context: ssl.SSLContext | None = None
        self._context_s = 0.0

    async def post(self, headers: Mapping[str, str], body: bytes) -> Answer:
        """Send a body; redirects are answers like others, and are not followed.

        Raises:
            NoticeNotSent: No answer came in time, or none that could be read; or the receiver is
                not where notices may be sent.
        """
        try:
            async with asyncio.timeout(TIMEOUT_S):
                reader, writer = await self._connect()
                try:
                    return await self._asked(reader, writer, headers, body)
                finally:
                    writer.transport.abort()
        except TimeoutError:
            raise NoticeNotSent(f"no answer came within {TIMEOUT_S:.0f} s") from None
        except ssl.SSLCertVerificationError as error:
            raise NoticeNotSent(
                f"its certificate is not trusted: {error.verify_message}",
                hint="name its authority with `authorities`, if it is your own",
            ) from None
        except ssl.SSLError as error:
            raise NoticeNotSent(f"the encryption failed: {error.reason}") from None
        except AnswerTooLarge:
            raise NoticeNotSent(f"its answer has more than {MOST_READ:,} bytes") from None
        except h11.RemoteProtocolError:
            raise NoticeNotSent("it does not answer as HTTP does") from None
        except OSError as error:
            raise NoticeNotSent(f"the connection failed: {error.strerror or error}") from None

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        target = self.target
        addresses = await self._addresses()
        if why := refusal(addresses, target):
            raise NoticeNotSent(why)
        failure = OSError("it has no address")
        context = self._trusted() if target.secure else None
        for address in addresses[:_ADDRESSES_TRIED]:
            try:
                return await asyncio.open_connection(
                    str(address),
                    target.port,
                    ssl=context,
                    server_hostname=target.host if target.secure else None,
                    limit=_LINE_BYTES,
                )
            except ssl.SSLError:
                raise
            except OSError as error:
                failure = error
        raise failure

    def _trusted(self) -> ssl.SSLContext:
        """The context, made anew now and then: the authorities' file may change."""
        now_s = time.monotonic()
        if self._context is None or now_s > self._context_s + _CONTEXT_S:
            self._context, self._context_s = self._trust(), now_s
        return self._context

    async def _addresses(self) -> list[IpAddress]:
        """Look the host up; a look-up that hangs is waited for, and no second one begins."""
        if self._looking is None or self._looking.done():
            self._looking = _on_thread(self._resolve, self.target.host, self.target.port)
        return await asyncio.shield(self._looking)

    async def _asked(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        headers: Mapping[str, str],
        body: bytes,
    ) -> Answer:
        target = self.target
        connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=_LINE_BYTES)
        usual = 443 if target.secure else 80
        host = target.authority if target.port == usual else f"{target.authority}:{target.port}"
        sent = {
            "Host": host,
            **headers,
            "Content-Length": str(len(body)),
            "Accept": "*/*",
            "Connection": "close",
        }
        request = h11.Request(method="POST", target=target.path, headers=list(sent.items()))
        for event in (request, h11.Data(data=body), h11.EndOfMessage()):
            writer.write(connection.send(event) or b"")
        read = AnswerReader(connection, reader)
        with contextlib.suppress(
            ConnectionError
        ):  # The receiver may answer before it has read all.
            await writer.drain()
        response = await read.response()
        with contextlib.suppress(TimeoutError, OSError, h11.RemoteProtocolError, AnswerTooLarge):
            async with asyncio.timeout(_BODY_S):
                await read.body()
        return Answer(response.status_code, _pause_s(response))


def _pause_s(response: h11.Response) -> int:
    """Seconds of ``Retry-After``; 0 where it states a date, or nothing."""
    for name, value in response.headers:
        if name == b"retry-after" and value.isdigit() and len(value) < 10:
            return min(int(value), _LONGEST_PAUSE_S)
    return 0


def _on_thread(resolve: Resolve, host: str, port: int) -> asyncio.Future[list[IpAddress]]:
    """Call a resolver on a thread that nothing waits for when the process ends."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[list[IpAddress]] = loop.create_future()

    def settle(addresses: list[IpAddress] | None, error: Exception | None) -> None:
        if future.cancelled():
            return
        if error is None:
            future.set_result(addresses or [])
        else:
            future.set_exception(error)

    def look() -> None:
        addresses: list[IpAddress] | None = None
        failure: Exception | None = None
        try:
            addresses = resolve(host, port)
        except (OSError, ValueError) as error:
            failure = OSError(f"{host} is not known: {error}")
        with contextlib.suppress(RuntimeError):  # The loop is closed by now.
            loop.call_soon_threadsafe(settle, addresses, failure)

    future.add_done_callback(lambda done: done.cancelled() or done.exception())
    threading.Thread(target=look, name="notices-names", daemon=True).start()
    return future
