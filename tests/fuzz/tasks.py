"""Makes up tasks: what each does to its files, says over its socket, prints, and how it ends.

The same number gives the same task each time.
"""

from __future__ import annotations

import contextlib
import os
import random
import socket
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from eva_wire._proto.iterator_pb2 import ReportRequest
from eva_worker.files.beneath import remove_tree

POISON = "9" * 26
_NAMES = (
    *("a", "b", "model.bin", "manifest.json", "files", ".tmp-x", " ", "-rf", "*", "\\", "%", "%2F"),
    *("00000001", "00000002", "00000009", "1", "0", "-1", "00000000", "000000001", POISON),
    *("9007199254740991", "9007199254740992", "18446744073709551615", "٣٣٣٣٣٣٣٣", "1e3", "²"),
    *("\n", "a\nb", "\x1b]0;x\x07", "\x7f", "\u202e", "é", "e\u0301", "x" * 255, "%" * 255),
    *("#1", "a#1", ".part-0-a", ".unverified-0", "{}", "^", "`", '"', "<", ">", "|", "~", "?", ":"),
    *(os.fsdecode(it) for it in (b"\xff", b"\xc3", b"a\xffb", b"\xed\xa0\x80")),
)
_NUMBERS = (0, 1, 2, 7, 100, 2**31, 2**32, 2**53 - 1, 2**53, 2**53 + 1, 2**63, 2**64 - 1)
_BAD_NUMBERS = (2**53 + 1, 2**63, 2**64 - 1)
_VALUES = (0.0, -0.0, 1.5, 1e308, -1e308, 5e-324, float("nan"), float("inf"), float("-inf"))
_CODES = (0, 0, 0, 1, 2, 126, 137, 255, 256, -1, -9, -15, -64, 2**31, -(2**31) - 1, 10**30)
_MESSAGES = ("", "", "out of memory", "\x1b[31m", "x" * 10_000, "\udcff\ud800", "a\0b", "é" * 5_000)
_MOST_DEEP = 80
_GIANT = 1 << 43


@dataclass
class Report:
    """Bytes that the task sends over its socket.

    Attributes:
        data: The bytes.
        kind: "good" is taken in, "bad" must be refused; of "odd" ones either is right.
    """

    data: bytes
    kind: str


@dataclass
class Act:
    """One thing that a task does: to its files, or over its socket."""

    name: str
    carry_out: Callable[[Path, Path], None] | None = None
    report: Report | None = None


@dataclass
class MadeUpTask:
    """A task and its end."""

    acts: list[Act] = field(default_factory=list)
    code: int = 0
    ran: bool = True
    message: str = ""
    gang: bool = False


def make_up(number: int) -> MadeUpTask:
    """The task of a number."""
    chance = random.Random(number)
    acts = [_act(chance) for _ in range(chance.choice((1, 2, 3, 5, 9, 20)))]
    return MadeUpTask(
        acts,
        chance.choice(_CODES),
        chance.random() < 0.95,
        chance.choice(_MESSAGES),
        chance.random() < 0.2,
    )


def _act(chance: random.Random) -> Act:
    kind = chance.choice(("report", "report", "file", "file", "file", "tree", "swap", "log", "run"))
    if kind == "report":
        report = _report(chance)
        return Act(f"report {report.kind} {report.data[:60]!r}", report=report)
    make = {"file": _entry, "tree": _tree, "swap": _swap, "log": _log, "run": _socket}[kind]
    name, do = make(chance)
    return Act(f"{kind} {name}", carry_out=_quietly(do))


def _quietly(do: Callable[[Path, Path], None]) -> Callable[[Path, Path], None]:
    def tried(home: Path, host: Path) -> None:
        with contextlib.suppress(OSError, ValueError):
            do(home, host)

    return tried


# -- files -------------------------------------------------------------------------------------

_Do = Callable[[Path, Path], None]


def _top(chance: random.Random) -> str:
    generation = f"checkpoints/{chance.choice(_NAMES)}"
    return chance.choice(
        ("storage/outputs", "checkpoints", "checkpoints/00000001", generation, "work", "storage")
    )


