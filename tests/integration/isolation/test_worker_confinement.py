"""What plain processes are kept from: attacks by tasks, as this machine allows it to be tried."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from eva_master.adapters.local.processes import remove_groups
from eva_worker.isolation import Isolation
from eva_worker.orders import TaskKey
from eva_worker.runtime import Exit, TaskSpec
from eva_worker.runtime.process import confinement, measures
from eva_worker.runtime.process.groups import Groups, NoGroups
from eva_worker.runtime.process.measures import Measures
from eva_worker.runtime.process.runtime import ProcessRuntime
from tests.fakes.paths import PYTHON, short_tempdir
from tests.fakes.patience import DEADLINE_S

KEY = TaskKey("job-1/0", 1)
SECRET = "the key of the authority"


class Bench:
    """A state directory of a master, with that of a worker below it as in a local cluster.

    Attributes:
        confined: How tasks are confined; to be set before the first one runs.
    """

    def __init__(self, home: Path) -> None:
        self.state = home / "state"
        self.disk = self.state / "cloud" / "i-1" / "disk"
        self.task = self.disk / "tasks" / KEY.path
        for name in ("work", "storage/outputs", "checkpoints", "run", "tmp"):
            (self.task / name).mkdir(parents=True)
        self.key = self.state / "pki" / "ca.key"
        self.own_key = self.disk / "identity" / "key.pem"
        for file in (self.key, self.own_key):
            file.parent.mkdir()
            file.write_text(SECRET)
            file.chmod(0o600)
        self.socket = self.task / "run" / "eva.sock"
        self.confined: Measures | None = None
        self.runtime: ProcessRuntime

    def taken(self, isolation: Isolation) -> Measures:
        return measures.measures(self.disk, [self.state], isolation)

    async def run(
        self, command: str, memory_mib: int = 0, *, gang: bool = False, **more: str
    ) -> Exit:
        env = {
            "PATH": os.environ["PATH"],
            "EVA_TASK_ID": KEY.run,
            "EVA_ATTEMPT": "1",
            "EVA_STORAGE": str(self.task / "storage"),
            "EVA_CHECKPOINT_DIR": str(self.task / "checkpoints"),
            "EVA_SOCKET": str(self.socket),
            **more,
        }
        self.runtime = ProcessRuntime(self.disk / "runtime", self.confined)
        log = self.task / "log"
        spec = TaskSpec(
            *(KEY, command, env, self.task / "work", log),
            memory_mib=memory_mib,
            gang=gang,
            temporary=self.task / "tmp",
            defaults={"PYTHONUNBUFFERED": "1"},
        )
        async with asyncio.timeout(DEADLINE_S):
            await self.runtime.start(spec)
            return await self.runtime.wait(KEY)

    @property
    def log(self) -> str:
        return (self.task / "log").read_text(errors="replace")


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    if hasattr(bench, "runtime"):
        for key in await bench.runtime.adopt():
            await bench.runtime.kill(key)
            await bench.runtime.wait(key)
            await bench.runtime.cleanup(key)
        bench.runtime.close()


def works(how: str, bench: Bench) -> bool:
    given = [str(bench.state), str(bench.disk)], [str(bench.disk)]
    return confinement.tried_out(*given, harmless=True, ways=(how,))[0] == how


@pytest.fixture(params=[confinement.NAMESPACES, confinement.LANDLOCK])
def confined(request: pytest.FixtureRequest, bench: Bench) -> Bench:
    """A bench whose tasks are confined in one of the ways."""
    if not works(request.param, bench):
        pytest.skip(f"{request.param} do not work here")
    hidden = [str(bench.state), str(bench.disk)]
    bench.confined = Measures(request.param, hidden, None)
    return bench


@pytest.fixture
def spared() -> Iterator[None]:
    """Be somebody whom the kernel spares when memory runs out, as the agent of an instance is."""
    file = Path("/proc/self/oom_score_adj")
    before = file.read_text()
    try:
        file.write_text("-500")
    except OSError:
        pytest.skip("this process may not be spared")
    yield
    file.write_text(before)


@pytest.mark.root
async def test_a_confined_task_is_not_spared_when_memory_runs_out(
    spared: None, confined: Bench
) -> None:
    assert (await confined.run("cat /proc/self/oom_score_adj")).code == 0
    assert confined.log.strip() == "0"


@pytest.mark.root
async def test_a_task_is_not_spared_when_memory_runs_out(spared: None, bench: Bench) -> None:
    assert (await bench.run("cat /proc/self/oom_score_adj")).code == 0
    assert bench.log.strip() == "0"


ATTACKS = """
cat '{key}' '{own}'
cat /proc/*/root'{key}' /proc/*/root'{own}'
cat /proc/*/cwd/../../../pki/ca.key
for pid in {agent} 1; do nsenter --target $pid --mount cat '{key}'; done
unshare --user --map-root-user --mount sh -c "umount -a; umount -l '{state}'; cat '{key}'"
umount -l '{state}'; cat '{key}'
mount --bind '{state}'/pki work; cat work/ca.key
ln '{key}' hard; cat hard; ln -s '{key}' soft; cat soft
mv '{state}' '{state}'.moved; cat '{state}'.moved/pki/ca.key; mv '{state}'/pki here; cat here/ca.key
rm -rf '{state}'/pki '{key}' '{own}'
echo poison >'{key}'
tr '\\0' '\\n' </proc/{agent}/environ | grep MARK_OF_THE_AGENT
kill -KILL {agent}
echo "|/bin/cat '{key}'" >/proc/sys/kernel/core_pattern
echo end
"""


async def test_no_way_leads_to_the_keys(confined: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARK_OF_THE_AGENT", "1")
    before = Path("/proc/sys/kernel/core_pattern").read_text()
    with subprocess.Popen(["sleep", "1000"]) as neighbour:
        try:
            attack = ATTACKS.format(
                key=confined.key, own=confined.own_key, state=confined.state, agent=neighbour.pid
            )
            await confined.run(attack)
            assert confined.log.splitlines()[-1] == "end"
            assert SECRET not in confined.log
            assert "MARK_OF_THE_AGENT=" not in confined.log
            assert confined.key.read_text() == confined.own_key.read_text() == SECRET
            assert Path("/proc/sys/kernel/core_pattern").read_text() == before
            assert neighbour.poll() is None
        finally:
            neighbour.kill()
            with contextlib.suppress(OSError):
                Path("/proc/sys/kernel/core_pattern").write_text(before)


async def test_a_task_does_not_leave_its_control_group(confined: Bench) -> None:
    before = Path("/proc/self/cgroup").read_text()
    await confined.run(
        "for file in $(find /sys/fs/cgroup -maxdepth 2 -name cgroup.procs); do"
        " echo $$ >$file && echo left; done; cat /proc/$$/cgroup; echo end"
    )
    assert "left" not in confined.log
    assert confined.log.endswith(f"{before}end\n")


async def test_services_that_run_programs_are_not_seen(bench: Bench) -> None:
    """In namespaces, that is: Landlock knows no sockets."""
    if not works(confinement.NAMESPACES, bench):
        pytest.skip("namespaces do not work here")
    with tempfile.TemporaryDirectory(prefix="eva-", dir=short_tempdir()) as place:
        found = subprocess.run(
            [sys.executable, "-c", SERVICE, str(Path(confinement.__file__).parent), place],
            capture_output=True,
            text=True,
            check=False,
        )
    assert (found.returncode, found.stdout) == (0, "ConnectionRefusedError\n"), found.stderr


SERVICE = """
import os, socket, sys
sys.path.insert(0, sys.argv[1])
import confinement
place = sys.argv[2] + "/service.sock"
server = socket.socket(socket.AF_UNIX)
server.bind(place)
server.listen()
confinement.SERVICES = (place,)
confinement.confine("namespaces", [], [], harmless=True)
try:
    socket.socket(socket.AF_UNIX).connect(place)
    print("reached")
except OSError as error:
    print(type(error).__name__)
"""


async def test_a_task_reads_and_writes_what_is_its_own(confined: Bench) -> None:
    ended = await confined.run(
        'set -e; echo a >a; cat a; mkdir "$EVA_CHECKPOINT_DIR/1" "$EVA_STORAGE/outputs/o";'
        ' echo c >"$EVA_CHECKPOINT_DIR/1/c"; cat "$EVA_CHECKPOINT_DIR/1/c"; rm a;'
        f" {PYTHON} -c 'import json, ssl; print(1)'"
    )
    assert (ended.code, confined.log.split()) == (0, ["a", "c", "1"])
    assert (confined.task / "checkpoints" / "1" / "c").read_text() == "c\n"


async def test_a_socket_that_the_next_agent_makes_is_seen(confined: Bench) -> None:
    (confined.task / "run" / "eva.sock").write_text("first")
    running = asyncio.ensure_future(
        confined.run('touch up; until grep second "$EVA_SOCKET"; do sleep 0.02; done')
    )
    async with asyncio.timeout(DEADLINE_S):
        while not (confined.task / "work" / "up").exists():
            await asyncio.sleep(0.01)
    (confined.task / "run" / "eva.sock").unlink()
    (confined.task / "run" / "eva.sock").write_text("second")
    assert (await running).code == 0


@pytest.mark.root
async def test_root_gives_its_rights_up_unless_it_may_keep_them(bench: Bench) -> None:
    if not works(confinement.NAMESPACES, bench):
        pytest.skip("needs mount namespaces")
    attack = (
        "grep CapEff /proc/self/status; for disk in /dev/[sv]d* /dev/nvme*n*; do head -c 9 $disk;"
        f" done; : >/etc/eva-attack; : >{Path.home()}/eva-attack; echo end"
    )
    bench.confined = Measures(confinement.NAMESPACES, [str(bench.state)], None)
    await bench.run(attack)
    assert int(bench.log.split()[1], 16) == 0
    assert not (Path.home() / "eva-attack").exists()
    assert not Path("/etc/eva-attack").exists()
    allowed = Measures(confinement.NAMESPACES, [], None, Isolation(user="worker"))
    assert not allowed.harmless


async def test_files_of_a_task_are_made_as_in_a_container(bench: Bench) -> None:
    """Whatever its agent makes private: a local cluster's has the mask of its master."""
    before = os.umask(0o077)
    try:
        await bench.run("umask; touch file")
    finally:
        os.umask(before)
    assert bench.log.strip() == "0022"
    assert (bench.task / "work" / "file").stat().st_mode & 0o777 == 0o644


async def test_core_dumps_and_open_files_are_limited(bench: Bench) -> None:
    bench.confined = Measures(confinement.NOTHING, [], None, Isolation(open_files=99))
    await bench.run("ulimit -n; ulimit -Hc")
    assert bench.log.split() == ["99", "0"]


@pytest.fixture
def limited(bench: Bench) -> Bench:
    """A bench whose tasks have control groups."""
    try:
        groups = Groups.found(bench.disk)
    except NoGroups as error:
        pytest.skip(f"no control groups: {error}")
    bench.confined = Measures(confinement.NOTHING, [], groups, Isolation(processes=32))
    return bench


@pytest.mark.root
async def test_a_fork_bomb_stays_within_its_task(limited: Bench) -> None:
    bomb = "i=0; while [ $i -lt 64 ]; do sleep 1000 & i=$((i+1)); done; echo all"
    await limited.run(f"trap '' TERM; {bomb}")
    assert "all" not in limited.log.split()
    assert "fork" in limited.log


@pytest.mark.root
async def test_memory_is_limited_and_the_user_is_told(limited: Bench) -> None:
    ended = await limited.run(f"exec {PYTHON} -c 'bytearray(200 << 20)'", memory_mib=64)
    assert ended.code == -signal.SIGKILL
    assert ended.message == "out of memory: the task's limit is 64 MiB"
    own = [Path(it) for it in _groups(limited)]
    written = json.loads((limited.disk / "groups.json").read_text())
    assert written == [str(it.parent) for it in own]
    assert all(it.is_dir() for it in own)
    await limited.runtime.cleanup(KEY)
    assert not any(it.exists() or it.parent.exists() for it in own)


def _groups(bench: Bench) -> list[str]:
    assert bench.confined
    assert bench.confined.groups
    return [f"{top}/job-1-0-0001" for top in bench.confined.groups._tops.values()]


@pytest.mark.root
async def test_groups_of_an_instance_that_is_gone_are_removed(limited: Bench) -> None:
    await limited.run("true")
    own = [Path(it) for it in _groups(limited)]
    assert all(it.is_dir() for it in own)
    remove_groups(limited.disk / "groups.json")
    assert not any(it.exists() or it.parent.exists() for it in own)
    remove_groups(limited.disk / "no such file")


@pytest.mark.root
async def test_processes_that_change_their_environment_die_with_their_shim(limited: Bench) -> None:
    running = asyncio.ensure_future(
        limited.run("setsid env -i sleep 1000.125 & touch up; sleep 1000")
    )
    async with asyncio.timeout(DEADLINE_S):
        while not (limited.task / "work" / "up").exists():
            await asyncio.sleep(0.01)
    limited.runtime.close()
    record = limited.disk / "runtime" / KEY.path / "shim.json"
    running.cancel()
    pid = int(record.read_text().partition('"pid": ')[2].partition(",")[0])
    os.kill(pid, signal.SIGKILL)
    limited.runtime = ProcessRuntime(limited.disk / "runtime", limited.confined)
    await limited.runtime.adopt()
    assert (await limited.runtime.wait(KEY)).code != 0
    found = subprocess.run(["pgrep", "-f", "sleep 1000.12[5]"], capture_output=True, check=False)
    assert found.stdout == b""


@pytest.mark.parametrize("missing", ["confinement", "groups"])
def test_what_is_missing_is_said_loudly(
    bench: Bench, missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: object, **__: object) -> tuple[str, str]:
        return confinement.NOTHING, "namespaces: not permitted; landlock: not there"

    def no_groups(*_: object) -> Groups:
        raise NoGroups("/sys/fs/cgroup: read-only")

    if missing == "confinement":
        monkeypatch.setattr(confinement, "tried_out", none)
    monkeypatch.setattr(Groups, "found", no_groups)
    with capture_logs() as logs:
        bench.taken(Isolation())
    errors = [log["event"] for log in logs if log["log_level"] == "error"]
    assert ("NOTHING LIMITS THE PROCESSES AND THE MEMORY OF TASKS") in errors
    assert (missing == "confinement") == any("THE KEYS OF THE CLUSTER" in it for it in errors)


def unified(root: Path, own: str, controllers: str = "cpu memory pids") -> None:
    """Files of control groups of version 2, where writing a process has no effect."""
    place = root
    for part in ("", *own.split("/")):
        place = place / part
        place.mkdir(parents=True, exist_ok=True)
        (place / "cgroup.controllers").write_text(controllers)
        (place / "cgroup.subtree_control").write_text("")


def test_groups_of_version_2_are_made_where_they_can_be(tmp_path: Path) -> None:
    unified(tmp_path / "cgroup", "user.slice/shell.scope")
    own = tmp_path / "own"
    own.write_text("0::/user.slice/shell.scope\n")
    groups = Groups.found(tmp_path, root=tmp_path / "cgroup", own=own)
    group = groups.make(KEY, processes=7, memory_mib=3)
    (directory,) = group.directories
    assert directory.parent.parent == tmp_path / "cgroup" / "user.slice" / "shell.scope"
    assert (directory / "pids.max").read_text() == "7"
    assert (directory / "memory.max").read_text() == str(3 << 20)
    assert (directory.parent / "cgroup.subtree_control").read_text() == "+pids +memory"
    (directory / "memory.events").write_text("low 0\noom 1\noom_kill 1\n")
    assert group.ran_out_of_memory()


def test_machines_without_groups_say_why(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text("0::/a\n")
    with pytest.raises(NoGroups, match="no controllers of processes and memory"):
        Groups.found(tmp_path, root=tmp_path / "cgroup", own=own)
    unified(tmp_path / "cgroup", "a", controllers="cpu")
    with pytest.raises(NoGroups, match="no controllers of processes and memory"):
        Groups.found(tmp_path, root=tmp_path / "cgroup", own=own)


LISTS = """
for place in '{state}' '{state}'/pki '{disk}' '{disk}'/tasks '{disk}'/tasks/other; do
  ls -A "$place"; {python} -c 'import os, sys; print(os.listdir(sys.argv[1]))' "$place"
done; find '{state}'; echo '{state}'/*; cat /proc/net/unix; echo end; ls -A .; cat own
"""


async def test_names_in_the_state_directory_are_not_listed(confined: Bench) -> None:
    """Neither of what is there nor of what other tasks have; a task's own files are."""
    (confined.disk / "tasks" / "other-users-job").mkdir()
    (confined.disk / "tasks" / "other" / "names-of-others").mkdir(parents=True)
    (confined.task / "work" / "own").write_text("mine")
    await confined.run(LISTS.format(state=confined.state, disk=confined.disk, python=PYTHON))
    listed, _, own = confined.log.partition("end\n")
    for name in ("ca.key", "key.pem", "pki", "identity", "other-users-job", "names-of-others"):
        assert f"{name}\n" not in listed.replace(f"{confined.state}/pki", "")
        assert f"'{name}'" not in listed
    assert own.split() == ["own", "mine"]


MEETS = """
import os, socket, sys
from multiprocessing.shared_memory import SharedMemory
from ctypes import CDLL
libc = CDLL(None)
found = []
try:
    socket.socket(socket.AF_UNIX).connect(chr(0) + sys.argv[1])
    found.append("abstract socket")
except OSError:
    pass
if os.path.exists("/dev/shm/" + sys.argv[1]):
    found.append("memory file")
if libc.shmget(int(sys.argv[2]), 0, 0o600) >= 0:
    found.append("memory segment")
if libc.mq_open(("/" + sys.argv[1]).encode(), 0) >= 0:
    found.append("queue")
shared = SharedMemory(create=True, size=8)
shared.close()
shared.unlink()
print(found)
"""


@pytest.mark.parametrize("gang", [False, True])
async def test_tasks_share_no_memory_and_no_sockets_without_files(
    confined: Bench, gang: bool
) -> None:
    """Members of a gang do, since their frameworks exchange data so."""
    assert confined.confined
    name, number = f"eva-{os.getpid()}", os.getpid()
    libc = ctypes.CDLL(None)
    (confined.task / "work" / "meets.py").write_text(MEETS)
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.socket(socket.AF_UNIX))
        server.bind(f"\0{name}")
        server.listen()
        Path("/dev/shm", name).touch()
        stack.callback(Path("/dev/shm", name).unlink)
        segment = libc.shmget(number, 8, 0o1600)
        stack.callback(libc.shmctl, segment, 0, None)
        if libc.mq_open(f"/{name}".encode(), os.O_CREAT | os.O_RDWR, 0o600, None) < 0:
            pytest.skip("there are no message queues")
        stack.callback(libc.mq_unlink, f"/{name}".encode())
        ended = await confined.run(f"{PYTHON} meets.py {name} {number}", gang=gang)
    assert ended.code == 0, confined.log
    sockets, memory = ["abstract socket"], ["memory file", "memory segment"]
    if confined.confined.own_tmp:
        expected = [*sockets, *memory, "queue"] if gang else []
    else:  # Landlock knows no memory, and refuses queues as files.
        expected = [*sockets, *memory] if gang else memory
    assert confined.log.strip() == str(expected)


@pytest.mark.parametrize("version", [2, 5, 7])
def test_tasks_of_older_kernels_cannot_be_traced_either(version: int) -> None:
    if confinement._landlock_version() < version:
        pytest.skip("the kernel has no such Landlock")
    code = (
        "import os, sys; sys.path.insert(0, sys.argv[1]); import confinement;"
        f" confinement._landlock_version = lambda: {version};"
        " confinement._libc.prctl(confinement.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);"
        " confinement._keep_within(apart=True); os.mkdir('a'); os.mkdir('b');"
        " open('a/x', 'w').close(); os.rename('a/x', 'b/x');"
        " print(os.path.exists(f'/proc/{os.getppid()}/cwd/.'))"
    )
    with tempfile.TemporaryDirectory() as place:
        done = subprocess.run(
            [sys.executable, "-c", code, str(Path(confinement.__file__).parent)],
            capture_output=True,
            text=True,
            check=True,
            cwd=place,
        )
    assert done.stdout == "False\n"
