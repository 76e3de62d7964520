"""Temporary files of tasks: each has a directory for them, whatever confines it."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from eva_master.adapters.local.processes import remove_disk
from eva_worker.isolation import Isolation
from eva_worker.runtime.process import confinement, runtime
from eva_worker.runtime.process.measures import Measures, measures
from tests.fakes.paths import PYTHON
from tests.integration.isolation.test_worker_confinement import Bench, works

HOME = Path(confinement.__file__).parent


def confined_run(how: str, code: str, *arguments: object) -> str:
    """Output of code that runs in a process of its own, beside the module `confinement`."""
    begin = f"import os, sys; sys.path.insert(0, {str(HOME)!r}); import confinement\n"
    done = subprocess.run(
        [sys.executable, "-c", begin + code, how, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    if hasattr(bench, "runtime"):
        bench.runtime.close()


@pytest.fixture(params=[confinement.NAMESPACES, confinement.LANDLOCK, confinement.NOTHING])
def confined(request: pytest.FixtureRequest, bench: Bench) -> Bench:
    """A bench whose tasks are confined in one of the ways, or not at all."""
    if request.param and not works(request.param, bench):
        pytest.skip(f"{request.param} do not work here")
    bench.confined = Measures(request.param, [str(bench.state), str(bench.disk)], None)
    return bench


WRITES = f"""
set -e
f=$(mktemp); echo a >$f; cat $f; rm $f
d=$(mktemp -d); echo b >$d/b; cat $d/b; rm -r $d
large=$(printf 'c%.0s' $(seq 100000)); cat <<<"$large" | wc -c
mkdir read-only; chmod a-w read-only; cd read-only
{PYTHON} -c 'import tempfile; print(tempfile.TemporaryFile("w").write("four"))'
"""


async def test_a_task_makes_temporary_files(confined: Bench) -> None:
    ended = await confined.run(WRITES)
    assert (ended.code, confined.log.split()) == (0, ["a", "b", "100001", "4"])


@pytest.mark.skipif(not shutil.which("gcc"), reason="there is no gcc")
async def test_compilers_have_room(confined: Bench) -> None:
    ended = await confined.run("echo 'int main(void) { return 7; }' | gcc -pipe -x c -; ./a.out")
    assert ended.code == 7, confined.log


async def test_names_are_short_enough_for_sockets(confined: Bench) -> None:
    """Names of Ray's sockets take 70 bytes below the directory, and a name has at most 107."""
    ended = await confined.run(
        f"{PYTHON} -c 'import os, socket, tempfile as t;"
        ' socket.socket(socket.AF_UNIX).bind(os.path.join(t.gettempdir(), "s" * 70))\''
    )
    assert ended.code == 0, confined.log
    assert (confined.task / "tmp" / ("s" * 70)).is_socket()


