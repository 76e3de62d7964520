"""Working directories as the client uploads them."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from eva_client.uploads.ignore import IgnoreRules
from eva_client.uploads.workdir import scan_directory
from eva_wire.values.errors import InvalidJob


def make(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o644)
    return root


def entries(root: Path) -> list[dict[str, Any]]:
    manifest = scan_directory(root).manifest
    files: list[dict[str, Any]] = json.loads(manifest)["files"]
    return files


def paths(root: Path) -> list[str]:
    return [entry["path"] for entry in entries(root)]


def test_the_manifest_is_canonical(tmp_path: Path) -> None:
    make(tmp_path, {"train.py": "print()"})
    (tmp_path / "train.py").chmod(0o4755)
    manifest, digest, sources, *_ = scan_directory(tmp_path)
    content = hashlib.sha256(b"print()").hexdigest()
    assert (
        manifest
        == f'{{"files":[{{"mode":493,"path":"train.py","sha256":"{content}","size":7}}]}}'.encode()
    )
    assert digest == hashlib.sha256(manifest).hexdigest()
    assert sources == {content: tmp_path / "train.py"}


def test_files_are_sorted_by_path_and_equal_ones_stored_once(tmp_path: Path) -> None:
    make(tmp_path, {"b": "same", "a/z": "same", "a-b": "x", "ü": "y", "a/y": "same"})
    manifest, _, sources, *_ = scan_directory(tmp_path)
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


@pytest.mark.parametrize("line", ["!", "\\", "/", "!/", "[", "a["])
def test_a_line_that_says_nothing_is_skipped(tmp_path: Path, line: str) -> None:
    make(tmp_path, {".evaignore": f"/.evaignore\n{line}\n", "a": "", "b": ""})
    assert paths(tmp_path) == ["a", "b"]


KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaA==\n"
SECRET_FILES = {
    ".env": "TOKEN=1",
    ".env.local": "",
    ".env.example": "TOKEN=",
    "deep/id_ed25519": "x",
    "deep/id_ed25519.pub": "x",
    "deep/server.pem": "# mine\n" + KEY,
    "deep/certificate.pem": "-----BEGIN CERTIFICATE-----\n",
    ".venv/bin/python": "python",
    "pkg/__pycache__/a.pyc": "code",
    ".mypy_cache/x": "",
    ".ruff_cache/x": "",
    ".pytest_cache/x": "",
    "train.py": "print()",
}


def test_secrets_and_what_can_be_made_anew_are_left_out_by_default(tmp_path: Path) -> None:
    make(tmp_path, SECRET_FILES)
    found = scan_directory(tmp_path)
    assert sorted(path.name for path in found.sources.values()) == sorted(
        [".env.example", "id_ed25519.pub", "certificate.pem", "train.py"]
    )
    assert dict(found.left_out) == {
        ".env": 7,
        ".env.local": 0,
        "deep/id_ed25519": 1,
        "deep/server.pem": len("# mine\n" + KEY),
        ".venv/": 6,
        "pkg/__pycache__/": 4,
        ".mypy_cache/": 0,
        ".ruff_cache/": 0,
        ".pytest_cache/": 0,
    }


def test_a_rule_brings_each_of_them_back(tmp_path: Path) -> None:
    back = "!.env\n!server.pem\n!.venv/\n!id_ed25519\n"
    make(tmp_path, {**SECRET_FILES, ".evaignore": back})
    kept = paths(tmp_path)
    assert {".env", "deep/server.pem", ".venv/bin/python", "deep/id_ed25519"} <= set(kept)
    assert ".env.local" not in kept


def test_what_users_leave_out_themselves_is_no_news(tmp_path: Path) -> None:
    make(
        tmp_path, {".evaignore": ".env\n.venv\n", ".env": "x", ".venv/x": "x", "__pycache__/a": ""}
    )
    assert [it.path for it in scan_directory(tmp_path).left_out] == ["__pycache__/"]


@pytest.mark.parametrize("text", ["a\r\nb\r\n", "\ufeffa\nb", "a  \nb"])
def test_windows_files_and_blanks_at_the_end(tmp_path: Path, text: str) -> None:
    make(tmp_path, {"a": "", "b": "", "c": ""})
    (tmp_path / ".evaignore").write_bytes(f"{text}\n.evaignore".encode())
    assert paths(tmp_path) == ["c"]


_PIECES = (
    *("a", "b", "*", "**", "/", "?", "[ab]", "[!a]", "[z-a]", "[[:alpha:]]", "[[:digit:]]", "\\"),
    *("!", "#", " ", "src", ".env", "[a-", "[", "x y", "-", "ü", "[[:foo:]]", "[]a]", "[^]a]"),
    *("***", "[a-]", "\\a", "\\*", "[\\a-b]", "z!", "[!-a]", "[[:upper:]1]", "/**/", "**/", "/**"),
)
_LINES = st.lists(st.sampled_from(_PIECES), min_size=1, max_size=4)
_TREE = ("a", "b/a", "b/ab", "src/a.b", "src/x y/A1", "src/x y/-", "ab/ü", "[a]", "z!", "#c", "a.b")


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = make(tmp_path_factory.mktemp("tree"), dict.fromkeys(_TREE, ""))
    subprocess.run(["git", "init", "--quiet", root], check=True)
    return root


@settings(max_examples=150, deadline=None)
@given(
    lines=st.lists(
        st.lists(st.sampled_from(_PIECES), min_size=1, max_size=4), min_size=1, max_size=4
    ),
    end=st.sampled_from(["\n", "\r\n"]),
    mark=st.booleans(),
)
@example(lines=[["src", "/**/"]], end="\n", mark=False)
@example(lines=[["[z-a]", "*"], ["a", "[9-0]"]], end="\n", mark=True)
@example(lines=[["**", "\\", "/", "[ab]"]], end="\n", mark=False)
def test_lines_are_read_as_git_reads_them(
    repository: Path, lines: list[list[str]], end: str, mark: bool
) -> None:
    text = ("\ufeff" if mark else "") + end.join(map("".join, lines)) + end
    (repository / ".gitignore").write_bytes(text.encode())
    git = ["git", "-C", str(repository), "ls-files", "-z", "--others", "--exclude-standard"]
    listed = subprocess.run(git, capture_output=True, check=True).stdout.decode().split("\0")
    rules = IgnoreRules(text.encode())
    kept = [
        path
        for path in (*_TREE, ".gitignore")
        if not any(rules.match(path[:at] + "/") for at, sign in enumerate(path) if sign == "/")
        and not rules.match(path)
    ]
    assert sorted(kept) == sorted(filter(None, listed))


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
    assert f"{tmp_path}/a/loop: " in caught.value.message


def test_all_that_is_wrong_is_told_at_once(tmp_path: Path) -> None:
    make(tmp_path, {"a": "", "deep/b": ""})
    (tmp_path / "dead").symlink_to("nowhere")
    (tmp_path / "out").symlink_to("/etc/passwd")
    (tmp_path / "deep" / "loop").symlink_to("..")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / os.fsdecode(b"odd\xff")).touch()
    with pytest.raises(InvalidJob) as refused:
        scan_directory(tmp_path)
    told = refused.value.message
    for name in ("dead", "out", "deep/loop", "pipe", "odd\\xff"):
        assert name in told
    assert ".evaignore" in refused.value.hint


def test_of_very_many_faults_some_are_told(tmp_path: Path) -> None:
    for number in range(50):
        (tmp_path / f"dead{number}").symlink_to("nowhere")
    with pytest.raises(InvalidJob, match="and 30 more"):
        scan_directory(tmp_path)


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
