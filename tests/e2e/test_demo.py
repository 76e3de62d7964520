"""The demo as a newcomer runs it, and what it does when something goes wrong."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import docker
import psutil
import pytest
import yaml
from rich.console import Console, Group
from rich.text import Text

from eva_master.app.demo.jobs import FIRST_WAVE, READERS, SECOND_WAVE
from eva_master.app.demo.report import DemoReport
from eva_master.app.demo.run import next_steps
from eva_master.app.demo.screen import Screen
from eva_master.app.demo.story import Picture, Point, Progress, Story, resumptions
from eva_wire.rpc.messages import Bill, ClusterState, Instance, Job, Task
from tests.fakes.installed import Installed
from tests.fakes.paths import short_tempdir

ROOT = Path(__file__).parents[2]
DEMO = (sys.executable, "-m", "eva_client.cli", "demo")
NO_ENGINE = "unix:///nowhere/docker.sock"


@pytest.fixture
def temporary() -> Iterator[Path]:
    """Where the demo makes its directory; short, for the names of sockets."""
    with tempfile.TemporaryDirectory(
        prefix="demo-", dir=short_tempdir(), ignore_cleanup_errors=True
    ) as directory:
        yield Path(directory)
        for process in processes(Path(directory)):
            process.kill()


@pytest.fixture(params=["process", pytest.param("docker", marks=pytest.mark.docker)])
def engine(request: pytest.FixtureRequest) -> str:
    """The engine whose containers the demo is to use; empty for none."""
    return str(request.getfixturevalue("docker_engine")) if request.param == "docker" else ""


def start(
    temporary: Path, *command: str | Path, engine: str = "", installed: Installed | None = None
) -> subprocess.Popen[str]:
    """Start a program, of the checkout or of an environment of wheels."""
    # Whatever engine this machine has is none of the tests' business.
    own = {"TMPDIR": str(temporary), "DOCKER_HOST": engine or NO_ENGINE}
    return subprocess.Popen(
        command,
        cwd=ROOT if installed is None else installed.home,
        env={**os.environ, **own} if installed is None else installed.environment(**own),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def processes(mark: Path) -> list[psutil.Process]:
    """Those that have a path below the directory in their arguments or environment."""
    found = []
    for process in psutil.process_iter(["cmdline", "environ", "status"]):
        texts = [*(process.info["cmdline"] or ()), *(process.info["environ"] or {}).values()]
        if process.info["status"] != psutil.STATUS_ZOMBIE and any(str(mark) in it for it in texts):
            found.append(process)
    return found


def check_nothing_left(temporary: Path, engine: str = "") -> None:
    assert processes(temporary) == []
    assert list(temporary.iterdir()) == []
    if engine:
        with contextlib.closing(docker.DockerClient(base_url=engine)) as client:
            assert client.containers.list(all=True) == []


@pytest.mark.long
@pytest.mark.waits
@pytest.mark.timeout(1_800)  # Beside other tests it may take longer than that of a user.
def test_jobs_are_packed_moved_resumed_and_billed(
    temporary: Path, engine: str, tmp_path: Path
) -> None:
    # The images of containers are made of the checkout.
    installed = None if engine else Installed(tmp_path / "venv")
    command = DEMO if installed is None else (installed.eva, "demo")
    demo = start(temporary, *command, "--json", engine=engine, installed=installed)
    told, heard = demo.communicate()

    assert demo.returncode == 0, heard
    check_nothing_left(temporary, engine)
    report = json.loads(told)
    jobs, bill = report["jobs"], report["bill"]
    assert report["runtime"] == ("docker" if engine else "process")
    assert (f"tasks run in containers: an engine answers at {engine}" in heard) == bool(engine)
    assert {job["name"] for job in jobs} == {job.name for job in (*FIRST_WAVE, *SECOND_WAVE)}
    assert all(job["state"] == "succeeded" and job["failures"] == 0 for job in jobs)
    assert [job["name"] for job in jobs if not job["tasks"][0]["metrics"]] == [], heard
    check_moves(report)
    check_bill(jobs, bill)
    # About 50 where all CPUs are theirs; other tests slow readers that are alone as well.
    shares = re.findall(r"(\d+)% of what it makes on its own, beside", heard)
    assert any(int(share) <= 85 for share in shares), f"readers that share a link: {shares} %"
    why = heard[heard.index("$ eva explain stream-") :]
    moved = re.search(
        r"moved by round \d+, .*?stream-.*? to .*?: saves \$[0-9.]+/h, costs", why, re.S
    )
    assert moved, why


def check_moves(report: dict) -> None:
    """Readers are kept apart, some job moves to a cheaper place, and all go on where they were."""
    moves = {job["name"]: sum(it["moves"] for it in job["tasks"]) for job in report["jobs"]}
    assert sum(moves.values()) == report["bill"]["migrations"]
    assert sum(moves[job] for job in READERS) >= 1
    assert sum(count for job, count in moves.items() if job not in READERS) >= 1
    resumed = report["resumptions"]
    assert {one["job"] for one in resumed} <= {name for name, count in moves.items() if count}
    assert all(one["continued"] for one in resumed)
    assert any(one["before"] and one["after"] for one in resumed)
    for one in resumed:
        assert one["step"] > 0
        assert one["before"] is None or one["before"]["step"] <= one["step"]
        assert one["after"] is None or one["step"] <= one["after"]["step"]
    for job in report["jobs"]:
        assert all(task["steps"] == task["total_steps"] for task in job["tasks"])


def check_bill(jobs: list[dict], bill: dict) -> None:
    """The parts add up, and packing has paid, or nearly so on CPUs that other tests take away.

    What it saves on instances whose speed is their own is held by tests of the simulation.
    """
    assert bill["saved_micro_usd"] == bill["no_packing_micro_usd"] - bill["cost_micro_usd"]
    assert bill["cost_micro_usd"] < 1.1 * bill["no_packing_micro_usd"]
    assert all(one["closed"] for one in bill["instances"])
    for whole, part in (("cost", "cost"), ("idle", "idle")):
        parts = sum(one[f"{part}_micro_usd"] for one in bill["instances"])
        # Each part is rounded by itself.
        assert abs(parts - bill[f"{whole}_micro_usd"]) <= len(bill["instances"])
    used = sum(one["cost_micro_usd"] for one in bill["jobs"])
    assert abs(used + bill["idle_micro_usd"] - bill["cost_micro_usd"]) <= len(bill["jobs"])
    alone = sum(one["no_packing_micro_usd"] for one in bill["jobs"])
    assert abs(alone - bill["no_packing_micro_usd"]) <= len(bill["jobs"])
    assert [one["id"] for one in bill["jobs"]] == [job["id"] for job in jobs]


@pytest.mark.explore
def test_a_job_that_fails_is_named_with_its_log(temporary: Path) -> None:
    folder = temporary / "broken"
    folder.mkdir()
    (folder / "job.yaml").write_text(
        "name: broken\nworkdir: .\nrun: echo no such data; exit 3\nretries: 0\n"
        "resources: {cpus: 1, memory: 1GiB}\n"
    )
    program = f"""
