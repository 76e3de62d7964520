"""`eva exec` as a process: at terminals, and between files, pipes and closed streams."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import subprocess
import sys
import termios
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from eva_wire.values.ids import run_id
from tests.fakes.patience import DEADLINE_S
from tests.fakes.rpc.attaching import AttachWorld, attach_world
from tests.fakes.rpc.terminals import EVA, at_terminal, environment
from tests.integration.attach.test_attach_ends import LOOP, hung_up, until

LOOPING = f"trap 'touch hung-up; exit 1' HUP; echo ready; {LOOP}"


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[AttachWorld]:
    async with attach_world(tmp_path) as running:
        yield running


@pytest.fixture
def env(world: AttachWorld, tmp_path: Path) -> dict[str, str]:
    return environment(world.master, tmp_path)


def eva_exec(world: AttachWorld, *command: str) -> list[str]:
    """Arguments of a command in the task."""
    return ["exec", world.job, "--", *command]


async def ran(
    env: Mapping[str, str], arguments: list[str], text: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    """The result of a command without a terminal."""
    run = lambda: subprocess.run(  # noqa: E731
        [*EVA, *arguments],
        env=env,
        input=text,
        capture_output=True,
        timeout=DEADLINE_S,
        check=False,
    )
    return await asyncio.to_thread(run)


async def shell_ran(
    world: AttachWorld, env: Mapping[str, str], streams: str, *command: str
) -> subprocess.CompletedProcess[bytes]:
    """The result of a command whose streams a shell has set up."""
    run = lambda: subprocess.run(  # noqa: E731
        ["sh", "-c", f'"$@" {streams}', "sh", *EVA, *eva_exec(world, *command)],
        env=env,
        capture_output=True,
        timeout=DEADLINE_S,
        check=False,
    )
    return await asyncio.to_thread(run)


async def test_keys_and_bytes_pass_as_they_are(
    world: AttachWorld, env: dict[str, str], tmp_path: Path
) -> None:
    """No sequence of keys is the client's own, and the terminal is afterwards as it was."""
    script = r"stty raw -echo; printf 'ready\033\000\377.'; head -c 6 | od -An -tx1; exit 5"
    with (
        (tmp_path / "errors").open("wb") as errors,
        at_terminal(env, *eva_exec(world, "sh", "-c", script), errors=errors) as user,
    ):
        before = user.mode()
        await user.until_shown(b"ready\x1b\x00\xff.")
        assert user.mode() != before
        user.type(b"\r~.\x03\x1a\xff")
        await user.until_shown(b"0d 7e 2e 03 1a ff")
        assert await user.code() == 5
        assert user.mode() == before
    assert (tmp_path / "errors").read_bytes() == b""


@pytest.mark.parametrize(
    ("size", "told"),
    [((0, 0), b"24 80"), ((0, 132), b"24 132"), ((33, 20_000), b"33 9999")],
)
async def test_a_terminal_without_a_usual_size_has_one_in_the_task(
    world: AttachWorld,
    env: dict[str, str],
    tmp_path: Path,
    size: tuple[int, int],
    told: bytes,
) -> None:
    arguments = eva_exec(world, "sh", "-c", "stty size; read line; stty size")
    with (
        (tmp_path / "errors").open("wb") as errors,
        at_terminal(env, *arguments, size=size, errors=errors) as user,
    ):
        await user.until_shown(told + b"\r\n")
        user.resize(12, 40)
        user.type(b"\n")
        await user.until_shown(b"12 40\r\n")
        assert await user.code() == 0


async def test_a_terminal_that_dies_ends_the_command(
    world: AttachWorld, env: dict[str, str], tmp_path: Path
) -> None:
    with (
        (tmp_path / "errors").open("wb") as errors,
        at_terminal(env, *eva_exec(world, "sh", "-c", LOOPING), errors=errors) as user,
    ):
        await user.until_shown(b"ready")
        os.close(user.user)
        user.user = -1
        assert await user.code() == 128 + signal.SIGHUP
    await hung_up(world, "hung-up")
    assert (tmp_path / "errors").read_bytes() == b""


async def test_output_that_cannot_be_written_ends_the_command_in_words(
    world: AttachWorld, env: dict[str, str]
) -> None:
    done = await shell_ran(world, env, ">/dev/full", "yes")
    line = b"error: standard output: No space left on device; the command was ended\n"
    assert (done.returncode, done.stderr) == (1, line)
    await until(lambda: not world.attachments.has(world.key))


CLOSED = [
    ("<&-", b"out\n", b"err\n"),
    (">&-", b"", b"err\n"),
    ("2>&-", b"out\n", b""),
    ("<&- >&- 2>&-", b"", b""),
]


@pytest.mark.parametrize(("streams", "output", "errors"), CLOSED)
async def test_closed_streams_are_empty_ones(
    world: AttachWorld, env: dict[str, str], streams: str, output: bytes, errors: bytes
) -> None:
    done = await shell_ran(world, env, streams, "sh", "-c", "cat; echo out; echo err >&2; exit 6")
    assert (done.returncode, done.stdout, done.stderr) == (6, output, errors)


