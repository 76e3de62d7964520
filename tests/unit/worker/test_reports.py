"""What a task may report of itself, and what happens to one that reports something else."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import socket
import struct
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from eva_wire._proto.iterator_pb2 import ReportRequest
from eva_worker.errors import Malformed, StartFailed
from eva_worker.files.beneath import Directory
from eva_worker.orders import MOST_STEPS
from eva_worker.process import peers
from eva_worker.tasks import progress_server
from eva_worker.tasks.progress_server import IteratorServer, ReportRate, StepCounters
from eva_worker.tasks.socket_places import make_socket_directory, socket_path, socket_secret
from tests.fakes.patience import DEADLINE_S

_METHOD = "/eva.iterator.v1.Iterator/Report"


@pytest.fixture
def counters(tmp_path: Path) -> StepCounters:
    return StepCounters(tmp_path / "progress.json")


@pytest.mark.parametrize(
    "report",
    [
        {"steps": 2**64 - 1},
        {"steps": MOST_STEPS + 1},
        {"steps": 1, "total": 2**63},
        {"steps": 1, "kept": 2**63, "published": 1},
        {"steps": 1, "published": 2**53},
        {"steps": 1, "metrics": {"x" * 201: 1.0}},
        {"steps": 1, "metrics": {"é" * 101: 1.0}},
        {"steps": 1, "metrics": {"": 1.0}},
        {"steps": 1, "metrics": {"a\0b": 1.0}},
        {"steps": 1, "metrics": {"\x1b[31m": 1.0}},
        {"steps": 1, "metrics": {f"m{number}": 1.0 for number in range(257)}},
        {"source": "s" * 201, "steps": 1},
    ],
)
def test_a_malformed_report_changes_nothing(counters: StepCounters, report: dict[str, Any]) -> None:
    counters.note("good", steps=5, metrics={"loss": 1.0})
    before = counters.progress()
    with pytest.raises(Malformed):
        counters.note(**{"source": "bad", **report})
    assert counters.progress() == before


def test_the_sum_of_all_processes_is_bounded(counters: StepCounters) -> None:
    counters.note("a", steps=MOST_STEPS)
    counters.note("a", steps=MOST_STEPS)
    with pytest.raises(Malformed, match="together"):
        counters.note("b", steps=1)
    assert counters.progress().steps == MOST_STEPS
    counters.begin_from(0)


def test_the_restored_steps_count_too(counters: StepCounters) -> None:
    counters.begin_from(MOST_STEPS - 1)
    with pytest.raises(Malformed):
        counters.note("a", steps=2)
    counters.note("a", steps=1)


def test_metrics_of_many_reports_are_counted_together(counters: StepCounters) -> None:
    for number in range(256):
        counters.note("a", steps=number, metrics={f"m{number}": 1.0})
    with pytest.raises(Malformed, match="256 metrics"):
        counters.note("a", steps=256, metrics={"one more": 1.0})
    counters.note("a", steps=256, metrics={"m0": 2.0})
    assert counters.progress().metrics["m0"] == 2.0


def test_processes_are_counted(counters: StepCounters) -> None:
    for number in range(1_024):
        counters.note(str(number), steps=1)
    with pytest.raises(Malformed, match="sources"):
        counters.note("one more", steps=1)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_no_number_is_not_shown(counters: StepCounters, value: float) -> None:
    """Programs diverge. What was shown before no longer holds either."""
    counters.note("a", steps=1, metrics={"loss": 1.0, "accuracy": 0.5})
    counters.note("a", steps=2, metrics={"loss": value})
    assert counters.progress().metrics == {"accuracy": 0.5}
    counters.save()


def test_what_an_earlier_agent_believed_is_not_believed(tmp_path: Path) -> None:
    document = {"steps": {"a": 2**64 - 1, "b": 2**64 - 1}, "base": 0}
    (tmp_path / "progress.json").write_text(json.dumps(document))
    assert StepCounters(tmp_path / "progress.json").progress().steps == 0


def test_reports_that_come_too_often_are_dropped_and_floods_fail() -> None:
    now = 0.0
    rate = ReportRate(lambda: now)
    taken = 0
    for number in range(113_000):  # A thousand a second for minutes does no harm.
        now += 0.001
        rate.begin()
        took = rate.take()
        taken += took and number >= 103_000
    assert 1_900 <= taken <= 2_100

    def flood() -> None:
        nonlocal now
        for _ in range(1_000_000):
            now += 0.0001
            rate.begin()

    with pytest.raises(Malformed, match="2000 reports a second"):
        flood()


SECRET = "0123456789abcdef"
DENIED, INVALID = grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.INVALID_ARGUMENT


class _Unseen(struct.Struct):
    """Credentials of a peer in a namespace that this process does not see."""

    def __new__(cls) -> _Unseen:
        return super().__new__(cls, "3i")

    def __init__(self) -> None:
        super().__init__("3i")

    def unpack(self, _: Any) -> tuple[int, ...]:
        return 0, 0, 0


class Bench:
    """A server as an attempt has it, and what it said to the attempt."""

    def __init__(self, directory: Path) -> None:
        self.socket = socket_path(directory)
        self.refusals: list[str] = []
        self.counters = StepCounters(directory / "progress.json")
        self.owned = True
        self.server = IteratorServer(
            self.socket, self.counters, self.refusals.append, owns=self._owns, secret=SECRET
        )
        make_socket_directory(self.socket, directory)

    async def _owns(self, pid: int) -> bool:
        return self.owned and pid > 0

    async def report(
        self, data: bytes, method: str = _METHOD, secret: str | None = None
    ) -> grpc.StatusCode | None:
        """Send bytes; returns with what they were refused, if they were."""
        metadata = None if secret is None else (("eva-socket-secret", secret),)
        own = [("grpc.use_local_subchannel_pool", 1)]  # it waits for no earlier connection
        async with grpc.aio.insecure_channel(f"unix:{self.socket}", options=own) as channel:
            call: Any = channel.unary_unary(method)
            try:
                await call(data, metadata=metadata)
            except grpc.aio.AioRpcError as error:
                return error.code()
        return None


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    bench = Bench(tmp_path)
    await bench.server.start()
    yield bench
    await bench.server.close()


async def test_reports_are_taken_in(bench: Bench) -> None:
    assert await bench.report(ReportRequest(source="a", steps=7).SerializeToString()) is None
    assert bench.counters.progress().steps == 7
    assert bench.socket.stat().st_mode & 0o777 == 0o666


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xff\xff",
        b"\x0a\x02\xff\xfe",
        ReportRequest(steps=2**64 - 1).SerializeToString(),
        ReportRequest(metrics={"x" * 201: 1.0}).SerializeToString(),
        ReportRequest(source="x" * (65 << 10)).SerializeToString(),
    ],
)
async def test_a_malformed_report_is_told_once_and_nothing_is_taken_in_after(
    bench: Bench, data: bytes
) -> None:
    assert await bench.report(data) is grpc.StatusCode.INVALID_ARGUMENT
    assert await bench.report(data) is grpc.StatusCode.INVALID_ARGUMENT
    good = ReportRequest(source="a", steps=7).SerializeToString()
    assert await bench.report(good) is grpc.StatusCode.INVALID_ARGUMENT
    assert len(bench.refusals) == 1
    assert bench.counters.progress().steps == 0


@pytest.mark.parametrize(
    ("method", "data", "answer"),
    [
        (_METHOD, b"", None),
        (_METHOD, bytes(2 << 20), grpc.StatusCode.RESOURCE_EXHAUSTED),
        ("/eva.iterator.v1.Iterator/Other", b"", grpc.StatusCode.UNIMPLEMENTED),
    ],
)
async def test_calls_are_counted_whatever_becomes_of_them(
    bench: Bench,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    data: bytes,
    answer: grpc.StatusCode | None,
) -> None:
    monkeypatch.setattr(progress_server, "_MOST_BEGUN", 3)
    monkeypatch.setattr(bench.server, "_rate", ReportRate(lambda: 0.0))
    for number in range(4):
        assert len(bench.refusals) == 0
        found = await bench.report(data, method)
        if number < 3:
            assert found is answer
    assert len(bench.refusals) == 1


async def test_calls_that_never_send_their_report_are_counted(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress_server, "_MOST_BEGUN", 100)
    monkeypatch.setattr(bench.server, "_rate", ReportRate(lambda: 0.0))

    async def never() -> AsyncIterator[bytes]:
        await asyncio.Event().wait()
        yield b""

    async with grpc.aio.insecure_channel(f"unix:{bench.socket}") as channel:
        call: Any = channel.stream_unary(_METHOD)
        calls = [call(never()) for _ in range(101)]
        async with asyncio.timeout(DEADLINE_S):
            while not bench.refusals:
                await asyncio.sleep(0.01)
        for each in calls:
            each.cancel()
    assert len(bench.refusals) == 1


async def test_a_report_of_megabytes_is_refused(bench: Bench) -> None:
    assert await bench.report(bytes(2 << 20)) is grpc.StatusCode.RESOURCE_EXHAUSTED


# A process of its own: what it opens does not count for the agent.
_FLOOD = """
import socket, sys
clients = []
for _ in range(600):
    client = socket.socket(socket.AF_UNIX)
    try:
        client.connect(sys.argv[1])
    except OSError:
        break
    clients.append(client)
