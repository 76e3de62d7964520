"""The one kind of table that commands print, fitted to the terminal, with every cut announced."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.text import Text

from eva_client.cli.views.words import plain

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions

NOTES = ("NOTE",)
"""Columns of sentences, unless a table names others."""
_GAP = 2
_LEAST_WRAPPED = 30
_LEAST_FOLDED = 8
_INDENT = 4
_NOTHING = ("", "-")


class Grid:
    """A table without lines.

    Where it is wider than the terminal, columns of sentences are wrapped or go to lines of their
    own below their row. If that is not enough, columns are left out in the given order, and a last
    line names them. Whatever is still too wide is folded. Nothing is cut. A pipe is as wide as the
    table, and no line ends with blanks.

    Args:
        columns: Their names.
        right: Columns that are aligned to the right.
        notes: Columns of sentences or lists.
        drop: Columns that may be left out, the least worthy first.
        header: Whether the names are shown.
        indent: Blanks before each line.
    """

    def __init__(
        self,
        *columns: str,
        right: Iterable[str] = (),
        notes: Iterable[str] = NOTES,
        drop: Iterable[str] = (),
        header: bool = True,
        indent: int = 0,
    ) -> None:
        self._names = columns
        self._right = _places(columns, right)
        self._notes = _places(columns, notes)
        self._drop = [columns.index(name) for name in drop if name in columns]
        self._header = header
        self._indent = indent
        self._rows: list[tuple[list[Text], str]] = []

    @property
    def names(self) -> Sequence[str]:
        """The names of its columns."""
        return self._names

    @property
    def right(self) -> Collection[int]:
        """Places of the columns that are aligned to the right."""
        return self._right

    @property
    def rows(self) -> list[list[Text]]:
        """The cells of its rows."""
        return [cells for cells, _ in self._rows]

    def add_row(self, *cells: str | Text, style: str = "") -> None:
        """Add a row; characters that would act on a terminal become blanks."""
        row = [Text(plain(cell)) if isinstance(cell, str) else cell for cell in cells]
        self._rows.append((row, style))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        """Draw all rows; see `rich.console.ConsoleRenderable`."""
        drawn = self.drawn(console, options.max_width)
        yield from drawn.head
        for row in drawn.rows:
            yield from row
        yield from drawn.foot

    def drawn(self, console: Console, width: int) -> Drawn:
        """Draw it for a terminal of a width, as lines that are not to be wrapped again."""
        space = max(1, width - self._indent)
        layout = self._layout(space)
        rows = [list(self._lines(console, row, style, layout, space)) for row, style in self._rows]
        if not self._header:
            return Drawn([], rows, [])
        names = [Text(name) for name in self._names]
        head = self._across(console, names, layout, "bold", space)
        foot: list[Text] = []
        if hidden := [self._names[column] for column in layout.hidden]:
            words = f"not shown at this width: {', '.join(hidden)}; --json has them"
            foot = list(Text(words, style="dim").wrap(console, width))
        return Drawn(list(head), rows, [_as_is(line) for line in foot])

    def _layout(self, width: int) -> _Layout:
        """Choose the columns beside each other and their widths."""
        natural = [self._natural(column) for column in range(len(self._names))]
        beside, below, hidden = list(range(len(natural))), list[int](), list[int]()
        while True:
            widths = {column: natural[column] for column in beside}
            room = width - sum(widths.values()) - _GAP * (len(beside) - 1)
            last = beside[-1] if beside else -1
            if room >= 0:
                return _Layout(widths, below, hidden)
            if last in self._notes and widths[last] + room >= _LEAST_WRAPPED:
                return _Layout({**widths, last: widths[last] + room}, below, hidden)
            if notes := [column for column in beside if column in self._notes and column]:
                beside.remove(notes[-1])
                below.insert(0, notes[-1])
            elif droppable := self._droppable(beside):
                beside.remove(droppable[0])
                if not self._is_empty(droppable[0]):
                    hidden.append(droppable[0])
            else:
                return _Layout(self._folded(widths, -room), below, hidden)

    def _droppable(self, beside: Collection[int]) -> list[int]:
        """Columns that may be left out, those that hold nothing first."""
        columns = [column for column in self._drop if column in beside]
        return sorted(columns, key=lambda column: not self._is_empty(column))

    def _folded(self, widths: dict[int, int], excess: int) -> dict[int, int]:
        """Widths of columns of which the widest ones with text are narrower by the excess."""
        folded = dict(widths)
        for column in sorted(widths, key=lambda column: -widths[column]):
            if column in self._right:
                continue
            narrower = max(_LEAST_FOLDED, folded[column] - excess)
            if narrower < folded[column]:
                excess -= folded[column] - narrower
                folded[column] = narrower
            if excess <= 0:
                break
        return folded

    def _natural(self, column: int) -> int:
        cells = (row[column].cell_len for row, _ in self._rows if column < len(row))
        name = len(self._names[column]) if self._header else 0
        # A row of one cell is a remark that may reach into the columns beside it.
        remarks = {id(row) for row, _ in self._rows if len(row) == 1 < len(self._names)}
        if remarks and not column:
            cells = (row[0].cell_len for row, _ in self._rows if row and id(row) not in remarks)
        return max(name, *cells, 0)

    def _is_empty(self, column: int) -> bool:
        return all(column >= len(row) or row[column].plain in _NOTHING for row, _ in self._rows)

    def _lines(
        self, console: Console, row: list[Text], style: str, layout: _Layout, space: int
    ) -> Iterator[Text]:
        """The lines of a row: its columns, then what goes below them."""
        if len(row) == 1 < len(self._names):
            yield from self._wrapped(console, row[0], space, 0)
            return
        yield from self._across(console, row, layout, style, space)
        for column in layout.below:
            if column >= len(row) or row[column].plain in _NOTHING:
                continue
            label = "" if not self._header or column in self._sentences() else self._names[column]
            cell = Text.assemble(f"{label.lower()}: " if label else "", row[column], style=style)
            yield from self._wrapped(console, cell, space, _INDENT)

    def _sentences(self) -> set[int]:
        return {column for column, name in enumerate(self._names) if name in NOTES}

    def _wrapped(self, console: Console, cell: Text, space: int, indent: int) -> Iterator[Text]:
        for line in cell.wrap(console, max(1, space - indent), overflow="fold"):
            yield _as_is(Text.assemble(" " * (self._indent + indent), line))

    def _across(
        self, console: Console, row: Sequence[Text], layout: _Layout, style: str, space: int
    ) -> Iterator[Text]:
        """The lines of cells beside each other."""
        cells = []
        for column, width in layout.widths.items():
            cell = row[column] if column < len(row) else Text()
            fits = cell.cell_len <= width
            lines = [cell] if fits else list(cell.wrap(console, width, overflow="fold"))
            cells.append((column, width, lines))
        for number in range(max((len(lines) for _, _, lines in cells), default=0)):
            line = Text(style=style)
            for position, (column, width, lines) in enumerate(cells):
                piece = lines[number].copy() if number < len(lines) else Text()
                piece.rstrip()
                blanks = " " * max(0, width - piece.cell_len)
                line.append(" " * _GAP if position else "")
                line.append_text(
                    Text.assemble(blanks, piece)
                    if column in self._right
                    else Text.assemble(piece, blanks)
                )
            line.rstrip()
            pieces = [line] if line.cell_len <= space else line.wrap(console, space)
            yield from (_as_is(Text.assemble(" " * self._indent, piece)) for piece in pieces)


@dataclass(frozen=True, slots=True)
class Drawn:
    """The lines of a table.

    Attributes:
        head: The names of the columns.
        rows: The lines of each row.
        foot: Which columns are left out.
    """

    head: list[Text]
    rows: list[list[Text]]
    foot: list[Text]


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where the columns of a table are.

    Attributes:
        widths: Of the columns beside each other.
        below: Columns that have lines of their own.
        hidden: Columns that are left out.
    """

    widths: dict[int, int]
    below: list[int]
    hidden: list[int]


def facts(rows: Iterable[tuple[str, str | Text]]) -> Grid:
    """A table of labels and what belongs to them."""
    table = Grid("LABEL", "VALUE", notes=("VALUE",), header=False)
    for label, value in rows:
        table.add_row(Text(label, style="bold"), value)
    return table


def _places(columns: Sequence[str], chosen: Iterable[str]) -> frozenset[int]:
    names = frozenset(chosen)
    return frozenset(place for place, name in enumerate(columns) if name in names)


def _as_is(line: Text) -> Text:
    """A line that is neither wrapped nor cut again, without blanks at its end."""
    line.no_wrap, line.overflow = True, "ignore"
    line.rstrip()
    return line
