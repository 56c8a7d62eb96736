"""What histories of an Avro topic are made of: schemas that change, and what a column holds of their values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from planner.names import TableName
from planner.schema import METADATA_TYPES, Column, TableSchema
from planner.seam.binding import Binding
from planner.seam.formats import AvroFormat
from tests.doubles.evolving_table import EvolvingTable

TABLE = TableName("lake", ("shop",), "orders")
LEAD = tuple(
    Column(at, name, METADATA_TYPES[name])
    for at, name in enumerate(("kafka_partition", "kafka_offset", "kafka_timestamp"), 1)
)
#: Types of a field, each with those that it may become.
WIDER = {"int": "long", "float": "double"}

#: Fields of a schema: name to type; of the struct ``p`` another such.
Fields = dict[str, Any]


def text_of(fields: Fields, name: str = "Order") -> str:
    """Write a record's schema: each field may be null, but for ``id``."""
    members: list[Mapping[str, Any]] = []
    for each, kind in fields.items():
        written: Any = json.loads(text_of(kind, "P")) if isinstance(kind, dict) else kind
        is_null = {} if each == "id" else {"type": ["null", written], "default": None}
        members.append({"name": each, "type": written, **is_null})
    return json.dumps({"type": "record", "name": name, "fields": members})


def conformed(kind: pa.DataType, value: Any) -> Any:
    """Return a value as a column of a wider type holds it: members that it lacks are NULL."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {each.name: conformed(each.type, value.get(each.name)) for each in kind}
    if pa.types.is_map(kind):
        return list(value.items())
    return value


def following_table() -> EvolvingTable:
    """Return a table that has no column of a schema yet."""
    binding = Binding("orders", AvroFormat(evolution="additive"))
    return EvolvingTable(TableSchema(0, LEAD), binding)
