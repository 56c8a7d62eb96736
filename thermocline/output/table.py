"""Results as a table people read: columns aligned, cut to the terminal's width; too many columns as records.

Holds only the rows it shows. Text goes to the writer given; colours only where the caller says so.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import click
import pyarrow as pa

from thermocline.output.formats import plain_values

#: A cell is cut here, also where the terminal is wider.
MAX_CELL_WIDTH = 80
#: What a name and a text are not narrowed below to fit; then rows are shown as records.
_MIN_NAME_WIDTH = 8
_MIN_TEXT_WIDTH = 12
_GAP = "  "


@dataclass(frozen=True, slots=True)
class RenderedTable:
    """``has_more``: the result has rows beyond those shown; nobody counted them."""

    text: str
    rows: int
    has_more: bool


def show(
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    *,
    max_rows: int,
    width: int | None,
    colour: bool,
    records: bool = False,
) -> RenderedTable:
    """Lay out the first ``max_rows`` rows (0: all). ``width`` None: as wide as the values are."""
    rows: list[tuple[Any, ...]] = []
    has_more = False
    for batch in batches:
        space = max_rows - len(rows) if max_rows else batch.num_rows
        has_more = batch.num_rows > space
        piece = batch.slice(0, space)
        rows.extend(zip(*(plain_values(column) for column in piece.columns), strict=True))
        if has_more:
            break
    cells = [[text_of(value) for value in row] for row in rows]
    right = [is_number(field.type) for field in schema]
    lines = (
        None
        if records
        else grid(
            *(schema.names, cells, right),
            width=width,
            colour=colour,
            values=rows,
            rigid=[is_rigid(field.type) for field in schema],
        )
    )
    if lines is None:
        lines = _records(schema.names, cells, width)
    return RenderedTable("\n".join(lines), len(rows), has_more)


def grid(
    names: Sequence[str],
    cells: Sequence[Sequence[str]],
    right: Sequence[bool],
    *,
    width: int | None,
    colour: bool,
    values: Sequence[Sequence[Any]] | None = None,
    rigid: Sequence[bool] | None = None,
) -> list[str] | None:
    """Lay out aligned columns; None where they cannot be made to fit ``width``.

    ``right`` aligns numbers. ``rigid`` columns are not cut, see ``fitted``; those that stand right by default.
    """
    limits = fitted(names, widths_of(len(names), cells), rigid or right, width)
    if limits is None:
        return None
    return [
        *heading(names, limits, right, colour=colour),
        *(
            line(
                row, limits, right, colour=colour, values=None if values is None else values[n]
            )
            for n, row in enumerate(cells)
        ),
    ]


def widths_of(count: int, cells: Sequence[Sequence[str]]) -> list[int]:
    """Return the places each of ``count`` columns needs, without its name."""
    return [max((cell_width(row[index]) for row in cells), default=0) for index in range(count)]


def fitted(
    names: Sequence[str], widths: Sequence[int], rigid: Sequence[bool], width: int | None
) -> list[int] | None:
    """Return the places each column gets; None where ``width`` does not hold them all.

    Names are cut first, then texts, the widest first. What is ``rigid`` is never cut: a number or a time without
    its end would be read as another one.
    """
    limits = [
        min(max(cell_width(name), room), MAX_CELL_WIDTH)
        for name, room in zip(names, widths, strict=True)
    ]
    if width is None:
        return limits
    least = [
        max(min(room, limit), _MIN_NAME_WIDTH)
        for room, limit in zip(widths, limits, strict=True)
    ]
    least_text = [
        room if is_rigid else min(room, _MIN_TEXT_WIDTH)
        for room, is_rigid in zip(least, rigid, strict=True)
    ]
    surplus = sum(limits) + len(_GAP) * (len(limits) - 1) - width
    for bounds in (least, least_text):
        while surplus > 0:
            wide = [index for index, limit in enumerate(limits) if limit > bounds[index]]
            if not wide:
                break
            limits[max(wide, key=limits.__getitem__)] -= 1
            surplus -= 1
    return None if surplus > 0 else limits


def heading(
    names: Sequence[str], limits: Sequence[int], right: Sequence[bool], *, colour: bool
) -> list[str]:
    text = line(names, limits, right, colour=False)
    return [
        click.style(text, bold=True) if colour else text,
        _GAP.join("─" * limit for limit in limits),
    ]


def line(
    cells: Sequence[str],
    limits: Sequence[int],
    right: Sequence[bool],
    *,
    colour: bool,
    values: Sequence[Any] | None = None,
) -> str:
    """Lay out one row; NULLs among ``values`` are dimmed."""
    pieces = []
    for index, text in enumerate(cells):
        piece = _padded(text, limits[index], right=right[index])
        if colour and values is not None and values[index] is None:
            piece = click.style(piece, dim=True)
        pieces.append(piece)
    return _GAP.join(pieces).rstrip()


def _records(
    names: Sequence[str], cells: Sequence[Sequence[str]], width: int | None
) -> list[str]:
    """Lay out one line per value."""
    label = max(map(cell_width, names), default=0)
    room = None if width is None else max(width - label - 3, _MIN_TEXT_WIDTH)
    lines = []
    for number, row in enumerate(cells, 1):
        lines.append(f"─ row {number} ".ljust(label + 3, "─"))
        for name, text in zip(names, row, strict=True):
            value = text if room is None else _cut(text, room)
            lines.append(f"{_padded(name, label, right=False)} │ {value}")
    return lines


def text_of(value: Any) -> str:
    """Return a value on one line."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime):
        text = value.isoformat(" ")
        return text.removesuffix("+00:00") + "Z" if text.endswith("+00:00") else text
    if isinstance(value, bytes):
        return f"\\x{value.hex()}"
    if isinstance(value, (dict, list)):
        value = json.dumps(value, default=text_of, ensure_ascii=False)
    return "".join(_visible(char) for char in str(value))


def _visible(char: str) -> str:
    """Show control characters as such: a value must not move the terminal's cursor."""
    if char.isprintable():
        return char
    escapes = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}
    return escapes.get(char, f"\\u{ord(char):04x}")


def is_number(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )


def is_rigid(kind: pa.DataType) -> bool:
    """Whether values of a type must not be cut."""
    return is_number(kind) or bool(pa.types.is_temporal(kind) or pa.types.is_boolean(kind))


def cell_width(text: str) -> int:
    """Return the places a text takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 2 if _is_wide(char) else 1 for char in text
    )


def _is_wide(char: str) -> bool:
    return unicodedata.east_asian_width(char) in "WF"


def _cut(text: str, limit: int) -> str:
    if cell_width(text) <= limit:
        return text
    chars, used = [], 1
    for char in text:
        used += cell_width(char)
        if used > limit:
            break
        chars.append(char)
    return "".join(chars) + "…"


def _padded(text: str, limit: int, *, right: bool) -> str:
    text = _cut(text, limit)
    space = " " * (limit - cell_width(text))
    return space + text if right else text + space