async def test_a_reader_that_goes_ends_the_command(world: AttachWorld, env: dict[str, str]) -> None:
    script = "trap 'touch hung-up; exit 1' HUP; while :; do echo y; done"
    done = await shell_ran(world, env, "| head -n 1", "sh", "-c", script)
    assert (done.stdout, done.stderr) == (b"y\n", b"")
    await hung_up(world, "hung-up")


async def test_ctrl_c_without_a_terminal_ends_the_command(
    world: AttachWorld, env: dict[str, str]
) -> None:
    with subprocess.Popen(
        [*EVA, *eva_exec(world, "sh", "-c", LOOPING)],
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as client:
        assert client.stdout is not None
        assert await asyncio.to_thread(client.stdout.readline) == b"ready\n"
        client.send_signal(signal.SIGINT)
        _, errors = await asyncio.to_thread(client.communicate, None, DEADLINE_S)
    assert (client.returncode, errors) == (130, b"\n")
    await hung_up(world, "hung-up")


def unread(pipe: int) -> int:
    """Bytes that wait in a pipe."""
    answer = fcntl.ioctl(pipe, termios.FIONREAD, bytes(4))
    return int.from_bytes(answer, sys.byteorder)


async def test_a_pipe_that_does_not_block_loses_nothing(
    world: AttachWorld, env: dict[str, str]
) -> None:
    """Another program that shares the pipe may have set that for all."""
    ours, theirs = os.pipe()
    os.set_blocking(theirs, False)
    script = "head -c 3000000 /dev/zero"
    with subprocess.Popen(
        [*EVA, *eva_exec(world, "sh", "-c", script)],
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=subprocess.PIPE,
    ) as client:
        os.close(theirs)
        with os.fdopen(ours, "rb") as output:
            await until(lambda: unread(ours) == 65_536)
            received = await asyncio.to_thread(output.read)
        _, errors = await asyncio.to_thread(client.communicate, None, DEADLINE_S)
    assert (client.returncode, errors) == (0, b"")
    assert received == bytes(3_000_000)


@pytest.mark.parametrize("locale", [{"LC_ALL": "C"}, {"LANG": "C"}, {"LC_ALL": "C.UTF-8"}])
async def test_text_of_other_languages_passes_in_any_locale(
    world: AttachWorld, env: dict[str, str], locale: dict[str, str]
) -> None:
    plain = {name: text for name, text in env.items() if name not in ("LANG", "LC_ALL")}
    done = await ran(plain | locale, eva_exec(world, "printf", "%s", "größe 東京"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "größe 東京".encode(), b"")


async def test_an_argument_that_is_no_text_is_refused_in_words(
    world: AttachWorld, env: dict[str, str]
) -> None:
    done = await ran(env, eva_exec(world, "ls", os.fsdecode(b"a\xff")))
    assert done.returncode == 2
    assert b"the argument 'a?' is not UTF-8" in done.stderr
    assert b"Traceback" not in done.stderr
    assert world.wishes == []


@pytest.mark.parametrize(("command", "code"), [("no-such-program", 127), ("/", 126)])
async def test_a_program_that_is_not_there_is_named(
    world: AttachWorld, env: dict[str, str], command: str, code: int
) -> None:
    done = await ran(env, eva_exec(world, command))
    assert (done.returncode, done.stdout) == (code, b"")
    assert command.encode() in done.stderr


async def test_a_signal_that_ends_the_command_is_in_its_code(
    world: AttachWorld, env: dict[str, str]
) -> None:
    assert (await ran(env, eva_exec(world, "sh", "-c", "kill -TERM $$"))).returncode == 143


async def test_a_terminal_that_is_asked_for_must_be_there(
    world: AttachWorld, env: dict[str, str]
) -> None:
    done = await ran(env, ["exec", "--tty", world.job, "--", "true"])
    assert done.returncode == 2
    assert b"--tty needs a terminal" in done.stderr
    assert world.wishes == []


async def test_a_terminal_is_not_taken_where_none_is_wanted(
    world: AttachWorld, env: dict[str, str], tmp_path: Path
) -> None:
    arguments = ["exec", "-T", world.job, "--", "sh", "-c", "test -t 0 || echo none; cat"]
    with (
        (tmp_path / "errors").open("wb") as errors,
        at_terminal(env, *arguments, errors=errors) as user,
    ):
        await user.until_shown(b"none\r\n")
        user.type(b"\x04")
        assert await user.code() == 0


async def test_what_a_shell_reads_from_a_pipe_is_done(
    world: AttachWorld, env: dict[str, str]
) -> None:
    done = await ran(env, ["exec", world.job], b"echo $EVA_TASK_ID; exit 3\n")
    assert (done.returncode, done.stdout) == (3, f"{run_id(world.job, 0)}\n".encode())
