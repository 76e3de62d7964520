"""A journal is put back from a backup that is older than what workers have done since."""

from __future__ import annotations

import os
import signal
import sqlite3
from contextlib import closing

import pytest

from tests.e2e.cluster import Cluster, until
from tests.e2e.test_deaths import alone, attempts


@pytest.mark.long
def test_with_a_restored_journal_jobs_go_on_and_nothing_is_done_twice(cluster: Cluster) -> None:
    kept, done, again = (cluster.submit(name) for name in ("kept", "done", "again"))
    cluster.until_running(kept, done, again)
    journal, backup = cluster.state_dir / "journal.db", cluster.state_dir / "backup.db"
    with closing(sqlite3.connect(journal)) as source, closing(sqlite3.connect(backup)) as copy:
        source.backup(copy)
    # After the backup one job ends, one begins its second attempt, and one comes.
    cluster.finish(done)
    cluster.until_ended(done)
    os.kill(cluster.lines(again)[0].pid, signal.SIGKILL)
    until(lambda: cluster.task(again).attempt == 2, "it begins anew")
    lost = cluster.submit("lost")
    cluster.until_running(again, lost)
    pid = cluster.lines(kept)[-1].pid

    cluster.kill()
    for name in ("journal.db", "journal.db-wal", "journal.db-shm"):
        (cluster.state_dir / name).unlink(missing_ok=True)
    backup.rename(journal)
    (cluster.state_dir / "restored").touch()
    cluster.start()

    until(lambda: cluster.task(again).attempt > 2, "what had begun after the backup starts over")
    cluster.until_running(kept, again)
    assert cluster.task(kept).attempt == 1
    cluster.finish(kept, again)
    cluster.until_ended(kept, done, again)
    assert {line.pid for line in cluster.lines(kept)} == {pid}, "was restarted"
    assert attempts(cluster.lines(done)) == [1], "a finished task was done again"
    assert attempts(cluster.lines(again)) == [1, 2, cluster.task(again).attempt]
    assert alone(cluster.lines(again)), "two attempts ran at a time"
    fresh = cluster.submit("lost")
    assert fresh != lost
    cluster.until_running(fresh)
    cluster.finish(fresh)
    cluster.until_ended(fresh)
    cluster.until_empty()
