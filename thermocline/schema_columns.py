"""Columns of a new table from a schema of a registry, and what is said of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from connectors.decoding.avro.columns import FromSchema
from connectors.decoding.json.renames import other_name, rename_option
from connectors.decoding.json.wishes import Wishes
from connectors.decoding.writers import FIXED_ID
from connectors.registry.decoders import TIMEOUT_S
from connectors.registry.subjects import of_topic, subjects_of
from connectors.registry.texts import UnknownSchema, UnusableSchema, WriterText
from planner.errors import BadConfig
from planner.evolution.avro import BadSchema, parse_schema
from planner.evolution.changes import LeftOut, record_fields, schema_of_rows
from planner.evolution.ledger import SchemaLedger
from planner.evolution.writer_types import WriterSchema
from planner.names import METADATA_COLUMNS, Envelope, first_of
from planner.schema import Column
from planner.seam.formats import AvroFormat
from planner.sql_text import spelled

if TYPE_CHECKING:
    from connectors.registry.client import SchemaRegistry


@dataclass(frozen=True, slots=True)
class Registered:
    """One version of a subject, as the registry has it."""

    subject: str
    version: int
    id: int
    writer: WriterSchema
    source: WriterText

    def __str__(self) -> str:
        return f"{self.subject}:{self.version}"

    def format(self, registry: str, record: str | None, *, is_fixed: bool) -> AvroFormat:
        """Return the format of a new table whose columns are this schema's, with its first ledger."""
        return AvroFormat(
            registry or None,
            (self.subject, self.version) if is_fixed else None,
            record,
            evolution="additive",
            ledger=SchemaLedger({FIXED_ID if is_fixed else self.id: self.writer.fingerprint}),
        )

    def of_rows(self, record: str | None, envelope: Envelope = "none") -> Registered:
        """Return it with the schema of what becomes rows: of all records, or of those of a full name, in their envelope.

        Raises:
            BadConfig: it describes no record of that name, or none in such an envelope.
        """
        rows = schema_of_rows(self.writer, record, envelope)
        if rows is None and record is None:
            raise BadConfig(
                f"--envelope {envelope}: {self} has no field after that is a record; name the schema of Debezium's events with "
                f"--schema SUBJECT[:VERSION].",
                subject=self.subject,
            )
        if rows is None:
            value = self.writer.root.value
            kinds = value.items if value.kind == "union" else (value,)
            raise BadConfig(
                f"--record {record}: {self} has {', '.join(first_of([each.name or each.kind for each in kinds]))}; name the "
                f"schema of that record with --schema SUBJECT[:VERSION]."
            )
        return replace(self, writer=rows)


def registered(registry: SchemaRegistry, schema: str, option: str = "--schema") -> Registered:
    """Find the schema that SUBJECT, SUBJECT:latest or SUBJECT:VERSION names; without a number, the newest one of now.

    ``option`` is the one that names another.

    Raises:
        BadConfig: there is no such schema, or it is not one of Avro that can be read; or as ``SchemaRegistry``.
        SchemaRegistryUnavailable: as ``SchemaRegistry``.
    """
    subject, version = _read(schema)
    if version is None:
        version = _newest(registry, subject, option)
    answer = registry.by_subject(subject, version, timeout_s=TIMEOUT_S)
    if isinstance(answer, UnknownSchema):
        raise BadConfig(
            f"the registry has no {answer.what}; {_listed(registry, subject, option)}",
            subject=subject,
        )
    where = f"subject {subject}, version {version} (schema id {answer.id})"
    other = f"name another version with {option} SUBJECT:VERSION"
    if isinstance(answer, UnusableSchema):
        raise BadConfig(f"{where} cannot be read: {answer.why}; {other}.", subject=subject)
    if answer.format != "AVRO":
        raise BadConfig(
            f"{where} is of the type {answer.format}, and records of Avro alone are read from behind a registry; {other}.",
            subject=subject,
        )
    try:
        writer = parse_schema(answer.text, answer.references)
    except BadSchema as bad:
        raise BadConfig(f"{where} cannot be read: {bad}; {other}.", subject=subject) from None
    return Registered(subject, version, answer.id, writer, answer)


def _read(schema: str) -> tuple[str, int | None]:
    subject, _, version = schema.rpartition(":")
    if subject and re.fullmatch("[1-9][0-9]{0,8}", version):
        return subject, int(version)
    return (subject, None) if subject and version == "latest" else (schema, None)


def _newest(registry: SchemaRegistry, subject: str, option: str) -> int:
    versions = registry.versions(subject, timeout_s=TIMEOUT_S)
    if isinstance(versions, UnknownSchema) or not versions:
        raise BadConfig(
            f"the registry has no subject {subject}; name one with {option} SUBJECT[:VERSION].",
            subject=subject,
        )
    return max(versions)


def _listed(registry: SchemaRegistry, subject: str, option: str) -> str:
    versions = registry.versions(subject, timeout_s=TIMEOUT_S)
    if isinstance(versions, UnknownSchema) or not versions:
        return f"name another subject with {option} SUBJECT[:VERSION]."
    return f"its versions are {', '.join(first_of(list(map(str, sorted(versions)))))}."


def schema_of_records(registry: SchemaRegistry, topic: str, schema_id: int) -> Registered:
    """Find the newest schema of subject ``<topic>-value``, or say which one the id in front of records is registered as.

    Raises as ``registered``.
    """
    subject = f"{topic}-value"
    try:
        return registered(registry, subject)
    except BadConfig as error:
        pairs = subjects_of(registry, schema_id)
        others = dict(pair for pair in pairs if pair[0] != subject)
        options = [f"--schema {name}:{others[name]}" for name in of_topic(others, topic)]
        if not options:
            raise
        raise BadConfig(
            f"{error.message.split(';')[0]}; records have schema id {schema_id}: {' or '.join(first_of(options))}.",
            subject=subject,
        ) from None


def described(columns: tuple[Column, ...], schema: Registered, wishes: Wishes) -> list[str]:
    """Say of each column where it comes from, a line each."""
    fields = {name for name, _ in record_fields(schema.writer)}
    declared = {path for path, _ in wishes.columns}
    lines = []
    for column in columns:
        field = column.keys[-1] if column.keys else column.name
        source = f"from {schema} (schema id {schema.id})"
        if field not in fields:
            source = f"from --column: {schema} has no such field"
        elif column.keys:
            source = f"from field {spelled(field)} of {schema} (schema id {schema.id})"
        if field in fields and any(path[0] == column.name for path in declared):
            source = f"{source}, its type from --column"
        lines.append(f"{column.name}  {column.type}  {source}")
    return lines


def left_out(columns: FromSchema, schema: Registered, wishes: Wishes) -> Iterator[str]:
    """Say which fields have no column and why, a line each, with the option that gives one where there is one."""
    for path in wishes.leave_out:
        yield f"no column: {LeftOut(path, 'left out by --leave-out')}"
    names = [column.name for column in columns.columns]
    for each in columns.left_out:
        option = ""
        [name, *inside] = each.path
        is_twin = name.casefold() in {other.casefold() for other in names}
        if not inside and (is_twin or name in METADATA_COLUMNS):
            option = f"; to have one: {rename_option(name, other_name(name, names))}"
        yield f"no column: {each}{option}"
    if schema.writer.root.value.kind != "record":
        yield f"{schema} is no record: its values are the column {names[0] if names else 'value'}"
