"""The local cloud's instances as processes: what they run, share and leave behind."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from eva_client.settings import user_config_dir
from eva_master.adapters.bootstrap import Bootstrap
from eva_master.adapters.local import processes
from eva_master.adapters.local.cloud import BillLine, LocalCloud, LocalCloudConfig
from eva_master.adapters.local.records import HostRecord, HostRecords
from eva_master.app.clouds.local.wiring import _secrets
from eva_master.app.settings import master_model
from eva_master.model.actions import LaunchInstance, SyncCloud, TerminateInstance
from eva_master.model.catalog import InstanceType, Offering
from eva_master.model.events import CloudListed, InstanceGone, InstanceUp, LaunchFailed
from eva_master.model.resources import Resources
from eva_wire.values.ids import Family, InstanceId, Millis, Price
from tests.fakes.rpc.mailbox import DEADLINE_S, Mailbox, WallClock

OFFERING = Offering(
    InstanceType("p3.2xlarge", Family("p3"), Resources(1, 7_500, 62_464)), Price(3_060_000)
)
ONE, TWO = InstanceId("i-1"), InstanceId("i-2")
NEVER_MS = 3_600_000
MIB = 1024 * 1024

WRITE_DOWN = """
import json, os, pathlib, signal, sys
out = pathlib.Path("worker.json")
runs = json.loads(out.read_text())["runs"] + 1 if out.exists() else 1
token = os.environ["EVA_WORKER_TOKEN"]
said = {"argv": sys.argv[1:], "token": token, "runs": runs, "pid": os.getpid()}
said["authorities"] = os.environ["EVA_WORKER_CA"]
pathlib.Path("aside").write_text(json.dumps(said))
os.rename("aside", out)
"""
PAUSE = "signal.pause()\n"
BOOTSTRAP = Bootstrap(
    workers="10.0.0.1:7078",
    join="10.0.0.1:7077",
    authorities="those who vouch",
    token=lambda instance, attempt: f"secret-{instance}-{attempt}",
)


def until(condition: Callable[[], Any]) -> Any:
    """Poll until a condition holds; its value."""
    deadline = time.monotonic() + DEADLINE_S
    while not (value := condition()):
        assert time.monotonic() < deadline, "the condition never held"
        time.sleep(0.01)
    return value


class Bench:
    """A root with one local cloud after the other."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.clock = WallClock()
        self.open()

    def open(self, worker: str = WRITE_DOWN + PAUSE, **config: Any) -> LocalCloud:
        """Make a cloud, as a master that starts does."""
        # Workers here die of the signal or ignore it.
        config.setdefault("shut_down_ms", 2_000)
        self.mailbox = Mailbox()
        self.cloud = LocalCloud(
            self.root,
            self.mailbox,
            self.clock,
            bootstrap=BOOTSTRAP,
            config=LocalCloudConfig(**config),
            worker_command=[sys.executable, "-c", worker],
        )
        return self.cloud

    def reopen(self, worker: str = WRITE_DOWN + PAUSE, **config: Any) -> LocalCloud:
        """Have another cloud take over, as when a master is restarted."""
        self.cloud.close()
        return self.open(worker, **config)

    def launch(self, instance: InstanceId = ONE, attempt: int = 1) -> InstanceUp:
        self.cloud.execute(LaunchInstance(instance, OFFERING, attempt))
        return self.mailbox.expect(InstanceUp)

    def terminate(self, instance: InstanceId = ONE) -> InstanceGone:
        self.cloud.execute(TerminateInstance(instance))
        return self.mailbox.expect(InstanceGone)

    def listed(self) -> dict[InstanceId, Millis]:
        self.cloud.execute(SyncCloud())
        return dict(self.mailbox.expect(CloudListed).instances)

    def worker(self, instance: InstanceId = ONE, runs: int = 1) -> dict[str, Any]:
        """What the instance's worker wrote down when it was started for the `runs`-th time."""
        file = self.root / instance / "worker.json"

        def said() -> dict[str, Any] | None:
            value: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {"runs": 0}
            return value if value["runs"] >= runs else None

        return dict(until(said))

    def host(self, instance: InstanceId = ONE) -> int:
        pid = HostRecords(self.root).read()[instance].pid
        assert pid is not None
        return pid

    def left(self, instance: InstanceId = ONE) -> list[psutil.Process]:
        return processes.marked(f"{instance}@{self.root}")


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path / "cloud")
    yield bench
    with contextlib.suppress(RuntimeError):  # the test has closed it
        bench.cloud.terminate_all()
    bench.cloud.close()


