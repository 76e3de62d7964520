"""Commands in running tasks, through a real master, over real connections."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from eva_wire._proto import attach_pb2 as pb
from eva_wire.values.errors import NotAuthorised, NotFound
from eva_wire.values.users import Role
from tests.fakes.rpc.attaching import AttachWorld, attach_world
from tests.fakes.rpc.server import refusal

FRAME = 64 * 1024


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[AttachWorld]:
    async with attach_world(tmp_path) as running:
        yield running


async def test_a_command_has_the_environment_of_its_task_and_a_code(world: AttachWorld) -> None:
    script = 'echo "$EVA_TASK_ID $COLOUR $EVA_SOCKET$EVA_SOCKET_SECRET"; pwd; echo bad >&2; exit 7'
    attached = world.attach("sh", "-c", script)
    ended = await attached.end()
    assert ended == pb.Exit(code=7)
    assert attached.output.decode() == f"{world.job}/0 blue \n{world.home}\n"
    assert attached.errors == b"bad\n"


async def test_ten_megabytes_go_each_way_and_stay_what_they_were(world: AttachWorld) -> None:
    block = bytes(range(256)) * (FRAME // 256)
    attached = world.attach("tee", "copy")
    await attached.until_open()

    async def send() -> None:
        for _ in range(160):
            await attached.say(data=block)
        await attached.say(end=True)

    sending = asyncio.create_task(send())
    ended = await attached.end()
    await sending
    assert ended.code == 0
    expected = hashlib.sha256(block * 160).hexdigest()
    assert hashlib.sha256(attached.output).hexdigest() == expected
    copy = (world.home / "copy").read_bytes()
    assert hashlib.sha256(copy).hexdigest() == expected


async def test_a_terminal_has_its_size_and_follows_it(world: AttachWorld) -> None:
    size = pb.Size(rows=33, columns=101)
    script = """trap 'stty size; echo resized' WINCH; trap 'echo interrupted; exit 5' INT
    echo $TERM; stty size; while :; do sleep 0.05; done"""
    wanted = pb.Exec(command=["sh", "-c", script], terminal=size, term="xterm-256color")
    attached = world.open(pb.Kind(exec=wanted))
    await attached.heard(b"33 101")
    assert attached.output == b"xterm-256color\r\n33 101\r\n"
    await attached.say(resize=pb.Size(rows=12, columns=40))
    await attached.heard(b"12 40\r\nresized")
    await attached.say(data=b"\x03")
    assert (await attached.end()).code == 5
    assert b"interrupted" in attached.output


@pytest.mark.parametrize(
    ("command", "code"),
    [(("no-such-program",), 127), (("/",), 126), (("sh", "-c", "kill -9 $$"), 137)],
)
async def test_codes_are_those_of_shells(
    world: AttachWorld, command: tuple[str, ...], code: int
) -> None:
    assert (await world.attach(*command).end()).code == code


async def test_only_the_owner_and_operators_get_in(world: AttachWorld) -> None:
    for owner, role in (("vic", Role.VIEWER), ("ana", Role.VIEWER), ("ben", Role.USER)):
        _, error = await refusal(world.attach("true", owner=owner, role=role).end())
        assert isinstance(error, NotAuthorised), (owner, role)
    assert world.wishes == []
    assert (await world.attach("true", owner="oscar", role=Role.OPERATOR).end()).code == 0


async def test_unknown_jobs_and_tasks_are_named(world: AttachWorld) -> None:
    _, error = await refusal(world.attach("true", job="nope").end())
    assert isinstance(error, NotFound)
    _, error = await refusal(world.attach("true", task=4).end())
    assert error.message == f"job {world.job} has no task 4: it has one task, number 0"
