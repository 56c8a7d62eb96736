"""The key of a new keyed table, by what a person says of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from connectors.decoding.plain import PLAIN_TYPES
from connectors.kafka.admin import topic_settings
from planner.errors import BadConfig, FederationError
from planner.names import Envelope
from planner.schema import Column
from planner.seam.binding import Binding
from planner.seam.formats import AvroFormat
from planner.seam.keys import KeyFormat, KeyFrom, RecordKey, Upsert
from planner.sql_text import spelled, split_name
from planner.tiering.topic_fit import judge_topic
from planner.type_text import parse_type
from thermocline.key_columns import KeyOptions, new_key


@dataclass(frozen=True, slots=True)
class KeyedOptions:
    """``--key NAME[:TYPE]`` in order, ``--key-from``, ``--envelope``, and how the keys of records are read."""

    columns: tuple[tuple[str, pa.DataType | None], ...]
    upsert: Upsert
    key_format: KeyFormat | None
    key_schema: str | None

    @classmethod
    def of(
        cls,
        keys: Sequence[str],
        key_from: KeyFrom | None,
        envelope: Envelope | None,
        key_format: KeyFormat | None,
        key_schema: str | None,
    ) -> KeyedOptions:
        """Read the options of ``--mode upsert``.

        Raises:
            BadConfig: no column is named, or one twice, or not as NAME or NAME:TYPE.
        """
        if not keys:
            raise BadConfig(
                "--mode upsert needs the columns that the table has one row of: --key NAME."
            )
        columns = [_column(text) for text in keys]
        names = [name for name, _ in columns]
        if len(set(names)) < len(names):
            raise BadConfig(f"--key names a column twice among {', '.join(names)}.")
        upsert = Upsert((), key_from or "key", envelope or "none")
        return cls(tuple(columns), upsert, key_format, key_schema)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.columns)

    def with_key(self, columns: Sequence[Column]) -> tuple[Column, ...]:
        """Return the columns of the values with those of the key that they lack in front.

        Raises:
            BadConfig: a column of the key is nowhere, or has another type among the values.
        """
        of_values = {column.name: column for column in columns}
        added = []
        for name, kind in self.columns:
            column = of_values.get(name)
            if column is None and kind is None:
                raise BadConfig(
                    f"--key {spelled(name)}: no column of the values is called so; where records have it in their keys alone, "
                    f"give its type: --key {spelled(name)}:string.",
                    column=name,
                )
            if column is None:
                added.append(Column(0, name, kind))
            elif kind not in (None, column.type):
                raise BadConfig(
                    f"--key {spelled(name)}: the column is {column.type} among the values; leave its type out.",
                    column=name,
                )
        if added and self.upsert.key_from == "value":
            raise BadConfig(
                f"--key-from value takes the key from the values, and they have no column {spelled(added[0].name)}.",
                column=added[0].name,
            )
        return (*added, *columns)

    def bound(
        self,
        binding: Binding,
        columns: Sequence[Column],
        registries: Mapping[str, Mapping[str, str]],
        registry: str,
    ) -> Binding:
        """Return the binding of a keyed table with ``columns``; its key's ids are those of no column yet.

        Raises:
            BadConfig: keys that are one value are to fill several columns, or one of another type; or as ``new_key``.
            SchemaRegistryUnavailable: as ``new_key``.
        """
        form = self.key_format
        if form is None and self.upsert.key_from == "key":
            form = "avro" if isinstance(binding.format, AvroFormat) else "json"
        key: RecordKey | None = None
        if form == "avro":
            options = KeyOptions(form, self.names[0], None, self.key_schema)
            key = new_key(options, binding.topic, registries, registry).key
        elif form is not None:
            self._check_plain(form, columns)
            key = RecordKey(form)
        return replace(binding, key=key, upsert=self.upsert)

    def _check_plain(self, form: KeyFormat, columns: Sequence[Column]) -> None:
        if form not in PLAIN_TYPES:
            return
        kinds = [column.type for column in columns if column.name in self.names]
        if kinds != [PLAIN_TYPES[form]]:
            raise BadConfig(
                f"--key-format {form}: such a key is one value, for one column of type {PLAIN_TYPES[form]}; --key names "
                f"{', '.join(map(spelled, self.names))}."
            )


def _column(text: str) -> tuple[str, pa.DataType | None]:
    path, kind = split_name(text, ":")
    if len(path) != 1 or not path[0]:
        raise BadConfig(
            f"--key {text!r} is not NAME or NAME:TYPE; a name with a dot stands in double quotes."
        )
    return path[0], parse_type(kind) if kind else None


def said_of_topic(clusters: Mapping[str, Mapping[str, str]], topic: str) -> list[str]:
    """Say how the topic of a new keyed table goes with it. Raises BadConfig as ``judge_topic``."""
    try:
        settings = topic_settings(clusters, topic)
    except FederationError as error:
        return [f"what the topic keeps is not known: {error.message}"]
    return list(judge_topic(topic, settings))
