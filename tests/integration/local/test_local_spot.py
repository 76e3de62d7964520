"""Spot instances of the local cloud are taken back: with notice, or without."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from click.testing import CliRunner

from eva_client.cli import main
from eva_master.adapters.local.interruptions import drawn_life_ms, interrupt
from eva_master.adapters.local.records import HostRecords
from eva_master.model.actions import LaunchInstance
from eva_master.model.catalog import Purchase, spot_family
from eva_master.model.events import InstanceGone, InstanceUp
from eva_wire.values.errors import InvalidRequest, NotFound
from eva_wire.values.ids import InstanceId
from eva_worker.link.notices import InterruptionNotice, Metadata
from tests.integration.local.test_local_cloud import (
    LEAVER,
    NEVER_MS,
    OFFERING,
    ONE,
    TWO,
    WRITE_DOWN,
    Bench,
    bench,
    options,
    until,
)

__all__ = ["bench"]

SPOT = replace(
    OFFERING,
    type=replace(OFFERING.type, family=spot_family(OFFERING.type.family)),
    purchase=Purchase.SPOT,
    price=OFFERING.price // 3,
)
DEAF = "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})\n" + WRITE_DOWN
"""A worker that heeds neither notices nor signals."""


def launch(bench: Bench, instance: InstanceId = ONE) -> InstanceUp:
    bench.cloud.execute(LaunchInstance(instance, SPOT, 1))
    return bench.mailbox.expect(InstanceUp)


def metadata(bench: Bench, instance: InstanceId = ONE) -> Metadata:
    """The service as an agent asks it."""
    (url,) = options(bench.worker(instance)["argv"])["--metadata-url"]
    return Metadata(url)


def noticed(service: Metadata) -> InterruptionNotice:
    found: InterruptionNotice = until(service.notice)
    return found


@pytest.fixture
def spot(bench: Bench) -> Bench:
    """Instances have notice for ever, and their workers stay."""
    bench.reopen(notice_ms=NEVER_MS)
    return bench


def test_only_the_workers_of_spot_instances_are_told_whom_to_ask(spot: Bench) -> None:
    launch(spot)
    spot.launch(TWO)
    assert metadata(spot).notice() is None
    assert "--metadata-url" not in spot.worker(TWO)["argv"]
    records = HostRecords(spot.root).read()
    assert [records[it].purchase for it in (ONE, TWO)] == [Purchase.SPOT, Purchase.ON_DEMAND]
    assert records[ONE].price == SPOT.price


def test_who_asks_without_a_token_hears_nothing(spot: Bench) -> None:
    launch(spot)
    service = metadata(spot)
    service.notice()
    service._token = "another"
    interrupt(spot.root, ONE)
    assert noticed(service).at_ms, "a token that is not known is replaced"


def test_notice_is_given_once_and_says_when(spot: Bench) -> None:
    up = launch(spot)
    launch(spot, TWO)
    service = metadata(spot)
    before = spot.clock.now()
    interrupt(spot.root, ONE)
    notice = noticed(service)
    assert before + NEVER_MS <= notice.at_ms <= spot.clock.now() + NEVER_MS
    assert notice.reason == "spot interruption: terminate"
    interrupt(spot.root, ONE)
    spot.cloud.close()
    spot.open(notice_ms=NEVER_MS)  # Instances outlive the master, and what becomes of them, too.
    assert noticed(service) == notice
    assert metadata(spot, TWO).notice() is None
    assert spot.listed().keys() == {ONE, TWO}
    assert spot.terminate().up_ms == up.up_ms


def test_a_worker_that_leaves_ends_the_instance_before_its_time(bench: Bench) -> None:
    """It is asked to as after any notice; here a signal tells it."""
    bench.reopen(worker=LEAVER, notice_ms=NEVER_MS)
    up = launch(bench)
    service = metadata(bench)
    interrupt(bench.root, ONE)
    noticed(service)
    (bench.root / ONE / "stored").touch()
    os.kill(bench.worker()["pid"], signal.SIGTERM)
    gone = bench.mailbox.expect(InstanceGone)
    assert (gone.instance, gone.up_ms) == (ONE, up.up_ms)


def test_who_stays_is_switched_off_when_the_time_is_over(bench: Bench) -> None:
    bench.reopen(worker=DEAF + "\nsignal.pause()", notice_ms=300)
    launch(bench)
    service = metadata(bench)
    interrupt(bench.root, ONE)
    notice = noticed(service)
    gone = bench.mailbox.expect(InstanceGone)
    assert gone.gone_ms >= notice.at_ms - 1
    assert bench.left() == []


def test_without_notice_it_is_gone_at_once(bench: Bench) -> None:
    bench.reopen(worker=DEAF + "\nsignal.pause()", notice_ms=0)
    launch(bench)
    assert "--metadata-url" not in bench.worker()["argv"]
    interrupt(bench.root, ONE)
    gone = bench.mailbox.expect(InstanceGone)
    assert (gone.instance, gone.reclaimed) == (ONE, True)
    assert bench.terminate() == gone, "it is known to have been taken back"
    assert bench.left() == []


def test_it_may_be_taken_back_before_its_host_heeds_anything(spot: Bench) -> None:
    up = launch(spot)
    interrupt(spot.root, ONE)
    assert noticed(metadata(spot)).at_ms
    assert spot.listed() == {ONE: up.up_ms}


def test_one_that_dies_or_is_given_back_was_not_taken_back(spot: Bench) -> None:
    launch(spot)
    launch(spot, TWO)
    os.kill(spot.host(), signal.SIGKILL)
    assert not spot.mailbox.expect(InstanceGone).reclaimed
    assert not spot.terminate(TWO).reclaimed


def test_it_may_be_taken_back_before_it_has_booted(bench: Bench) -> None:
    bench.reopen(notice_ms=0, boot_delay_ms=NEVER_MS)
    launch(bench)
    interrupt(bench.root, ONE)
    assert bench.mailbox.expect(InstanceGone).instance == ONE
    assert not (bench.root / ONE / "worker.json").exists()


def test_lives_that_are_drawn_are_as_long_as_expected_on_average() -> None:
    lives = [drawn_life_ms(InstanceId(f"i-{n}"), 60_000, seed=1) for n in range(4_000)]
    # Four deviations of the mean, and of how many outlive it: 1 / e of them.
    assert 56_200 < sum(lives) / len(lives) < 63_800
    assert 0.337 < sum(life > 60_000 for life in lives) / len(lives) < 0.399
    assert lives == [drawn_life_ms(InstanceId(f"i-{n}"), 60_000, seed=1) for n in range(4_000)]
    assert lives[0] != drawn_life_ms(InstanceId("i-0"), 60_000, seed=2)


def test_a_market_takes_spot_instances_back_by_itself(bench: Bench) -> None:
    bench.reopen(notice_ms=0, spot_life_ms=NEVER_MS * 1_000)
    bench.launch(TWO)
    up = launch(bench)
    assert bench.listed().keys() == {ONE, TWO}
    # Its time is counted from when it was up, whatever becomes of the master.
    bench.reopen(notice_ms=0, spot_life_ms=1)
    gone = bench.mailbox.expect(InstanceGone)
    assert (gone.instance, gone.up_ms, gone.reclaimed) == (ONE, up.up_ms, True)
    assert bench.listed().keys() == {TWO}, "nobody takes back what was bought on demand"


def test_terminated_meanwhile_it_ends_with_its_notice(bench: Bench) -> None:
    bench.reopen(worker=DEAF + "\nsignal.pause()", notice_ms=300, shut_down_ms=NEVER_MS)
    launch(bench)
    service = metadata(bench)
    interrupt(bench.root, ONE)
    noticed(service)
    assert bench.terminate().instance == ONE


def test_what_cannot_be_taken_back(spot: Bench) -> None:
    with pytest.raises(NotFound, match="no instance i-1 runs") as caught:
        interrupt(spot.root, ONE)
    assert "local.spot" in caught.value.hint
    launch(spot)
    spot.launch(TWO)
    with pytest.raises(InvalidRequest, match="on demand") as refused:
        interrupt(spot.root, TWO)
    assert refused.value.hint == "spot instances that run: i-1"
    spot.terminate(ONE)
    with pytest.raises(NotFound):
        interrupt(spot.root, ONE)
    assert spot.listed().keys() == {TWO}


def test_no_other_process_is_ever_hit(spot: Bench) -> None:
    """A pid on record may be another process's by now."""
    launch(spot)
    host = psutil.Process(spot.host())
    spot.cloud.close()
    record = HostRecords(spot.root).read()[ONE]
    HostRecords(spot.root).write(replace(record, pid=os.getpid()))
    with pytest.raises(NotFound, match="has just ended"):
        interrupt(spot.root, ONE)
    HostRecords(spot.root).write(record)
    assert host.is_running()
    spot.open(notice_ms=NEVER_MS)


