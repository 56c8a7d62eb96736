"""A table as HTML for a notebook: everything escaped, at most so many rows, columns and characters."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

import pyarrow as pa

from thermocline_client.values import ELLIPSIS, is_number, text_of

#: Of a longer answer as many first and last rows.
EDGE_ROWS = 10
MAX_COLUMNS = 50
_CELL_CHARS, _NAME_CHARS = 200, 100
#: What is not printed, and marks that turn the direction of text around: a cell must not disguise its neighbours.
_INVISIBLE = dict.fromkeys(
    [
        *(set(range(32)) - {9, 10}),
        *range(127, 160),
        *range(0x202A, 0x202F),
        *range(0x2066, 0x206A),
    ],
    "\ufffd",
)


def safe(text: str) -> str:
    """Escape text for an element or an attribute."""
    return escape(text.translate(_INVISIBLE), quote=True)


def of_table(table: pa.Table, line: str) -> str:
    """Render rows above a line of text; the line is escaped, too."""
    return "".join(_pieces(table, line))


def _pieces(table: pa.Table, line: str) -> Iterator[str]:
    width = min(table.num_columns, MAX_COLUMNS)
    edges = [(0, min(table.num_rows, 2 * EDGE_ROWS))]
    if table.num_rows > 2 * EDGE_ROWS:
        edges = [(0, EDGE_ROWS), (table.num_rows - EDGE_ROWS, table.num_rows)]
    kinds = [field.type for field in table.schema][:width]
    yield '<div><table border="1" class="dataframe"><thead><tr>'
    for field in list(table.schema)[:width]:
        yield f'<th scope="col" title="{_cut(str(field.type))}">{_cut(field.name)}</th>'
    yield "</tr></thead><tbody>"
    for number, (begin, end) in enumerate(edges):
        if number:
            yield f'<tr><td colspan="{max(1, width)}" style="text-align:center">{ELLIPSIS}</td></tr>'
        columns = [column.slice(begin, end - begin) for column in table.columns[:width]]
        for row in range(end - begin):
            cells = (
                _cell(column[row], kind) for column, kind in zip(columns, kinds, strict=True)
            )
            yield f"<tr>{''.join(cells)}</tr>"
    yield "</tbody></table>"
    if table.num_columns > width:
        yield f"<small>and {table.num_columns - width:,} more columns; </small>"
    yield f"<small>{safe(line)}</small></div>"


def _cell(scalar: pa.Scalar, kind: pa.DataType) -> str:
    if not scalar.is_valid:
        return '<td style="opacity:0.5"><i>NULL</i></td>'
    align = "right" if is_number(kind) else "left"
    return f'<td style="text-align:{align}">{safe(text_of(scalar, _CELL_CHARS))}</td>'


def _cut(text: str) -> str:
    return safe(text if len(text) <= _NAME_CHARS else text[:_NAME_CHARS] + ELLIPSIS)
