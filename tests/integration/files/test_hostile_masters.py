"""Files from a master that goes away, or that lists and sends what no master of Eva's does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from eva_client.downloads import Fetched, fetch
from eva_client.downloads.destination import UnusableName
from eva_client.rpc.files import Listing
from eva_client.rpc.master import Client
from eva_wire._proto import api_pb2 as pb
from eva_wire.values.errors import EvaError, Unreachable

MIB = 1 << 20


def tree(root: Path) -> dict[str, bytes]:
    """All files in a directory."""
    return {
        str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()
    }


class Listed:
    """A master that lists and sends what a test says."""

    def __init__(self, *files: pb.StoredFile, tasks: int = 1) -> None:
        self.files = self
        self._files = list(files)
        self._tasks = tasks

    def listed(self, reference: str, path: str, *, task: int | None = None) -> Any:
        return Listing(reference, self._tasks, self._files)

    def pieces(self, job: str, wanted: Any, calls: Any) -> Iterator[pb.FilePiece]:
        for index, (file, offset) in enumerate(wanted):
            yield pb.FilePiece(index=index, offset=offset, data=b"x" * (file.size - offset))


def given(master: Listed, reference: str, **options: Any) -> Fetched:
    """Fetch files from a master of a test's own."""
    return fetch(cast("Client", master), reference, **options)


@pytest.mark.parametrize(
    "path",
    [
        "outputs/../a",
        "outputs/a/../../../b",
        "outputs//etc/passwd",
        "outputs/.",
        "outputs/a\0b",
        "outputs/" + "n" * 256,
        "outputs/" + "d/" * 200 + "a",
        "outputs/.eva-get/a",
        "elsewhere/a",
        "/etc/passwd",
    ],
)
def test_a_hostile_listing_is_refused(tmp_path: Path, path: str) -> None:
    good = pb.StoredFile(path="outputs/good", size=1, version="1")
    with pytest.raises(UnusableName):
        given(Listed(good, pb.StoredFile(path=path, size=1, version="1")), "a-1", to=tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_a_hostile_name_does_not_reach_the_terminal(tmp_path: Path) -> None:
    evil = pb.StoredFile(path="outputs/\x1b]0;evil\x07/..", size=1, version="1")
    with pytest.raises(UnusableName) as refused:
        given(Listed(evil), "a-1", to=tmp_path / "x")
    assert "\x1b" not in str(refused.value)


@pytest.mark.parametrize("names", [("a", "a"), ("a", "a/b")])
def test_a_listing_that_no_disk_can_have_is_refused(tmp_path: Path, names: tuple[str, str]) -> None:
    files = [pb.StoredFile(path=f"outputs/{name}", size=1, version="1") for name in names]
    with pytest.raises(UnusableName):
        given(Listed(*files), "a-1", to=tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_a_hostile_name_of_a_job_leads_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UnusableName):
        given(Listed(pb.StoredFile(path="outputs/a", size=1, version="1")), "../../up")
    assert not any(tmp_path.iterdir())


class Patient:
    """Waits without waiting, and counts."""

    def __init__(self) -> None:
        self.pauses = 0

    def pause(self, error: EvaError) -> None:
        self.pauses += 1
        if self.pauses > 5:
            raise error

    def restore(self) -> None:
        self.pauses = 0


def test_a_master_that_goes_away_is_waited_for(tmp_path: Path) -> None:
    master = Listed(pb.StoredFile(path="outputs/a", size=3 * MIB, version="1"))
    original, broken = master.pieces, iter([True, True, False])

    def pieces(job: str, wanted: Any, calls: Any) -> Iterator[pb.FilePiece]:
        for piece in original(job, wanted, calls):
            if next(broken):
                yield pb.FilePiece(index=0, offset=piece.offset, data=piece.data[: MIB // 2])
                raise Unreachable("the master is away")
            yield piece

    master.pieces = pieces  # type: ignore[method-assign]
    patient = Patient()
    fetched = given(master, "a-1", to=tmp_path / "x", patience=patient)
    assert (fetched.fetched, fetched.size) == (1, 3 * MIB)
    assert tree(tmp_path / "x") == {"a": b"x" * (3 * MIB)}
    assert patient.pauses == 1
    broken = iter([True] * 9)
    with pytest.raises(Unreachable):
        given(master, "a-1", to=tmp_path / "y")


def test_a_master_that_sends_other_bytes_is_not_believed(tmp_path: Path) -> None:
    master = Listed(pb.StoredFile(path="outputs/a", size=3, version="1"))
    master.pieces = lambda *_: iter([pb.FilePiece(index=0, offset=1, data=b"xy")])  # type: ignore
    with pytest.raises(EvaError, match="not asked for"):
        given(master, "a-1", to=tmp_path / "x")
