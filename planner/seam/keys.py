"""Keys: those of records as a column, and those that a keyed table has one row of.

The column is named by its field id, so it may be renamed. Its former names mean nothing: keys have no fields of the value.

A keyed table (``thermocline.mode = upsert``) takes its records for changes: of those of one key the newest decides, and it is a
row or, a delete, none. The key is Iceberg's own identifier fields. Their ids are in a property too, so that a change of them
shows: rows below the watermark are one for each key of then.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import pyarrow as pa

from planner.names import KAFKA_OFFSET, KAFKA_OP, KAFKA_PARTITION, Envelope, TableName
from planner.schema import Column, TableSchema
from planner.seam.formats import AvroFormat, bad_property, one_of

KeyFormat = Literal["raw", "string", "json", "avro"]
KeyFrom = Literal["key", "value"]
Mode = Literal["append", "upsert"]

MODE = "thermocline.mode"

KEY_FORMAT = "thermocline.key_format"

#: Id of the column that keys fill.
KEY_COLUMN = "thermocline.key_column"

#: The Avro schema of keys, as JSON (``KeySchema``).
KEY_SCHEMA = "thermocline.key_schema"

KEY_OPTIONS = (KEY_FORMAT, KEY_COLUMN, KEY_SCHEMA)

#: Ids of the columns of a keyed table's key, with commas between them.
KEY_FIELDS = "thermocline.key_fields"

#: What has the values of these columns: keys of records, or their values.
KEY_FROM = "thermocline.key_from"

#: What is around the row in a record's value.
ENVELOPE = "thermocline.envelope"

UPSERT_OPTIONS = (KEY_FIELDS, KEY_FROM, ENVELOPE)


@dataclass(frozen=True, slots=True)
class KeySchema:
    """The one schema that Avro keys of a table are written with: a version of a subject, as the registry had it.

    ``references`` are names and texts of what ``text`` refers to.
    """

    id: int
    subject: str
    version: int
    text: str
    references: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return f"{self.subject}:{self.version}"

    @classmethod
    def parse(cls, table: TableName, text: str) -> KeySchema:
        """Read the property. Raises BadBinding."""
        try:
            facts = json.loads(text)
            number, version = int(facts["id"]), int(facts["version"])
            references = tuple(
                (str(name), str(each)) for name, each in facts["references"].items()
            )
            return cls(number, str(facts["subject"]), version, str(facts["text"]), references)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            what = f"property {KEY_SCHEMA} is not what `thermocline create` writes; restore it from an earlier metadata file."
            raise bad_property(table, KEY_SCHEMA, what) from None

    @property
    def property_text(self) -> str:
        """The property, which ``parse`` reads back equal."""
        facts = {
            "id": self.id,
            "subject": self.subject,
            "version": self.version,
            "text": self.text,
            "references": dict(self.references),
        }
        return json.dumps(facts, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class RecordKey:
    """How the keys of records fill a column, or the key columns of a keyed table.

    ``column`` is its field id, 0 in a keyed table and while the table has none; ``schema`` of Avro.
    """

    format: KeyFormat
    column: int = 0
    schema: KeySchema | None = None

    @classmethod
    def parse(cls, table: TableName, properties: Mapping[str, str]) -> RecordKey:
        """Read the properties of a table that has any of ``KEY_OPTIONS``.

        Keys of a keyed table fill the columns of its key, and no other.

        Raises:
            BadBinding: a value is not allowed, or one of the properties is there without another that it needs.
        """
        name = one_of(table, properties, KEY_FORMAT, get_args(KeyFormat), "")
        is_keyed = properties.get(MODE) == "upsert"
        column = properties.get(KEY_COLUMN, "0" if is_keyed else "")
        if is_keyed and KEY_COLUMN in properties:
            what = f"property {KEY_COLUMN} is not for a keyed table, whose keys fill the columns of {KEY_FIELDS}; unset it."
            raise bad_property(table, KEY_COLUMN, what)
        if not (column.isascii() and column.isdigit() and len(column) <= 10):
            what = f"property {KEY_COLUMN} is {column!r}; it must be the id of the column that keys fill."
            raise bad_property(table, KEY_COLUMN, what)
        schema = properties.get(KEY_SCHEMA)
        if (schema is not None) is not (name == AvroFormat.name):
            what = (
                f"property {KEY_SCHEMA} goes with {KEY_FORMAT} = avro, and neither without the other; restore it from an "
                f"earlier metadata file."
            )
            raise bad_property(table, KEY_SCHEMA, what)
        of_avro = None if schema is None else KeySchema.parse(table, schema)
        return cls(name, int(column), of_avro)  # type: ignore[arg-type]

    @property
    def properties(self) -> dict[str, str]:
        """The table properties that ``parse`` reads back equal. All of them decide which row a record becomes."""
        properties: dict[str, str] = {KEY_FORMAT: self.format}
        if self.column:
            properties[KEY_COLUMN] = str(self.column)
        if self.schema is not None:
            properties[KEY_SCHEMA] = self.schema.property_text
        return properties


@dataclass(frozen=True, slots=True)
class Upsert:
    """How records are changes of a keyed table. ``key`` are the ids of the key's columns, ascending, of when it was bound."""

    key: tuple[int, ...]
    key_from: KeyFrom = "key"
    envelope: Envelope = "none"

    @classmethod
    def parse(cls, table: TableName, properties: Mapping[str, str]) -> Upsert:
        """Read the properties of a table that has any of ``UPSERT_OPTIONS``, or another mode than append.

        Raises:
            BadBinding: a value is not allowed, or a property of a keyed table is there without its mode.
        """
        if one_of(table, properties, MODE, get_args(Mode), "append") == "append":
            key = next(each for each in UPSERT_OPTIONS if each in properties)
            what = f"property {key} is for a keyed table, and {MODE} is append; unset it."
            raise bad_property(table, key, what)
        ids = properties.get(KEY_FIELDS, "").split(",")
        if not all(each.isascii() and each.isdigit() and len(each) <= 10 for each in ids):
            what = (
                f"property {KEY_FIELDS} is {properties.get(KEY_FIELDS, '')!r}; it must be the ids of the key's columns, with "
                f"commas between them: make a keyed table with `thermocline create --mode upsert --key`."
            )
            raise bad_property(table, KEY_FIELDS, what)
        upsert = cls(
            tuple(sorted({int(each) for each in ids})),
            one_of(table, properties, KEY_FROM, get_args(KeyFrom), "key"),  # type: ignore[arg-type]
            one_of(table, properties, ENVELOPE, get_args(Envelope), "none"),  # type: ignore[arg-type]
        )
        if upsert.key_from == "key" and KEY_FORMAT not in properties:
            what = f"property {KEY_FORMAT} is not set, and the key's columns have the keys of records; set it."
            raise bad_property(table, KEY_FORMAT, what)
        return upsert

    @property
    def properties(self) -> dict[str, str]:
        """The table properties that ``parse`` reads back equal, with the mode. All of them decide which row a key has."""
        ids = ",".join(map(str, self.key))
        return {
            MODE: "upsert",
            KEY_FIELDS: ids,
            KEY_FROM: self.key_from,
            ENVELOPE: self.envelope,
        }

    def columns(self, schema: TableSchema) -> tuple[Column, ...]:
        """Return the columns of the key, in the order of the table."""
        return tuple(each for each in schema.columns if each.field_id in self.key)


def change_schema(schema: TableSchema, upsert: Upsert) -> pa.Schema:
    """Return what a decoded change has: the columns of its table, and ``u`` or ``d``.

    A delete has NULL in all but the key and the metadata columns.
    """
    always = {
        KAFKA_PARTITION,
        KAFKA_OFFSET,
        *(column.name for column in upsert.columns(schema)),
    }
    fields = [field.with_nullable(field.name not in always) for field in schema.arrow]
    return pa.schema([*fields, pa.field(KAFKA_OP, pa.string(), nullable=False)])
