"""The columnar path: a whole batch parsed by Arrow, outside the interpreter lock, for tables of plain columns.

All or nothing: a batch with any doubt goes to the other paths. Arrow's parser gets the records as one text and could
join pieces of two records, or read two from one. So each record gets a number under a key that nobody else knows, and
the numbers must come back in order. Where Arrow reads a value otherwise than docs/json-types.md, the batch is in doubt
(``_CONVERT``).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from connectors.json.arrays import Doubt
from connectors.json.fields import MAX_FLOAT, Field
from connectors.json.strict import MAX_DEPTH
from connectors.json.vectorized import certain_texts, certain_times, is_certain_epoch

#: With fewer records, setting up Arrow's reader costs more than it saves.
MIN_RECORDS = 1_000
_TEXT_KINDS = ("date", "timestamp", "timestamptz", "string")
_MINUS_ZERO = -(1 << 63)


class ColumnarPath:
    """Decodes batches of one list of fields. Thread-safe."""

    def __init__(self, fields: Sequence[Field]) -> None:
        self._fields = fields
        # A payload with this key could claim another record's number.
        self._number = f"number {secrets.token_hex(16)}"
        self._schema = pa.schema(
            [
                pa.field(self._number, pa.int64()),
                *(pa.field(field.keys[0], _parsed_type(field)) for field in fields),
            ]
        )

    @classmethod
    def of(cls, fields: Sequence[Field]) -> ColumnarPath | None:
        """Build it, or return None where a column is not plain."""
        return cls(fields) if fields and all(map(_is_plain, fields)) else None

    def read(self, column: pa.Array) -> list[pa.Array] | None:
        """Return one array per field over the values of ``column`` that are not null; None if in doubt."""
        values = column.drop_null() if column.null_count else column
        text = self._numbered(values)
        if text is None:
            return None
        options = pj.ParseOptions(
            explicit_schema=self._schema, unexpected_field_behavior="ignore"
        )
        whole = pj.ReadOptions(use_threads=False, block_size=len(text) + 1)
        try:
            table = pj.read_json(pa.BufferReader(text), whole, options)
            if not table.column(0).combine_chunks().equals(pa.arange(0, len(values))):
                return None
            return [
                _converted(field, table.column(index).combine_chunks())
                for index, field in enumerate(self._fields, start=1)
            ]
        except (pa.ArrowException, Doubt):
            return None

    def _numbered(self, values: pa.Array) -> pa.Buffer | None:
        """Join the records to one text, each with its number as first member; None if one is not for Arrow."""
        try:
            texts = values.cast(pa.string())
        except pa.ArrowInvalid:
            return None
        if not _begin_with_a_member(texts):
            return None
        if pc.max(pc.binary_length(texts)).as_py() > 2 * MAX_DEPTH and not _are_shallow(texts):
            return None
        numbers = pa.arange(0, len(values)).cast(pa.string()).cast(pa.binary())
        # Not binary_slice: without a stop it computes a negative size [pyarrow 26.0.1].
        members = pc.binary_replace_slice(values, 0, 1, b"")
        head = f'{{"{self._number}":'.encode()
        lines = pc.binary_join_element_wise(head, numbers, b",", members, b"\n", b"")
        # They are contiguous already.
        return lines.buffers()[2].slice(0, pc.sum(pc.binary_length(lines)).as_py())


def _begin_with_a_member(texts: pa.Array) -> bool:
    """Whether every text begins with an object that has a member."""
    # The plain form first: it takes a fifth of the time.
    if pc.all(pc.starts_with(texts, '{"')).as_py():
        return True
    return bool(pc.all(pc.match_substring_regex(texts, r'^\{\s*"')).as_py())


def _are_shallow(texts: pa.Array) -> bool:
    deep = pc.add(pc.count_substring(texts, "["), pc.count_substring(texts, "{"))
    return bool(pc.max(deep).as_py() <= MAX_DEPTH)


def _is_plain(field: Field) -> bool:
    """One key, and a type for which this path can tell certain values."""
    return len(field.keys) == 1 and (field.kind in _CONVERT or field.unit is not None)


def _parsed_type(field: Field) -> pa.DataType:
    """The type requested of Arrow: the nearest one that loses nothing."""
    if field.unit is not None:
        return pa.int64()
    if field.kind in _TEXT_KINDS:
        return pa.string()
    return pa.float64() if field.kind == "float" else field.type


def _converted(field: Field, values: pa.Array) -> pa.Array:
    """Bring a parsed column to its field's type.

    Raises:
        Doubt: a value is not certain.
    """
    if field.required and values.null_count:
        raise Doubt([])
    if field.unit is not None:
        _require(is_certain_epoch(field, field.unit, values))
        return certain_times(field, field.unit, values)
    return _CONVERT[field.kind](field, values)


def _same(field: Field, values: pa.Array) -> pa.Array:
    del field
    return values


def _texts(field: Field, values: pa.Array) -> pa.Array:
    return certain_texts(field, values)


def _floats(field: Field, values: pa.Array) -> pa.Array:
    """Arrow reads the whole number ``-0`` as -0.0, and cannot tell it from ``-0.0`` afterwards."""
    _require(pc.not_equal(values.view(pa.int64()), _MINUS_ZERO))
    limit = MAX_FLOAT if field.kind == "float" else float("inf")
    _require(pc.less(pc.abs(values), limit))
    return values.cast(field.type)


def _require(certain: pa.Array) -> None:
    if pc.all(certain).as_py() is False:
        raise Doubt([])


_CONVERT: dict[str, Callable[[Field, pa.Array], pa.Array]] = {
    "boolean": _same,
    "int": _same,
    "long": _same,
    "float": _floats,
    "double": _floats,
    "string": _same,
    "date": _texts,
    "timestamp": _texts,
    "timestamptz": _texts,
}