print(len(clients), flush=True)
sys.stdin.read()
"""


async def test_connections_are_limited(bench: Bench) -> None:
    """All files that an agent may open are shared by its tasks."""
    files = Path("/proc/self/fd")
    before = len(list(files.iterdir()))
    flood = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _FLOOD, str(bench.socket)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert flood.stdout
    assert int(await flood.stdout.readline()) > 300
    assert await bench.report(b"") in {None, grpc.StatusCode.UNAVAILABLE}
    assert len(list(files.iterdir())) - before < 3 * 256 + 50
    await flood.communicate(b"")


@pytest.mark.parametrize("kind", ["link", "directory", "fifo", "file"])
async def test_whatever_is_where_the_socket_goes_is_replaced(tmp_path: Path, kind: str) -> None:
    bench = Bench(tmp_path)
    (tmp_path / "victim").write_text("secret")
    (tmp_path / "victim").chmod(0o600)
    match kind:
        case "link":
            bench.socket.symlink_to(tmp_path / "victim")
        case "directory":
            (bench.socket / "deep").mkdir(parents=True)
        case "fifo":
            os.mkfifo(bench.socket)
        case _:
            bench.socket.write_text("")
    await bench.server.start()
    assert await bench.report(ReportRequest(source="a", steps=7).SerializeToString()) is None
    await bench.server.close()
    assert (tmp_path / "victim").stat().st_mode & 0o777 == 0o600


async def test_a_link_in_the_place_of_a_new_socket_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task swaps it between the bind and the change of its mode."""
    bench = Bench(tmp_path)
    (tmp_path / "victim").touch(mode=0o600)
    change = Directory.chmod_socket

    def swapped(directory: Directory, path: str, mode: int) -> None:
        bench.socket.unlink()
        bench.socket.symlink_to(tmp_path / "victim")
        change(directory, path, mode)

    monkeypatch.setattr(Directory, "chmod_socket", swapped)
    with pytest.raises(StartFailed):
        await bench.server.start()
    await bench.server.close()
    assert (tmp_path / "victim").stat().st_mode & 0o777 == 0o600


