"""The column that keys of records fill in a new table, by what a person says of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

import pyarrow as pa

from connectors.decoding.json.renames import other_name, rename_option
from connectors.decoding.plain import PLAIN_TYPES
from connectors.iceberg.create import RESERVED_NAMES
from connectors.registry.options import section_of
from connectors.registry.registries import SchemaRegistries
from planner.errors import BadConfig
from planner.evolution.table_types import table_type
from planner.names import METADATA_COLUMNS
from planner.schema import Column
from planner.seam.keys import KeyFormat, KeySchema, RecordKey
from planner.sql_text import spell, spelled, split_name
from planner.type_text import parse_type
from thermocline.schema_columns import registered


@dataclass(frozen=True, slots=True)
class KeyOptions:
    """``--key-format``, ``--key-column NAME[:TYPE]``, of which JSON needs the type, and ``--key-schema``."""

    format: KeyFormat
    name: str
    type: pa.DataType | None
    schema: str | None

    @classmethod
    def of(
        cls, form: KeyFormat | None, column: str | None, schema: str | None
    ) -> KeyOptions | None:
        """Read the options; None: none is given.

        Raises:
            BadConfig: one of them lacks another, or says what it cannot.
        """
        if form is None:
            for option, value in (("--key-column", column), ("--key-schema", schema)):
                if value is not None:
                    formats = ", ".join(get_args(KeyFormat))
                    raise BadConfig(
                        f"{option} goes with --key-format, which says what keys are: {formats}."
                    )
            return None
        path, kind = split_name(column or "key", ":")
        if len(path) != 1 or not all(path):
            raise BadConfig(
                f"--key-column {column!r} is not NAME or NAME:TYPE; a name with a dot stands in double quotes."
            )
        name = path[0]
        if name.lower() in RESERVED_NAMES.union(METADATA_COLUMNS):
            raise BadConfig(
                f"--key-column {spelled(name)}: a column that every table has, or that Iceberg computes, is called so; choose "
                f"another name."
            )
        if form == "json" and not kind:
            raise BadConfig(
                f"--key-format json needs the type of keys: --key-column {spell(path)}:string, or 'key:struct<id: long>'."
            )
        if form != "json" and kind:
            raise BadConfig(
                f"--key-column {column}: keys of the format {form} say their type themselves; leave :{kind} out."
            )
        if schema is not None and form != "avro":
            raise BadConfig(
                f"--key-schema means nothing for --key-format {form}; leave it out."
            )
        return cls(form, name, parse_type(kind) if kind else None, schema)

    def check_beside(self, columns: Sequence[Column]) -> None:
        """Raise BadConfig where a column of the values has the name, in any case."""
        for column in columns:
            if column.name.casefold() == self.name.casefold():
                field = column.keys[-1] if column.keys else column.name
                names = [each.name for each in columns]
                raise BadConfig(
                    f"--key-column {spelled(self.name)}: column {spelled(column.name)} of the values has this name, which SQL "
                    f"does not tell apart; name the column of keys otherwise, with --key-column NAME, or the other one, with "
                    f"{rename_option(field, other_name(field, names))}.",
                    column=self.name,
                )


@dataclass(frozen=True, slots=True)
class NewKey:
    """The column, how keys are read into it, and the line that says so."""

    column: Column
    key: RecordKey
    line: str


def new_key(
    chosen: KeyOptions, topic: str, registries: Mapping[str, Mapping[str, str]], registry: str
) -> NewKey:
    """Find the column of keys; ``registry`` is the one of ``registries``, by name, that Avro keys have their schema in.

    Raises:
        BadConfig: as ``thermocline.schema_columns.registered``; or the settings have no such registry, or keys hold no values.
        SchemaRegistryUnavailable: as ``registered``.
    """
    if chosen.format != "avro":
        kind = PLAIN_TYPES[chosen.format] if chosen.type is None else chosen.type
        column = Column(0, chosen.name, kind)
        return NewKey(column, RecordKey(chosen.format), f"{column.name}  {kind}  from keys")
    if registry not in registries:
        raise BadConfig(
            f"--key-format avro takes the schema of keys from a schema registry, and the settings have no "
            f"[{section_of(registry)}]; add it, with url."
        )
    with SchemaRegistries(registries) as opened:
        schema = registered(
            opened.of(registry), chosen.schema or f"{topic}-key", "--key-schema"
        )
    of_avro = table_type(schema.writer.root)
    if of_avro is None:
        raise BadConfig(
            f"{schema} (schema id {schema.id}) holds no values, so there is no column of keys; leave --key-format out."
        )
    source = schema.source
    references = tuple(source.references.items())
    key = KeySchema(schema.id, schema.subject, schema.version, source.text, references)
    line = f"{chosen.name}  {of_avro}  from keys, by {schema} (schema id {schema.id})"
    return NewKey(Column(0, chosen.name, of_avro), RecordKey("avro", schema=key), line)
