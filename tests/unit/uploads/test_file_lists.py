"""Lists of files that no command has made: refused where they come in, with the reason."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from obstore.store import MemoryStore

from eva_client.uploads.workdir import scan_directory
from eva_master.adapters.objects.blobs import blob_key, reference
from eva_master.adapters.objects.file_lists import FileLists
from eva_master.adapters.objects.store import Objects
from eva_wire.values.errors import InvalidJob
from eva_worker.errors import BadOrder
from eva_worker.files.download import read_manifest

DIGEST = "0" * 64


def entry(**changed: Any) -> dict[str, Any]:
    return {"path": "a", "mode": 0o644, "sha256": DIGEST, "size": 1, **changed}


def listing(*entries: Any) -> bytes:
    return json.dumps({"files": entries}).encode()


HOSTILE = {
    "a size of 2^60": (listing(entry(size=1 << 60)), "size of 'a' is 1152921504606846976"),
    "a size below 0": (listing(entry(size=-1)), "size of 'a' is -1"),
    "a size that is not whole": (listing(entry(size=1.5)), "size of 'a' is 1.5"),
    "a size of 10^300": (listing(entry(size=1e300)), r"size of 'a' is 1e\+300"),
    "a size of 300 digits": (listing(entry(size=10**300)), "size of 'a' is too large"),
    "a size in words": (listing(entry(size="1")), "size of 'a' is '1'"),
    "a size that is true": (listing(entry(size=True)), "size of 'a' is True"),
    "no size": (listing({"path": "a", "mode": 1, "sha256": DIGEST}), "size of 'a' is None"),
    "a size that is no number": (b'{"files": [{"size": NaN}]}', "not a JSON document"),
    "an endless size": (b'{"files": [{"size": Infinity}]}', "not a JSON document"),
    "a mode below 0": (listing(entry(mode=-1)), "mode of 'a' is -1"),
    "a mode in words": (listing(entry(mode="644")), "mode of 'a' is '644'"),
    "a mode of 10^300": (listing(entry(mode=1e300)), r"mode of 'a' is 1e\+300"),
    "a path twice": (listing(entry(), entry(path="b"), entry()), "'a' is in it twice"),
    "a file with files in it": (
        listing(entry(path="a/b/c"), entry(path="d"), entry()),
        "'a' is a file, and the directory of 'a/b/c'",
    ),
    "half of a surrogate pair": (
        b'{"files": [{"path": "\\ud800", "mode": 1, "size": 1, "sha256": "%s"}]}' % DIGEST.encode(),
        r"'\\ud800' is not Unicode text",
    ),
    "bytes of no text": (b'{"files": [{"path": "\xff"}]}', "not a JSON document"),
    "a path that is a number": (listing(entry(path=1)), "path 1 is not text"),
    "a way out": (listing(entry(path="../a")), "file below the directory"),
    "an absolute path": (listing(entry(path="/a")), "file below the directory"),
    "two slashes": (listing(entry(path="a//b")), "file below the directory"),
    "a point": (listing(entry(path="./a")), "file below the directory"),
    "the directory": (listing(entry(path=".")), "file below the directory"),
    "no name": (listing(entry(path="")), "file below the directory"),
    "a zero byte": (listing(entry(path="a\0b")), "file below the directory"),
    "a long path": (listing(entry(path="/".join(["b" * 250] * 20))), "longer than 4,096 bytes"),
    "a deep path": (listing(entry(path="/".join("a" * 65))), "more than 64 names"),
    "another digest": (listing(entry(sha256="A" * 64)), "64 hexadecimal digits"),
    "no entries": (listing(1, 2), "entry of it is not an object"),
    "no list": (b'{"files": {}}', "`files` is not a list"),
    "something else": (b"\x7fELF", "not a JSON document"),
    "depth": (b"[" * 100_000, "not a JSON document"),
    "too many": (b'{"files":[' + b"{}," * 1_900_000 + b"{}]}", "more than 300,000 files"),
}
ONLY_AT_THE_EDGE = {
    "a mode of more bits": (listing(entry(mode=0o1777)), "mode of 'a' is 1023"),
    "a long name": (listing(entry(path="a" * 256)), "a name in it than 255"),
    "2^50 bytes and one": (
        listing(entry(size=1 << 50), entry(path="b")),
        "more than 1,024 TiB together",
    ),
}


@pytest.fixture
def store() -> Objects:
    return Objects(MemoryStore())


async def put(store: Objects, data: bytes) -> str:
    name = reference("alice", hashlib.sha256(data).hexdigest())
    await store.put(blob_key(name), data)
    return name


@pytest.mark.parametrize(
    ("data", "why"), (both := HOSTILE | ONLY_AT_THE_EDGE).values(), ids=list(both)
)
async def test_a_hostile_list_is_refused_where_it_comes_in(
    store: Objects, data: bytes, why: str
) -> None:
    lists, name = FileLists(store), await put(store, data)
    for _ in range(2):
        with pytest.raises(InvalidJob, match=why) as caught:
            await lists.check(name, "working directory")
        assert str(caught.value).startswith("the list of files of the working directory")
        str(caught.value).encode()


@pytest.mark.parametrize("data", [it for it, _ in HOSTILE.values()], ids=list(HOSTILE))
def test_an_agent_refuses_it_as_well(data: bytes) -> None:
    """A list of a task's own, such as that of a checkpoint, comes to no other edge."""
    with pytest.raises(BadOrder) as caught:
        read_manifest(data)
    str(caught.value).encode()


async def test_a_list_of_a_command_is_taken(store: Objects, tmp_path: Path) -> None:
    for name in ("a", "A", "a.b/c", "a-b", "é", "e\N{COMBINING ACUTE ACCENT}", "d/\n"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    scanned = scan_directory(tmp_path)
    await FileLists(store).check(await put(store, scanned.manifest), "working directory")
    assert len(read_manifest(scanned.manifest)) == 7
    empty = await put(store, listing())
    await FileLists(store).check(empty, "working directory")


async def test_a_good_list_is_read_once(store: Objects) -> None:
    lists, name = FileLists(store), await put(store, listing(entry()))
    await lists.check(name, "working directory")
    await store.delete(blob_key(name))
    await lists.check(name, "working directory")