GOOD = ReportRequest(source="a", steps=7).SerializeToString()


async def test_what_another_task_says_is_dropped_and_fails_nothing(bench: Bench) -> None:
    bench.owned = False
    for data in (GOOD, b"\xff\xff\xff", bytes(2 << 20)):
        assert await bench.report(data, secret=SECRET) is grpc.StatusCode.UNAVAILABLE
    assert (bench.refusals, bench.counters.progress().steps) == ([], 0)
    bench.owned = True
    assert await bench.report(GOOD) is None
    assert bench.counters.progress().steps == 7


async def test_a_flood_from_elsewhere_does_not_keep_the_task_out(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress_server, "_MOST_BEGUN", 3)
    bench.owned = False
    for _ in range(600):
        connection = socket.socket(socket.AF_UNIX)
        connection.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            connection.connect(str(bench.socket))
        connection.close()
    bench.owned = True
    async with asyncio.timeout(DEADLINE_S):
        while await bench.report(GOOD) is not None:
            await asyncio.sleep(0.01)
    assert (bench.refusals, bench.counters.progress().steps) == ([], 7)


@pytest.mark.parametrize(
    ("secret", "answer"), [(None, None), (SECRET, None), ("", DENIED), ("other", DENIED)]
)
async def test_a_proven_process_may_show_no_secret_but_no_other_one(
    bench: Bench, secret: str | None, answer: grpc.StatusCode | None
) -> None:
    assert await bench.report(GOOD, secret=secret) is answer
    assert bench.counters.progress().steps == (0 if answer else 7)
    assert bench.refusals == []


@pytest.mark.parametrize(
    ("secret", "answer"), [(None, DENIED), (SECRET, None), ("", DENIED), ("other", DENIED)]
)
async def test_a_process_that_is_not_seen_shows_the_secret(
    bench: Bench,
    monkeypatch: pytest.MonkeyPatch,
    secret: str | None,
    answer: grpc.StatusCode | None,
) -> None:
    """As where the agent itself is in a container beside those of its tasks."""
    monkeypatch.setattr(peers, "_CREDENTIALS", _Unseen())
    assert await bench.report(GOOD, secret=secret) is answer
    for data in (b"\xff\xff\xff",):
        assert await bench.report(data, secret=secret) is (answer or INVALID)
    assert len(bench.refusals) == (0 if answer else 1)


async def test_nothing_else_reaches_the_server_behind_the_gate(tmp_path: Path) -> None:
    """The place of it is seen for a moment, in which another task may have connected."""
    bench = Bench(tmp_path)
    early: list[socket.socket] = []
    unlink = os.unlink

    def seen(name: Any, **more: Any) -> None:
        if name == "in":
            (place,) = bench.socket.parent.glob(".*/in")
            early.append(socket.socket(socket.AF_UNIX))
            early[0].connect(f"/proc/self/fd/{more['dir_fd']}/in")
            assert place.is_socket()
        unlink(name, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "unlink", seen)
        await bench.server.start()
    with early[0]:
        early[0].settimeout(DEADLINE_S)
        with contextlib.suppress(ConnectionResetError):
            assert early[0].recv(1) == b""
    assert [it.name for it in bench.socket.parent.iterdir()] == ["eva.sock"]
    assert await bench.report(GOOD) is None
    await bench.server.close()


async def test_the_secret_of_an_attempt_stays_the_same_and_is_its_own(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "2").mkdir()
    first, other = (socket_secret(tmp_path / name, make=True) for name in "12")
    assert socket_secret(tmp_path / "1") == socket_secret(tmp_path / "1", make=True) == first
    assert len({first, other, ""}) == 3
    assert (tmp_path / "1" / "socket-secret").stat().st_mode & 0o777 == 0o600