def _entry(chance: random.Random) -> tuple[str, _Do]:
    """Something in one of the task's directories."""
    path = "/".join([_top(chance), *chance.choices(_NAMES, k=chance.choice((0, 1, 1, 1, 2, 3)))])
    kind = chance.choice(
        ("text", "text", "text", "empty", "giant", "large", "link", "link", "hard", "fifo", *_RARE)
    )
    size, where = chance.randrange(300), chance.choice(_TARGETS)

    def do(home: Path, host: Path) -> None:
        place = _within(home, home / path)
        place.parent.mkdir(parents=True, exist_ok=True)
        _put(kind, place, host, size, where)

    return f"{kind} {path!r}"[:120], do


_RARE = ("socket", "device", "directory", "closed", "suid", "gone")
_TARGETS = (
    *("HOST", "HOST/secret", "HOST/deep", "/proc/self/environ", "/proc/self/root/etc/shadow"),
    *("/dev/zero", ".", "..", "../..", "nowhere", "/", "a/b", "self"),
)


def _within(home: Path, place: Path) -> Path:
    """Refuse a place that a task could not reach, since links that it made lead there.

    The tasks here have the rights of the agent; a container has only its mounts.
    """
    real = place.parent.resolve()
    if not any(real.is_relative_to(home / name) for name in ("storage", "checkpoints", "work")):
        raise ValueError(place)
    return place


def _put(kind: str, place: Path, host: Path, size: int, where: str) -> None:
    if place.is_file() and place.stat().st_nlink > 1:
        place.unlink()  # Else what is written would be written to the host's file.
    if kind == "closed":
        if not place.is_symlink():
            place.chmod(0)
        return
    if place.is_symlink() or (place.exists() and not (place.is_file() or place.is_dir())):
        place.unlink()
    match kind:
        case "link":
            place.symlink_to(where.replace("HOST", str(host)))
        case "hard":
            os.link(host / "linked", place)
        case "socket":
            with socket.socket(socket.AF_UNIX) as server:
                server.bind(os.fsencode(place))
        case "directory":
            place.mkdir()
        case "gone":
            remove_tree(place)
        case _:
            _put_file(kind, place, size)


def _put_file(kind: str, place: Path, size: int) -> None:
    match kind:
        case "empty" | "giant":
            with place.open("wb") as file:
                file.truncate(_GIANT if kind == "giant" else 0)
        case "fifo":
            os.mkfifo(place)
        case "device":
            os.mknod(place, 0o666 | stat.S_IFCHR, os.makedev(1, 5))
        case "suid":
            place.write_bytes(b"#!/bin/sh")
            place.chmod(0o6777)
        case _:
            place.write_bytes(b"ours " * (size * 500 if kind == "large" else size))


def _tree(chance: random.Random) -> tuple[str, _Do]:
    """A deep or a wide tree."""
    top, deep = _top(chance), chance.random() < 0.5
    size = chance.choice((3, 60, 70, _MOST_DEEP)) if deep else chance.choice((5, 30, 100))

    def do(home: Path, host: Path) -> None:
        del host
        place = _within(home, home / top / "d").parent
        place.mkdir(parents=True, exist_ok=True)
        for number in range(size):
            if deep:
                place /= "d"
                place.mkdir(exist_ok=True)
            else:
                (place / f"f{number}").write_bytes(b"ours")
        if deep:
            (place / "bottom").write_bytes(b"ours")

    return f"{'deep' if deep else 'wide'} {size} {top!r}"[:120], do


def _swap(chance: random.Random) -> tuple[str, _Do]:
    """Something else in the place of one of the task's directories."""
    path = chance.choice(
        ("checkpoints", "storage", "storage/outputs", "checkpoints/00000001", "work", "run")
    )
    kind, where = chance.choice(("link", "fifo", "text", "gone", "link")), chance.choice(_TARGETS)

    def do(home: Path, host: Path) -> None:
        place = home / path
        parent = place.parent.resolve()
        if not parent.is_relative_to(home):
            return
        aside = home / ".aside"
        remove_tree(aside)
        place.rename(aside)
        _put(kind, place, host, 3, where)

    return f"{kind} {path} {where}", do


