"""Notices over HTTP and HTTPS: to receivers that take them, and to others, which harm nobody."""

from __future__ import annotations

import hashlib
import hmac
import json
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path

import pytest
import structlog

from eva_master.adapters.notices import posting
from eva_master.adapters.notices import sender as sender_module
from eva_master.adapters.notices.addresses import target_of
from eva_master.adapters.notices.outbox import NoticeOutbox
from eva_master.adapters.notices.posting import Poster
from eva_master.adapters.notices.receivers import read_secret
from eva_master.adapters.notices.sender import Pace
from eva_master.model.accounting.tenants import OwnerPatterns
from eva_master.model.feed import FeedKind
from eva_master.model.notices import Wanted
from eva_wire.values.errors import NoticeNotSent, StorageError
from eva_wire.values.ids import Millis
from eva_wire.values.notices import Topic
from tests.fakes.notices.receivers import (
    OK,
    Feed,
    ReceiverServer,
    Request,
    answers,
    receiver,
    until,
)
from tests.fakes.patience import DEADLINE_S
from tests.fakes.rpc.authority import authority
from tests.fakes.rpc.server import add_job, spec

ALL = Wanted(frozenset(Topic), asked=False)
NEVER = Pace(collecting_s=0.0, storing_s=0.001, first_pause_ms=10**9)


@pytest.fixture
def feed(tmp_path: Path) -> Feed:
    return Feed(tmp_path / "journal.db")


@pytest.fixture
def make_server() -> Iterator[Callable[..., ReceiverServer]]:
    servers: list[ReceiverServer] = []

    def make(**about: object) -> ReceiverServer:
        servers.append(ReceiverServer(**about))  # type: ignore[arg-type]
        return servers[-1]

    yield make
    for server in servers:
        server.close()


Make = Callable[..., ReceiverServer]


def body_of(request: Request) -> dict[str, object]:
    body = json.loads(request.body)
    assert isinstance(body, dict)
    return body


def test_the_end_of_a_job_that_asks_is_posted_signed(
    feed: Feed, make_server: Make, tmp_path: Path
) -> None:
    server = make_server(secure=True)
    secret = tmp_path / "secret"
    secret.write_text("0123456789abcdef\n")
    secret.chmod(0o600)
    job = add_job(feed.state, replace(spec("train"), notify=(Topic.END,)))
    feed.commit()
    with feed.sending(receiver(server.url, secret=secret), wall=lambda: 1_700_000_000.9):
        feed.tell(FeedKind.SUCCEEDED, job, text="succeeded")
        (request,) = server.wait(1)
    assert request.line == "POST /hooks/T0KEN?x=1 HTTP/1.1"
    assert request.headers["Host"] == f"127.0.0.1:{server.port}"
    assert body_of(request)["job"] == job
    assert body_of(request)["id"] == request.headers["Eva-Delivery"]
    stamp = request.headers["Eva-Timestamp"]
    assert stamp == "1700000000"
    signed = hmac.new(b"0123456789abcdef", f"{stamp}.".encode() + request.body, hashlib.sha256)
    assert request.headers["Eva-Signature"] == f"v1={signed.hexdigest()}"


def test_a_receiver_is_told_what_it_wants_and_each_at_once(feed: Feed, make_server: Make) -> None:
    ends, pager = make_server(), make_server()
    job = add_job(feed.state, spec("train"))
    feed.commit()
    wanted = Wanted(frozenset({Topic.END}), asked=False, owners=OwnerPatterns(("ada",)))
    with feed.sending(
        receiver(ends.url, "ends", wanted=wanted), receiver(pager.url, "pager", wanted=ALL)
    ):
        feed.tell(FeedKind.LATE, job)
        feed.tell(FeedKind.CANCELLED, job)
        feed.tell(FeedKind.CANCELLED, "other-1", owner="ben")
        assert [body_of(each)["topic"] for each in pager.wait(3)] == ["late", "end", "end"]
        assert [body_of(each)["job"] for each in ends.wait(1)] == [job]


def test_a_receiver_that_was_down_is_sent_the_same_delivery_again(
    feed: Feed, make_server: Make
) -> None:
    server = make_server(behave=answers(b"HTTP/1.1 503 Busy\r\n\r\n"))
    with feed.sending(receiver(server.url, wanted=ALL)) as sender:
        feed.tell(FeedKind.LATE, "j")
        server.wait(3)
        until(lambda: "503" in sender.statuses[0].attention)
        server.behave = answers(OK)
        until(lambda: sender.statuses[0].sent == 1)
        assert not sender.statuses[0].attention
    assert len({request.headers["Eva-Delivery"] for request in server.requests}) == 1
    assert len({request.body for request in server.requests}) == 1


