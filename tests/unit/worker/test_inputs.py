"""Where a task's inputs may come from, and what is copied of them."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from obstore.exceptions import PermissionDeniedError

from eva_master.adapters.resolving.inputs import InputRoots
from eva_worker.errors import InputRefused, Missing, UnsupportedInput
from eva_worker.files import beneath, download
from eva_worker.files.download import Fetcher
from eva_worker.files.inputs import Roots
from eva_worker.files.objects import Objects, _translated

SECRET = "the host's own"
STORE = "s3://cluster/eva/objects?region=eu-west-1&endpoint=http://localhost:9"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    data = tmp_path / "data"
    (data / "set" / "deep").mkdir(parents=True)
    (data / "set" / "deep" / "x").write_text("x")
    (tmp_path / "host").mkdir()
    (tmp_path / "host" / "secret").write_text(SECRET)
    return data


@pytest.fixture
def fetcher(data: Path, tmp_path: Path) -> Fetcher:
    objects = Objects((tmp_path / "objects").as_uri())
    roots = Roots([data.as_uri()], objects.url)
    return Fetcher(objects, tmp_path / "cache", roots, [tmp_path / "data" / "private"])


@pytest.mark.parametrize(
    ("roots", "url", "allowed"),
    [
        # Nothing of an instance unless the operator says so.
        ("s3://", "file:///etc/shadow", False),
        ("s3://", "file:///", False),
        ("", "s3://bucket/x", False),
        ("s3://", "s3://bucket/x", True),
        ("s3://", "s3://bucket/x?region=eu-west-1", True),
        ("s3://", "s3://bucket", True),
        # Whose names begin alike is not below.
        ("s3://bucket/data", "s3://bucket/data/x", True),
        ("s3://bucket/data", "s3://bucket/data", True),
        ("s3://bucket/data", "s3://bucket/data-other", False),
        ("s3://bucket/data", "s3://bucket-two/data", False),
        ("s3://bucket/data", "s3://bucket", False),
        ("s3://bucket/data/", "s3://bucket/data/x", True),
        ("file:///data", "file:///data/x", True),
        ("file:///data", "file://localhost/data/x", True),
        ("file:///data", "file:///data2/x", False),
        ("file:///data", "file:///DATA/x", False),
        ("file:///data", "file:///data/../etc/shadow", False),
        ("file:///data", "file:///data/%2e%2e/etc/shadow", False),
        ("file:///data", "file:///data/%2E./x", False),
        ("file:///data", "file:///data/x%00y", False),
        ("file:///data", "file:////data/x", True),
        ("file:///data", "file://elsewhere/data/x", False),
        ("file:///data", "file:data/x", False),
        ("file:///data", "FILE:///data/x", True),
        ("file:///data", "file:///data/x#y", False),
        ("file:///data", "s3://data/x", False),
        ("file:///da%20ta", "file:///da%20ta/x", True),
        # Other users' files are in the cluster's own store.
        ("s3://", "s3://cluster/eva/objects/jobs/1/0/outputs", False),
        ("s3://", "s3://cluster/eva/objects", False),
        ("s3://", "s3://cluster/eva", False),
        ("s3://", "s3://cluster", False),
        ("s3://", "s3://cluster/%65va/objects", False),
        ("s3://", "s3://cluster//eva//objects", False),
        ("s3://", "s3://cluster/eva/objects-other", True),
        ("s3://", "s3://cluster/data", True),
        ("s3://cluster", "s3://cluster/eva/objects", False),
        ("s3://cluster/eva/objects/jobs/1", "s3://cluster/eva/objects/jobs/1/0", True),
        ("s3://cluster/eva/objects/jobs/1", "s3://cluster/eva/objects/jobs/2/0", False),
        # Nor do credentials go elsewhere.
        ("s3://", "s3://bucket/x?endpoint=http://169.254.169.254", False),
        ("s3://", "s3://bucket/x?endpoint=http://localhost:9", True),
        ("s3://", "s3://bucket/x?region=a&endpoint=http://evil", False),
        ("s3://", "s3://bucket/x?Endpoint=http://evil", False),
        ("s3://", "s3://bucket/x?%65ndpoint=http://evil", False),
        ("s3://", "s3://bucket/x?region=evil.example/", False),
        ("s3://", "s3://bucket/x?region=a%26endpoint%3Dhttp://evil", False),
        ("s3://", "s3://bucket/x?region=", False),
        ("s3://", "s3://user@bucket/x", False),
        ("s3://", "s3://bucket:80/x", False),
        ("s3://", "s3://", False),
        ("s3://", "s3:///x", False),
        ("s3://", "s3://bucket/../x", False),
        ("s3://", "s3://[/x", False),
        ("s3:// file:///data", "ftp://bucket/x", False),
        ("s3:// file:///data", "http://169.254.169.254/", False),
    ],
)
def test_what_is_allowed_here_is_allowed_there(roots: str, url: str, allowed: bool) -> None:
    """The master, which refuses a job, and the agent, which copies, agree."""
    declared = tuple(roots.split())
    assert (not InputRoots(declared, STORE).complaint(url)) == allowed
    if allowed:
        Roots(declared, STORE).place(url)
    else:
        with pytest.raises(UnsupportedInput):
            Roots(declared, STORE).place(url)


def test_a_refusal_names_the_setting() -> None:
    with pytest.raises(InputRefused, match=r"only from s3://.*input_roots"):
        Roots(["s3://"], STORE).place("file:///etc/shadow")


@pytest.mark.parametrize("resolver", ["kernel", "components"])
async def test_a_tree_is_copied_and_no_link_leads_out_of_its_root(
    data: Path, fetcher: Fetcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, resolver: str
) -> None:
    if resolver == "components":
        monkeypatch.setattr(beneath, "_open", beneath._by_component)
    await fetcher.inputs({"set": (data / "set").as_uri()}, tmp_path / "in")
    assert (tmp_path / "in" / "set" / "deep" / "x").read_text() == "x"
    for link, target in (
        ("set/deep/out", "../../../host/secret"),
        ("set/out", str(tmp_path / "host")),
        ("set/deep/proc", "/proc/self/environ"),
    ):
        place = data / link
        place.symlink_to(target)
        for url in (data / "set", place, place / "secret"):
            with pytest.raises(UnsupportedInput, match=r"leaves the place|no such|input_roots"):
                await refused(fetcher, url, tmp_path)
        place.unlink()
    copied = [path for path in tmp_path.glob("no*/**/*") if path.is_file()]
    assert SECRET not in "".join(path.read_text() for path in copied)


async def refused(fetcher: Fetcher, path: Path, tmp_path: Path) -> None:
    try:
        await fetcher.inputs({"x": path.as_uri()}, tmp_path / f"no{len(path.parts)}")
    except Missing as error:  # Something below a link: there is nothing that may be opened.
        raise UnsupportedInput("no such") from error


async def test_links_inside_a_root_are_followed(
    data: Path, fetcher: Fetcher, tmp_path: Path
) -> None:
    if not beneath.kernel_resolves():
        pytest.skip("without openat2 no link is followed")
    (data / "link").symlink_to("set/deep")
    (data / "set" / "up").symlink_to("deep/x")
    wanted = {"a": (data / "link").as_uri(), "b": (data / "set").as_uri()}
    await fetcher.inputs(wanted, tmp_path / "in")
    assert (tmp_path / "in" / "a" / "x").read_text() == "x"
    assert (tmp_path / "in" / "b" / "up").read_text() == "x"


async def test_circles_special_files_and_private_directories(
    data: Path, fetcher: Fetcher, tmp_path: Path
) -> None:
    os.mkfifo(data / "set" / "fifo")
    await fetcher.inputs({"set": (data / "set").as_uri()}, tmp_path / "in")
    assert not (tmp_path / "in" / "set" / "fifo").exists()
    (data / "set" / "circle").symlink_to(".")
    with pytest.raises(InputRefused, match=r"circle|leaves"):
        await fetcher.inputs({"set": (data / "set").as_uri()}, tmp_path / "in2")
    (data / "private" / "identity").mkdir(parents=True)
    (data / "private" / "identity" / "key.pem").write_text(SECRET)
    for path in (data, data / "private", data / "private" / "identity" / "key.pem"):
        with pytest.raises(InputRefused, match="of the worker"):
            await fetcher.inputs({"set": path.as_uri()}, tmp_path / "in3")
    (data / "set" / "circle").unlink()
    (data / "set" / "key").symlink_to("../private/identity/key.pem")
    with pytest.raises(InputRefused, match=r"of the worker|leaves"):
        await fetcher.inputs({"set": (data / "set").as_uri()}, tmp_path / "in4")


async def test_a_root_that_is_a_link_is_the_operators(data: Path, tmp_path: Path) -> None:
    (tmp_path / "short").symlink_to(data)
    objects = Objects((tmp_path / "objects").as_uri())
    roots = Roots([(tmp_path / "short").as_uri()], objects.url)
    fetcher = Fetcher(objects, tmp_path / "cache", roots)
    await fetcher.inputs({"x": (tmp_path / "short" / "set").as_uri()}, tmp_path / "in")
    assert (tmp_path / "in" / "x" / "deep" / "x").read_text() == "x"


async def test_an_input_does_not_go_where_a_link_leads(
    data: Path, fetcher: Fetcher, tmp_path: Path
) -> None:
    target = tmp_path / "in"
    target.mkdir()
    (target / "set").symlink_to(tmp_path / "host")
    with pytest.raises((OSError, Missing)):
        await fetcher.inputs({"set": (data / "set").as_uri()}, target)
    (target / "file").symlink_to(tmp_path / "host" / "secret")
    await fetcher.inputs({"file": (data / "set" / "deep" / "x").as_uri()}, target)
    assert (target / "file").read_text() == "x"
    assert (tmp_path / "host" / "secret").read_text() == SECRET
    assert list((tmp_path / "host").iterdir()) == [tmp_path / "host" / "secret"]


async def test_a_masters_keys_on_this_machine_are_no_input_unless_their_place_is_a_root(
    data: Path, tmp_path: Path
) -> None:
    """A root such as a home directory has the state directory of `eva up` somewhere below it."""
    keys, settings = data / "home" / "eva" / "pki", data / "home" / "client.yaml"
    keys.mkdir(parents=True)
    (keys / "ca.key").write_text(SECRET)
    settings.write_text(SECRET)
    objects = Objects((tmp_path / "objects").as_uri())
    hidden = [data / "home" / "eva", settings]

    def fetcher(root: Path) -> Fetcher:
        roots = Roots([root.as_uri()], objects.url)
        return Fetcher(objects, tmp_path / "cache", roots, hidden=hidden)

    for number, wanted in enumerate([keys / "ca.key", settings, keys, data / "home"]):
        target = tmp_path / "in" / f"{number}"
        with pytest.raises(InputRefused, match="files of the worker or of a master"):
            await fetcher(data).inputs({"x": wanted.as_uri()}, target)
        assert not [path for path in target.rglob("*") if path.is_file()]
    meant = keys / "sets"
    meant.mkdir()
    (meant / "x").write_text("x")
    await fetcher(meant).inputs({"x": meant.as_uri()}, tmp_path / "in")
    assert (tmp_path / "in" / "x" / "x").read_text() == "x"


@pytest.mark.parametrize("listed", [True, False])
async def test_an_input_that_may_not_be_read_is_refused_at_once_with_what_to_allow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listed: bool
) -> None:
    """S3 answers 403 for an object that is not there to roles that may not list the bucket."""
    arrived: list[object] = []

    async def size(*_: object) -> int:
        with _translated("set"):
            raise PermissionDeniedError("403 Forbidden")
        raise AssertionError("unreachable")

    async def sizes(*_: object) -> AsyncIterator[tuple[str, int]]:
        if not listed:
            await size()
        yield "set/x", 1

    async def fetched(_store: object, _target: object, *entry: object) -> None:
        arrived.append(entry)

    monkeypatch.setattr(Objects, "size", size)
    monkeypatch.setattr(Objects, "sizes", sizes)
    monkeypatch.setattr(download, "fetch_read_only", fetched)
    objects = Objects((tmp_path / "objects").as_uri())
    fetcher = Fetcher(objects, tmp_path / "cache", Roots(["s3://"], objects.url), [])
    if listed:
        await fetcher.inputs({"set": "s3://other/set"}, tmp_path / "in")
        assert arrived == [("set/x", 1, "set/x")]
        return
    with pytest.raises(InputRefused, match=r"allow s3:GetObject.*s3:ListBucket"):
        await fetcher.inputs({"set": "s3://other/set"}, tmp_path / "in")
