"""The checks of the source: each finds the fault that it is there for, and no other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from tests.checks import cycles, docstrings, links, sizes

Write = Callable[[str, str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a file of a repository under `tmp_path`."""

    def write(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text))
        return path

    return write


PORT = '''
    """A module with a docstring of its own."""
    class Shop(Protocol):
        """Sells things to those who ask."""
        def sell(self):
            """Give a thing away for its price."""
'''


def short(root: Path) -> list[str]:
    """The names that the check of docstrings reports."""
    return [fault.split("docstring of ")[1].split(" has")[0] for fault in docstrings.faults(root)]


def test_short_public_docstrings_are_refused(tmp_path: Path, write: Write) -> None:
    write(
        "eva_master/shop.py",
        '''
        """Only four words here."""
        class Cart:
            """A cart."""
            def push(self):
                """Push it -- `now` !"""
            def _wheel(self):
                """Turn."""
            def load(self):
                """Put one more thing into it."""
        class _Hidden:
            """Hidden."""
            def shown(self):
                """No."""
        def sell():
            """Sell."""
        ''',
    )
    write("eva_master/_private.py", '"""Private."""')
    write("eva_master/rpc/_proto/made.py", '"""Generated."""')
    write("tests/test_it.py", '"""A test."""')
    assert short(tmp_path) == ["the module", "Cart", "Cart.push", "sell"]


def test_a_method_may_refer_to_the_protocol_that_it_implements(
    tmp_path: Path, write: Write
) -> None:
    write("eva_master/ports.py", PORT)
    write(
        "eva_worker/corner.py",
        '''
        """A shop at the next corner."""
        class Corner:
            """Implements the protocol of a shop."""
            def sell(self):
                """See `ports.Shop.sell`."""
            def buy(self):
                """See `ports.Shop.sell`."""
            def lend(self):
                """See `Shop.lend`."""
            def close(self):
                """See `Corner.close`."""
        class Stream(io.RawIOBase):
            """A stream of things to sell."""
            def readinto(self, buffer):
                """See `io.RawIOBase.readinto`."""
            def readable(self):
                """See `io.IOBase.readable`."""
        def sell():
            """See `ports.Shop.sell`."""
        ''',
    )
    assert short(tmp_path) == [
        "Corner.buy",
        "Corner.lend",
        "Corner.close",
        "Stream.readable",
        "sell",
    ]


def test_no_reference_to_a_docstring_that_is_itself_too_short(tmp_path: Path, write: Write) -> None:
    write("eva_master/ports.py", PORT.replace("Give a thing away for its price.", "Sell."))
    write(
        "eva_worker/corner.py",
        '''
        """A shop at the next corner."""
        class Corner:
            """Implements the protocol of a shop."""
            def sell(self):
                """See `Shop.sell`."""
        ''',
    )
    assert short(tmp_path) == ["Shop.sell", "Corner.sell"]


PAGE = """
    # A page
    ## What it says: all of it
    [here](#what-it-says-all-of-it) [there](other.md#twice-1) [code](../eva/a.py)
    [reference][one] `[code](nowhere.md)` [elsewhere](https://example.com/nowhere#x)

    ```
    [fenced](nowhere.md)
    ```
    [one]: other.md
"""


def test_links_that_lead_somewhere_pass(tmp_path: Path, write: Write) -> None:
    write("docs/page.md", PAGE)
    write("docs/other.md", "# Twice\n## Twice\n")
    write("eva/a.py", "")
    assert list(links.faults(tmp_path)) == []


@pytest.mark.parametrize(
    ("right", "wrong", "told"),
    [
        ("(other.md#twice-1)", "(others.md)", "there is no docs/others.md"),
        ("(other.md#twice-1)", "(other.md#twice-2)", "docs/other.md has no heading #twice-2"),
        ("(other.md#twice-1)", "(Other.md)", "there is no docs/Other.md"),
        ("(#what-it-says-all-of-it)", "(#what-it-says)", "has no heading #what-it-says"),
        ("(../eva/a.py)", "(../../eva/a.py)", "leads out of the repository"),
        ("[reference][one]", "[reference][two]", "[two] is defined nowhere"),
    ],
)
def test_links_that_lead_nowhere_are_refused(
    right: str, wrong: str, told: str, tmp_path: Path, write: Write
) -> None:
    write("docs/page.md", PAGE.replace(right, wrong))
    write("docs/other.md", "# Twice\n## Twice\n")
    write("eva/a.py", "")
    (fault,) = links.faults(tmp_path)
    assert fault.startswith("docs/page.md:")
    assert told in fault


def test_folders_of_too_many_files_are_refused(tmp_path: Path, write: Write) -> None:
    for number in range(sizes.FILES_PER_FOLDER):
        write(f"eva_master/rooms/module_{number}.py", "")
        write(f"eva_client/cli/module_{number}.py", "")
    write("eva_master/rooms/inner/module.py", "")
    write("eva_client/cli/one_more.py", "")
    assert list(sizes.faults(tmp_path)) == []
    write("eva_master/rooms/one_more.py", "")
    assert list(sizes.faults(tmp_path)) == [
        "eva_master/rooms: 16 Python files side by side, at most 15"
    ]


def test_long_files_and_functions_are_refused(tmp_path: Path, write: Write) -> None:
    function = ["async def answer():", '    """The\n\n    answer."""', "    x = 1"]
    function += ["    x += 1"] * (sizes.LINES_PER_FUNCTION - 2)
    write("eva_worker/short.py", "\n".join(function) + "\n")
    write("eva_worker/long.py", "x = 1\n" * sizes.LINES_PER_FILE)
    assert list(sizes.faults(tmp_path)) == []
    write("eva_worker/short.py", "\n".join([*function, "    x += 1"]) + "\n")
    write("eva_worker/long.py", "x = 1\n" * (sizes.LINES_PER_FILE + 1))
    assert list(sizes.faults(tmp_path)) == [
        "eva_worker/long.py: 601 lines, at most 600",
        "eva_worker/short.py:1: answer has 61 lines, at most 60",
    ]


def test_cycles_of_modules_are_found() -> None:
    imports = {"a": ["b", "x"], "b": ["c"], "c": ["a", "b"], "x": [], "y": ["a", "z"], "z": ["y"]}
    assert cycles.cycles(imports) == [["a", "b", "c"], ["y", "z"]]
    assert cycles.cycles({**imports, "c": [], "z": []}) == []


def test_cycles_of_rooms_are_found_where_no_modules_form_one() -> None:
    imports = {
        "p": ["p.one.a"],
        "p.one.a": ["p.two.a", "q.a"],
        "p.two.a": ["p.two.b"],
        "p.two.b": ["p.three"],
        "p.three": [],
        "p.one.b": [],
    }
    assert cycles.cycles(imports) == []
    assert not any(cycles.cycles(rooms) for rooms in cycles.rooms_of(imports).values())
    imports["p.three"] = ["p.one.b"]
    assert cycles.cycles(imports) == []
    assert cycles.rooms_of(imports)["p"] == {
        "one": {"two"},
        "two": {"three"},
        "three": {"one"},
    }
    assert cycles.cycles(cycles.rooms_of(imports)["p"]) == [["one", "two", "three"]]


def test_cycles_of_a_package_are_found(
    tmp_path: Path, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("looped/__init__.py", "")
    write("looped/one.py", "import looped.two")
    write("looped/two.py", "def late():\n    from looped import one")
    monkeypatch.syspath_prepend(tmp_path)
    assert list(cycles.faults(("looped",))) == [
        "modules import each other: looped.one -> looped.two -> looped.one",
        "rooms of looped import each other: one -> two -> one",
    ]
