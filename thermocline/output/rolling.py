"""A table that goes on: rows appended as they come, under headings that fit what came so far."""

from __future__ import annotations

from collections.abc import Iterable
from typing import BinaryIO

import pyarrow as pa

from thermocline.output.formats import plain_values
from thermocline.output.table import (
    fitted,
    heading,
    is_number,
    is_rigid,
    line,
    text_of,
    widths_of,
)


class RollingTable:
    """Writes headings first, and again when a column grew. ``width`` None: no terminal to fit."""

    def __init__(self, sink: BinaryIO, *, width: int | None, colour: bool) -> None:
        self._sink = sink
        self._width = width
        self._colour = colour
        self._widths: list[int] = []

    def write(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
        right = [is_number(field.type) for field in schema]
        rigid = [is_rigid(field.type) for field in schema]
        for batch in batches:
            rows = list(zip(*(plain_values(column) for column in batch.columns), strict=True))
            cells = [[text_of(value) for value in row] for row in rows]
            if not rows:
                continue
            needed = widths_of(len(schema), cells)
            grown = [max(pair) for pair in zip(needed, self._widths or needed, strict=True)]
            # Too many columns for the terminal: it may wrap them, records would not go on as a table.
            layout = (schema.names, grown, rigid)
            limits = fitted(*layout, self._width) or fitted(*layout, None) or []
            lines = []
            if grown != self._widths:
                self._widths = grown
                lines = heading(schema.names, limits, right, colour=self._colour)
            for number, row in enumerate(cells):
                lines.append(line(row, limits, right, colour=self._colour, values=rows[number]))
            self._sink.write("".join(f"{text}\n" for text in lines).encode())
