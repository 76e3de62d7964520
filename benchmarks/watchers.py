"""Streams of all jobs in a process of their own, some of which are read and some never.

Shared by `load` and `watching`; each user has as many streams as the default limit allows.
"""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import grpc
import yaml

from benchmarks.harness import RunningMaster
from eva_master.app.config import LimitsSection
from eva_wire.rpc.channels import MAX_MESSAGE_BYTES
from eva_wire.rpc.names import MASTER_NAME

_WATCH = "/eva.api.v1.Jobs/Watch"
_STARTS_S = 120.0


@contextmanager
def watchers(master: RunningMaster, reading: int, silent: int) -> Iterator[list[int]]:
    """Open streams of all jobs until the block ends.

    Args:
        master: Master to watch.
        reading: How many are read.
        silent: How many are not.

    Yields:
        A list, to which the number of messages that were read is added in the end.
    """
    most = LimitsSection().watches_of_all
    owners = -(-(reading + silent) // most)
    with master.client() as client:
        tokens = [client.create_token(f"viewer-{n}", "viewer").secret for n in range(owners)]
    file = yaml.safe_load((master.state_dir / "client.yaml").read_text())["ca_file"]
    here, there = multiprocessing.Pipe()
    spawn = multiprocessing.get_context("spawn")
    plan = _Plan(master.address, Path(file).read_bytes(), tuple(tokens), reading, silent, most)
    process = spawn.Process(target=_run, args=(there, plan), daemon=True)
    process.start()
    read: list[int] = []
    try:
        if not here.poll(_STARTS_S):
            raise TimeoutError("the watchers did not begin")
        here.recv()
        yield read
        here.send("end")
        read.append(here.recv())
    finally:
        process.terminate()
        process.join()


@dataclass(frozen=True)
class _Plan:
    """Streams to open; `most` for each token."""

    address: str
    authorities: bytes
    tokens: tuple[str, ...]
    reading: int
    silent: int
    most: int


def _run(pipe: Connection, plan: _Plan) -> None:
    asyncio.run(_watch(pipe, plan))


async def _watch(pipe: Connection, plan: _Plan) -> None:
    streams, count = [], 0
    for number in range(plan.reading + plan.silent):
        if number % plan.most == 0:
            channel = _channel(plan, plan.tokens[number // plan.most])
        # Messages are not decoded: this measures the master.
        streams.append(channel.unary_stream(_WATCH)(b""))

    async def read(stream: grpc.aio.UnaryStreamCall[bytes, bytes]) -> None:
        nonlocal count
        while await stream.read() is not grpc.aio.EOF:
            count += 1

    # Silent ones are spread over all users.
    silent = {n * len(streams) // plan.silent for n in range(plan.silent)}
    readers = [asyncio.create_task(read(it)) for n, it in enumerate(streams) if n not in silent]
    for stream in streams:
        await stream.initial_metadata()
    pipe.send("ready")
    await asyncio.to_thread(pipe.recv)
    pipe.send(-1 if any(reader.done() for reader in readers) else count)


def _channel(plan: _Plan, token: str) -> grpc.aio.Channel:
    credentials = grpc.composite_channel_credentials(
        grpc.ssl_channel_credentials(plan.authorities), grpc.access_token_call_credentials(token)
    )
    options = [
        ("grpc.ssl_target_name_override", MASTER_NAME),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ]
    return grpc.aio.secure_channel(plan.address, credentials, options)
