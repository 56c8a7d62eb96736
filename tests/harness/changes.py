"""Keyed tables for tests of decoders: their columns, bindings and records."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from connectors.decoding.registry import decoder_for
from connectors.decoding.writers import Writers
from planner.ports import Decoded
from planner.schema import METADATA_TYPES, RAW_SCHEMA, Column, TableSchema
from planner.seam.binding import Binding
from planner.seam.keys import RecordKey, Upsert
from tests.harness.avro_decoder import framed

LEADING = tuple(
    Column(at, name, METADATA_TYPES[name], at < 3)
    for at, name in enumerate(RAW_SCHEMA.names[:3], start=1)
)
#: Key and value of a record; JSON where they are not bytes.
Record = tuple[Any, Any]


def keyed_schema(*columns: Column, key: Iterable[str] = ("id",)) -> TableSchema:
    """Return columns after the leading ones; those of ``key`` are the identifier fields."""
    names = set(key)
    return TableSchema(
        0,
        (*LEADING, *columns),
        frozenset(each.field_id for each in columns if each.name in names),
    )


def keyed_binding(schema: TableSchema, envelope: Any = "none", **options: Any) -> Binding:
    """Return a binding of keys in JSON, unless ``options`` say otherwise; ``key_from`` as of ``Upsert``."""
    upsert = Upsert(tuple(sorted(schema.identifier)), options.pop("key_from", "key"), envelope)
    return Binding("t", **{"key": RecordKey("json"), "upsert": upsert, **options})


def raw(*records: Record) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [
            {
                "kafka_partition": 0,
                "kafka_offset": offset,
                "kafka_key": _bytes(key),
                "kafka_value": _bytes(value),
            }
            for offset, (key, value) in enumerate(records)
        ],
        RAW_SCHEMA,
    )


def _bytes(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    return json.dumps(value, ensure_ascii=False).encode()


def decoded(
    schema: TableSchema, binding: Binding, *records: Record, writers: Writers | None = None
) -> Decoded:
    """Decode records of one partition, whose offsets count from 0."""
    made = decoder_for("lake.net.t", schema, binding, writers).decode(raw(*records))
    made.rows.validate(full=True)
    return made


def changes(
    schema: TableSchema, binding: Binding, *records: Record, writers: Writers | None = None
) -> list[tuple[Any, ...]]:
    """Return what records are: offset, op, payload columns in order."""
    names = ("kafka_offset", "kafka_op", *(each.name for each in schema.payload))
    rows = decoded(schema, binding, *records, writers=writers).rows.to_pylist()
    return [tuple(row[name] for name in names) for row in rows]


def event(op: str | None, after: Any, **others: Any) -> dict[str, Any]:
    """Return Debezium's event; ``before`` has what is nowhere else."""
    before = {"id": 999, "name": "before", "n": -1}
    source = {"connector": "postgresql", "lsn": 7, "snapshot": "false"}
    return {"before": before, "after": after, "source": source, "op": op, "ts_ms": 1} | others


__all__ = ["changes", "decoded", "event", "framed", "keyed_binding", "keyed_schema", "raw"]
