"""Large files up and down: within a bound of memory, and never half there."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from eva_worker.files.checkpoints import newest
from eva_worker.files.objects import Objects
from tests.fakes.aws.service import bucket_url
from tests.fakes.patience import DEADLINE_S

MIB = 1024 * 1024
SIZE = 160 * MIB
MOST = 100 * MIB

_MEASURED = """
import asyncio, json, resource, sys
from pathlib import Path
from eva_worker.files.objects import Objects

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

async def main(url, size, source, target):
    store = Objects(url, uploads=source.with_name("uploads"))
    await store.put("warm", b"x")
    await store.get("warm")
    before = peak()
    await store.put("large", source)
    up = peak()
    await store.fetch("large", target, size=size)
    print(json.dumps([up - before, peak() - before]))

asyncio.run(main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), Path(sys.argv[4])))
"""

_UPLOAD = """
import asyncio, sys
from pathlib import Path
from eva_worker.files.objects import Objects
from eva_worker.orders import TaskKey
from eva_worker.files.upload import Uploader

home = Path(sys.argv[2])
count = 0

async def kept(generation):
    return 7

def counted(size):
    global count
    count += size

uploader = Uploader(
    Objects(sys.argv[1], uploads=home / "uploads"), TaskKey("job-1/0", 1),
    home=home, outputs="outputs", memory=home / "uploads.json", steps_kept=kept,
    count=counted, tell=lambda _: None,
)
asyncio.run(uploader.newest_checkpoint())
print(count)
"""


def test_memory_stays_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = bucket_url(monkeypatch)
    source, target = tmp_path / "source", tmp_path / "target"
    with source.open("wb") as file:
        for number in range(SIZE // MIB):
            file.write(number.to_bytes(4, "big") * (MIB // 4))
    done = subprocess.run(
        [sys.executable, "-c", _MEASURED, url, str(SIZE), str(source), str(target)],
        capture_output=True,
        check=True,
        timeout=DEADLINE_S,
    )
    up, both = json.loads(done.stdout)
    assert up < MOST
    assert both < MOST
    with source.open("rb") as one, target.open("rb") as other:
        while block := one.read(MIB):
            assert other.read(MIB) == block


async def test_an_upload_that_is_killed_is_no_checkpoint_and_goes_on_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = bucket_url(monkeypatch)
    checkpoint = tmp_path / "checkpoints" / "00000001"
    checkpoint.mkdir(parents=True)
    sizes = {f"part-{number:02d}": 12 * MIB for number in range(12)}
    for name, size in sizes.items():
        (checkpoint / name).write_bytes(name.encode() * (size // len(name)))
    store = Objects(url)
    upload = [sys.executable, "-c", _UPLOAD, url, str(tmp_path)]
    first = subprocess.Popen(upload, stdout=subprocess.DEVNULL)
    async with asyncio.timeout(DEADLINE_S):
        while not (there := await stored(store)):
            assert first.poll() is None
            await asyncio.sleep(0.005)
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    there = await stored(store)
    assert there, "it was killed in the middle"
    assert not any(key.endswith("manifest.json") for key in there)
    assert await newest(store, "job-1/0") == 0
    known = json.loads((tmp_path / "uploads.json").read_text())["whole"]

    second = subprocess.run(upload, capture_output=True, check=True, timeout=DEADLINE_S)
    assert await newest(store, "job-1/0") == 1
    total = sum((checkpoint / name).stat().st_size for name in sizes)
    kept = sum((checkpoint / name).stat().st_size for name in known)
    # Of files that were under way, parts are stored, too.
    assert 0 < int(second.stdout) <= total - kept


async def stored(store: Objects) -> list[str]:
    return [key async for key in store.list("jobs/job-1/0/checkpoints")]
