"""Receivers of notices on this machine that behave, and others; and a feed of events for them."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eva_master.adapters.loop.clock import SystemClock
from eva_master.adapters.loop.gateway import LoopGateway
from eva_master.adapters.loop.inbox import LiveInbox
from eva_master.adapters.notices.addresses import target_of
from eva_master.adapters.notices.outbox import NoticeOutbox
from eva_master.adapters.notices.receivers import Receiver
from eva_master.adapters.notices.sender import NoticeSender, Pace
from eva_master.adapters.store import SqlArchive, SqlJournal
from eva_master.control.readside.publisher import Publisher
from eva_master.control.settings import Settings
from eva_master.control.state.store import State
from eva_master.model.feed import FeedEvent, FeedKind
from eva_wire.values.ids import Millis
from tests.fakes.patience import DEADLINE_S
from tests.fakes.rpc.authority import authority
from tests.fakes.rpc.server import CATALOG

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
BRISK = Pace(collecting_s=0.0, storing_s=0.001, first_pause_ms=2)


@dataclass(frozen=True)
class Request:
    """A request that came."""

    line: str
    headers: dict[str, str]
    body: bytes


Behave = Callable[[socket.socket, Request], None]


def answers(answer: bytes) -> Behave:
    """Give an answer, and close."""
    return lambda connection, _: connection.sendall(answer)


class ReceiverServer:
    """A server of HTTP, or HTTPS with a certificate of the tests' authority.

    Args:
        secure: Whether it is encrypted.
        behave: Called with each request, on a thread; may be replaced at any time.
    """

    def __init__(self, *, secure: bool = False, behave: Behave | None = None) -> None:
        self.behave = behave or answers(OK)
        self.requests: list[Request] = []
        self._context: ssl.SSLContext | None = None
        if secure:
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._context.load_cert_chain(authority().server().current().file)
        self._changed = threading.Condition()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        """Where notices go."""
        scheme = "http" if self._context is None else "https"
        return f"{scheme}://127.0.0.1:{self.port}/hooks/T0KEN?x=1"

    def wait(self, count: int) -> list[Request]:
        """The requests, once so many came."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.requests) >= count, DEADLINE_S)
            return list(self.requests)

    def close(self) -> None:
        """Be gone."""
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            if self._context is not None:
                connection = self._context.wrap_socket(connection, server_side=True)
            with connection:
                request = _read(connection)
                with self._changed:
                    self.requests.append(request)
                    self._changed.notify_all()
                self.behave(connection, request)
        except OSError:
            connection.close()


def _read(connection: socket.socket) -> Request:
    data = b""
    while b"\r\n\r\n" not in data:
        data += _more(connection)
    head, _, body = data.partition(b"\r\n\r\n")
    line, *lines = head.decode("ascii").split("\r\n")
    headers = dict(entry.split(": ", 1) for entry in lines)
    while len(body) < int(headers["Content-Length"]):
        body += _more(connection)
    return Request(line, headers, body)


def _more(connection: socket.socket) -> bytes:
    data = connection.recv(65_536)
    if not data:
        raise ConnectionError("the request ended early")
    return data


@dataclass
class Feed:
    """A journal with a feed, and a sender that reads it."""

    file: Path
    state: State = field(default_factory=lambda: State(CATALOG))
    gateway: LoopGateway = field(default_factory=lambda: LoopGateway(LiveInbox(SystemClock())))

    def __post_init__(self) -> None:
        self.journal = SqlJournal.open(f"sqlite:///{self.file}")
        self._publisher = Publisher(self.state, Settings())
        self.commit()

    def commit(self) -> None:
        """Write what has changed, and publish it."""
        changes = self.state.take_changes()
        if changes:
            self.journal.commit(changes)
        self.gateway.publish(changes, lambda: self._publisher.publish(SystemClock().now()))

    def tell(self, kind: FeedKind, job: str = "", count: int = 1, **about: Any) -> None:
        """Add events and commit them."""
        last = self.state.count(events=count).events
        owner = about.pop("owner", "ada" if job else "")
        text = about.pop("text", kind.value)
        at_ms = about.pop("at_ms", SystemClock().now())
        self.state.feed.extend(
            FeedEvent(number, Millis(at_ms), kind, job, owner=owner, text=text, **about)
            for number in range(last - count + 1, last + 1)
        )
        self.commit()

    def sender(
        self, receivers: Sequence[Receiver], *, pace: Pace = BRISK, most: int = 1_000, **more: Any
    ) -> NoticeSender:
        """A sender; it is not started."""
        engine = self.journal.engine
        outbox = NoticeOutbox(engine, {receiver.name for receiver in receivers}, most)
        if receivers and outbox.read is None:
            outbox.read = outbox.newest_event()
        return NoticeSender(
            receivers,
            outbox,
            gateway=self.gateway,
            archive=SqlArchive(engine),
            clock=SystemClock(),
            cluster="test",
            pace=pace,
            **more,
        )

    @contextmanager
    def sending(self, *receivers: Receiver, **more: Any) -> Iterator[NoticeSender]:
        """A sender that runs; it reads what is told from now on, or since the last one ended."""
        sender = self.sender(receivers, **more)
        sender.start()
        try:
            yield sender
        finally:
            sender.stop()


def until(condition: Callable[[], bool]) -> None:
    """Wait for what must come."""
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def receiver(url: str, name: str = "ops", **about: Any) -> Receiver:
    """A receiver, which trusts the authority of the tests."""
    trusted = authority().ca_file if url.startswith("https") else None
    return Receiver(name, target_of(url), **{"authorities": trusted, **about})