def _log(chance: random.Random) -> tuple[str, _Do]:
    """Something that the task prints, or does to its log."""
    kind = chance.choice(("print", "print", "print", "hole", "cut", "link", "fifo", "gone"))
    text = chance.randbytes(chance.choice((0, 1, 80, 5_000, 200_000)))
    where = chance.choice(_TARGETS)

    def do(home: Path, host: Path) -> None:
        place = home / "log"
        if place.is_symlink() and kind in {"print", "hole", "cut"}:
            return
        match kind:
            case "print" if not place.is_fifo():
                with place.open("ab") as file:
                    file.write(text)
            case "hole" if place.is_file():
                with place.open("r+b") as file:
                    file.truncate(_GIANT)
                    file.seek(_GIANT - 5)
                    file.write(b"end")
            case "cut" if place.is_file():
                os.truncate(place, 0)
            case "link" | "fifo" | "gone":
                remove_tree(place)
                _put(kind, place, host, 3, where)

    return f"{kind} {len(text)}", do


def _socket(chance: random.Random) -> tuple[str, _Do]:
    """Something in the directory of the socket."""
    kind = chance.choice(("link", "fifo", "text", "gone", "socket"))
    where = chance.choice(_TARGETS)

    def do(home: Path, host: Path) -> None:
        place = home / "run" / "eva.sock"
        if place.parent.is_symlink():
            return
        remove_tree(place)
        _put(kind, place, host, 3, where)

    return f"{kind} {where}", do


# -- reports -----------------------------------------------------------------------------------


def _report(chance: random.Random) -> Report:
    kind = chance.choice(("good", "good", "bad", "odd", "bytes", "mutated"))
    match kind:
        case "good":
            return Report(_good(chance).SerializeToString(), "good")
        case "bad":
            return Report(_bad(chance), "bad")
        case "odd":
            return Report(_odd(chance).SerializeToString(), "odd")
        case "bytes":
            return Report(chance.randbytes(chance.choice((1, 5, 50, 500))), "odd")
        case _:
            data = bytearray(_odd(chance).SerializeToString() or b"\0")
            for _ in range(chance.choice((1, 2, 8))):
                data[chance.randrange(len(data))] = chance.randrange(256)
            return Report(bytes(data[: chance.randrange(len(data) + 1)]), "odd")


def _good(chance: random.Random) -> ReportRequest:
    steps = chance.randrange(1_000)
    return ReportRequest(
        source=chance.choice("abc"),
        steps=steps,
        total_steps=1_000,
        generation=chance.randrange(5),
        saved_steps=chance.randrange(steps + 1),
        metrics={chance.choice(("loss", "accuracy", "é")): chance.random()},
    )


def _bad(chance: random.Random) -> bytes:
    request = _good(chance)
    match chance.randrange(5):
        case 0:
            request.steps = chance.choice(_BAD_NUMBERS)
        case 1:
            request.generation = chance.choice((2**53, *_BAD_NUMBERS))
        case 2:
            request.metrics["x" * 201] = 1.0
        case 3:
            for number in range(257):
                request.metrics[f"m{number}"] = 1.0
        case _:
            request.source = "x" * 201
    return request.SerializeToString()


def _odd(chance: random.Random) -> ReportRequest:
    request = ReportRequest(
        source=chance.choice(("", "a", "b", "\x1b[31m", "x" * 200, str(chance.random()))),
        steps=chance.choice(_NUMBERS),
        total_steps=chance.choice(_NUMBERS),
        generation=chance.choice(_NUMBERS),
        saved_steps=chance.choice(_NUMBERS),
    )
    for _ in range(chance.choice((0, 1, 5, 100))):
        name = chance.choice(("loss", "", "\n", "x" * chance.randrange(205), str(chance.random())))
        request.metrics[name] = chance.choice(_VALUES)
    return request
