"""How Kafka Connect's JsonConverter writes values, by the names of their types (docs/change-data.md).

A record has a schema beside its value, or it has none: then the converter's defaults count, and units of times are those of
the table's properties.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from connectors.decoding.arrays import build, exact_leaf, true_at
from connectors.decoding.fields import Field, Kind, Unit
from connectors.decoding.json.decoder import JsonRecords
from connectors.decoding.json.parsing import parse_value
from connectors.decoding.json.strict import is_string
from connectors.decoding.json.vectorized import split_schema
from connectors.decoding.policy import Portion, Unfit
from planner.evolution.avro import CONNECT_MEANINGS
from planner.evolution.writer_types import Meaning
from planner.names import KAFKA_VALUE
from planner.type_text import type_text

#: Begins a record that has its schema beside it.
_WITH_SCHEMA = b'{"schema":'
#: Ends one whose value is null.
_NULL_WITH_SCHEMA = b',"payload":null}'
#: Most schemas whose readers stay: sources change theirs now and then.
_MOST_SCHEMAS = 64

DECIMAL = "org.apache.kafka.connect.data.Decimal"

#: The columns that values of a meaning fit, and the unit of their numbers.
_FITS: Mapping[Meaning, tuple[tuple[Kind, ...], Unit | None]] = {
    "uuid": (("uuid", "string"), None),
    "date": (("date",), "d"),
    **dict.fromkeys(("time-millis", "time-micros", "time-nanos"), (("int", "long"), None)),
    "timestamp-millis": (("timestamptz",), "ms"),
    "local-timestamp-millis": (("timestamp",), "ms"),
    "local-timestamp-micros": (("timestamp",), "us"),
    "local-timestamp-nanos": (("timestamp",), "ns"),
    "timestamp-text": (("timestamptz", "string"), None),
}


def of_connect(field: Field) -> Field:
    """Return a field, with all inside it, as one that a converter of Kafka Connect's wrote."""
    return replace(field, is_connects=True, children=tuple(map(of_connect, field.children)))


def by_default(field: Field) -> Field:
    """Return a field as values of JSON without a schema are read."""
    unit = field.unit or ("d" if field.kind == "date" else None)
    children = tuple(map(by_default, field.children))
    return replace(field, is_connects=True, unit=unit, children=children)


def by_schema(field: Field, schema: Any) -> Field:
    """Return a field as values of a schema are read; ``schema`` is the converter's JSON of it, or what stands there instead."""
    if not isinstance(schema, dict):
        return by_default(field)
    name, parameters = schema.get("name"), schema.get("parameters")
    field = replace(field, is_connects=True)
    meaning = CONNECT_MEANINGS.get(name) if isinstance(name, str) else None
    if meaning is not None:
        kinds, unit = _FITS[meaning]
        return replace(field, unit=unit) if field.kind in kinds else _misfit(field, schema)
    if name == DECIMAL:
        scale = parameters.get("scale") if isinstance(parameters, dict) else None
        if field.kind != "decimal" or not is_string(scale):
            return _misfit(field, schema)
        try:
            return replace(field, scale=int(scale))
        except ValueError:
            return _misfit(field, schema)
    return replace(field, children=_children(field, schema))


def _children(field: Field, schema: Mapping[str, Any]) -> tuple[Field, ...]:
    if field.kind == "struct":
        return members(field.children, schema)
    inner = {"list": ("items",), "map": ("keys", "values")}.get(field.kind, ())
    return tuple(
        by_schema(child, schema.get(name))
        for child, name in zip(field.children, inner, strict=True)
    )


def members(fields: Sequence[Field], schema: Mapping[str, Any]) -> tuple[Field, ...]:
    """Return the fields of a struct as its schema says."""
    listed = schema.get("fields")
    by_name = {
        each.get("field"): each
        for each in (listed if isinstance(listed, list) else ())
        if isinstance(each, dict)
    }
    return tuple(
        by_schema(field, next((by_name[key] for key in field.keys if key in by_name), None))
        for field in fields
    )


def _misfit(field: Field, schema: Mapping[str, Any]) -> Field:
    kind, to = f"{schema.get('type')} ({schema.get('name')})", type_text(field.type)
    return replace(field, misfit=f"the writer's {kind} does not fit {to}")