def test_what_a_master_left_the_next_one_sends_with_the_same_id(
    feed: Feed, make_server: Make
) -> None:
    server = make_server(behave=answers(b"HTTP/1.1 500 No\r\n\r\n"))
    with feed.sending(receiver(server.url, wanted=ALL)):
        feed.tell(FeedKind.LATE, "j")
        (first, *_) = server.wait(1)
    feed.tell(FeedKind.LATE, "k")  # A master that did not live to send it.
    before = len(server.requests)
    server.behave = answers(OK)
    with feed.sending(receiver(server.url, wanted=ALL)) as sender:
        until(lambda: sender.statuses[0].sent == 2)
    later = server.requests[before:]
    assert {body_of(request)["job"] for request in later} == {"j", "k"}
    ids = {body_of(request)["job"]: body_of(request)["id"] for request in later}
    assert ids["j"] == first.headers["Eva-Delivery"]


def test_nothing_is_told_of_the_time_in_which_nobody_was_to_be_told(
    feed: Feed, make_server: Make
) -> None:
    server = make_server()
    feed.tell(FeedKind.LATE, "before")
    with feed.sending(receiver(server.url, wanted=ALL)):
        feed.tell(FeedKind.LATE, "a")
        server.wait(1)
    with feed.sending():  # The settings name no receiver.
        pass
    feed.tell(FeedKind.LATE, "between")
    with feed.sending(receiver(server.url, wanted=ALL)):
        feed.tell(FeedKind.LATE, "b")
        server.wait(2)
    assert [body_of(request)["job"] for request in server.requests] == ["a", "b"]


HANGS = threading.Event()


def hang(*_: object) -> None:
    HANGS.wait(DEADLINE_S)


def endless(connection: socket.socket, _: Request) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        connection.sendall(b"x" * 65_536)


def endless_head(connection: socket.socket, _: Request) -> None:
    while True:
        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n" * 1_000)


