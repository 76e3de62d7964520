"""The commands that change something: submit, cancel; and logs, which follows."""

from __future__ import annotations

import hashlib
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from eva_client.cli import main, waiting
from eva_client.cli.session import Patience
from eva_wire._proto import api_pb2 as pb
from eva_wire.values.errors import (
    AmbiguousName,
    DuplicateName,
    InvalidJob,
    JobActive,
    NotAuthorised,
    Problem,
    Unplaceable,
)
from tests.fakes.rpc.api import TOKEN, FakeApi, sample_jobs

Run = Callable[..., Result]

JOB = "name: a\nrun: x\nresources: {cpus: 1, memory: 1GiB}\n"


@pytest.fixture
def api() -> Iterator[FakeApi]:
    with FakeApi(jobs=sample_jobs()) as api:
        yield api


@pytest.fixture
def eva(api: FakeApi, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    api.be_the_only_one(monkeypatch, tmp_path)
    # A master that is away is asked again at once.
    monkeypatch.setattr(Patience, "FIRST_PAUSE_S", 0.01)

    def run(*arguments: str, **options: object) -> Result:
        return CliRunner().invoke(main, list(arguments), **options)

    return run


@pytest.fixture
def job_file(tmp_path: Path) -> Path:
    file = tmp_path / "job.yaml"
    file.write_text(JOB)
    return file


def job(state: str, exit_code: int | None = None, **fields: object) -> pb.Job:
    return pb.Job(id="job-1", state=state, exit_code=exit_code, **fields)


def test_submit_hands_in_the_file_as_it_is(eva: Run, api: FakeApi, job_file: Path) -> None:
    result = eva("submit", str(job_file), "--env", "LR=0.1=x", "--env", "E=", "--name", "again")
    assert (result.exit_code, result.stdout) == (0, "job-1\n")
    (call,) = api.of("Submit")
    assert call.request.job_yaml == JOB
    assert call.request.file_name == str(job_file)
    assert dict(call.request.envs) == {"LR": "0.1=x", "E": ""}
    assert (call.request.name, call.request.workdir) == ("again", "")
    assert call.metadata["authorization"] == f"Bearer {TOKEN}"


def test_submit_json(eva: Run, job_file: Path) -> None:
    result = eva("submit", str(job_file), str(job_file), "--json")
    assert json.loads(result.stdout) == {
        "jobs": [
            {"id": "job-1", "file": str(job_file), "notes": []},
            {"id": "job-2", "file": str(job_file), "notes": []},
        ]
    }


def test_what_may_not_be_meant_is_noted_beside_the_id(
    eva: Run, api: FakeApi, job_file: Path
) -> None:
    api.notes = ["it counts as short\x1b[31m"]
    result = eva("submit", str(job_file))
    assert (result.exit_code, result.stdout) == (0, "job-1\n")
    assert "job-1: it counts as short" in result.stderr
    assert "\x1b" not in result.stderr
    shown = json.loads(eva("submit", str(job_file), "--json").stdout)
    assert shown["jobs"][0]["notes"] == api.notes


def test_a_preview_has_the_notes_of_a_submission(eva: Run, api: FakeApi, job_file: Path) -> None:
    api.plan.notes.append("`dag`\x1b[31m: nobody reads it")
    result = eva("plan", str(job_file))
    assert result.stderr.startswith("note: `dag`")
    assert "\x1b" not in result.stderr
    assert "nobody reads it" not in result.stdout
    assert json.loads(eva("plan", str(job_file), "--json").stdout)["notes"] == list(api.plan.notes)


def test_submit_reads_stdin(eva: Run, api: FakeApi) -> None:
    assert eva("submit", "-", input=JOB).exit_code == 0
    assert api.of("Submit")[0].request.job_yaml == JOB


def test_a_repeated_submission_has_the_same_id(eva: Run, api: FakeApi, job_file: Path) -> None:
    api.failures["Submit"] = [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNAVAILABLE]
    result = eva("submit", str(job_file))
    assert (result.exit_code, result.stdout) == (0, "job-1\n")
    assert len({call.request.command_id for call in api.of("Submit")}) == 1
    assert len(api.of("Submit")) == 3


def test_two_submissions_have_two_ids(eva: Run, api: FakeApi, job_file: Path) -> None:
    eva("submit", str(job_file))
    eva("submit", str(job_file))
    first, second = api.of("Submit")
    assert first.request.command_id != second.request.command_id


def test_nothing_is_sent_when_one_file_is_bad(
    eva: Run, api: FakeApi, job_file: Path, tmp_path: Path
) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("name: b\nrnu: x\nresources: {cpus: 1, memory: 16}\n")
    result = eva("submit", str(job_file), str(bad))
    assert result.exit_code == 2
    assert api.calls == []
    assert f"error: {bad} has 2 problems" in result.stderr
    assert "line 2, column 1: rnu: unknown key 'rnu'\n      did you mean 'run'?" in result.stderr
    assert "line 3, column 22: resources.memory: a size needs a unit" in result.stderr


def test_one_problem_takes_one_line(eva: Run, tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text(JOB + "total_stps: 5\n")
    result = eva("submit", str(bad))
    assert f"error: {bad}:4:1: total_stps: unknown key 'total_stps'" in result.stderr
    assert "hint: did you mean 'total_steps'?" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.yaml"], "does not exist"),
        ([], "Missing argument"),
        (["{file}", "--env", "A"], "'A' is not NAME=VALUE"),
        (["{file}", "--env", "=1"], "'' is not NAME=VALUE"),
        (["{file}", "--env", "EVA_X=1"], "EVA_X is set by the cluster"),
        (["{file}", "--name", "a b"], "'a b' cannot be a name"),
        (["{file}", "{file}", "--name", "b"], "--name names one job"),
    ],
)
def test_bad_arguments(
    eva: Run, api: FakeApi, job_file: Path, arguments: list[str], message: str
) -> None:
    result = eva("submit", *(one.format(file=job_file) for one in arguments))
    assert result.exit_code == 2
    assert message in result.stderr
    assert api.calls == []