class ConnectRecords:
    """Reads what Kafka Connect's JsonConverter writes: a ``RecordReader``. Thread-safe.

    ``make`` builds the reader of some fields. ``is_value``: records are the one field, and have no fields.
    """

    reads = frozenset({KAFKA_VALUE})

    def __init__(
        self,
        fields: tuple[Field, ...],
        make: Callable[[tuple[Field, ...]], JsonRecords],
        *,
        is_value: bool = False,
    ) -> None:
        self.fields = fields
        self._make = make
        self._is_value = is_value
        self._plain = make(tuple(map(by_default, fields)))
        self._by_schema: dict[bytes, JsonRecords] = {}

    def without_null(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch with NULL for each value that is JSON's null, alone or beside a schema.

        The converter writes it for a NULL that has a schema, as a delete has where ExtractNewRecordState has made it one.
        """
        values = batch.column(KAFKA_VALUE)
        is_null = pc.or_(pc.equal(values, b"null"), pc.ends_with(values, _NULL_WITH_SCHEMA))
        if not pc.any(is_null).as_py():
            return batch
        texts = values.to_pylist()
        for at in true_at(is_null):
            if self._split(texts[at])[1] == b"null":
                texts[at] = None
        index = batch.schema.get_field_index(KAFKA_VALUE)
        return batch.set_column(index, KAFKA_VALUE, pa.array(texts, pa.binary()))

    def read(self, batch: pa.RecordBatch) -> Portion:
        """See ``RecordReader.read``."""
        column = batch.column(KAFKA_VALUE)
        if not pc.any(pc.starts_with(column, _WITH_SCHEMA)).as_py():
            return self._plain.read(batch)
        groups: dict[JsonRecords, tuple[list[int], list[bytes]]] = {}
        for at, raw in enumerate(column.to_pylist()):
            if raw is not None:
                reader, value = self._split(raw)
                indices, values = groups.setdefault(reader, ([], []))
                indices.append(at)
                values.append(value)
        return self._together(groups)

    def names(self, raw: bytes) -> frozenset[str]:
        """See ``RecordReader.names``: of the value."""
        reader, value = self._split(raw)
        return reader.names(value)

    def _split(self, raw: bytes) -> tuple[JsonRecords, bytes]:
        """Return the value in a record, and its reader."""
        both = split_schema(raw) if raw.startswith(_WITH_SCHEMA) else None
        if both is None:
            return self._plain, raw
        text, value = both
        reader = self._by_schema.get(text)
        if reader is None:
            try:
                schema = parse_value(text)
            except Unfit:  # as the record then is
                return self._plain, raw
            if len(self._by_schema) >= _MOST_SCHEMAS:
                self._by_schema.clear()
            reader = self._by_schema[text] = self._reader(schema)
        return reader, value

    def _reader(self, schema: Any) -> JsonRecords:
        if not isinstance(schema, dict):
            return self._plain
        if self._is_value:
            return self._make((by_schema(self.fields[0], schema),))
        return self._make(members(self.fields, schema))

    def _together(self, groups: Mapping[JsonRecords, tuple[list[int], list[bytes]]]) -> Portion:
        """Read the records of each reader, and put them in their order."""
        positions: list[int] = []
        pieces: list[Sequence[pa.Array]] = []
        doubtful: dict[int, tuple[Portion, int]] = {}
        for reader, (indices, values) in groups.items():
            raw = pa.array(values, pa.binary())
            portion = reader.read(pa.RecordBatch.from_arrays([raw], names=[KAFKA_VALUE]))
            positions += [indices[at] for at in portion.positions]
            pieces.append(portion.columns)
            doubtful |= {indices[at]: (portion, at) for at in portion.doubtful}
        nothing = [build(field, [], exact_leaf) for field in self.fields]
        columns = [pa.concat_arrays(each) for each in zip(nothing, *pieces, strict=True)]
        if len(pieces) > 1:
            order = sorted(range(len(positions)), key=positions.__getitem__)
            indices = pa.array(order, pa.int64())
            columns = [column.take(indices) for column in columns]
            positions.sort()

        def exactly(at: int) -> tuple[Any, ...]:
            portion, local = doubtful[at]
            return portion.exactly(local)

        return Portion(positions, columns, sorted(doubtful), exactly)
