"""Values of an answer as texts for a browser, which reads no number above 2^53 and no time before 1970 as it is.

Every value is a text or NULL: an integer of 64 bits, a decimal of 38 digits and a snapshot's id keep every digit.
"""

from __future__ import annotations

import datetime
import decimal
import json
from typing import Any

import pyarrow as pa

from thermocline.output.values import plain_values
from thermocline_client.values import is_number

#: Characters of one cell of a grid; ``full_text`` has the rest.
MAX_CELL_CHARS = 500
#: Characters of one cell that is shown alone.
MAX_TEXT_CHARS = 1 << 20
#: What is no number, as SQL people read it.
_FLOATS = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
#: A cell is a text, None for NULL, or its beginning and the number of its characters.
Cell = str | None | tuple[str, int]
#: A row by column, each value as its whole text.
Record = dict[str, str | None]


def columns_of(schema: pa.Schema) -> list[dict[str, str | bool]]:
    """Return name and type of each column, and whether a chart may draw it."""
    return [
        {"name": field.name, "type": str(field.type), "is_number": is_number(field.type)}
        for field in schema
    ]


def rows_of(table: pa.Table, max_chars: int = MAX_CELL_CHARS) -> list[list[Cell]]:
    """Return the rows of a table, each value as a text of ``max_chars`` characters at most."""
    columns = [_texts(column.combine_chunks()) for column in table.columns]
    return [[_cut(text, max_chars) for text in values] for values in zip(*columns, strict=True)]


def records_of(table: pa.Table) -> list[Record]:
    """Return rows by column, for the few rows of a page's own statements."""
    columns = [_texts(column.combine_chunks()) for column in table.columns]
    return [
        dict(zip(table.column_names, values, strict=True))
        for values in zip(*columns, strict=True)
    ]


def lists_of(table: pa.Table) -> dict[str, list[Record]]:
    """Return the records in each column, whose values are structs, or NULL where the row is of another column."""
    return {
        name: records_of(pa.Table.from_struct_array(column.drop_null()))
        for name, column in zip(table.column_names, table.columns, strict=True)
    }


def full_text(column: pa.ChunkedArray, row: int) -> str | None:
    """Return one value, up to ``MAX_TEXT_CHARS`` characters."""
    [text] = _texts(column.slice(row, 1).combine_chunks())
    return None if text is None else text[:MAX_TEXT_CHARS]


def _texts(column: pa.Array | pa.ChunkedArray) -> list[str | None]:
    array = pa.concat_arrays(column.chunks) if isinstance(column, pa.ChunkedArray) else column
    if pa.types.is_float32(array.type) or pa.types.is_float16(array.type):
        # Python's numbers are longer: 0.1 would be 0.10000000149011612.
        texts = array.cast(pa.float32()).cast(pa.string()).to_pylist()
        return [None if text is None else _FLOATS.get(text, text) for text in texts]
    return [None if value is None else text_of(value) for value in plain_values(array)]


def text_of(value: Any) -> str:
    """Write one value as SQL people read it; a text stays as it is, bytes are hexadecimal."""
    return value if isinstance(value, str) else _nested(value)


def _nested(value: Any) -> str:
    match value:
        case None:
            return "NULL"
        case bool():
            return "true" if value else "false"
        case str():
            return json.dumps(value, ensure_ascii=False)
        case float():
            return _float(value)
        case decimal.Decimal():
            return format(value, "f")
        case bytes():
            return f"0x{value.hex()}"
        case datetime.datetime():
            return value.isoformat(" ")
        case datetime.date() | datetime.time():
            return value.isoformat()
        case dict():
            return (
                f"{{{', '.join(f'{name}: {_nested(each)}' for name, each in value.items())}}}"
            )
        case tuple() if len(value) == 2:
            return f"{_nested(value[0])}: {_nested(value[1])}"
        case list():
            return f"[{', '.join(map(_nested, value))}]"
        case _:
            return str(value)


def _float(value: float) -> str:
    text = repr(value)
    return _FLOATS.get(text, text)


def _cut(text: str | None, max_chars: int) -> Cell:
    if text is None or len(text) <= max_chars:
        return text
    return text[:max_chars], len(text)