def closing(connection: socket.socket, _: Request) -> None:
    connection.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(
    ("behave", "reason"),
    [
        (hang, "no answer came within"),
        (endless_head, "its answer has more than 65,536 bytes"),
        (closing, "does not answer as HTTP does"),
        (answers(b"SMTP ready\r\n\r\n"), "does not answer as HTTP does"),
        (answers(b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100_000), "does not answer as HTTP does"),
        (answers(b"HTTP/1.1 500 No\r\n\r\n"), "it answers 500"),
        (
            answers(b"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/\r\n\r\n"),
            "redirects are not followed",
        ),
    ],
)
def test_a_receiver_that_misbehaves_harms_no_other(
    feed: Feed,
    make_server: Make,
    behave: Callable[..., None],
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(posting, "TIMEOUT_S", 1.0)
    bad, good = make_server(behave=behave), make_server()
    with feed.sending(
        receiver(bad.url, "bad", wanted=ALL), receiver(good.url, "good", wanted=ALL), pace=NEVER
    ) as sender:
        for number in range(30):
            feed.tell(FeedKind.LATE, f"j-{number}")
        good.wait(30)
        until(lambda: reason in sender.statuses[0].reason)
        until(lambda: sender.statuses[1].sent == 30)
    assert len(bad.requests) == 1
    assert (sender.statuses[0].waiting, sender.statuses[0].sent) == (30, 0)


def test_an_answer_that_never_ends_is_not_read_to_its_end(feed: Feed, make_server: Make) -> None:
    server = make_server(behave=endless)
    with feed.sending(receiver(server.url, wanted=ALL)) as sender:
        feed.tell(FeedKind.LATE, "j")
        until(lambda: sender.statuses[0].sent == 1)


def test_a_notice_that_is_refused_holds_up_no_other(feed: Feed, make_server: Make) -> None:
    def picky(connection: socket.socket, request: Request) -> None:
        refused = body_of(request)["job"] == "j-0"
        connection.sendall(b"HTTP/1.1 422 No\r\n\r\n" if refused else OK)

    server = make_server(behave=picky)
    with feed.sending(receiver(server.url, wanted=ALL), pace=NEVER) as sender:
        for number in range(5):
            feed.tell(FeedKind.LATE, f"j-{number}")
        until(lambda: sender.statuses[0].sent == 4)
        until(lambda: sender.statuses[0].waiting == 1)


def test_retry_after_is_heeded(feed: Feed, make_server: Make) -> None:
    limited = answers(b"HTTP/1.1 429 Slow\r\nRetry-After: 3000\r\n\r\n")
    server, other = make_server(behave=limited), make_server()
    with feed.sending(
        receiver(server.url, "slow", wanted=ALL), receiver(other.url, "other", wanted=ALL)
    ) as sender:
        for number in range(50):
            feed.tell(FeedKind.LATE, f"j-{number}")
            other.wait(number + 1)
        until(lambda: sender.statuses[0].waiting == 50)
    assert len(server.requests) == 1


def test_a_certificate_of_nobody_known_and_of_another_host_is_refused(
    feed: Feed, make_server: Make
) -> None:
    server = make_server(secure=True)
    stranger = receiver(server.url, "stranger", wanted=ALL, authorities=None)
    other_name = receiver(server.url.replace("127.0.0.1", "other.example"), "name", wanted=ALL)
    with feed.sending(
        stranger, other_name, resolve=lambda *_: [ip_address("127.0.0.1")], pace=NEVER
    ) as sender:
        feed.tell(FeedKind.LATE, "j")
        until(lambda: all(status.reason for status in sender.statuses))
    assert not server.requests
    for status in sender.statuses:
        assert "its certificate is not trusted" in status.reason


@pytest.mark.parametrize("address", ["169.254.169.254", "fe80::1", "fd00:ec2::254", "0.0.0.0"])
async def test_the_address_that_was_checked_is_the_one_that_is_called(address: str) -> None:
    asked: list[str] = []

    def resolve(host: str, _: int) -> list[object]:
        asked.append(host)
        return [ip_address("127.0.0.1"), ip_address(address)]

    poster = Poster(
        target_of("https://hooks.example/x"),
        receiver("https://hooks.example/x").trust,
        resolve,  # type: ignore[arg-type]
    )
    with pytest.raises(NoticeNotSent) as caught:
        await poster.post({}, b"")
    assert address in caught.value.message
    assert asked == ["hooks.example"]


async def test_a_resolver_that_hangs_has_one_thread_of_each_receiver(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(posting, "TIMEOUT_S", 0.01)
    calls: list[str] = []

    def resolve(host: str, _: int) -> list[object]:
        calls.append(host)
        hang()
        return []

    poster = Poster(target_of("https://a.example/"), receiver("https://a/").trust, resolve)  # type: ignore[arg-type]
    for _ in range(5):
        with pytest.raises(NoticeNotSent, match="no answer came"):
            await poster.post({}, b"")
    assert calls == ["a.example"]


def test_more_than_the_outbox_holds_drops_the_oldest_of_the_fullest(
    feed: Feed, make_server: Make
) -> None:
    down, good = make_server(behave=answers(b"HTTP/1.1 500 No\r\n\r\n")), make_server()
    rare = Wanted(frozenset({Topic.LATE}), asked=False)
    with (
        structlog.testing.capture_logs() as logged,
        feed.sending(
            receiver(down.url, "down", wanted=Wanted(frozenset({Topic.END}), asked=False)),
            receiver(good.url.replace(str(good.port), "1"), "rare", wanted=rare),
            most=10,
            pace=NEVER,
        ) as sender,
    ):
        feed.tell(FeedKind.LATE, "rare-1")
        until(lambda: sender.statuses[1].waiting == 1)
        for number in range(200):
            feed.tell(FeedKind.SUCCEEDED, f"j-{number}")
        until(lambda: sender.statuses[0].dropped == 191)
        assert (sender.statuses[0].waiting, sender.statuses[0].dropped) == (9, 191)
        assert (sender.statuses[1].waiting, sender.statuses[1].dropped) == (1, 0)
        until(lambda: "191 were dropped" in sender.statuses[0].attention)
    assert sum(entry.get("notices", 0) for entry in logged) == 191
    again = feed.sender([receiver(down.url, "down")])
    assert (again.statuses[0].waiting, again.statuses[0].dropped) == (9, 191)


def test_events_and_notices_of_more_than_a_day_ago_are_not_told(
    feed: Feed, make_server: Make
) -> None:
    server = make_server()
    with feed.sending(receiver(server.url, wanted=ALL)):
        feed.tell(FeedKind.LATE, "old", at_ms=Millis(7))
        feed.tell(FeedKind.LATE, "new")
        assert [body_of(request)["job"] for request in server.wait(1)] == ["new"]


def test_the_cluster_is_told_of_once_and_then_counted(feed: Feed, make_server: Make) -> None:
    server = make_server()
    with feed.sending(receiver(server.url, wanted=ALL)) as sender:
        feed.tell(FeedKind.REFUSED, instance="i-1")
        server.wait(1)
        until(lambda: sender.statuses[0].sent == 1)
        for number in range(2, 300):
            feed.tell(FeedKind.REFUSED, instance=f"i-{number}")
        feed.tell(FeedKind.LATE, "j")
        server.wait(2)
        until(lambda: sender.statuses[0].waiting == 1)
    assert len(server.requests) == 2


def test_a_failure_is_told_once_also_by_a_later_master(feed: Feed, make_server: Make) -> None:
    server = make_server()
    for _ in range(3):
        with feed.sending(receiver(server.url, wanted=ALL)) as sender:
            for task in range(40):
                feed.tell(FeedKind.FAILED, "j", task=f"j/{task}", failure=1)
            feed.tell(FeedKind.LATE, "k")
            until(lambda: not sender.statuses[0].waiting)
            server.wait(1)
    # One that a master had sent when it ended comes again, with the same id.
    topics = {body_of(request)["id"]: body_of(request)["topic"] for request in server.wait(2)}
    assert sorted(map(str, topics.values())) == ["failure", "late"]


def test_a_database_that_is_locked_delays_notices_and_loses_none(
    feed: Feed, make_server: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender_module, "_TROUBLE_S", 0.01)
    locked, tries = threading.Event(), []

    def flush(outbox: NoticeOutbox) -> None:
        if locked.is_set():
            tries.append(1)
            raise StorageError("database is locked")
        whole(outbox)

    whole = NoticeOutbox.flush
    monkeypatch.setattr(NoticeOutbox, "flush", flush)
    server = make_server()
    with feed.sending(receiver(server.url, wanted=ALL)) as sender:
        feed.tell(FeedKind.LATE, "j-0")
        server.wait(1)
        until(lambda: sender.statuses[0].sent == 1)
        locked.set()
        for number in range(1, 5):
            feed.tell(FeedKind.LATE, f"j-{number}")
        until(lambda: len(tries) > 3)
        assert len(server.requests) == 1, "what is not stored is not sent"
        locked.clear()
        until(lambda: sender.statuses[0].sent == 5)
    assert [body_of(request)["job"] for request in server.requests] == [
        f"j-{number}" for number in range(5)
    ]


def test_no_log_has_a_path_or_a_secret(feed: Feed, make_server: Make, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("S3CR3T-S3CR3T-S3CR3T")
    secret.chmod(0o600)
    server = make_server(behave=answers(b"HTTP/1.1 404 No\r\n\r\n"))
    with (
        structlog.testing.capture_logs() as logged,
        feed.sending(receiver(server.url, wanted=ALL, secret=secret)) as sender,
    ):
        feed.tell(FeedKind.LATE, "j")
        until(lambda: bool(sender.statuses[0].reason))
    text = repr(logged) + repr(sender.statuses)
    assert "404" in text
    assert "T0KEN" not in text
    assert "S3CR3T" not in text


def test_a_secret_that_is_missing_short_or_open_sends_nothing(
    feed: Feed, make_server: Make, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    for content, mode, why in (
        (None, 0, "cannot be read"),
        ("short", 0o600, "5 bytes"),
        ("x" * 32, 0o604, "every user"),
    ):
        if content is not None:
            secret.write_text(content)
            secret.chmod(mode)
        with pytest.raises(NoticeNotSent, match=why):
            read_secret(secret)
    server = make_server()
    with feed.sending(receiver(server.url, wanted=ALL, secret=secret), pace=NEVER) as sender:
        feed.tell(FeedKind.LATE, "j")
        until(lambda: "every user" in sender.statuses[0].reason)
    assert not server.requests


async def test_a_trial_says_what_happened(feed: Feed, make_server: Make) -> None:
    good = make_server(secure=True)
    bad = make_server(behave=answers(b"HTTP/1.1 403 No\r\n\r\n"))
    with feed.sending(receiver(good.url, "good"), receiver(bad.url, "bad")) as sender:
        first, second = await sender.try_out()
        (again,) = await sender.try_out("bad")
    assert (first.receiver, first.accepted, first.status, first.reason) == ("good", True, 200, "")
    assert (second.accepted, second.status, second.reason) == (False, 403, "it answers 403")
    assert again.status == 403
    assert body_of(good.requests[0])["kind"] == "trial"
    assert authority().ca_file.exists()
