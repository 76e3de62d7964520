"""Which sockets of this machine a task's port is reached by. This process is the task."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from eva_worker.errors import AttachRefused
from eva_worker.runtime import listening
from eva_worker.runtime.listening import in_container, on_this_machine
from tests.fakes.rpc.ports import free_port

OWN = [os.getpid()]
_OTHER = """import socket, sys
family, only, host, port = sys.argv[1:]
server = socket.socket(int(family))
if int(only):
    server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
server.bind((host, int(port)))
server.listen()
print("listens", flush=True)
sys.stdin.read()"""


@contextmanager
def own(host: str, port: int, *, only_6: bool = False) -> Iterator[None]:
    """A socket of the task that listens."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as server:
        if only_6:
            server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        server.bind((host, port))
        server.listen()
        yield


@contextmanager
def others(host: str, port: int, *, only_6: bool = False) -> Iterator[None]:
    """A socket of another task that listens."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    arguments = [str(int(family)), str(int(only_6)), host, str(port)]
    with subprocess.Popen(
        [sys.executable, "-c", _OTHER, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "listens\n"
        try:
            yield
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("host", "reached"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("127.0.0.2", "127.0.0.2"),
        ("0.0.0.0", "127.0.0.1"),
        ("::1", "::1"),
        ("::", "::1"),
        ("::ffff:127.0.0.1", "127.0.0.1"),
    ],
)
def test_a_socket_is_reached_where_it_listens(host: str, reached: str) -> None:
    port = free_port()
    with own(host, port):
        assert on_this_machine("job-1/0", port, OWN) == (reached, port)
        with socket.create_connection((reached, port)):
            pass


@pytest.mark.parametrize(
    ("mine", "theirs", "reached"),
    [
        ("127.0.0.1", "127.0.0.2", "127.0.0.1"),
        ("127.0.0.2", "127.0.0.1", "127.0.0.2"),
        ("127.0.0.1", "::1", "127.0.0.1"),
        ("::1", "127.0.0.1", "::1"),
        ("::", "0.0.0.0", "::1"),
        ("0.0.0.0", "::", "127.0.0.1"),
    ],
)
def test_tasks_on_one_port_number_are_told_apart(mine: str, theirs: str, reached: str) -> None:
    port = free_port()
    with own(mine, port, only_6=mine == "::"), others(theirs, port, only_6=theirs == "::"):
        assert on_this_machine("job-1/0", port, OWN) == (reached, port)


@pytest.mark.parametrize("theirs", ["127.0.0.1", "0.0.0.0", "::1", "::", "::ffff:127.0.0.1"])
def test_a_port_of_another_is_refused(theirs: str) -> None:
    port = free_port()
    with others(theirs, port), pytest.raises(AttachRefused, match=f"listens on port {port}"):
        on_this_machine("job-1/0", port, OWN)


def test_a_socket_that_does_not_listen_is_none() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        with pytest.raises(AttachRefused, match=f"listens on port {port}"):
            on_this_machine("job-1/0", port, OWN)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "127.0.0.3", "::ffff:127.0.0.3"])
def test_a_container_is_reached_by_its_address(host: str) -> None:
    port = free_port()
    with own(host, port):
        assert in_container("job-1/0", port, os.getpid(), "127.0.0.3") == ("127.0.0.3", port)


def test_a_container_that_listens_on_its_loopback_alone_is_told_what_to_do() -> None:
    port = free_port()
    with own("127.0.0.1", port), pytest.raises(AttachRefused) as refused:
        in_container("job-1/0", port, os.getpid(), "127.0.0.3")
    assert f"job-1/0 listens on port {port} of 127.0.0.1 alone" in str(refused.value)
    assert refused.value.hint == "have its program listen on 0.0.0.0"


def test_sockets_of_processes_that_are_gone_are_none() -> None:
    assert listening.sockets_of([2**22 + 1]) == set()
