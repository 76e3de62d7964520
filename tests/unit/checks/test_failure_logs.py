"""What a failing end-to-end test shows of its cluster's logs."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.cluster import log_end


def test_the_chatter_of_engines_is_left_out(tmp_path: Path) -> None:
    """Errors of the engine and everything of others are kept, in order."""
    log = tmp_path / "console.log"
    log.write_text(
        'time="2026-01-01T10:00:00Z" level=info msg="API listen on /run/docker.sock"\n'
        "worker: joined\n"
        'time="2026-01-01T10:00:01Z" level=warning msg="no cgroup"\n'
        "level=debug msg=bare\n"
        'time="2026-01-01T10:00:02Z" level=error msg="disk full"\n'
        "it said level=info here\n"
    )
    assert log_end(log).splitlines() == [
        "worker: joined",
        'time="2026-01-01T10:00:02Z" level=error msg="disk full"',
        "it said level=info here",
    ]


def test_what_precedes_much_chatter_is_shown(tmp_path: Path) -> None:
    """The bound is on what is shown, not on what is read."""
    log = tmp_path / "console.log"
    chatter = 'time="2026-01-01T10:00:00Z" level=info msg="image pulled"\n'
    log.write_text("why it failed\n" + chatter * 2000)
    assert log_end(log) == "why it failed\n"
    log.write_text("early\n" + "x" * 100 + "\n" * 30_000)
    assert len(log_end(log)) <= 20_000


def test_a_log_that_is_gone_is_empty(tmp_path: Path) -> None:
    """Tasks that end take their logs along."""
    assert log_end(tmp_path / "log") == ""
