"""Results as a table people read: columns aligned, cut to the terminal's width; too many columns as records.

Holds only the rows it shows. Colours only where the caller says so. Not ``rich.table``: it takes fifteen
times as long over 100,000 rows, and to fit it cuts numbers and leaves out columns.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

import click
import pyarrow as pa
from rich.cells import cell_len, set_cell_size

from thermocline.output.values import plain_values

#: A cell is cut here, also where the terminal is wider.
MAX_CELL_WIDTH = 80
#: What a name and a text are not narrowed below to fit; then rows are shown as records.
_MIN_NAME_WIDTH = 8
_MIN_TEXT_WIDTH = 12
_GAP = "  "


@dataclass(frozen=True, slots=True)
class RenderedTable:
    """``has_more``: the result has rows beyond those shown, which are not counted."""

    text: str
    rows: int
    has_more: bool


def show(
    grid: Grid, batches: Iterable[pa.RecordBatch], *, max_rows: int, records: bool = False
) -> RenderedTable:
    """Lay out the first ``max_rows`` rows (0: all)."""
    rows: list[tuple[Any, ...]] = []
    has_more = False
    for batch in batches:
        space = max_rows - len(rows) if max_rows else batch.num_rows
        has_more = batch.num_rows > space
        rows.extend(rows_of(batch.slice(0, space)))
        if has_more:
            break
    lines = [] if records else grid.lines(rows)
    if records or grid.is_too_wide:
        lines = grid.records(rows)
    return RenderedTable("\n".join(lines), len(rows), has_more)


def rows_of(batch: pa.RecordBatch) -> Iterable[tuple[Any, ...]]:
    return zip(*(plain_values(column) for column in batch.columns), strict=True)


class Grid:
    """Aligned columns, as wide as the rows so far need. ``width`` None: no terminal to fit.

    ``right`` aligns numbers. ``rigid`` columns are never cut, those that stand right by default: a number or a
    time without its end would be read as another one.
    """

    def __init__(
        self,
        names: Sequence[str],
        right: Sequence[bool],
        *,
        rigid: Sequence[bool] | None = None,
        width: int | None = None,
        colour: bool = False,
    ) -> None:
        self.names = [text_of(name) for name in names]
        self._right = right
        self._rigid = rigid or right
        self._width = width
        self._colour = colour
        self._widths = [-1] * len(names)
        self._limits: list[int] = []

    @classmethod
    def of(cls, schema: pa.Schema, *, width: int | None, colour: bool) -> Self:
        right = [_is_number(kind) for kind in schema.types]
        rigid = [
            number or bool(pa.types.is_temporal(kind) or pa.types.is_boolean(kind))
            for number, kind in zip(right, schema.types, strict=True)
        ]
        return cls(schema.names, right, rigid=rigid, width=width, colour=colour)

    @property
    def is_too_wide(self) -> bool:
        """Whether the terminal does not hold the columns so far; it may wrap them."""
        return self._width is not None and _total(self._limits) > self._width

    def lines(self, rows: Sequence[Sequence[Any]]) -> list[str]:
        """Lay out rows: headings first, and again when a column grew."""
        cells = [[text_of(value) for value in row] for row in rows]
        needed = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
        grown = list(map(max, needed or [0] * len(self.names), self._widths))
        lines = []
        if grown != self._widths:
            self._widths = grown
            self._limits = self._fitted(grown)
            title = self._line(self.names)
            rule = _GAP.join("─" * limit for limit in self._limits)
            lines = [click.style(title, bold=True) if self._colour else title, rule]
        lines.extend(map(self._line, cells, rows))
        return lines

    def records(self, rows: Sequence[Sequence[Any]]) -> list[str]:
        """Lay out each row below the one before, a line for each column."""
        label = max(map(cell_len, self.names), default=0)
        room = None if self._width is None else max(self._width - label - 3, _MIN_TEXT_WIDTH)
        lines = []
        for number, row in enumerate(rows, 1):
            lines.append(f"─ row {number} ".ljust(label + 3, "─"))
            for name, value in zip(self.names, row, strict=True):
                text = text_of(value)
                shortened = text if room is None else _cut(text, room)
                lines.append(f"{set_cell_size(name, label)} │ {shortened}")
        return lines

    def _fitted(self, widths: Sequence[int]) -> list[int]:
        """Return the places each column gets: names are cut first, then texts, the widest first."""
        natural = [
            min(max(cell_len(name), room), MAX_CELL_WIDTH)
            for name, room in zip(self.names, widths, strict=True)
        ]
        if self._width is None:
            return natural
        least = [max(min(pair), _MIN_NAME_WIDTH) for pair in zip(widths, natural, strict=True)]
        least_text = [
            room if is_rigid else min(room, _MIN_TEXT_WIDTH)
            for room, is_rigid in zip(least, self._rigid, strict=True)
        ]
        limits = list(natural)
        for bounds in (least, least_text):
            while _total(limits) > self._width:
                wide = [index for index, limit in enumerate(limits) if limit > bounds[index]]
                if not wide:
                    break
                limits[max(wide, key=limits.__getitem__)] -= 1
        return limits if _total(limits) <= self._width else natural

    def _line(self, cells: Sequence[str], values: Sequence[Any] = ()) -> str:
        """Lay out one row; NULLs among ``values`` are dimmed."""
        pieces = [
            _padded(text, limit, right=right)
            for text, limit, right in zip(cells, self._limits, self._right, strict=True)
        ]
        if self._colour:
            for index, value in enumerate(values):
                if value is None:
                    pieces[index] = click.style(pieces[index], dim=True)
        return _GAP.join(pieces).rstrip()


def _total(limits: Sequence[int]) -> int:
    return sum(limits) + len(_GAP) * (len(limits) - 1)


def text_of(value: Any) -> str:
    """Return a value on one line, control characters escaped: it must not move the terminal's cursor."""
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
    text = str(value)
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def _is_number(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )


def _cut(text: str, limit: int) -> str:
    return text if cell_len(text) <= limit else set_cell_size(text, limit - 1).rstrip() + "…"


def _padded(text: str, limit: int, *, right: bool) -> str:
    text = _cut(text, limit)
    space = " " * (limit - cell_len(text))
    return space + text if right else text + space