def test_records_of_earlier_releases_are_of_instances_on_demand(spot: Bench) -> None:
    spot.launch()
    file = spot.root / ONE / "record.json"
    file.write_text(file.read_text().replace(', "purchase": "on-demand"', ""))
    assert "purchase" not in file.read_text()
    assert HostRecords(spot.root).read()[ONE].purchase is Purchase.ON_DEMAND


def invoked(*arguments: str, **variables: str) -> Any:
    return CliRunner().invoke(main, ["interrupt", *arguments], env=variables)


def test_the_command_finds_the_cluster_of_this_machine(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "state" / "cloud")
    try:
        bench.reopen(notice_ms=0)
        launch(bench)
        launch(bench, TWO)
        settings = tmp_path / "state" / "client.yaml"
        done = invoked(ONE, EVA_CONFIG=str(settings))
        assert (done.exit_code, done.output) == (0, "i-1 is taken back\n")
        assert bench.mailbox.expect(InstanceGone).instance == ONE
        done = invoked(TWO, "--state-dir", str(tmp_path / "state"), EVA_CONFIG="")
        assert done.exit_code == 0, done.output
        assert bench.mailbox.expect(InstanceGone).instance == TWO
        assert "no instance i-1 runs" in invoked(ONE, EVA_CONFIG=str(settings)).output
    finally:
        bench.cloud.terminate_all()
        bench.cloud.close()