def options(argv: list[str]) -> dict[str, list[str]]:
    """Options with one value each, as lists since they may repeat."""
    found: dict[str, list[str]] = {}
    for name, value in itertools.pairwise(argv):
        if name.startswith("--"):
            found.setdefault(name, []).append(value)
    return found


def test_the_worker_is_told_what_it_needs(bench: Bench) -> None:
    bench.reopen(task_env={"AWS_REGION": "us-east-1"})
    bench.launch()
    argv = bench.worker()["argv"]
    said = options(argv)
    assert "--emulated" in argv
    assert said["--master"] == ["10.0.0.1:7078"]
    assert said["--enrol"] == ["10.0.0.1:7077"]
    assert said["--instance-id"] == [ONE]
    assert bench.worker()["token"] == f"secret-{ONE}-1"
    assert bench.worker()["authorities"] == "those who vouch"
    assert not any("secret" in word for word in argv)
    assert said["--instance-type"] == ["p3.2xlarge"]
    assert said["--gpus"] == ["1"]
    assert [float(cpus) for cpus in said["--cpus"]] == [7.5]
    assert said["--memory-mib"] == ["62464"]
    assert Path(said["--state-dir"][0]).is_relative_to(bench.root / ONE)
    assert said["--task-env"][0] == "AWS_REGION=us-east-1"
    assert said["--task-env"][1].startswith("EVA_DATA_SERVER=http://127.0.0.1:")


def test_the_worker_is_told_what_tasks_must_not_see(bench: Bench, tmp_path: Path) -> None:
    config = master_model()(state_dir=tmp_path / "state", objects="file:///data/objects%20here")
    hidden = _secrets(config)
    assert {tmp_path / "state", tmp_path / "state/journal.db", Path("/data/objects here")} <= {
        *hidden
    }
    assert user_config_dir() in hidden
    bench.reopen(hidden=hidden)
    bench.launch()
    told = options(bench.worker()["argv"])["--hidden"]
    assert told == [":".join(map(str, hidden))]


def test_a_worker_that_dies_is_started_again(bench: Bench) -> None:
    up = bench.launch()
    os.kill(bench.worker()["pid"], signal.SIGKILL)
    assert bench.worker(runs=2)["argv"] == bench.worker()["argv"]
    assert bench.listed() == {ONE: up.up_ms}


def test_a_worker_that_ends_shuts_the_instance_down(bench: Bench) -> None:
    bench.reopen(worker="")
    up = bench.launch()
    assert bench.mailbox.expect(InstanceGone).up_ms == up.up_ms


def test_the_disk_does_not_outlive_the_instance(bench: Bench) -> None:
    bench.launch()
    disk = Path(options(bench.worker()["argv"])["--state-dir"][0])
    (disk / "file").write_text("data")
    bench.terminate()
    assert not disk.exists()


ESCAPE = """
import subprocess
signal.signal(signal.SIGTERM, signal.SIG_IGN)
# An orphan in a session of its own, which ignores SIGTERM too.
child = "import os, signal; os.fork() and os._exit(0); os.setsid(); " \\
    "open('aside-2', 'w').write(str(os.getpid())); os.rename('aside-2', 'orphan'); " \\
    "signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.pause()"
subprocess.run([sys.executable, "-c", child], env=env)
"""
ESCAPE_UNMARKED = WRITE_DOWN + "env = {}" + ESCAPE + PAUSE
ESCAPE_MARKED = WRITE_DOWN + "env = None" + ESCAPE + PAUSE


def orphan_of(bench: Bench) -> int:
    file = bench.root / ONE / "orphan"
    until(file.exists)
    return int(file.read_text())


def test_terminate_kills_what_hides(bench: Bench) -> None:
    """Below its host even a process without a trace of its origin is found."""
    bench.reopen(worker=ESCAPE_UNMARKED)
    bench.launch()
    orphan, worker = orphan_of(bench), bench.worker()["pid"]
    host = bench.host()
    bench.terminate()
    assert [processes.birth(pid) for pid in (host, worker, orphan)] == [None] * 3


LEAVER = (
    """
import os, signal, sys, time
def leave(*_):
    open("asked", "w").close()
    while not os.path.exists("stored"):
        time.sleep(0.01)
    sys.exit(0)
signal.signal(signal.SIGTERM, leave)
"""
    + WRITE_DOWN
    + PAUSE
)


