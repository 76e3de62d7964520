"""Working directories as the client uploads them."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

from eva_master.adapters.objects.blobs import scan_directory
from eva_master.model.errors import InvalidJob


def make(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o644)
    return root


def entries(root: Path) -> list[dict[str, Any]]:
    manifest, _, _ = scan_directory(root)
    files: list[dict[str, Any]] = json.loads(manifest)["files"]
    return files


def paths(root: Path) -> list[str]:
    return [entry["path"] for entry in entries(root)]


def test_the_manifest_is_canonical(tmp_path: Path) -> None:
    make(tmp_path, {"train.py": "print()"})
    (tmp_path / "train.py").chmod(0o4755)
    manifest, digest, sources = scan_directory(tmp_path)
    content = hashlib.sha256(b"print()").hexdigest()
    assert (
        manifest
        == f'{{"files":[{{"mode":493,"path":"train.py","sha256":"{content}","size":7}}]}}'.encode()
    )
    assert digest == hashlib.sha256(manifest).hexdigest()
    assert sources == {content: tmp_path / "train.py"}


def test_files_are_sorted_by_path_and_equal_ones_stored_once(tmp_path: Path) -> None:
    make(tmp_path, {"b": "same", "a/z": "same", "a-b": "x", "ü": "y", "a/y": "same"})
    manifest, _, sources = scan_directory(tmp_path)
    files = json.loads(manifest)["files"]
    assert [file["path"] for file in files] == ["a-b", "a/y", "a/z", "b", "ü"]
    assert len(sources) == 3
    for digest, source in sources.items():
        assert hashlib.sha256(source.read_bytes()).hexdigest() == digest


def test_the_same_tree_elsewhere_has_the_same_digest(tmp_path: Path) -> None:
    files = {f"d{number % 3}/{number}": str(number) for number in range(30)}
    one = make(tmp_path / "one", files)
    other = make(tmp_path / "other", dict(reversed(files.items())))
    assert scan_directory(one)[:2] == scan_directory(other)[:2]
    (other / "d0" / "0").chmod(0o755)
    assert scan_directory(one)[1] != scan_directory(other)[1]


def test_an_empty_directory(tmp_path: Path) -> None:
    assert scan_directory(tmp_path)[0] == b'{"files":[]}'


@pytest.mark.parametrize(
    ("ignore", "kept"),
    [
        ("", ["data/a.bin", "data/b.txt", "src/data/c.txt", "src/x.py"]),
        ("# comment\n\ndata/\n", ["src/x.py"]),
        ("/data\n", ["src/data/c.txt", "src/x.py"]),
        ("*.bin", ["data/b.txt", "src/data/c.txt", "src/x.py"]),
        ("*.txt\n!c.txt", ["data/a.bin", "src/data/c.txt", "src/x.py"]),
        ("*\n!*.py\n!src/\n", ["src/x.py"]),
        ("src/**/c.txt", ["data/a.bin", "data/b.txt", "src/x.py"]),
        ("data/\n!data/b.txt", ["src/x.py"]),
        ("data/**\n!data/b.txt", ["data/b.txt", "src/data/c.txt", "src/x.py"]),
        ("data/*\n!data/b.txt", ["data/b.txt", "src/data/c.txt", "src/x.py"]),
        ("data/\n!src/", ["src/x.py"]),
        ("*\n!*/\n!*.txt", ["data/b.txt", "src/data/c.txt"]),
        ("src/*\n!src/data", ["data/a.bin", "data/b.txt", "src/data/c.txt"]),
        ("x.py\n*.txt\n!src/", ["data/a.bin"]),
        ("data/\n!/src/", ["src/x.py"]),
        ("**/data\n!src/data/", ["src/data/c.txt", "src/x.py"]),
    ],
)
def test_evaignore_reads_like_gitignore(tmp_path: Path, ignore: str, kept: list[str]) -> None:
    make(tmp_path, {"data/a.bin": "", "data/b.txt": "", "src/x.py": "", "src/data/c.txt": ""})
    make(tmp_path, {".evaignore": f"/.evaignore\n{ignore}"})
    assert paths(tmp_path) == kept


def test_a_line_that_is_no_pattern_is_told(tmp_path: Path) -> None:
    make(tmp_path, {".evaignore": "!"})
    with pytest.raises(InvalidJob, match="evaignore"):
        scan_directory(tmp_path)


def test_links_within_the_tree_are_followed(tmp_path: Path) -> None:
    make(tmp_path, {"data/v2/a": "content"})
    (tmp_path / "current").symlink_to("data/v2")
    (tmp_path / "b").symlink_to(tmp_path / "data" / "v2" / "a")
    assert paths(tmp_path) == ["b", "current/a", "data/v2/a"]
    assert {entry["size"] for entry in entries(tmp_path)} == {7}


def test_the_root_may_be_a_link(tmp_path: Path) -> None:
    make(tmp_path / "real", {"a": ""})
    (tmp_path / "link").symlink_to("real")
    assert paths(tmp_path / "link") == ["a"]


@pytest.mark.parametrize("target", ["../secret", "/etc/passwd", "../outside", "deep/../../secret"])
def test_links_that_leave_the_tree_are_refused(tmp_path: Path, target: str) -> None:
    make(tmp_path, {"secret": "x", "outside/y": "x", "tree/a": "", "tree/deep/b": ""})
    (tmp_path / "tree" / "link").symlink_to(target)
    with pytest.raises(InvalidJob, match="leaves the working directory") as caught:
        scan_directory(tmp_path / "tree")
    assert ".evaignore" in caught.value.hint
    make(tmp_path, {"tree/.evaignore": "link"})
    assert "link" not in paths(tmp_path / "tree")


@pytest.mark.parametrize("target", [".", "..", "../link", "loop"])
def test_links_in_circles_are_refused(tmp_path: Path, target: str) -> None:
    make(tmp_path, {"a/b": ""})
    (tmp_path / "a" / "loop").symlink_to(target)
    (tmp_path / "link").symlink_to("a")
    with pytest.raises(InvalidJob, match="circle") as caught:
        scan_directory(tmp_path)
    assert caught.value.message.startswith(f"{tmp_path}/a/loop: ")


def test_what_cannot_be_uploaded_is_refused(tmp_path: Path) -> None:
    (tmp_path / "dead").symlink_to("nowhere")
    with pytest.raises(InvalidJob, match="leads to nothing"):
        scan_directory(tmp_path)
    (tmp_path / "dead").unlink()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InvalidJob, match="neither a file nor a directory"):
        scan_directory(tmp_path)
    (tmp_path / "pipe").unlink()
    (tmp_path / os.fsdecode(b"\xff")).touch()
    with pytest.raises(InvalidJob, match="not UTF-8"):
        scan_directory(tmp_path)


@pytest.mark.parametrize("name", ["missing", "file"])
def test_only_directories_are_scanned(tmp_path: Path, name: str) -> None:
    make(tmp_path, {"file": ""})
    with pytest.raises(InvalidJob):
        scan_directory(tmp_path / name)