def test_the_command_says_where_it_looked(tmp_path: Path) -> None:
    refused = invoked(ONE, EVA_CONFIG=str(tmp_path / "config.yaml"))
    assert refused.exit_code == 2
    assert "--state-dir" in refused.output
    refused = invoked(ONE, "--state-dir", str(tmp_path))
    assert f"in {tmp_path}" in refused.output.replace("\n", "")


AGENT = """
import os, pathlib, select
fds = [os.pidfd_open(int(line)) for line in open("tasks")]
pathlib.Path("watching").touch()
select.select(fds, [], [])
pathlib.Path("seen").touch()
"""


def test_nobody_sees_tasks_die_before_the_agent_does(bench: Bench) -> None:
    """What is switched off is stopped as a whole before anything is killed.

    The tasks are the host's children, as after a restart of the agent, so they are found first.
    """
    worker = WRITE_DOWN + (
        "import subprocess\n"
        "with open('tasks', 'w') as file:\n"
        "    spawn = 'for i in 1 2 3 4 5 6 7 8; do sleep 1000 & echo $!; done'\n"
        "    subprocess.run(['sh', '-c', spawn], stdout=file)\n"
        f"subprocess.run([sys.executable, '-c', {AGENT!r}])\n"
    )
    bench.reopen(worker=worker, notice_ms=0)
    launch(bench)
    until((bench.root / ONE / "watching").exists)
    interrupt(bench.root, ONE)
    bench.mailbox.expect(InstanceGone)
    assert not (bench.root / ONE / "seen").exists()
    assert bench.left() == []