def test_a_worker_may_store_files_before_its_host_is_switched_off(bench: Bench) -> None:
    bench.reopen(worker=LEAVER, shut_down_ms=NEVER_MS)
    bench.launch()
    psutil.Process(bench.worker()["pid"]).suspend()  # It goes on to heed the signal.
    bench.cloud.execute(TerminateInstance(ONE))
    directory = bench.root / ONE
    until((directory / "asked").exists)
    assert bench.listed()
    (directory / "stored").touch()
    bench.mailbox.expect(InstanceGone)
    assert bench.left() == []


def test_a_worker_that_leaves_too_slowly_is_not_waited_for(bench: Bench) -> None:
    bench.reopen(worker=LEAVER, shut_down_ms=100)
    bench.launch()
    bench.worker()
    bench.terminate()
    assert bench.left() == []


def test_nobody_waits_for_workers_in_a_hurry(bench: Bench) -> None:
    bench.reopen(worker=LEAVER)
    bench.launch()
    bench.worker()
    ending = threading.Thread(target=bench.cloud.terminate_all, args=[NEVER_MS])
    ending.start()
    until((bench.root / ONE / "asked").exists)
    bench.cloud.hurry()
    ending.join(DEADLINE_S)
    assert not ending.is_alive()
    assert bench.left() == []


def test_killing_the_host_leaves_no_process(bench: Bench) -> None:
    bench.reopen(worker=ESCAPE_MARKED)
    up = bench.launch()
    orphan, worker = orphan_of(bench), bench.worker()["pid"]
    os.kill(bench.host(), signal.SIGKILL)
    gone = bench.mailbox.expect(InstanceGone)
    assert (gone.instance, gone.up_ms) == (ONE, up.up_ms)
    assert [processes.birth(pid) for pid in (worker, orphan)] == [None] * 2
    assert bench.left() == []


def test_a_host_that_ignores_the_power_switch_is_killed(bench: Bench) -> None:
    bench.launch()
    worker = bench.worker()["pid"]
    os.kill(bench.host(), signal.SIGSTOP)
    bench.terminate()
    assert processes.birth(worker) is None


def test_a_restarted_cloud_finds_its_instances(bench: Bench) -> None:
    ups = {instance: bench.launch(instance).up_ms for instance in (ONE, TWO)}
    host = bench.host()
    bench.reopen()
    assert bench.listed() == ups
    assert bench.launch(ONE) == InstanceUp(ONE, ups[ONE])
    assert bench.host() == host
    assert bench.terminate(ONE).up_ms == ups[ONE]
    assert processes.birth(host) is None


def test_a_restarted_cloud_watches_its_instances(bench: Bench) -> None:
    bench.launch()
    bench.reopen()
    os.kill(bench.host(), signal.SIGKILL)
    assert bench.mailbox.expect(InstanceGone).instance == ONE


def test_a_restarted_cloud_tells_what_died_meanwhile(bench: Bench) -> None:
    up = bench.launch()
    worker = bench.worker()["pid"]
    bench.cloud.close()
    os.kill(bench.host(), signal.SIGKILL)
    bench.open()
    gone = bench.mailbox.expect(InstanceGone)
    assert (gone.instance, gone.up_ms) == (ONE, up.up_ms)
    assert processes.birth(worker) is None
    assert bench.listed() == {}


def later_process(born: str | None) -> subprocess.Popen[bytes]:
    """A process that waits for a line, not born within the same tick of the clock as another."""
    while True:
        process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        if processes.birth(process.pid) != born:
            return process
        process.communicate(b"\n")


def test_a_restarted_cloud_is_not_fooled_by_a_reused_pid(bench: Bench) -> None:
    bench.launch()
    bench.cloud.close()
    records = HostRecords(bench.root)
    (record,) = records.read().values()
    os.kill(bench.host(), signal.SIGKILL)
    with later_process(record.birth) as bystander:
        changed = {name: getattr(record, name) for name in HostRecord.__slots__}
        records.write(HostRecord(**{**changed, "pid": bystander.pid}))
        bench.open()
        bench.mailbox.expect(InstanceGone)
        assert bystander.poll() is None
        bystander.communicate(b"\n")


