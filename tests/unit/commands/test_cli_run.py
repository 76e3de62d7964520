"""The commands run and wait."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from eva_client.cli import log_streams, main
from eva_client.cli.run import program_name
from eva_client.cli.session import Patience
from eva_wire._proto import api_pb2 as pb
from eva_wire.values.errors import NotAuthorised
from tests.fakes.rpc.api import FakeApi

Run = Callable[..., Result]


@pytest.fixture
def api() -> Iterator[FakeApi]:
    with FakeApi() as api:
        yield api


@pytest.fixture
def eva(
    api: FakeApi, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Run:
    api.be_the_only_one(monkeypatch, tmp_path_factory.mktemp("settings"))
    monkeypatch.setattr(Patience, "FIRST_PAUSE_S", 0.01)
    here = tmp_path_factory.mktemp("here")
    (here / "train.py").write_text("print(1)\n")
    monkeypatch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
    monkeypatch.chdir(here)

    def run(*arguments: str, **options: object) -> Result:
        return CliRunner().invoke(main, list(arguments), **options)

    return run


def ends(api: FakeApi, job: str, state: str, exit_code: int | None = None) -> None:
    api.jobs[job] = pb.Job(id=job, name=job.rpartition("-")[0], state="running")
    api.changes.append(pb.Job(id=job, state=state, exit_code=exit_code, reason="why"))


def submitted(api: FakeApi) -> dict[str, object]:
    (call,) = api.of("Submit")
    document: dict[str, object] = yaml.safe_load(call.request.job_yaml)
    return document


# -- run -------------------------------------------------------------------------------------------


def test_a_command_runs_as_if_it_ran_here(eva: Run, api: FakeApi) -> None:
    ends(api, "job-1", "succeeded", 0)
    api.logs = [b"epoch 1\n", b"done\n"]
    result = eva("run", "--gpus", "2", "--env", "LR=0.1=x", "python", "train.py", "--lr", "a b")
    assert (result.exit_code, result.stdout) == (0, "epoch 1\ndone\n")
    assert submitted(api) == {
        "name": "train",
        "run": "python train.py --lr 'a b'",
        "workdir": ".",
        "resources": {"gpus": 2, "cpus": 8, "memory": "16384MiB"},
        "retries": 0,
    }
    request = api.of("Submit")[0].request
    assert dict(request.envs) == {"LR": "0.1=x"}
    assert b"print(1)\n" in api.blobs.values()
    assert request.workdir in api.blobs
    assert api.of("Logs")[0].request == pb.LogsRequest(job="job-1", follow=True)


def test_options_end_where_the_command_begins(eva: Run, api: FakeApi) -> None:
    ends(api, "job-1", "succeeded", 0)
    options = ("--cpus", "0.5", "--memory", "1GiB", "--disk", "9GiB", "--name", "mine")
    options += ("--image", "a/b:1")
    assert eva("run", *options, "--", "prog", "--gpus", "3").exit_code == 0
    assert submitted(api) == {
        "name": "mine",
        "run": "prog --gpus 3",
        "workdir": ".",
        "resources": {"gpus": 0, "cpus": 0.5, "memory": "1GiB", "disk": "9GiB"},
        "retries": 0,
        "image": "a/b:1",
    }


def test_a_home_is_not_uploaded(eva: Run, api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(Path.cwd() / "deep" / "home"))
    result = eva("run", "nvidia-smi")
    assert result.exit_code == 2
    assert "with the files of your home" in result.stderr
    assert not api.calls
    ends(api, "job-1", "succeeded", 0)
    assert eva("run", "--no-upload", "nvidia-smi").exit_code == 0
    assert "workdir" not in submitted(api)
    assert not api.blobs


def test_a_single_argument_is_a_line_for_the_shell(eva: Run, api: FakeApi) -> None:
    ends(api, "job-1", "succeeded", 0)
    assert eva("run", "echo $HOME && ls").exit_code == 0
    assert submitted(api)["run"] == "echo $HOME && ls"


@pytest.mark.parametrize(
    ("state", "code", "status"), [("failed", 3, 3), ("failed", None, 1), ("cancelled", None, 1)]
)
def test_the_commands_exit_code_is_handed_on(
    eva: Run, api: FakeApi, state: str, code: int | None, status: int
) -> None:
    ends(api, "job-1", state, code)
    result = eva("run", "false")
    assert result.exit_code == status
    assert f"job-1: {state}" in result.stderr


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (("python", "train.py"), "train"),
        (("python3.12", "-u", "src/run all.py"), "run-all"),
        (("python", "-m", "pkg.train"), "pkg.train"),
        (("bash", "/opt/x/go.sh"), "go"),
        (("LR=1 ./a.out | tee log",), "a.out"),
        (("FOO=1", "env", "make"), "make"),
        (("ls 'unbalanced",), "ls"),
        (("...",), "run"),
        (("x" * 200,), "x" * 63),
    ],
)
def test_the_job_has_the_name_of_the_program(command: tuple[str, ...], name: str) -> None:
    assert program_name(command) == name


def test_variables_come_from_options_files_and_the_caller(
    eva: Run, api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERE", "mine")
    monkeypatch.setenv("HF_TOKEN", "hf_x")
    file = Path("vars")
    file.write_text("# note\n\nexport A='one two'\nB=\"x\ny=2\nHF_TOKEN\nC=from file\n")
    ends(api, "job-1", "succeeded", 0)
    arguments = ("--env-file", "vars", "--env", "C=from option", "--env", "HERE", "--env", "E=")
    result = eva("run", *arguments, "true")
    assert result.exit_code == 0
    assert dict(api.of("Submit")[0].request.envs) == {
        **{"A": "one two", "B": '"x', "y": "2", "HF_TOKEN": "hf_x"},
        **{"C": "from option", "HERE": "mine", "E": ""},
    }
    assert "eva secret set HF_TOKEN" in result.stderr
    assert "hf_x" not in result.stderr


@pytest.mark.parametrize(
    ("content", "arguments", "words"),
    [
        (b"A=1\nNOT_SET_HERE\n", (), "vars:2: NOT_SET_HERE takes your variable"),
        (b"A=1\nx y z\n", (), "vars:2: 'x y z' is not NAME=VALUE"),
        (b"=1\n", (), "vars:1: '=1' is not NAME=VALUE"),
        (b"\xff\xfe", (), "vars is not a text file"),
        (b"A=1\n" + b"#" * 2**20, (), "more than 1,048,576 bytes"),
        (b"EVA_JOB_ID=1\n", (), "EVA_JOB_ID is set by the cluster"),
        (b"A=x\0y\n", (), "NUL"),
        (b"", ("--env", "NOT_SET_HERE"), "--env: NOT_SET_HERE takes your variable"),
        (b"", ("--env", "A=\udcff"), "must be text in UTF-8"),
        (b"", ("--memory", "much"), "much"),
        (b"", ("--name", "a b"), "'a b' cannot be a name"),
    ],
)
def test_what_cannot_run_is_refused_before_anything_is_sent(
    eva: Run, api: FakeApi, content: bytes, arguments: tuple[str, ...], words: str
) -> None:
    Path("vars").write_bytes(content)
    result = eva("run", "--env-file", "vars", *arguments, "true")
    assert result.exit_code == 2
    assert words in result.stderr
    assert not api.calls


def test_a_command_is_needed(eva: Run, api: FakeApi) -> None:
    assert eva("run", "--cpus", "2").exit_code == 2
    assert not api.calls


def interrupted(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """Ctrl-C is pressed as often while the log is shown."""
    copy_log = log_streams.copy_log

    def shown(*arguments: object) -> None:
        for _ in range(times):
            signal.raise_signal(signal.SIGINT)
        copy_log(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(log_streams, "copy_log", shown)


def test_ctrl_c_cancels_and_shows_the_log_to_its_end(
    eva: Run, api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends(api, "job-1", "cancelled")
    api.logs = [b"saved\n"]
    interrupted(monkeypatch, 1)
    result = eva("run", "train")
    assert (result.exit_code, result.stdout) == (130, "saved\n")
    assert [call.request.job for call in api.of("Cancel")] == ["job-1"]
    assert "cancelling job-1 and waiting for its end; Ctrl-C again leaves it" in result.stderr


def test_a_second_ctrl_c_leaves(eva: Run, api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    ends(api, "job-1", "cancelled")
    interrupted(monkeypatch, 2)
    result = eva("run", "train")
    assert result.exit_code == 130
    assert len(api.of("Cancel")) == 1
    assert "job-1 is being cancelled" in result.stderr
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_whoever_leaves_is_told_of_a_job_that_is_not_cancelled(
    eva: Run, api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends(api, "job-1", "succeeded")
    api.failures["Cancel"] = [NotAuthorised("not yours")]
    interrupted(monkeypatch, 2)
    result = eva("run", "train")
    assert result.exit_code == 130
    assert "not yours" in result.stderr
    assert "job-1 may run on; `eva cancel job-1` ends it" in result.stderr


def test_a_command_that_ended_by_itself_has_its_own_code_after_ctrl_c(
    eva: Run, api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends(api, "job-1", "failed", 7)
    interrupted(monkeypatch, 1)
    assert eva("run", "train").exit_code == 7


# -- wait ------------------------------------------------------------------------------------------


def test_wait_ends_with_the_code_of_the_first_that_did_not_succeed(eva: Run, api: FakeApi) -> None:
    ends(api, "b-1", "failed", 4)
    ends(api, "a-1", "succeeded", 0)
    ends(api, "c-1", "cancelled")
    assert eva("wait", "a", "b-1", "c", "a-1").exit_code == 4
    assert list(api.of("Watch")[0].request.jobs) == ["a-1", "b-1", "c-1"]


def test_wait_ends_well_if_all_succeeded(eva: Run, api: FakeApi) -> None:
    for job in ("a-1", "b-1"):
        ends(api, job, "succeeded", 0)
    assert eva("wait", "b", "a").exit_code == 0


def test_wait_prints_how_each_ended(eva: Run, api: FakeApi) -> None:
    ends(api, "a-1", "succeeded", 0)
    shown = json.loads(eva("wait", "a", "--json").stdout)
    assert [(job["id"], job["state"]) for job in shown["jobs"]] == [("a-1", "succeeded")]
    assert shown["unfinished"] == []


def test_wait_gives_up_after_its_time(eva: Run, api: FakeApi) -> None:
    api.jobs["a-1"] = pb.Job(id="a-1", name="a", state="running")
    api.hang_ups = 1_000_000
    result = eva("wait", "a", "--timeout", "50ms", "--json")
    assert result.exit_code == 124
    assert json.loads(result.stdout) == {"jobs": [], "unfinished": ["a-1"]}
    result = eva("wait", "a", "--timeout", "50ms")
    assert "a-1: not ended yet" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "Missing argument"),
        (("a", "--timeout", "soon"), "write 30s, 10m or 2h"),
        (("nothing",), "no job 'nothing'"),
    ],
)
def test_wait_refuses_what_it_cannot_wait_for(
    eva: Run, api: FakeApi, arguments: tuple[str, ...], words: str
) -> None:
    result = eva("wait", *arguments)
    assert result.exit_code != 0
    assert words in result.stderr
    assert not api.of("Watch")


# -- variables of the caller -----------------------------------------------------------------------

JOB = """name: a
run: x
resources: {cpus: 1, memory: 1GiB}
envs: {WANDB_API_KEY: , LR: 0.1}
"""


def test_a_variable_without_a_value_is_the_callers(
    eva: Run, api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "w-1")
    result = eva("submit", "-", input=JOB)
    assert (result.exit_code, result.stdout) == (0, "job-1\n")
    request = api.of("Submit")[0].request
    assert dict(request.caller_envs) == {"WANDB_API_KEY": "w-1"}
    assert not request.envs
    assert result.stderr.count("eva secret set WANDB_API_KEY") == 1


def test_one_that_the_caller_lacks_is_refused(
    eva: Run, api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    result = eva("submit", "-", input=JOB)
    assert result.exit_code == 2
    assert "envs.WANDB_API_KEY takes your variable WANDB_API_KEY, which is not set" in result.stderr
    assert not api.calls
    assert eva("submit", "-", "--env", "WANDB_API_KEY=x", input=JOB).exit_code == 0
    assert not api.of("Submit")[0].request.caller_envs
    assert eva("plan", "-", input=JOB).exit_code == 0


@pytest.mark.parametrize(
    "name",
    [
        "HF_TOKEN",
        "GITHUBTOKEN",
        "PGPASSWORD",
        "MYSQL_PWD",
        "AWS_SECRET_ACCESS_KEY",
        "OPENAI_APIKEY",
    ],
)
def test_one_that_looks_like_a_secret_is_taken_with_a_warning(
    eva: Run, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "v")
    result = eva("submit", "-", input=JOB.replace("WANDB_API_KEY", name))
    assert result.exit_code == 0
    assert f"eva secret set {name}" in result.stderr


@pytest.mark.parametrize(
    "name",
    ["LEARNING_RATE", "TOKENIZERS_PARALLELISM", "KEYBOARD", "MAX_TOKENS", "MONKEY", "PATH_A"],
)
def test_one_that_looks_like_no_secret_is_taken_without_a_word(
    eva: Run, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "v")
    result = eva("submit", "-", input=JOB.replace("WANDB_API_KEY", name))
    assert (result.exit_code, result.stderr) == (0, "")
