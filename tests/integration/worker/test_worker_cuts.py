"""A large file whose way to the store or back is cut off goes on there, not at its beginning."""

from __future__ import annotations

import hashlib
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from eva_worker.errors import Missing, StoreUnavailable
from eva_worker.files.beneath import File
from eva_worker.files.download import Fetcher
from eva_worker.files.multipart import UploadSource
from eva_worker.files.objects import Objects
from eva_worker.files.parts import PART, PartFile
from tests.fakes.aws.service import bucket_url, shared
from tests.fakes.rpc.relay import Relay

PARTS = 6
SIZE = PARTS * PART - 5
KEY = "jobs/job-1/0/outputs/weights #1"


@dataclass
class Store:
    """A bucket behind a wire that can be cut."""

    url: str
    relay: Relay
    uploads: Path
    s3: Any = field(default_factory=lambda: shared().client("s3"))

    @property
    def bucket(self) -> str:
        return urlsplit(self.url).netloc

    def open(self) -> Objects:
        """As an agent that has just been started."""
        there = self.url.replace(f":{urlsplit(shared().url).port}", f":{self.relay.port}")
        return Objects(there, uploads=self.uploads)

    def unfinished(self) -> list[str]:
        """Parts that cost money and belong to no object."""
        found = self.s3.list_multipart_uploads(Bucket=self.bucket)
        return [upload["UploadId"] for upload in found.get("Uploads", ())]

    def parts(self) -> int:
        """Bytes of the one unfinished upload."""
        (upload,) = self.s3.list_multipart_uploads(Bucket=self.bucket)["Uploads"]
        where = {"Bucket": self.bucket, "Key": upload["Key"], "UploadId": upload["UploadId"]}
        return sum(part["Size"] for part in self.s3.list_parts(**where).get("Parts", ()))

    def keys(self) -> list[str]:
        found = self.s3.list_objects_v2(Bucket=self.bucket)
        return [entry["Key"] for entry in found.get("Contents", ())]

    async def cut_off(self, source: Path, *, after: int) -> None:
        """Begin to store a file, and fail."""
        self.relay.left = after
        with pytest.raises(StoreUnavailable):
            await self.open().put(KEY, source)
        self.relay.mend()


@pytest.fixture
async def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Store]:
    url = bucket_url(monkeypatch)
    # That of the client: a cut wire is one failure, not several.
    monkeypatch.setattr("eva_worker.files.multipart._TRIES", 1)
    port = urlsplit(shared().url).port
    assert port is not None
    async with Relay(port) as relay:
        yield Store(url, relay, tmp_path / "uploads")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    with path.open("wb") as file:
        for number in range(PARTS):
            file.write(bytes([number]) * min(PART, SIZE - number * PART))
    return path


def digest(data: Path | bytes) -> str:
    content = data if isinstance(data, bytes) else data.read_bytes()
    return hashlib.sha256(content).hexdigest()


async def test_an_upload_that_is_cut_off_sends_only_what_is_missing(
    store: Store, source: Path
) -> None:
    # Four parts at a time: when five and a half have passed, some are there.
    await store.cut_off(source, after=SIZE - PART // 2)
    assert store.keys() == [], "a part of a file does not look like one"
    stored = store.parts()
    assert stored > 0, "it was cut off in the middle"

    # By somebody else, as after a crash: what it knows is on the disk.
    # More may have been on its way when the wire was cut.
    assert 0 < await store.open().put(KEY, source) <= SIZE - stored
    assert store.unfinished() == []
    assert [await store.open().size(KEY)] == [SIZE]
    assert digest(await store.open().get(KEY)) == digest(source)
    assert list(store.uploads.iterdir()) == []


async def test_of_a_file_that_was_replaced_meanwhile_nothing_is_kept(
    store: Store, source: Path
) -> None:
    await store.cut_off(source, after=SIZE // 2)
    (old,) = store.unfinished()
    source.with_name("new").write_bytes(b"y" * (PART + 1))
    source.with_name("new").replace(source)
    assert await store.open().put(KEY, source) == PART + 1
    assert old not in store.unfinished()
    assert digest(await store.open().get(KEY)) == digest(source)


async def test_an_upload_whose_file_is_gone_is_ended_when_another_begins(
    store: Store, source: Path
) -> None:
    await store.cut_off(source, after=SIZE // 2)
    assert store.unfinished()
    source.rename(source.with_name("other"))
    await store.open().put("other", source.with_name("other"))
    assert store.unfinished() == []
    assert list(store.uploads.iterdir()) == []


async def test_an_answer_that_is_lost_at_the_end_costs_nothing(
    store: Store, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects = store.open()
    assert objects._multipart is not None
    client = objects._multipart._client()
    complete = client.complete_multipart_upload

    def lost(**request: Any) -> None:
        complete(**request)
        raise StoreUnavailable("no answer")

    monkeypatch.setattr(client, "complete_multipart_upload", lost)
    with pytest.raises(StoreUnavailable):
        await objects.put(KEY, source)
    assert await store.open().put(KEY, source) == 0
    assert digest(await store.open().get(KEY)) == digest(source)


@pytest.mark.parametrize("change", ["shorter", "replaced", "removed"])
def test_only_the_file_whose_upload_began_is_sent(change: str, source: Path) -> None:
    begun = UploadSource.of(File.at(source))
    with begun.part(PART, 3) as part:
        assert part.read() == bytes([1, 1, 1])
        part.seek(-2, os.SEEK_END)
        assert part.read(9) == bytes([1, 1])
    if change == "shorter":
        os.truncate(source, PART)
    else:
        source.rename(source.with_name("old"))
    if change == "replaced":
        source.write_bytes(bytes(SIZE))
    if change == "shorter":
        with pytest.raises(Missing):
            begun.part(PART, 3)
    else:
        with begun.part(PART, 3) as part:
            assert part.read() == bytes([1, 1, 1])


async def test_a_blob_goes_on_where_an_earlier_agent_was(
    store: Store, source: Path, tmp_path: Path
) -> None:
    name = digest(source)
    await store.open().put(f"blobs/{name[:2]}/{name}", source)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PartFile, "_finish", lambda _: (_ for _ in ()).throw(OSError("no room")))
        with pytest.raises(StoreUnavailable):
            await Fetcher(store.open(), tmp_path / "cache")._blob(name, SIZE)
    # For what is said around it; all parts are there.
    store.relay.left = PART // 2
    found = await Fetcher(store.open(), tmp_path / "cache")._blob(name, SIZE)
    assert digest(found) == name
    assert list(found.parent.iterdir()) == [found]