import sys

from eva_master.app.demo import jobs
from eva_master.app.demo import run as demo
broken = jobs.DemoJob("broken", {str(folder)!r}, {{"STEPS": "1"}})
jobs.FIRST_WAVE = demo.FIRST_WAVE = (broken, *jobs.FIRST_WAVE)
sys.exit(demo.run(as_json=False, keep=False))
"""
    demo = start(temporary, sys.executable, "-c", program)
    told, heard = demo.communicate()

    assert demo.returncode == 1, heard
    assert f"tasks run as plain processes: no Docker engine answers at {NO_ENGINE}" in told
    assert "broken failed: task broken-1/0 exited with code 3" in told
    assert "no such data" in told
    (home,) = set(temporary.iterdir()) - {folder}
    assert str(home) in told
    assert (home / "state" / "journal.db").exists()
    assert processes(temporary) == []


@pytest.mark.long
@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.explore)]
)
def test_an_interrupted_demo_leaves_nothing_behind(
    number: signal.Signals, temporary: Path, engine: str
) -> None:
    demo = start(temporary, *DEMO, engine=engine)
    assert demo.stdout is not None
    assert any(" runs on " in line for line in demo.stdout)
    assert processes(temporary)

    demo.send_signal(number)
    told, heard = demo.communicate()

    assert demo.returncode == 130, heard
    assert "Interrupted" in told
    check_nothing_left(temporary, engine)


def commands() -> tuple[list[str], list[str]]:
    """Commands that the last line says to type in two terminals."""
    told = re.fullmatch(r"Next: (.*), and in another terminal (.*)", next_steps())
    assert told
    return shlex.split(told[1]), shlex.split(told[2])


def test_its_last_line_is_to_be_typed_where_it_was_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for directory in (ROOT, tmp_path):
        monkeypatch.chdir(directory)
        (eva, *up), (again, *submit, job) = commands()
        assert (up, submit, again) == (["up"], ["submit", "--wait"], eva)
        assert os.access(eva, os.X_OK)
        assert yaml.safe_load(Path(job).read_text())["name"] == "digits-mlp"
    (tmp_path / "eva").touch(mode=0o755)
    assert commands()[0] == ["eva", "up"]


def at_step(steps: int, *, ended: bool = False, attempt: int = 1) -> Picture:
    task = Task(index=0, steps=steps, attempt=attempt)
    job = Job(id="a-1", name="a", state="succeeded" if ended else "running", tasks=[task])
    return Picture(ClusterState(), [job], Bill())


def test_a_demo_is_stuck_when_no_task_is_further_than_ever() -> None:
    progress = Progress()
    assert progress.none_for_s(at_step(0), 100.0) == 0
    assert progress.none_for_s(at_step(0), 130.0) == 30
    assert progress.none_for_s(at_step(5), 140.0) == 0
    # Another attempt that begins anew, and comes as far.
    assert progress.none_for_s(at_step(0, attempt=2), 150.0) == 10
    assert progress.none_for_s(at_step(5, attempt=2), 160.0) == 20
    assert progress.none_for_s(at_step(6, attempt=2), 170.0) == 0
    assert progress.none_for_s(at_step(6, attempt=2, ended=True), 190.0) == 0
    assert progress.none_for_s(at_step(6, attempt=2, ended=True), 195.0) == 5


LOG = """\
step 100 loss 0.5 accuracy 0.8
step 200 loss 0.25 accuracy 0.9
resumed at step 230
resumed at step 231
step 300 loss 0.125 accuracy 0.95
done: loss 0.1 accuracy 0.96
"""


def test_what_people_see_at_the_end_can_be_printed() -> None:
    picture = Picture(
        ClusterState(), [Job(id="a-1", name="a", state="succeeded", tasks=[Task(index=0)])], Bill()
    )
    console = Console(record=True, width=100, file=io.StringIO())
    console.print(DemoReport(picture, (), {"a": ["c7i.large"]}, took_s=1.0, contained=False).show())
    assert "cost $0.00" in console.export_text()


@pytest.mark.parametrize("width", [40, 10_000])
def test_what_a_command_answers_is_indented_and_as_wide_as_it_is(width: int) -> None:
    """A pipe is wider than any table."""
    console = Console(width=width, file=io.StringIO(), color_system=None)
    Screen(console).answer("eva explain a", Group(Text("it pays " * 6), Text("so it moves")))
    assert isinstance(console.file, io.StringIO)
    first, *lines = console.file.getvalue().splitlines()
    assert first.endswith("$ eva explain a")
    assert all(line.startswith("      ") and line == line.rstrip() for line in lines)
    assert " ".join(line.strip() for line in lines) == "it pays " * 6 + "so it moves"
    assert max(map(len, lines)) <= min(width, 54)


def test_resumptions_are_read_off_the_log() -> None:
    first, second = resumptions("mlp", LOG)
    assert (first.before, first.step, first.after) == (Point(200, "loss", 0.25), 230, None)
    assert (second.before, second.step, second.after) == (None, 231, Point(300, "loss", 0.125))
    assert first.continued
    assert second.continued


def test_a_job_that_starts_over_did_not_continue() -> None:
    (only,) = resumptions("mlp", LOG.replace("230\nresumed at step 231", "0"))
    assert only.before == Point(200, "loss", 0.25)
    assert not only.continued


def picture(attempt: int, instance: str, target: str, state: str = "running") -> Picture:
    """A cluster of three instances and one job."""
    instances = [Instance(id=name, type=f"type-{name}", state="ready") for name in "abc"]
    task = Task(state=state, instance=instance, target=target, attempt=attempt)
    job = Job(id="1", name="shell", state=state, tasks=[task])
    return Picture(ClusterState(instances=instances), [job], Bill())


def test_a_move_that_no_picture_shows_the_end_of_is_told_nevertheless() -> None:
    story = Story([])
    seen = [
        picture(1, "a", "a"),
        picture(1, "a", "b"),
        picture(2, "", "c", "waiting"),
        picture(3, "", "", "succeeded"),
    ]
    for one in seen:
        list(story.lines(one))
    assert story.places(seen[-1].jobs[0]) == ["type-a", "type-b", "type-c"]


def test_a_move_that_never_came_is_no_place() -> None:
    story = Story([])
    seen = [picture(1, "a", "b"), picture(1, "", "", "succeeded")]
    for one in seen:
        list(story.lines(one))
    assert story.places(seen[-1].jobs[0]) == ["type-a"]