async def test_a_script_is_its_tasks_own_whatever_becomes_of_the_short_name(
    confined: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Where /tmp is shared, another task of the same user may put a link of its own there."""
    (tmp_path / "attack" / "tmp" / ".eva").mkdir(parents=True)
    (tmp_path / "attack" / "tmp" / ".eva" / "run").write_text("echo stolen")
    spawn = runtime._spawn

    def attacked(directory: Path, *more: Any) -> tuple[int, int]:
        if link := json.loads((directory / "spec.json").read_text())["short"]:
            Path(link).unlink()
            Path(link).symlink_to(tmp_path / "attack")
        return spawn(directory, *more)

    monkeypatch.setattr(runtime, "_spawn", attacked)
    await confined.run("echo mine")
    assert confined.log == "mine\n"


async def test_standard_error_can_be_opened_by_its_name(confined: Bench) -> None:
    assert (await confined.run("echo told >/dev/stderr")).code == 0
    assert confined.log == "told\n"


async def test_files_are_moved_from_one_directory_to_another(confined: Bench) -> None:
    """As programs do that write a checkpoint aside and put it in its place."""
    program = 'import os; os.rename("aside/new", "00000001")'
    ended = await confined.run(
        'cd "$EVA_CHECKPOINT_DIR"; mkdir -p aside/new; echo x >aside/new/x;'
        f" {PYTHON} -c '{program}'"
    )
    assert (ended.code, confined.log) == (0, "")
    assert (confined.task / "checkpoints" / "00000001" / "x").read_text() == "x\n"


async def test_tmp_is_the_tasks_own_in_a_namespace(bench: Bench) -> None:
    if not works(confinement.NAMESPACES, bench):
        pytest.skip("namespaces do not work here")
    bench.confined = Measures(confinement.NAMESPACES, [str(bench.state), str(bench.disk)], None)
    with tempfile.NamedTemporaryFile(dir="/tmp") as others:
        ended = await bench.run(f"echo $TMPDIR; touch /tmp/mine; ls -d {others.name}")
    assert (ended.code != 0, bench.log.splitlines()[0]) == (True, "/tmp")
    assert (bench.task / "tmp" / "mine").exists()
    assert not Path("/tmp/mine").exists()


async def test_modules_of_an_editable_install_in_tmp_are_found(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkout that lies in /tmp has the SDK beside its virtual environment, not in it."""
    if not works(confinement.NAMESPACES, bench):
        pytest.skip("namespaces do not work here")
    bench.confined = Measures(confinement.NAMESPACES, [str(bench.state), str(bench.disk)], None)
    with tempfile.TemporaryDirectory(dir="/tmp") as checkout:
        module = Path(checkout, "sdk", "module.py")
        module.parent.mkdir()
        module.write_text("NAME = 'found'")
        monkeypatch.setattr(sys, "path", [*sys.path, str(module.parent)])
        ended = await bench.run(f"cat {module}")
    assert (ended.code, bench.log) == (0, "NAME = 'found'")


async def test_what_the_agent_has_in_tmp_is_reached(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its socket where that is in /tmp since the state's path is long, and the user's home."""
    if not works(confinement.NAMESPACES, bench):
        pytest.skip("namespaces do not work here")
    bench.confined = Measures(confinement.NAMESPACES, [str(bench.state), str(bench.disk)], None)
    with tempfile.TemporaryDirectory(dir="/tmp") as place:
        home, run = Path(place, "home"), Path(place, "run")
        for directory in (home, run):
            directory.mkdir()
        (home / "own").write_text("own\n")
        monkeypatch.setenv("HOME", str(home))
        bench.socket = run / "eva.sock"
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(bench.socket))
            ended = await bench.run(f'[ -S "$EVA_SOCKET" ]; echo $?; cat {home}/own; ls {place}')
    assert (ended.code, bench.log.split()) == (0, ["0", "own", "home", "run"])


async def test_the_users_value_counts(bench: Bench, tmp_path: Path) -> None:
    await bench.run("echo $PYTHONUNBUFFERED", TMPDIR=str(tmp_path), PYTHONUNBUFFERED="")
    assert bench.log == "\n"


async def test_what_python_prints_is_in_the_log_at_once(bench: Bench) -> None:
    await bench.run(f"exec {PYTHON} -c 'import os; print(1); os._exit(0)'")
    assert bench.log == "1\n"


async def test_short_names_go_with_the_processes_of_a_task(bench: Bench) -> None:
    await bench.run('echo "$TMPDIR"; [ -d "$TMPDIR" ]')
    name = Path(bench.log.strip())
    assert name.parents[2] == Path("/tmp")
    assert not name.parents[1].exists()


def test_namespaces_are_tried_out_though_files_are_hidden(tmp_path: Path) -> None:
    """As the user's settings and a journal beside the state are."""
    state, settings = tmp_path / "state", tmp_path / "client.yaml"
    state.mkdir()
    settings.write_text("token: secret")
    without = confinement.tried_out([str(state)], [], harmless=True)
    assert confinement.tried_out([str(state), str(settings)], [], harmless=True) == without


def test_it_is_said_how_tasks_are_confined_and_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = "landlock", "namespaces: Operation not permitted"
    monkeypatch.setattr(confinement, "tried_out", lambda *_, **__: found)
    monkeypatch.setenv("HOME", str(tmp_path))
    taken = measures(tmp_path, [], Isolation())
    assert taken.sentence == "landlock (namespaces: Operation not permitted)"
    assert (tmp_path / ".cache").is_dir(), "programs want it"


LANDLOCKED = """
confinement._check(confinement._libc.prctl(38, 1, 0, 0, 0))
base, read_only = sys.argv[2], sys.argv[3:]
hidden, kept = [f"{base}/a/state/secret"], [f"{base}/a/state/secret/own"]
written = [f"{base}/a", f"{base}/b/tmp", f"{base}/b/new"] if read_only else ["/"]
confinement._refuse(hidden, kept, written, [], apart=True)
for place in ("a", "a/state", "a/other", "a/state/secret", "a/state/secret/own", "b", "b/tmp"):
    done = []
    for make, remove in ((os.mkdir, os.rmdir), (lambda p: open(p, "w").write("x"), os.unlink)):
        try:
            make(f"{base}/{place}/new")
            remove(f"{base}/{place}/new")
            done.append("made")
        except PermissionError:
            done.append("left" if os.path.exists(f"{base}/{place}/new") else "refused")
    print(place, *done)
"""


@pytest.mark.parametrize("read_only", [False, True])
def test_landlock_allows_all_that_is_not_above_what_is_hidden(
    tmp_path: Path, read_only: bool
) -> None:
    """Nothing can be made that cannot be written and removed.

    With `read_only`, as for root, files are changed in some places alone: also where one is in a
    directory that is otherwise allowed as a whole, or above what is hidden.
    """
    if confinement.tried_out([], [], harmless=True, ways=(confinement.LANDLOCK,))[0] == "":
        pytest.skip("Landlock does not work here")
    for place in ("a/state/secret/own", "a/other", "b/tmp"):
        (tmp_path / place).mkdir(parents=True)
    said = confined_run("", LANDLOCKED, tmp_path, *(["read-only"] if read_only else []))
    assert dict(line.split(" ", 1) for line in said.splitlines()) == {
        "a": "refused refused",
        "a/state": "refused refused",
        "a/other": "made made",
        "a/state/secret": "refused refused",
        "a/state/secret/own": "made made",
        "b": "refused refused" if read_only else "made made",
        "b/tmp": "made made",
    }


BESIDE_A_SERVICE = """
confinement.SERVICES = (sys.argv[2] + "/tmux-{user}",)
confinement.confine(sys.argv[1], [], [sys.argv[2]], harmless=True)
with open(sys.argv[2] + "/beside", "w") as file:
    file.write("x")
os.unlink(sys.argv[2] + "/beside")
"""


@pytest.mark.parametrize("how", [confinement.NAMESPACES, confinement.LANDLOCK])
def test_files_are_made_beside_the_sockets_of_services(how: str, tmp_path: Path) -> None:
    if confinement.tried_out([], [], harmless=True, ways=(how,))[0] != how:
        pytest.skip(f"{how} do not work here")
    (tmp_path / f"tmux-{os.geteuid()}").mkdir()
    confined_run(how, BESIDE_A_SERVICE, tmp_path)


def test_the_disk_of_an_instance_is_removed_whatever_tasks_have_left(tmp_path: Path) -> None:
    """Directories deeper than Python recurses, or that nobody may read; links are not followed."""
    disk, outside = tmp_path / "disk", tmp_path / "outside"
    disk.mkdir()
    outside.mkdir()
    (outside / "kept").touch()
    (disk / "link").symlink_to(outside)
    (disk / "locked").mkdir()
    (disk / "locked" / "file").touch()
    (disk / "locked").chmod(0)
    deep = "i=0; while [ $i -lt 1500 ]; do mkdir d && cd d || exit; i=$((i+1)); done"
    subprocess.run(["/bin/sh", "-c", deep], cwd=disk, check=True)
    remove_disk(disk)
    assert not disk.exists()
    assert (outside / "kept").exists()