MASTER = """
import os, signal, sys, time
from pathlib import Path
from eva_master.adapters.local.cloud import LocalCloud
from tests.fakes.rpc.mailbox import Mailbox, WallClock
from tests.integration.local.test_local_cloud import BOOTSTRAP, OFFERING, ONE, PAUSE, WRITE_DOWN
from eva_master.model.actions import LaunchInstance
from eva_master.model.events import InstanceUp

mailbox = Mailbox()
cloud = LocalCloud(
    Path(sys.argv[1]), mailbox, WallClock(), bootstrap=BOOTSTRAP,
    worker_command=[sys.executable, "-c", WRITE_DOWN + PAUSE],
)
cloud.execute(LaunchInstance(ONE, OFFERING, 1))
print(mailbox.expect(InstanceUp).up_ms, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_instances_survive_the_death_of_the_master(bench: Bench) -> None:
    bench.cloud.close()
    checkout = str(Path(__file__).parents[3])
    master = subprocess.run(
        [sys.executable, "-c", MASTER, str(bench.root)],
        env={**os.environ, "PYTHONPATH": checkout},
        stdout=subprocess.PIPE,
        check=False,
    )
    assert master.returncode == -signal.SIGKILL
    worker = bench.worker()["pid"]
    bench.open()
    assert bench.listed() == {ONE: int(master.stdout)}
    bench.terminate()
    assert processes.birth(worker) is None


def test_a_crash_before_the_host_was_started(bench: Bench) -> None:
    """The record is first: the launch is carried out by the next master, once."""
    bench.cloud.close()
    record = HostRecord.of_launch(LaunchInstance(ONE, OFFERING, 1), bench.clock.now())
    HostRecords(bench.root).write(record)
    bench.open()
    up = bench.mailbox.expect(InstanceUp)
    assert bench.launch() == up
    assert bench.listed() == {ONE: up.up_ms}


def test_a_crash_before_the_host_was_written_down(tmp_path: Path) -> None:
    """A host whose master died too early ends, and has started nothing."""
    log = tmp_path / "host.log"
    told = tmp_path / "told"
    command = [
        *(sys.executable, "-P", "-m", "eva_master.adapters.local.host"),
        *("--rate", "1", "--directory", str(tmp_path), "--"),
        *(sys.executable, "-c", f"open({str(told)!r}, 'w')"),
    ]
    gate = processes.spawn(command, {**os.environ, processes.MARK: "x"}, log)
    gate.close()
    _, status = os.waitpid(gate.pid, 0)
    assert os.waitstatus_to_exitcode(status) == 1
    assert not told.exists()


def test_clear_is_done_only_when_it_finds_nothing(tmp_path: Path) -> None:
    mark = f"i-1@{tmp_path}"
    sleeper = [sys.executable, "-c", "import signal; signal.pause()"]
    with subprocess.Popen(sleeper, env={**os.environ, processes.MARK: mark}) as process:
        assert [left.pid for left in processes.marked(mark)] == [process.pid]
        assert not processes.clear(mark)
        assert process.wait(DEADLINE_S) == -signal.SIGKILL
        assert processes.clear(mark)


MOURN = """
import os, pathlib, select, sys
watched = os.pidfd_open(int(sys.argv[1]))
pathlib.Path(sys.argv[2], "watching").touch()
select.select([watched], [], [])
pathlib.Path(sys.argv[2], "seen").touch()
"""


def test_no_process_of_an_instance_sees_another_one_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark, seen = f"i-1@{tmp_path}", tmp_path / "seen"
    environment = {**os.environ, processes.MARK: mark}
    send_signal = psutil.Process.send_signal
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(subprocess.Popen(["sleep", "60"], env=environment))
        mourner = stack.enter_context(
            subprocess.Popen(
                [sys.executable, "-c", MOURN, str(first.pid), str(tmp_path)], env=environment
            )
        )
        until((tmp_path / "watching").exists)
        order = [psutil.Process(first.pid), psutil.Process(mourner.pid)]
        monkeypatch.setattr(processes, "marked", lambda _value: order)

        def send_slowly(process: psutil.Process, number: int) -> None:
            send_signal(process, number)
            if number == signal.SIGKILL and process.pid == first.pid:
                first.wait(DEADLINE_S)
                until(lambda: seen.exists() or order[1].status() == psutil.STATUS_STOPPED)

        monkeypatch.setattr(psutil.Process, "send_signal", send_slowly)
        processes.clear(mark)
        assert mourner.wait(DEADLINE_S) == -signal.SIGKILL
    assert not seen.exists()


def test_a_failed_launch_may_be_tried_again(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    action = LaunchInstance(ONE, OFFERING, 1)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", "/nowhere/python")
        bench.cloud.execute(action)
        failed = bench.mailbox.expect(LaunchFailed)
    assert "/nowhere/python" in failed.reason or "No such file" in failed.reason
    bench.cloud.execute(action)
    assert bench.mailbox.expect(LaunchFailed) == failed
    assert bench.launch(attempt=2).instance == ONE


def test_a_failed_launch_that_was_terminated_is_over(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", "/nowhere/python")
        bench.cloud.execute(LaunchInstance(ONE, OFFERING, 1))
        bench.mailbox.expect(LaunchFailed)
    gone = bench.terminate()
    bench.cloud.execute(LaunchInstance(ONE, OFFERING, 2))
    assert bench.mailbox.expect(InstanceGone) == gone


def test_the_bill_agrees_with_what_was_told(bench: Bench) -> None:
    ups = [bench.launch(instance).up_ms for instance in (ONE, TWO)]
    bench.terminate(InstanceId("i-3"))
    gone = bench.terminate(ONE).gone_ms
    price = OFFERING.price
    expected = [
        BillLine(ONE, "p3.2xlarge", price, ups[0], gone),
        BillLine(TWO, "p3.2xlarge", price, ups[1], None),
    ]
    assert bench.cloud.bill() == expected
    assert bench.reopen().bill() == expected


def test_terminate_all(bench: Bench) -> None:
    bench.launch(ONE)
    bench.launch(TWO)
    bench.cloud.terminate_all()
    assert bench.left(ONE) == bench.left(TWO) == []
    assert all(line.gone_ms is not None for line in bench.cloud.bill())


def test_nothing_is_launched_in_place_of_what_was_terminated(bench: Bench) -> None:
    bench.launch(ONE)
    bench.cloud.terminate_all()
    bench.mailbox.expect(InstanceGone)
    bench.cloud.execute(LaunchInstance(TWO, OFFERING, 1))
    assert bench.listed() == {}
    assert TWO not in HostRecords(bench.root).read()
    bench.reopen()
    assert bench.launch(TWO).instance == TWO


def data_server(bench: Bench, instance: InstanceId) -> str:
    variables = options(bench.worker(instance)["argv"])["--task-env"]
    return next(value for value in variables if value.startswith("EVA_DATA")).partition("=")[2]


def test_the_data_server_gives_the_bytes_that_were_asked_for(bench: Bench) -> None:
    bench.reopen(read_rate=64 * MIB, read_rates={"p3.2xlarge": 32 * MIB})
    bench.launch()
    url = data_server(bench, ONE)

    def get(path: str) -> bytes:
        with urllib.request.urlopen(url + path, timeout=DEADLINE_S) as answer:
            return bytes(answer.read())

    assert get("/rate") == str(32 * MIB).encode()
    assert get("/read?bytes=0") == b""
    assert get("/read?bytes=200001") == (bytes(range(256)) * 800)[:200_001]
    for path, status in [("/read", 400), ("/read?bytes=-1", 400), ("/write", 404)]:
        with pytest.raises(urllib.error.HTTPError) as caught:
            get(path)
        assert caught.value.code == status
        caught.value.close()


class Reader:
    """Reads from a data server and counts."""

    def __init__(self, url: str, size: int) -> None:
        self.count = 0
        self._answer = urllib.request.urlopen(f"{url}/read?bytes={size}", timeout=DEADLINE_S)
        self._thread = threading.Thread(target=self._read, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def join(self) -> None:
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive()

    def _read(self) -> None:
        with self._answer:
            while part := self._answer.read1(16 * 1024):
                self.count += len(part)


def test_tasks_of_an_instance_share_its_link(bench: Bench) -> None:
    """While one reader alone gets N bytes, two others get N together, half each."""
    size = 3 * MIB
    bench.reopen(read_rate=4 * MIB)
    for instance in (ONE, TWO):
        bench.launch(instance)
    alone = Reader(data_server(bench, ONE), size)
    shared = [Reader(data_server(bench, TWO), size) for _ in range(2)]
    for reader in (alone, *shared):
        reader.start()
    alone.join()
    counts = [reader.count for reader in shared]
    # Unshared they would have 2 N by now. On a busy machine they may have had little time.
    assert 0 < sum(counts) <= 1.3 * size
    # Each may have waited for a CPU when the other had just read.
    assert counts[0] == pytest.approx(counts[1], abs=0.3 * size)
    for reader in shared:
        reader.join()
    assert [reader.count for reader in shared] == [size, size]


def test_the_log_of_the_worker_outlives_the_instance(bench: Bench) -> None:
    bench.reopen(worker="import signal; print('hello', flush=True)\n" + PAUSE)
    bench.launch()
    log = bench.root / ONE / "worker.log"
    assert until(lambda: log.exists() and log.read_text()) == "hello\n"
    bench.terminate()
    assert log.read_text() == "hello\n"
