"""Tables and sentences of the commands, for pages: a page says what `eva status` and others say."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.text import Text

from eva_client.cli.views.grid import Grid


@dataclass(frozen=True, slots=True)
class PageCell:
    """A cell of a table.

    Attributes:
        right: Whether it is aligned to the right, as numbers are.
    """

    text: str
    right: bool = False


@dataclass(frozen=True, slots=True)
class PageTable:
    """A table; its columns are those of the command's."""

    columns: tuple[PageCell, ...]
    rows: tuple[tuple[PageCell, ...], ...]


@dataclass(frozen=True, slots=True)
class PagePart:
    """A sentence or a table, of which the other is empty or `None`."""

    text: str
    table: PageTable | None = None


def parts(shown: RenderableType) -> tuple[PagePart, ...]:
    """Output of a command, sentence by sentence and table by table."""
    if isinstance(shown, Group):
        return tuple(part for each in shown.renderables for part in parts(each))
    if isinstance(shown, Grid):
        return (PagePart("", table(shown)),)
    text = shown.plain if isinstance(shown, Text) else str(shown)
    return (PagePart(text),) if text.strip() else ()


def table(grid: Grid) -> PageTable:
    """A table of a command."""
    right = [column in grid.right for column in range(len(grid.names))]
    return PageTable(
        tuple(_cells((Text(name) for name in grid.names), right)),
        tuple(tuple(_cells(row, right)) for row in grid.rows),
    )


def facts(grid: Grid) -> tuple[tuple[str, str], ...]:
    """The labels and values of a table that has nothing else."""
    return tuple((label.plain, value.plain) for label, value in grid.rows)


def _cells(texts: Iterable[Text], right: list[bool]) -> list[PageCell]:
    return [PageCell(text.plain, side) for text, side in zip(texts, right, strict=False)]
