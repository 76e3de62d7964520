"""The command ``eva get``, against a real server."""

from __future__ import annotations

import asyncio
import csv
import io
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import structlog.testing
from click.testing import CliRunner, Result

from eva_client.cli import main
from eva_wire.values.users import Role
from tests.fakes.rpc.authority import authority
from tests.fakes.rpc.server import JOB_YAML, RpcMaster, add_job, rpc_master, spec

Run = Callable[..., Awaitable[Result]]


@pytest.fixture
async def master(tmp_path: Path) -> AsyncIterator[RpcMaster]:
    # The log of a master is its own process's.
    with structlog.testing.capture_logs():
        async with rpc_master(tmp_path / "master") as running:
            yield running


@pytest.fixture
def eva(master: RpcMaster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    variables = {
        "EVA_ADDRESS": f"127.0.0.1:{master.ports.users}",
        "EVA_CA_FILE": str(authority().ca_file),
        "EVA_CONFIG": "",
        "EVA_TOKEN": master.tokens.create("ada", Role.USER)[1],
    }

    async def run(*arguments: str) -> Result:
        runner = CliRunner()
        return await asyncio.to_thread(runner.invoke, main, list(arguments), env=variables)

    return run


async def stored(master: RpcMaster, tasks: int = 1) -> None:
    await master.loop.change(lambda state: add_job(state, spec("train", tasks=tasks)))
    for index in range(tasks):
        await master.store.put(f"jobs/train-1/{index}/outputs/a\x1b[31m", b"12345")
        await master.store.put(f"jobs/train-1/{index}/logs/0001/{0:016}", b"said")


async def test_it_fetches_and_says_where(master: RpcMaster, eva: Run) -> None:
    await stored(master)
    result = await eva("get", "train")
    assert result.exit_code == 0, result.output
    assert result.stdout == "train-1: fetched 1 file (5 bytes) to train-1/outputs\n"
    assert Path("train-1/outputs/a\x1b[31m").read_bytes() == b"12345"
    result = await eva("get", "train")
    assert result.stdout.endswith(
        "fetched 0 files (0 bytes) to train-1/outputs, 1 were there already\n"
    )
    assert json.loads((await eva("get", "train", "--json")).stdout) == {
        "job": "train-1",
        "directory": "train-1/outputs",
        "fetched": 0,
        "bytes": 0,
        "present": 1,
        "gone": [],
    }


async def test_it_lists_without_fetching(master: RpcMaster, eva: Run, tmp_path: Path) -> None:
    await stored(master, tasks=2)
    result = await eva("get", "train", "--list")
    assert result.exit_code == 0, result.output
    header, *rows, total = result.stdout.splitlines()
    assert header.split() == ["TASK", "SIZE", "STORED", "PATH"]
    assert [row.split()[0] for row in rows] == ["0", "0", "1", "1"]
    assert [row.split()[-1] for row in rows] == ["logs/0001.log", "outputs/a^[[31m"] * 2
    assert total == "train-1: 4 files, 18 bytes"
    listed = json.loads((await eva("get", "train/1", "outputs", "--list", "--json")).stdout)
    (file,) = listed["files"]
    assert isinstance(file.pop("stored_ms"), int)
    assert file == {"task": 1, "extra_run": None, "path": "outputs/a\x1b[31m", "bytes": 5}
    assert (listed["job"], listed["task_count"]) == ("train-1", 2)
    assert not any((tmp_path / "work").iterdir())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nope",), "nope"),
        (("train/7",), "no task 7"),
        (("train/0", "model.pt"), "outputs/model.pt?"),
        (("train", "outputs/b"), "stored no outputs/b"),
        (("train", "../../etc/passwd"), "begin with outputs"),
        (("train", "--to", "/dev/null"), "not a directory"),
    ],
)
async def test_a_mistake_is_told_in_a_line_and_leaves_nothing(
    master: RpcMaster, eva: Run, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    await stored(master)
    result = await eva("get", *arguments)
    assert result.exit_code == 1
    assert said in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""
    assert not any((tmp_path / "work").iterdir())


# -- a row for each task ---------------------------------------------------------------------------

TABLE = b'name,text\nfirst,"a,b"\nsecond,"c\nd"\n'


async def submitted_table(eva: Run) -> None:
    Path("grid.csv").write_bytes(TABLE)
    Path("job.yaml").write_text(JOB_YAML.format(name="sweep"))
    result = await eva("submit", "job.yaml", "--array", "grid.csv")
    assert result.exit_code == 0, result.stderr


async def test_a_row_for_each_task_is_printed_with_its_columns(eva: Run) -> None:
    await submitted_table(eva)
    result = await eva("get", "sweep", "--metrics")
    assert result.exit_code == 0, result.stderr
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    assert [(row["name"], row["text"], row["state"], row["run_s"]) for row in rows] == [
        ("first", "a,b", "waiting", ""),
        ("second", "c\nd", "waiting", ""),
    ]
    shown = json.loads((await eva("get", "sweep/second", "--metrics", "--json")).stdout)
    assert [task["text"] for task in shown["tasks"]] == ["c\nd"]
    assert not list(Path().glob("sweep-1*"))


async def test_rows_without_their_columns_are_printed_where_these_are_not_to_be_had(
    master: RpcMaster, eva: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    await submitted_table(eva)
    monkeypatch.setattr(CliRunner, "invoke", _as_another(CliRunner.invoke, master))
    result = await eva("get", "sweep-1", "--metrics")
    assert result.exit_code == 0, result.stderr
    assert "without the columns of its table" in result.stderr
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    assert [row["name"] for row in rows] == ["first", "second"]
    assert "a,b" not in result.stdout


def _as_another(invoke: Callable[..., Result], master: RpcMaster) -> Callable[..., Result]:
    token = master.tokens.create("ben", Role.VIEWER)[1]

    def run(self: CliRunner, *arguments: object, env: dict[str, str]) -> Result:
        return invoke(self, *arguments, env={**env, "EVA_TOKEN": token})

    return run


async def test_metrics_are_no_files(eva: Run) -> None:
    for more in (["outputs"], ["--list"], ["--force"], ["--to", "x"]):
        result = await eva("get", "sweep", "--metrics", *more)
        assert result.exit_code == 2
        assert "--metrics fetches no files" in result.stderr


async def test_rm_asks_and_refuses_what_is_no_job_of_the_user(master: RpcMaster, eva: Run) -> None:
    await stored(master)
    await master.loop.change(lambda state: add_job(state, spec("theirs", owner="ben")))
    result = await eva("rm", "train")
    assert (result.exit_code, master.loop.commands) == (1, [])
    assert "remove all files of train-1?" in result.stderr
    result = await eva("rm", "-y", "nope", "theirs-2", "train", "train-1")
    assert result.exit_code == 1
    assert result.stdout == "removed the files of train-1\n"
    assert "nope" in result.stderr
    assert "belongs to ben" in result.stderr
    assert [command.job for command in master.loop.commands] == ["train-1"]  # type: ignore[union-attr]
