"""Records as changes of a keyed table's rows: key, ``u`` or ``d``, row (docs/change-data.md).

The same for every format and envelope. Nothing is folded here: each change has a row of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from connectors.decoding.arrays import over_all, true_at
from connectors.decoding.connect import ConnectRecords, of_connect
from connectors.decoding.envelopes import NoChange, around, opened, plain_instead, unavailable
from connectors.decoding.fields import Field, payload_fields
from connectors.decoding.json.decoder import JsonRecords
from connectors.decoding.json.strict import REQUIRED
from connectors.decoding.keys import BadKey, read_keys
from connectors.decoding.plain import PlainRecords
from connectors.decoding.policy import (
    SINGLE,
    Payload,
    RecordReader,
    TableDecoder,
    Unfit,
    read_exactly,
    with_ids,
)
from connectors.decoding.row_keys import row_key_reader
from connectors.decoding.writers import Writers
from planner.errors import BadBinding
from planner.names import KAFKA_KEY, KAFKA_VALUE
from planner.ports import Decoded
from planner.schema import TableSchema
from planner.seam.binding import Binding
from planner.seam.formats import AvroFormat, JsonFormat
from planner.seam.keys import Upsert
from planner.seam.watermark import Outcomes


class OtherKey(Unfit):
    """A row with another key than its record's."""

    cure = f"make a table with --key-from value, or correct its producer{SINGLE}"


def change_decoder(
    table: str, schema: TableSchema, binding: Binding, writers: Writers | None
) -> ChangeDecoder:
    """Build the decoder of a keyed table; raises as ``registry.decoder_for``."""
    upsert = binding.upsert
    assert upsert is not None  # noqa: S101 - as its caller checks
    if upsert.envelope != "none" and not isinstance(binding.format, AvroFormat | JsonFormat):
        raise BadBinding(
            f"{table}: envelope {upsert.envelope} is around records of json or avro, and the table's format is "
            f"{binding.format.name}; make a table of another format, or with --envelope none.",
            table=table,
        )
    # Of a delete only the key counts, so what rows require is looked at when it is known that they are some.
    optional = tuple(replace(column, required=False) for column in schema.columns)
    rows = replace(schema, columns=optional)
    fields = payload_fields(table, rows, binding)
    values = _values(table, rows, binding, around(upsert.envelope, fields), writers)
    keys = None
    if binding.key is not None:
        keys = row_key_reader(table, binding, upsert.columns(schema))
    return ChangeDecoder(table, schema, binding, fields=fields, values=values, keys=keys)


def _values(
    table: str,
    schema: TableSchema,
    binding: Binding,
    fields: tuple[Field, ...],
    writers: Writers | None,
) -> RecordReader:
    """Build the reader of values as these fields."""
    is_plain = binding.envelope == "none"
    if isinstance(binding.format, AvroFormat):
        from connectors.decoding.avro.decoder import AvroRecords

        if not is_plain:
            fields = tuple(map(of_connect, fields))
        return AvroRecords(table, schema, binding, writers or Writers(), fields=fields)
    if not isinstance(binding.format, JsonFormat):
        return PlainRecords(table, schema, binding)

    def make(fields: tuple[Field, ...]) -> JsonRecords:
        return JsonRecords(table, schema, binding, fields=fields)

    return make(fields) if is_plain else ConnectRecords(fields, make)


@dataclass(slots=True)
class _Changes:
    """What is found out of one batch, by the position of each record in it.

    ``rows`` are the positions of records that have a row, ascending, ``columns`` what they have. ``errors`` are the bad ones.
    """

    batch: pa.RecordBatch
    rows: Sequence[int]
    columns: Sequence[pa.Array]
    deletes: set[int]
    errors: dict[int, Unfit]

    def bad(self, index: int, unfit: Unfit) -> None:
        """Note why a record with a row is a bad one, unless there is a reason already."""
        self.errors.setdefault(self.rows[index], unfit)


