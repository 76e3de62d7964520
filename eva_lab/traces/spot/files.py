"""Reads and writes spot markets: rows of CSV, one for each time in which nothing changes in a pool.

Columns are ``type``, ``zone``, ``from_s``, ``to_s``, ``capacity`` and ``price``. A type of ``*``
is all types without rows of their own in that zone. Prices are dollars per hour, or a part of the
price on demand, such as ``30%``. The rows of a pool follow one another without a gap from 0 to the
end, which all pools have in common. Rows are read one by one.
"""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Collection, Iterator
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import IO

from eva_lab.traces.rows import refusal
from eva_master.model.catalog import Catalog
from eva_master.model.fleet.market import ANY_TYPE, Market, Span
from eva_wire.values.errors import InvalidTrace, Problem
from eva_wire.values.ids import MILLION

_COLUMNS = ("type", "zone", "from_s", "to_s", "capacity", "price")
_MOST_PRICE = 1 << 53
_MOST_CAPACITY = 1_000_000
_MOST_S = Decimal(100 * 365 * 86_400)
_MOST_PROBLEMS = 20
_GZIP = b"\x1f\x8b"


class _Wrong(Exception):
    """A row is wrong: its column, and why."""

    def __init__(self, column: str, message: str) -> None:
        super().__init__(message)
        self.column = column


def read_market(path: Path, catalog: Catalog) -> Market:
    """Read a market.

    Args:
        path: CSV with a header, maybe compressed by gzip.
        catalog: The types that there are.

    Raises:
        InvalidTrace: The file cannot be read or is wrong; names line and column of each problem.
    """
    types = {offering.type.name for offering in catalog}
    pools: dict[tuple[str, str], list[Span]] = {}
    ends: dict[tuple[str, str], tuple[int, int]] = {}
    problems: list[Problem] = []
    for line, row in _rows(path):
        try:
            pool = _name(row, types)
            span, end = _span(row)
            _follows(span, ends.get(pool))
        except _Wrong as wrong:
            problems.append(Problem(str(wrong), wrong.column, line))
            if len(problems) == _MOST_PROBLEMS:
                break
            continue
        ends[pool] = end, line
        spans = pools.setdefault(pool, [])
        before = spans[-1] if spans else None
        if before is None or _what(before) != _what(span):
            spans.append(span)
    problems += _uneven(ends) if not problems else []
    if not pools and not problems:
        problems.append(Problem("there are no rows: a market has a pool at least"))
    if problems:
        raise refusal(path, problems)
    length = next(iter(ends.values()))[0]
    return Market({name: tuple(spans) for name, spans in pools.items()}, length)


def _rows(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    try:
        with path.open("rb") as raw:
            packed = raw.read(len(_GZIP)) == _GZIP
            raw.seek(0)
            source: IO[bytes] = gzip.GzipFile(fileobj=raw) if packed else raw  # type: ignore[assignment]
            reader = csv.reader(io.TextIOWrapper(source, encoding="utf-8-sig", newline=""))
            header = [name.strip() for name in next(reader, [])]
            if sorted(header) != sorted(_COLUMNS):
                message = f"the first row is to name the columns {', '.join(_COLUMNS)}"
                raise refusal(path, [Problem(message, "", 1)])
            for cells in reader:
                if not cells:
                    continue
                if len(cells) != len(header):
                    message = f"{len(cells)} cells under {len(header)} columns"
                    raise refusal(path, [Problem(message, "", reader.line_num)])
                yield reader.line_num, dict(zip(header, map(str.strip, cells), strict=True))
    except (OSError, EOFError) as error:
        raise InvalidTrace(f"{path} cannot be read: {getattr(error, 'strerror', error)}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidTrace(f"{path} is no text of comma-separated rows: {error}") from error


def is_zone(text: str) -> bool:
    """Whether a text can be the name of a zone."""
    return len(text) <= 64 and text.replace("-", "").isalnum()


def _name(row: dict[str, str], types: Collection[str]) -> tuple[str, str]:
    machine, zone = row["type"], row["zone"]
    if machine != ANY_TYPE and machine not in types:
        raise _Wrong("type", f"unknown type {machine!r}; write one of the catalog, or *")
    if not is_zone(zone):
        raise _Wrong("zone", f"{zone!r} cannot be a zone: use letters, digits and -")
    return machine, zone


def _span(row: dict[str, str]) -> tuple[Span, int]:
    start, end = _millis(row, "from_s"), _millis(row, "to_s")
    if end <= start:
        raise _Wrong("to_s", "the row ends before it begins")
    capacity = row["capacity"]
    if not capacity.isascii() or not capacity.isdigit() or int(capacity) > _MOST_CAPACITY:
        raise _Wrong("capacity", f"{capacity!r} is no whole number from 0 to {_MOST_CAPACITY:,}")
    return _priced(Span(start, int(capacity)), row["price"]), end


def _priced(span: Span, text: str) -> Span:
    part = text.endswith("%")
    amount = _number("price", text.removesuffix("%").removeprefix("$"))
    micro = round(amount * MILLION / (100 if part else 1))
    if not 0 < micro <= _MOST_PRICE:
        raise _Wrong("price", f"{text!r} is no price: write one above 0, such as 0.918 or 30%")
    if part:
        return Span(span.start_ms, span.capacity, None, micro)
    return Span(span.start_ms, span.capacity, micro)


def _millis(row: dict[str, str], column: str) -> int:
    if not row[column]:
        raise _Wrong(column, "is empty: each row says when it begins and ends")
    seconds = _number(column, row[column])
    if not 0 <= seconds <= _MOST_S:
        raise _Wrong(column, f"{row[column]!r} is no time: write seconds from 0 on")
    return round(seconds * 1000)


def _number(column: str, text: str) -> Decimal:
    try:
        value = Decimal(text)
    except InvalidOperation as error:
        raise _Wrong(column, f"{text!r} is no number") from error
    if not value.is_finite() or abs(value.adjusted()) > 30:
        raise _Wrong(column, f"{text!r} is no number")
    return value


def _follows(span: Span, before: tuple[int, int] | None) -> None:
    end, line = before or (0, 0)
    if span.start_ms == end:
        return
    if line == 0:
        raise _Wrong("from_s", "the first row of a pool begins at 0")
    if span.start_ms < end:
        raise _Wrong("from_s", f"overlaps line {line}, which ends at {end / 1000:g} s")
    raise _Wrong("from_s", f"leaves a gap after line {line}, which ends at {end / 1000:g} s")


def _uneven(ends: dict[tuple[str, str], tuple[int, int]]) -> Iterator[Problem]:
    longest = max((end for end, _ in ends.values()), default=0)
    for (machine, zone), (end, line) in ends.items():
        if end != longest:
            message = (
                f"{machine} in {zone} ends at {end / 1000:g} s, others at {longest / 1000:g} s"
            )
            yield Problem(message, "to_s", line)


def _what(span: Span) -> tuple[object, ...]:
    return span.capacity, span.price, span.part_ppm


def write_market(path: Path, market: Market) -> None:
    """Write a market as rows.

    Raises:
        OSError: The file cannot be written.
    """
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(_COLUMNS)
        for (machine, zone), spans in market.pools.items():
            for span, end in zip(spans, market.ends(spans), strict=True):
                times = (f"{Decimal(at) / 1000:f}" for at in (span.start_ms, end))
                writer.writerow((machine, zone, *times, span.capacity, _price(span)))


def _price(span: Span) -> str:
    if span.price is not None:
        return f"{Decimal(span.price) / MILLION:f}"
    return f"{Decimal(span.part_ppm) * 100 / MILLION:f}%"
