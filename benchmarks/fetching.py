"""How long `eva get` takes for many small files and for a large one, interrupted and continued.

A master with a folder as its store serves a client over TLS, both in this process; memory is that
of both. The client stops half-way, and a second one goes on.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import tempfile
import time
from pathlib import Path

from eva_client.downloads import fetch
from eva_client.downloads.fetching import FetchProgress
from eva_client.rpc.master import Client
from eva_wire.values.users import Role
from tests.fakes.rpc.server import RpcMaster, add_job, rpc_master, spec

_MIB = 1 << 20


class Stop(Exception):
    """The interruption of a fetch half-way."""


async def main() -> None:
    """Fetch both, and print times, rates and memory."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--large-mib", type=int, default=2_048)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="eva-fetching-") as directory:
        async with rpc_master(Path(directory) / "master") as master:
            await master.loop.change(lambda state: add_job(state, spec("train")))
            for number in range(options.files):
                key = f"jobs/train-1/0/outputs/small/{number // 100}/{number}"
                await master.store.put(key, b"%d" % number * 200)
            await master.store.put(
                "jobs/train-1/0/outputs/large/model", _random(options.large_mib * _MIB)
            )
            for what in ("small", "large"):
                await _measure(master, what, Path(directory) / what)


async def _random(size: int):
    piece = os.urandom(_MIB)
    for _ in range(0, size, _MIB):
        yield piece


async def _measure(master: RpcMaster, what: str, to: Path) -> None:
    secret = master.tokens.create("ada", Role.USER)[1]
    address = f"127.0.0.1:{master.ports.users}"
    before = _peak_mib()

    def stop(done: int, total: int, *_: int) -> None:
        if 2 * done >= total:
            raise Stop

    def get(progress: FetchProgress | None) -> tuple[float, int, int]:
        options = {} if progress is None else {"progress": progress}
        start = time.perf_counter()
        with Client(address, authorities=master.authorities, token=secret) as client:
            try:
                fetched = fetch(client, "train", f"outputs/{what}", to=to, **options)
            except Stop:
                return time.perf_counter() - start, 0, 0
        return time.perf_counter() - start, fetched.fetched, fetched.present

    first_s, _, _ = await asyncio.to_thread(get, stop)
    then_s, fetched, present = await asyncio.to_thread(get, None)
    again_s, _, unchanged = await asyncio.to_thread(get, None)
    size = sum(path.stat().st_size for path in to.rglob("*") if path.is_file())
    files = fetched + present
    took_s = first_s + then_s
    print(f"{what}: {files:,} files, {size / 1e6:,.0f} MB")
    print(f"  {first_s:.1f} s to half, {then_s:.1f} s for the rest ({fetched:,} files)")
    print(f"  {size / 1e6 / took_s:,.0f} MB/s, {files / took_s:,.0f} files/s")
    print(f"  {again_s:.1f} s to see that all {unchanged:,} are there")
    print(f"  peak memory +{_peak_mib() - before:,.0f} MiB")


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    asyncio.run(main())
