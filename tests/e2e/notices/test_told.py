"""A real master tells a receiver of a job's end, also one that was killed before it could."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from tests.e2e.cluster import Cluster
from tests.e2e.conftest import Keep
from tests.fakes.notices.receivers import OK, ReceiverServer, answers
from tests.fakes.rpc.authority import authority


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
    (refused, *_) = server.wait(1)
    cluster.kill()
    server.behave = answers(OK)
    tried = len(server.requests)
    cluster.start()
    taken = server.wait(tried + 1)[tried]
    assert taken.headers["Eva-Delivery"] == refused.headers["Eva-Delivery"]
    assert json.loads(taken.body)["job"] == job
    trial = json.loads(cluster.eva("notify", "test", "--json").stdout)["trials"]
    assert [(each["receiver"], each["accepted"], each["status"]) for each in trial] == [
        ("team", True, 200)
    ]
    shown = cluster.eva("config", "--json").stdout + cluster.said()
    assert "T0KEN" not in shown
    assert "0123456789abcdef" not in shown
