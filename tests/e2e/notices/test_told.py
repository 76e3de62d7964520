"""A real master tells a receiver of a job's end, whenever it is killed meanwhile."""

from __future__ import annotations

import contextlib
import json
import socket
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

from tests.e2e.cluster import Cluster
from tests.e2e.conftest import Keep
from tests.fakes.notices.receivers import OK, ReceiverServer, Request, answers
from tests.fakes.patience import DEADLINE_S
from tests.fakes.rpc.authority import authority


class TakenAsTheMasterDies:
    """A receiver's 200 that the master reads, and does not live to write down."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._killed = threading.Event()

    def __call__(self, connection: socket.socket, _: Request) -> None:
        """Answer while nobody can write to the journal, then kill the master."""
        journal = self._cluster.state_dir / "journal.db"
        with contextlib.closing(sqlite3.connect(journal, DEADLINE_S)) as database:
            database.execute("BEGIN IMMEDIATE")
            connection.sendall(OK)
            with contextlib.suppress(OSError):
                connection.recv(1)  # The master has read the answer when it closes.
            self._cluster.kill()
        self._killed.set()

    def wait(self) -> None:
        """Return once the master is dead."""
        assert self._killed.wait(DEADLINE_S)


def test_an_end_is_told_by_the_master_after_the_one_that_was_killed(
    make_home: Callable[[], Path], keep: Keep
) -> None:
    home = make_home()
    server = ReceiverServer(secure=True, behave=answers(b"HTTP/1.1 503 No\r\n\r\n"))
    secret = home / "hook.key"
    secret.write_text("0123456789abcdef0123456789abcdef")
    secret.chmod(0o600)
    receiver = {
        "name": "team",
        "url": server.url,
        "authorities": str(authority().ca_file),
        "secret": {"file": str(secret)},
    }
    cluster = Cluster(home, command="master", settings={"notify": [receiver]})
    keep(cluster)
    job = cluster.submit("told", notify=["end"])
    cluster.until_running(job)
    cluster.finish(job)
    cluster.until_ended(job)
    server.wait(1)
    server.behave = lost = TakenAsTheMasterDies(cluster)
    lost.wait()
    server.behave = answers(OK)
    tried = len(server.requests)
    cluster.start()
    taken = server.wait(tried + 1)[tried]
    assert {each.headers["Eva-Delivery"] for each in server.requests} == {
        json.loads(taken.body)["id"]
    }
    assert json.loads(taken.body)["job"] == job
    trial = json.loads(cluster.eva("notify", "test", "--json").stdout)["trials"]
    assert [(each["receiver"], each["accepted"], each["status"]) for each in trial] == [
        ("team", True, 200)
    ]
    shown = cluster.eva("config", "--json").stdout + cluster.said()
    assert "T0KEN" not in shown
    assert "0123456789abcdef" not in shown