@pytest.mark.parametrize("content", [b"\xff\xfe", b"name: [", b""])
def test_files_that_are_none(eva: Run, api: FakeApi, tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "bad.yaml"
    file.write_bytes(content)
    assert eva("submit", str(file)).exit_code == 2
    assert api.calls == []


@pytest.mark.parametrize(
    ("failure", "message", "hint"),
    [
        (DuplicateName("job 'a' is active", hint="name it --name a2"), "is active", "--name a2"),
        (
            Unplaceable(
                "job.yaml:3:1: no type",
                problems=(Problem("no type", "resources", 3, 1, "ask for less"),),
            ),
            "job.yaml:3:1: no type",
            "ask for less",
        ),
        (
            InvalidJob(
                "job.yaml has 2 problems",
                problems=(Problem("first", "run", 2, 1), Problem("second", "name", 9, 4, "try")),
            ),
            "line 9, column 4: name: second",
            "try",
        ),
    ],
)
def test_refusals_of_the_master(
    eva: Run, api: FakeApi, job_file: Path, failure: InvalidJob, message: str, hint: str
) -> None:
    api.failures["Submit"] = [failure]
    result = eva("submit", str(job_file))
    assert result.exit_code == 2
    assert message in result.stderr
    assert hint in result.stderr


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A job file with a working directory of two files, one of them large and one empty."""
    directory = tmp_path / "project"
    (directory / "src").mkdir(parents=True)
    (directory / "src" / "large.bin").write_bytes(bytes(range(256)) * 4096)
    (directory / "empty.txt").write_text("")
    (directory / "job.yaml").write_text(JOB + "workdir: src/..\n")
    return directory


def test_working_directory_goes_up_before_the_job(eva: Run, api: FakeApi, project: Path) -> None:
    assert eva("submit", str(project / "job.yaml")).exit_code == 0
    manifest = json.loads(api.blobs[api.of("Submit")[0].request.workdir])
    assert [one["path"] for one in manifest["files"]] == [
        *("empty.txt", "job.yaml", "src/large.bin")
    ]
    for one in manifest["files"]:
        data = (project / one["path"]).read_bytes()
        assert api.blobs[one["sha256"]] == data
        assert hashlib.sha256(data).hexdigest() == one["sha256"]
    assert [call.method for call in api.calls][-2:] == ["PutBlob", "Submit"]


def test_build_context_goes_up_before_the_job(eva: Run, api: FakeApi, project: Path) -> None:
    (project / "src" / "Dockerfile").write_text("FROM busybox")
    (project / "src" / ".dockerignore").write_text("*.bin")
    (project / "job.yaml").write_text(JOB + "build: {context: src}\n")
    assert eva("submit", str(project / "job.yaml")).exit_code == 0
    request = api.of("Submit")[0].request
    manifest = json.loads(api.blobs[request.build])
    assert [one["path"] for one in manifest["files"]] == [".dockerignore", "Dockerfile"]
    assert api.blobs[manifest["files"][1]["sha256"]] == b"FROM busybox"
    assert request.workdir == ""


def test_dockerfile_that_is_not_there_sends_nothing(eva: Run, api: FakeApi, project: Path) -> None:
    (project / "job.yaml").write_text(JOB + "build: {context: src}\n")
    result = eva("submit", str(project / "job.yaml"))
    assert result.exit_code == 2
    assert "there is no 'Dockerfile' in the build context 'src'" in result.stderr
    assert api.calls == []


def test_what_is_there_is_not_sent_again(eva: Run, api: FakeApi, project: Path) -> None:
    eva("submit", str(project / "job.yaml"))
    sent = len(api.of("PutBlob"))
    (project / "new.txt").write_text("new")
    assert eva("submit", str(project / "job.yaml")).exit_code == 0
    # The new file and the new manifest.
    assert len(api.of("PutBlob")) == sent + 2


def test_upload_survives_a_restart_of_the_master(eva: Run, api: FakeApi, project: Path) -> None:
    api.failures["PutBlob"] = [grpc.StatusCode.UNAVAILABLE]
    assert eva("submit", str(project / "job.yaml")).exit_code == 0
    assert len(api.blobs) == 4


def test_working_directory_that_is_none(eva: Run, api: FakeApi, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(JOB + "workdir: nowhere\n")
    result = eva("submit", str(file))
    assert result.exit_code == 2
    assert f"workdir: {tmp_path / 'nowhere'} is not a directory" in result.stderr
    assert api.calls == []


@pytest.mark.parametrize(
    ("end", "code"),
    [
        (job("succeeded", 0), 0),
        (job("failed", 3), 3),
        (job("failed", 137), 137),
        (job("failed", 0), 1),
        (job("failed"), 1),
        (job("cancelled"), 1),
    ],
)
def test_wait_passes_the_exit_code_on(
    eva: Run, api: FakeApi, job_file: Path, end: pb.Job, code: int
) -> None:
    api.jobs["job-1"] = job("pending")
    api.changes = [job("running"), job("running"), end]
    result = eva("submit", str(job_file), "--wait")
    assert result.exit_code == code
    assert result.stdout == "job-1\n"
    states = [line.split(": ")[1].split(",")[0] for line in result.stderr.splitlines()]
    assert states == ["pending", "running", end.state]


def test_wait_says_that_the_master_stands_still_and_that_it_goes_on(
    eva: Run, api: FakeApi, job_file: Path
) -> None:
    pause = pb.Pause(since_ms=1, reason="the disk is full", hint="make room")
    still = pb.Job(id="job-1", state="running", pause=pause)
    api.jobs["job-1"] = job("running")
    api.changes = [still, still, job("running"), still, job("succeeded", 0)]
    result = eva("submit", str(job_file), "--wait")
    assert result.exit_code == 0
    stands = "the master stands still, and tasks run on: the disk is full; make room"
    assert result.stderr.splitlines() == [
        "job-1: running",
        stands,
        "the master goes on",
        stands,
        "job-1: succeeded, cost $0.00",
    ]


def array(*states: str, **fields: object) -> pb.Job:
    tasks = [pb.Task(index=n, state=state) for n, state in enumerate(states)]
    whole = "running" if "running" in states else "pending"
    return pb.Job(id="job-1", state=whole, tasks=tasks, **fields)


ARRAY = [
    array("waiting", "waiting", "waiting"),
    array("running", "waiting", "waiting"),
    array("succeeded", "waiting", "waiting"),
    array("succeeded", "running", "waiting"),
    array("succeeded", "waiting", "waiting", failures=1, reason="task job-1/1 exited with code 1"),
    array("succeeded", "running", "running", failures=1),
]


def test_wait_on_an_array_shows_a_steady_state(eva: Run, api: FakeApi, job_file: Path) -> None:
    """Tasks that start and end one after another do not make the job pending again."""
    api.jobs["job-1"] = ARRAY[0]
    api.changes = [*ARRAY[1:], job("succeeded", 0)]
    result = eva("submit", str(job_file), "--wait")
    assert result.exit_code == 0
    assert result.stderr.splitlines() == [
        "job-1: pending",
        "job-1: running",
        "job-1: running, tried again after a failure: task job-1/1 exited with code 1",
        "job-1: succeeded, cost $0.00",
    ]


def test_wait_draws_one_table_that_stays_as_it_is() -> None:
    """On a terminal, lines are told above it, and no row or bar comes and goes."""
    screen = Console(file=io.StringIO(), force_terminal=True, width=100)
    with waiting.progress_table(screen) as progress:
        display = waiting.Display(progress, ["job-1", "other-2"])
        shown, done = [], []
        for one in ARRAY:
            display.show(one)
            row, other = progress.tasks
            assert (row.description, other.description) == ("job-1", "other-2")
            shown.append((row.fields["state"], row.fields["tasks"]))
            assert row.total == 1.0
            done.append(row.completed)
    assert shown == [
        ("pending", "3 waiting"),
        ("running", "1 running, 2 waiting"),
        ("running", "1 succeeded, 2 waiting"),
        ("running", "1 succeeded, 1 running, 1 waiting"),
        ("running", "1 succeeded, 2 waiting"),
        ("running", "1 succeeded, 2 running"),
    ]
    assert done == sorted(done)
    assert screen.file.getvalue().count("job-1: running\n") == 1  # type: ignore[attr-defined]


def test_wait_outlasts_a_master_that_goes_away(eva: Run, api: FakeApi, job_file: Path) -> None:
    api.jobs["job-1"] = job("running")
    # Refused for good by gRPC's own retries, then hung up on, then told.
    api.failures["Watch"] = [grpc.StatusCode.UNAVAILABLE] * 3
    api.hang_ups = 1
    api.changes = [job("succeeded", 0, cost_micro_usd=5_000)]
    result = eva("submit", str(job_file), "--wait")
    assert result.exit_code == 0
    assert "still trying" in result.stderr
    assert "job-1: succeeded, cost $0.005000" in result.stderr


def test_cancel_asks(eva: Run, api: FakeApi) -> None:
    refused = eva("cancel", "resnet18", input="n\n")
    assert refused.exit_code == 1
    assert "cancel resnet18-3 (running)?" in refused.stderr
    assert api.of("Cancel") == []
    agreed = eva("cancel", "resnet18", "bert", input="y\n")
    assert (agreed.exit_code, agreed.stdout) == (0, "cancelled resnet18-3\ncancelled bert-1\n")
    assert all(call.request.command_id for call in api.of("Cancel"))


def test_cancel_does_not_ask_with_y(eva: Run, api: FakeApi) -> None:
    assert eva("cancel", "-y", "bert-1").exit_code == 0
    assert api.of("Cancel")[0].request.job == "bert-1"


@pytest.mark.parametrize("now", [False, True])
def test_cancel_says_whether_tasks_have_their_grace_period(
    eva: Run, api: FakeApi, now: bool
) -> None:
    assert eva("cancel", "-y", "bert-1", *(["--now"] if now else [])).exit_code == 0
    assert [call.request.now for call in api.of("Cancel")] == [now]


def test_cancel_of_some_that_exist_cancels_these(eva: Run, api: FakeApi) -> None:
    """The rest is named, each with its reason, and the exit code tells of it."""
    result = eva("cancel", "-y", "nope", "bert", "neither", "bert-1", "resnet18")
    assert result.exit_code == 1
    assert result.stdout == "cancelled bert-1\ncancelled resnet18-3\n"
    assert result.stderr.count("no job") == 2
    assert "no job 'nope'" in result.stderr
    assert [call.request.job for call in api.of("Cancel")] == ["bert-1", "resnet18-3"]


def test_cancel_asks_only_about_jobs_that_exist(eva: Run, api: FakeApi) -> None:
    result = eva("cancel", "nope", "bert", input="n\n")
    assert result.exit_code == 1
    assert "cancel bert-1 (pending)?" in result.stderr
    assert result.stderr.index("no job 'nope'") < result.stderr.index("cancel bert-1")
    assert eva("cancel", "nope").exit_code == 1
    assert api.of("Cancel") == []


def test_cancel_goes_on_after_a_job_of_somebody_else(eva: Run, api: FakeApi) -> None:
    api.failures["Cancel"] = [NotAuthorised("job bert-1 belongs to ana")]
    result = eva("cancel", "-y", "bert", "resnet18")
    assert (result.exit_code, result.stdout) == (1, "cancelled resnet18-3\n")
    assert "error: job bert-1 belongs to ana" in result.stderr


@pytest.mark.parametrize(
    ("command", "method"),
    [(("cancel", "-y"), "Cancel"), (("suspend",), "Suspend"), (("resume",), "Resume")],
)
def test_a_name_that_several_jobs_have_holds_up_no_other(
    eva: Run, api: FakeApi, command: tuple[str, ...], method: str
) -> None:
    refused = AmbiguousName("'a' is the name of 2 active jobs: a-2, a-1", hint="name it by its id")
    api.failures["Get"] = [refused]
    result = eva(*command, "a", "bert")
    assert result.exit_code == 1
    assert "a-2, a-1" in result.stderr
    assert [call.request.to_change for call in api.of("Get")] == [True, True]
    assert [call.request.job for call in api.of("Get")] == ["a", "bert"]
    # A job to be changed is named by its id, so that a repeated call means the same job.
    assert {call.request.job for call in api.of(method)} <= {"bert-1"}


def test_retry_prints_the_new_job_and_says_of_what_it_is(eva: Run, api: FakeApi) -> None:
    result = eva("retry", "resnet18", "--failed")
    old = api.of("Retry")[0].request
    assert (result.exit_code, result.stdout) == (0, f"{old.job.rpartition('-')[0]}-99\n")
    assert old.failed
    assert f"does 2 tasks of {old.job} again" in result.stderr
    assert result.stderr.count("resnet18-99: `value`: not read") == 1
    # The name is looked up once, since the new job has it too.
    assert old.job in api.jobs
    assert [call.request.to_change for call in api.of("Get")] == [True]


def test_retry_json_and_the_exit_code_of_the_new_job(eva: Run, api: FakeApi) -> None:
    job = next(one for one in api.jobs.values() if one.name == "resnet18")
    again = pb.Job(id="resnet18-99", name="resnet18", state="failed", exit_code=3)
    api.jobs[again.id] = again
    result = eva("retry", job.id, "--json", "--wait")
    answer = {"id": again.id, "retry_of": job.id, "tasks": 2, "notes": ["`value`: not read"]}
    assert (result.exit_code, json.loads(result.stdout)) == (3, answer)


def test_a_refused_retry_says_what_to_do(eva: Run, api: FakeApi) -> None:
    api.failures["Retry"] = [JobActive("job a-1 is running", hint="eva cancel a-1")]
    result = eva("retry", "bert")
    assert result.exit_code == 1
    assert "job a-1 is running" in result.stderr
    assert "eva cancel a-1" in result.stderr


def test_cancel_of_a_job_that_has_ended_says_so(eva: Run, api: FakeApi) -> None:
    ended = next(one for one in sample_jobs().values() if one.state == "failed")
    result = eva("cancel", ended.id)
    assert (result.exit_code, result.stdout) == (0, "")
    assert f"{ended.id} has ended already: failed" in result.stderr
    assert api.of("Cancel") == []


def test_logs_are_bytes(eva: Run, api: FakeApi) -> None:
    api.logs = [b"one\n", b"\xff\x00two"]
    result = eva("logs", "bert", "--task", "2")
    assert result.stdout_bytes == b"one\n\xff\x00two"
    (call,) = api.of("Logs")
    assert (call.request.job, call.request.task, call.request.follow) == ("bert-1", 2, False)


def test_logs_go_on_where_they_broke_off(eva: Run, api: FakeApi) -> None:
    api.logs = [b"one ", b"two ", b"three ", b"four"]
    api.breaks = [2, 3]
    result = eva("logs", "-f", "bert")
    assert result.exit_code == 0
    assert result.stdout_bytes == b"one two three four"
    assert result.stderr.count("still trying") == 1


def test_logs_that_are_not_followed_do_not_wait(eva: Run, api: FakeApi) -> None:
    api.logs = [b"one ", b"two "]
    api.breaks = [1]
    assert eva("logs", "bert").exit_code == 69


def test_interrupt_leaves_the_job_running(api: FakeApi, job_file: Path, tmp_path: Path) -> None:
    with (
        FakeHanging() as hanging,
        subprocess.Popen(
            [sys.executable, "-m", "eva_client.cli", "submit", "--wait", str(job_file)],
            env={**os.environ, **hanging.environment, "XDG_CONFIG_HOME": str(tmp_path)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        assert process.stderr is not None
        assert process.stderr.readline() == "job-1: running\n"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 130
        assert "job-1: still running; `eva logs -f` shows its output" in errors
        assert hanging.of("Cancel") == []


class FakeHanging(FakeApi):
    """A master whose only job never ends."""

    def Watch(self, request, context):
        yield job("running")
        while context.is_active():
            self._hung.wait(0.05)

    def __post_init__(self) -> None:
        import threading

        self._hung = threading.Event()
        super().__post_init__()


def test_help_does_not_load_what_it_does_not_need() -> None:
    code = (
        "import sys\n"
        "from eva_client.cli import main\n"
        "try:\n    main(sys.argv[1:])\n"
        "except SystemExit:\n    pass\n"
        "heavy = {'grpc', 'sqlalchemy', 'google.protobuf', 'obstore'} & sys.modules.keys()\n"
        "sys.exit(repr(heavy) if heavy else 0)\n"
    )
    for arguments in (["--help"], ["schema"], ["submit", "--help"]):
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr


def test_schema(eva: Run) -> None:
    assert json.loads(eva("schema").stdout)["properties"]["run"]


def test_help_names_every_command(eva: Run) -> None:
    text = eva("--help").stdout
    for name in (
        "up",
        "master",
        "submit",
        "ls",
        "status",
        "logs",
        "cancel",
        "nodes",
        "token",
        "worker",
    ):
        assert f"\n  {name} " in text


def test_broken_command_of_another_package_breaks_nothing(
    eva: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    import importlib.metadata

    import eva_client.cli as cli

    broken = importlib.metadata.EntryPoint("other", "eva_no_such_module:command", "eva.commands")
    monkeypatch.setattr(cli, "entry_points", lambda group: [broken])
    assert "broken" in eva("--help").stdout
    result = eva("other", "--flag")
    assert result.exit_code == 1
    assert "cannot be loaded" in result.stderr
