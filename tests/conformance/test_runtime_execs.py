"""Commands beside tasks, which every runtime runs, written against the port."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from eva_worker.errors import AttachRefused
from eva_worker.process.pids import readable
from eva_worker.runtime import attaching
from eva_worker.runtime.attaching import AttachedCommand, Execution, Size
from eva_worker.secret_values import SecretValues
from tests.conformance.test_runtimes import KEY, Bench, bench, soon, until
from tests.fakes.patience import DEADLINE_S

__all__ = ["bench"]

NAME = f"command-{secrets.token_hex(8)}"
"""The id of a command. Other processes of the tests run commands at the same time."""
NAP = f"{3_600 + os.getpid()}"
"""Seconds to sleep, by which processes are found that have nothing else."""
TASK = "touch began; while :; do sleep 0.1; done"


async def begun(bench: Bench, command: str = TASK) -> None:
    """Start the task, and wait until its program runs."""
    await bench.runtime.start(bench.spec(command))
    await until(bench.file("began").exists)


async def result(execution: Execution, text: bytes = b"") -> tuple[int, str, str]:
    """The code of a command, its output and its errors; it gets a text first."""
    streams = {attaching.OUTPUT: b"", attaching.ERROR: b""}
    if text:
        await execution.write(text)
    await execution.end_input()
    async with asyncio.timeout(DEADLINE_S):
        async for stream, data in execution.output():
            assert len(data) <= attaching.FRAME_BYTES
            streams[stream] += data
        code = await execution.wait()
        await execution.end(0)
    return code, streams[attaching.OUTPUT].decode(), streams[attaching.ERROR].decode()


async def ran(bench: Bench, *arguments: str, text: bytes = b"") -> tuple[int, str, str]:
    """The result of a command beside the task."""
    return await result(await bench.runtime.execute(KEY, AttachedCommand(NAME, arguments)), text)


async def test_a_command_is_where_its_task_is(bench: Bench) -> None:
    await begun(bench)
    script = 'pwd; echo "$EVA_TASK_ID $EVA_ATTEMPT"; echo bad >&2; exit 7'
    code, output, errors = await ran(bench, "sh", "-c", script)
    assert (code, output, errors) == (7, f"{bench.inside}\njob-1/0 1\n", "bad\n")


async def test_a_command_does_not_report_for_its_task(bench: Bench) -> None:
    await begun(bench)
    assert await ran(bench, "sh", "-c", "echo ${EVA_SOCKET-none}") == (0, "none\n", "")
    execution = await bench.runtime.execute(KEY, AttachedCommand(NAME, ("sleep", "3600")))
    await until(lambda: "sleep" in marked().values())
    for pid in marked():
        assert not await bench.runtime.owns(KEY, pid)
    await soon(execution.end(0))


async def test_a_command_has_the_secrets_of_its_task_and_leaves_none(bench: Bench) -> None:
    values = {"TOKEN": "it's 7 \" $x\n", "EMPTY": "", "OTHER": "second"}
    spec = bench.spec(TASK)
    hidden = SecretValues(values)
    await bench.runtime.start(replace(spec, env={**spec.env, "OTHER": "1"}, secrets=hidden))
    await until(bench.file("began").exists)
    script = 'printf "%s|%s|%s" "$TOKEN" "${EMPTY-none}" "$OTHER"'
    for _ in range(2):
        code, output, errors = await ran(bench, "sh", "-c", script)
        assert (code, output, errors) == (0, "|".join(values.values()), "")
    assert list(bench.memory.iterdir()) == []


async def test_a_shell_reads_its_input(bench: Bench) -> None:
    await begun(bench)
    assert await ran(bench, text=b"echo from the shell; exit 3\n") == (3, "from the shell\n", "")


async def test_much_goes_in_and_out_unharmed(bench: Bench) -> None:
    await begun(bench)
    execution = await bench.runtime.execute(KEY, AttachedCommand(NAME, ("cat",)))
    block = bytes(range(256)) * 4096
    received = bytearray()

    async def send() -> None:
        for _ in range(4):
            await execution.write(block)
        await execution.end_input()

    async with asyncio.timeout(DEADLINE_S):
        sending = asyncio.create_task(send())
        async for _, data in execution.output():
            received += data
        await sending
        assert await execution.wait() == 0
    assert received == block * 4
    await execution.end(0)


async def test_a_large_environment_reaches_a_command_whole(bench: Bench) -> None:
    spec = bench.spec(TASK)
    many = {f"LARGE_{number}": f"{number} " * 1_000 for number in range(100)}
    await bench.runtime.start(replace(spec, env={**spec.env, **many}))
    await until(bench.file("began").exists)
    script = "env | grep -c ^LARGE_; env | grep ^LARGE_99= | wc -c"
    expected = f"100\n{len('LARGE_99=') + len(many['LARGE_99']) + 1}\n"
    assert await ran(bench, "sh", "-c", script) == (0, expected, "")


async def test_a_terminal_has_the_size_that_it_is_given(bench: Bench) -> None:
    await begun(bench)
    script = "stty size; echo $TERM; read line; stty size; exit 4"
    command = AttachedCommand(NAME, ("sh", "-c", script), Size(33, 101), "xterm")
    execution = await bench.runtime.execute(KEY, command)
    shown = b""
    async with asyncio.timeout(DEADLINE_S):
        async for _, data in execution.output():
            shown += data
            if b"xterm" in shown and b"12 40" not in shown:
                await execution.resize(Size(12, 40))
                await execution.write(b"\n")
        assert await execution.wait() == 4
    assert b"33 101" in shown
    assert b"12 40" in shown
    await execution.end(0)


async def test_a_program_that_is_not_there(bench: Bench) -> None:
    await begun(bench)
    code, output, errors = await ran(bench, "no-such-program")
    assert (code, output) == (127, "")
    assert "no-such-program" in errors


async def looping(bench: Bench, trap: str) -> Execution:
    """A command that runs until a signal ends it."""
    script = f"{trap}; touch ready; while :; do sleep 0.1; done"
    execution = await bench.runtime.execute(KEY, AttachedCommand(NAME, ("sh", "-c", script)))
    await until(bench.file("ready").exists)
    return execution


async def test_a_command_that_is_ended_gets_sighup(bench: Bench) -> None:
    await begun(bench)
    execution = await looping(bench, "trap 'touch hung-up; exit 3' HUP")
    await soon(execution.end(DEADLINE_S))
    assert bench.file("hung-up").exists()
    assert await soon(execution.wait()) == 3
    assert not marked()


async def test_a_command_that_ignores_sighup_is_killed(bench: Bench) -> None:
    await begun(bench)
    execution = await looping(bench, "trap '' HUP")
    began = time.monotonic()
    await soon(execution.end(0.3))
    assert time.monotonic() - began >= 0.3
    assert await soon(execution.wait()) == 137
    assert not marked()


def marked() -> dict[int, str]:
    """Names of the processes of the command, by their numbers on this machine."""
    names = {}
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit():
                variables = (entry / "environ").read_bytes().split(b"\0")
                if f"EVA_EXEC={NAME}".encode() in variables:
                    names[int(entry.name)] = (entry / "comm").read_text().strip()
    return names


async def test_a_command_ends_with_all_that_it_has_started(bench: Bench) -> None:
    await begun(bench)
    code, *_ = await ran(bench, "sh", "-c", "sleep 3600 >/dev/null 2>&1 & exit 0")
    assert code == 0
    assert marked() == {}


CLEARED = f"exec env -i sh -c 'touch ready; sleep {NAP} & while :; do sleep 0.1; done'"


def sleeping() -> list[int]:
    """Processes that a command has started after it had cleared its environment."""
    pids = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.cmdline()[-2:] == ["sleep", NAP]:
                pids.append(process.pid)
    return pids


@pytest.mark.parametrize("adopted", [False, True], ids=["its own agent", "the next agent"])
async def test_a_command_that_clears_its_environment_ends_whole(
    bench: Bench, adopted: bool
) -> None:
    await begun(bench)
    execution = await bench.runtime.execute(KEY, AttachedCommand(NAME, ("sh", "-c", CLEARED)))
    await until(lambda: bench.file("ready").exists() and sleeping())
    await until(lambda: noted(bench))
    if adopted:
        await bench.renew().adopt()
        await soon(execution.wait())
    else:
        await soon(execution.end(DEADLINE_S))
        assert await soon(execution.wait()) == 129
    assert not sleeping()


def noted(bench: Bench) -> bool:
    """Whether the next agent would find the command."""
    record = bench.home / "runtime" / KEY.path / "execs" / NAME
    return json.loads(record.read_text()) != {}


async def test_a_command_with_a_terminal_may_be_over_at_once(bench: Bench) -> None:
    await begun(bench)
    for _ in range(5):
        command = AttachedCommand(NAME, ("sh", "-c", "exit 3"), Size(24, 80), "xterm")
        assert (await result(await bench.runtime.execute(KEY, command)))[0] == 3


async def test_a_command_that_starts_a_process_and_goes_has_ended(bench: Bench) -> None:
    """Its output is held open by what it leaves behind."""
    await begun(bench)
    execution = await bench.runtime.execute(
        KEY, AttachedCommand(NAME, ("sh", "-c", f"sleep {NAP} & exit 4"))
    )
    async with asyncio.timeout(DEADLINE_S):
        async for _ in execution.output():
            pass
        assert await execution.wait() == 4
    assert not sleeping()
    await execution.end(0)


@contextlib.contextmanager
def held(stream: int, flags: int) -> Iterator[None]:
    """A stream of the command, which another process has open as well."""
    descriptors = []
    for pid in marked():
        # The shell stays; its sleep may have ended by now.
        with contextlib.suppress(OSError):
            descriptors.append(os.open(f"/proc/{pid}/fd/{stream}", flags))
    assert descriptors
    yield
    for descriptor in descriptors:
        os.close(descriptor)


async def test_a_command_ends_whose_output_another_process_holds(bench: Bench) -> None:
    await begun(bench)
    execution = await looping(bench, "trap '' HUP")
    with held(1, os.O_WRONLY), held(2, os.O_WRONLY):
        reading = asyncio.create_task(drained(execution))
        await soon(execution.end(0))
        await soon(reading)
    # The numbers of its descriptors are those of other streams now, which are still heard.
    others = [os.pipe() for _ in range(20)]
    for outlet, inlet in others:
        os.write(inlet, b"1")
        await soon(readable(outlet))
    for descriptor in sum(others, ()):
        os.close(descriptor)


async def test_a_command_ends_whose_input_another_process_holds(bench: Bench) -> None:
    await begun(bench)
    execution = await looping(bench, "trap '' HUP")
    with held(0, os.O_RDONLY):
        writing = asyncio.create_task(execution.write(bytes(1 << 22)))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(writing), 0.1)
        await soon(execution.end(0))
        await soon(writing)
        async with asyncio.timeout(DEADLINE_S):
            assert (await ran(bench, "wc", "-c", text=bytes(1 << 20)))[1].strip() == f"{1 << 20}"


async def test_a_late_reader_gets_nothing_of_others(bench: Bench) -> None:
    """The numbers of its descriptors may be those of other streams by then."""
    await begun(bench)
    script = "echo one; echo two >&2; touch ready; while :; do sleep 0.1; done"
    execution = await bench.runtime.execute(KEY, AttachedCommand(NAME, ("sh", "-c", script)))
    await until(bench.file("ready").exists)
    output = execution.output()
    received = [data for _, data in [await soon(anext(output))]]
    await soon(execution.end(0))
    others = [os.pipe() for _ in range(20)]
    for _, inlet in others:
        os.write(inlet, b"of others")
    async with asyncio.timeout(DEADLINE_S):
        received += [data async for _, data in output]
    for descriptor in sum(others, ()):
        os.close(descriptor)
    assert set(received) <= {b"one\n", b"two\n"}


async def drained(execution: Execution) -> None:
    """Read all output of a command."""
    async for _ in execution.output():
        pass


async def test_a_command_ends_with_its_task(bench: Bench) -> None:
    await begun(bench)
    execution = await looping(bench, "trap '' HUP TERM")
    await bench.runtime.kill(KEY)
    await soon(bench.runtime.wait(KEY))
    assert marked() == {}
    assert await soon(execution.wait()) == 137
    with pytest.raises(AttachRefused, match="does not run any more"):
        await bench.runtime.execute(KEY, AttachedCommand(NAME, ("true",)))


async def test_a_command_of_an_agent_that_died_is_killed_by_the_next(bench: Bench) -> None:
    await begun(bench)
    execution = await looping(bench, "trap '' HUP TERM")
    runtime = bench.renew()
    assert list(await runtime.adopt()) == [KEY]
    assert marked() == {}
    await soon(execution.wait())
    assert not list((bench.home / "runtime" / KEY.path / "execs").iterdir())
    assert await ran(bench, "echo", "hello") == (0, "hello\n", "")


async def test_only_ports_of_the_task_are_found(bench: Bench) -> None:
    """One of this process is not the task's."""
    listening = await asyncio.start_server(lambda _, __: None, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    await begun(bench)
    with pytest.raises(AttachRefused, match=f"listens on port {port}"):
        await bench.runtime.address(KEY, port)
    listening.close()
    await listening.wait_closed()


async def test_a_command_counts_among_the_processes_of_its_task(bench: Bench) -> None:
    await begun(bench, f"cat /proc/self/cgroup >groups; {TASK}")
    code, output, _ = await ran(bench, "cat", "/proc/self/cgroup")
    assert code == 0
    assert output == bench.file("groups").read_text()