class ChangeDecoder(TableDecoder):
    """Decodes batches of one keyed table. Thread-safe.

    ``fields`` are those of the row, in the order of the table, ``values`` reads what is around them. ``keys`` reads the keys of
    records as the key's columns.
    """

    def __init__(
        self,
        table: str,
        schema: TableSchema,
        binding: Binding,
        *,
        fields: tuple[Field, ...],
        values: RecordReader,
        keys: RecordReader | None,
    ) -> None:
        super().__init__(table, schema, binding, values)
        assert binding.upsert is not None  # noqa: S101 - as its caller checks
        self._upsert: Upsert = binding.upsert
        self._fields = fields
        self._key_reader = keys
        names = [column.name for column in binding.upsert.columns(schema)]
        by_name = {field.path: index for index, field in enumerate(fields)}
        self._key_indices = [by_name[name] for name in names]
        self._required = [
            by_name[column.name]
            for column in schema.payload
            if column.required and column.name not in names
        ]
        if keys is not None:
            self.reads |= {KAFKA_KEY}

    def _decode(self, batch: pa.RecordBatch) -> Decoded:
        if isinstance(self._records, ConnectRecords):
            batch = self._records.without_null(batch)
        portion = self._records.read(batch)
        if portion.needs:
            return Decoded(self.no_rows, Outcomes(), portion.needs)
        payload = read_exactly(self._records.fields, portion, self._policy)
        changes = self._opened(batch, payload)
        keys = self._keys_of(changes)
        errors = changes.errors
        if errors and self._policy == "fail":
            at = min(errors)
            unfit = errors[at]
            is_plain = self._upsert.envelope == "none"
            if type(unfit) is Unfit and unfit.path is not None and not is_plain:
                unfit.cure = _RETYPED
            raise self._undecodable(batch, at, unfit)
        tombstones = changes.deletes.difference(changes.rows)
        every = sorted([*changes.rows, *tombstones]) if tombstones else changes.rows
        positions = [at for at in every if at not in errors] if errors else every
        deletes = sum(at in changes.deletes for at in positions) if changes.deletes else 0
        rows = len(positions) - deletes
        outcomes = Outcomes(rows=rows, deletes=deletes, skipped=len(batch) - len(positions))
        return Decoded(
            self._rows_of(changes, keys, positions), outcomes, writer_ids=portion.writer_ids
        )

    def _opened(self, batch: pa.RecordBatch, payload: Payload) -> _Changes:
        """Take the rows out of their envelopes, and look for what makes them bad."""
        envelope, fields, values = (
            self._upsert.envelope,
            self._fields,
            batch.column(KAFKA_VALUE),
        )
        inside = opened(envelope, fields, payload.columns)
        rows = payload.positions
        deletes = set(true_at(values.is_null()))
        if inside.is_delete is not None:
            deletes.update(rows[index] for index in true_at(inside.is_delete))
        changes = _Changes(batch, rows, inside.columns, deletes, dict(payload.errors))
        for index, unfit in inside.errors.items():
            changes.bad(index, unfit)
        if envelope == "none":
            self._check_plain(changes)
        else:
            if envelope == "debezium-flat":
                self._check_plain(changes)
            for index, unfit in unavailable(fields, changes.columns):
                if rows[index] not in deletes:
                    changes.bad(index, unfit)
        self._check_required(changes, self._required)
        return changes

    def _check_plain(self, changes: _Changes) -> None:
        """Find records without a value for any column that have an envelope, which the table does not say."""
        if any(column.null_count == 0 for column in changes.columns):
            return
        is_nothing = reduce(pc.and_, (column.is_null() for column in changes.columns))
        values = changes.batch.column(KAFKA_VALUE)
        for index in true_at(is_nothing):
            names = self._records.names(values[changes.rows[index]].as_py())
            unfit = plain_instead(names)
            if unfit is not None:
                changes.bad(index, unfit)

    def _check_required(self, changes: _Changes, required: Sequence[int]) -> None:
        for at in required:
            column = changes.columns[at]
            for index in true_at(column.is_null()) if column.null_count else ():
                if changes.rows[index] not in changes.deletes:
                    changes.bad(index, Unfit(self._fields[at].path, REQUIRED))

    def _keys_of(self, changes: _Changes) -> list[pa.Array]:
        """Return the columns of the key, of all records; note those that have none, and those that have two."""
        columns = [changes.columns[at] for at in self._key_indices]
        of_values = over_all(columns, changes.rows, len(changes.batch))
        raw = changes.batch.column(KAFKA_KEY)
        errors, changing = changes.errors, {*changes.rows, *changes.deletes}
        is_from_value = self._upsert.key_from == "value"
        if is_from_value:
            self._check_required(changes, self._key_indices)
        keys: list[pa.Array] | None = None
        if self._key_reader is not None:
            keys, bad = read_keys(self._key_reader, raw)
            for at in changing.intersection(bad):
                path = bad[at].path or self._fields[self._key_indices[0]].path
                errors.setdefault(at, BadKey(path, bad[at]))
            for index, key, value in zip(self._key_indices, keys, of_values, strict=True):
                for at in true_at(pc.not_equal(_plain(key), _plain(value))):
                    reason = "the value differs from that of the record's key"
                    errors.setdefault(at, OtherKey(self._fields[index].path, reason))
        if not is_from_value:
            assert keys is not None  # noqa: S101 - a binding has the format of keys where they fill columns
            for at in changing.intersection(true_at(raw.is_null())):
                errors.setdefault(at, NoChange("the record has no key", _KEYLESS))
            return keys
        if keys is not None:
            of_values = [
                _first_of(value, key) if value.null_count else value
                for value, key in zip(of_values, keys, strict=True)
            ]
        for column in of_values:
            for at in changes.deletes.intersection(true_at(column.is_null())):
                errors.setdefault(at, NoChange("a delete without a key", _DELETES_NOTHING))
        return of_values

    def _rows_of(
        self, changes: _Changes, keys: Sequence[pa.Array], positions: Sequence[int]
    ) -> pa.RecordBatch:
        batch, deletes = changes.batch, changes.deletes
        is_all = len(positions) == len(batch)
        indices = pa.array(positions, pa.int64())
        if not is_all:
            batch = batch.select(
                [each for each in batch.schema.names if self._schema.has(each)]
            )
            batch = batch.take(indices)
        index_of: pa.Array | None = None
        if deletes or not is_all:
            where = {at: index for index, at in enumerate(changes.rows)}
            of_rows = [None if at in deletes else where[at] for at in positions]
            index_of = pa.array(of_rows, pa.int64())
        of_row = dict(zip((field.path for field in self._fields), changes.columns, strict=True))
        of_key = dict(
            zip((self._fields[at].path for at in self._key_indices), keys, strict=True)
        )
        arrays = []
        for column in self._schema.columns:
            if column.is_metadata:
                array = with_ids(batch.column(column.name), column.type)
            elif column.name in of_key:
                array = of_key[column.name]
                array = array if is_all else array.take(indices)
            else:
                array = of_row[column.name]
                array = array if index_of is None else array.take(index_of)
            arrays.append(array)
        ops = (
            ["d" if at in deletes else "u" for at in positions]
            if deletes
            else ["u"] * len(positions)
        )
        arrays.append(pa.array(ops, pa.string()))
        return pa.RecordBatch.from_arrays(arrays, schema=self._arrow)


_RETYPED = (
    "where a column of its source has another type from this record on, make a table anew, or give the field a new column"
    f"{SINGLE}"
)
_KEYLESS = "have its producer send keys, or make a table with --key-from value"
_DELETES_NOTHING = (
    "make a table with --key-from key: the key of a row that is gone stands in the record's key"
)


def _first_of(first: pa.Array, second: pa.Array) -> pa.Array:
    values = pc.coalesce(_plain(first), _plain(second))
    is_uuid = isinstance(first, pa.ExtensionArray)
    return pa.ExtensionArray.from_storage(first.type, values) if is_uuid else values


def _plain(array: pa.Array) -> pa.Array:
    """Return values that Arrow compares: it has no comparison of uuids."""
    return array.storage if isinstance(array, pa.ExtensionArray) else array
