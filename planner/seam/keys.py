"""Keys of records as a column: a table's ``thermocline.key_*`` properties.

The column is named by its field id, so it may be renamed. Its former names mean nothing: keys have no fields of the value.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from planner.names import TableName
from planner.seam.formats import AvroFormat, bad_property, one_of

KeyFormat = Literal["raw", "string", "json", "avro"]

KEY_FORMAT = "thermocline.key_format"

#: Id of the column that keys fill.
KEY_COLUMN = "thermocline.key_column"

#: The Avro schema of keys, as JSON (``KeySchema``).
KEY_SCHEMA = "thermocline.key_schema"

KEY_OPTIONS = (KEY_FORMAT, KEY_COLUMN, KEY_SCHEMA)


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
    """How the keys of records fill a column. ``column`` is its field id, 0 while the table has none; ``schema`` of Avro."""

    format: KeyFormat
    column: int = 0
    schema: KeySchema | None = None

    @classmethod
    def parse(cls, table: TableName, properties: Mapping[str, str]) -> RecordKey:
        """Read the properties of a table that has any of ``KEY_OPTIONS``.

        Raises:
            BadBinding: a value is not allowed, or one of the properties is there without another that it needs.
        """
        name = one_of(table, properties, KEY_FORMAT, get_args(KeyFormat), "")
        column = properties.get(KEY_COLUMN, "")
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
        properties = {KEY_FORMAT: self.format, KEY_COLUMN: str(self.column)}
        if self.schema is not None:
            properties[KEY_SCHEMA] = self.schema.property_text
        return properties
