"""JSON records to rows of one table: outcomes, error policy, order.

docs/json-types.md defines each value; ``strict`` implements it, ``vectorized`` gives the same faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from connectors.decoding.arrays import build, exact_leaf
from connectors.decoding.fields import payload_fields
from connectors.decoding.json.lenient import substitute
from connectors.decoding.json.parsing import OtherFormat, Unfit
from connectors.decoding.json.strict import Fallback, read_record, refuse
from connectors.decoding.json.vectorized import FastPath
from planner.errors import BadBinding, UndecodableRecord
from planner.names import KAFKA_ERROR, KAFKA_OFFSET, KAFKA_PARTITION, KAFKA_VALUE, shell_word
from planner.ports import Decoded
from planner.schema import METADATA_TYPES, TableSchema
from planner.seam.binding import Binding
from planner.seam.watermark import Outcomes

#: Longer batches are decoded in portions, whose payloads and columns stay in the processor's cache.
PORTION_RECORDS = 8_192


class JsonDecoder:
    """Decodes batches of one (schema, binding). Thread-safe; pickles as its arguments.

    ``exact_only`` leaves the fast path out, to compare: the same rows, some ten times slower.

    Raises:
        BadBinding: the schema cannot hold what the binding's error policy needs, or see ``payload_fields``.
        UnsupportedType: a column's type has no JSON form.
    """

    def __init__(
        self,
        table: str,
        schema: TableSchema,
        binding: Binding,
        exact_only: bool = False,
    ) -> None:
        self._arguments = (table, schema, binding, exact_only)
        self._table = table
        self._policy = binding.on_error
        self._columns = schema.columns
        self._arrow = schema.arrow
        self._fields = payload_fields(table, schema, binding)
        self._fallback: Fallback = substitute if binding.format.mode == "lenient" else refuse
        self._fast = None if exact_only else FastPath.of(self._fields)
        _check_metadata(table, schema)
        if self._policy == "null":
            _check_null_policy(table, schema)

    def __reduce__(self) -> tuple[object, ...]:
        return (JsonDecoder, self._arguments)

    def decode(self, batch: pa.RecordBatch) -> Decoded:
        """Decode one batch of ``RAW_SCHEMA``; rows keep its order.

        A null value is a tombstone: no row, whatever the policy. A record that does not decode is a row with
        NULLs under policy ``null``, and counted as skipped under ``skip``.

        Raises:
            UndecodableRecord: policy ``fail``; names the first such record of the batch.
        """
        if len(batch) <= PORTION_RECORDS:
            return self._decode(batch)
        starts = range(0, len(batch), PORTION_RECORDS)
        parts = [self._decode(batch.slice(start, PORTION_RECORDS)) for start in starts]
        return Decoded(
            rows=pa.concat_batches([part.rows for part in parts]),
            outcomes=sum((part.outcomes for part in parts), Outcomes()),
        )

    def _decode(self, batch: pa.RecordBatch) -> Decoded:
        column = batch.column(KAFKA_VALUE)
        values = column.to_pylist()
        positions: list[int] = []
        if self._fast is None:
            payload = [build(field, [], exact_leaf) for field in self._fields]
            doubtful = [at for at, value in enumerate(values) if value is not None]
        else:
            positions, payload, doubtful = self._fast.read(column, values)
        slow, errors = self._read_exactly(batch, values, doubtful)
        if slow:
            positions, payload = self._merged(positions, payload, slow)
        rows = self._rows(batch, values, positions, payload, errors)
        tombstones = column.null_count
        return Decoded(
            rows=rows,
            outcomes=Outcomes(
                rows=len(positions),
                skipped=len(values) - tombstones - len(positions),
                tombstones=tombstones,
            ),
        )

    def _read_exactly(
        self, batch: pa.RecordBatch, values: Sequence[Any], doubtful: Sequence[int]
    ) -> tuple[dict[int, tuple[Any, ...]], dict[int, str]]:
        """Read doubtful records one by one: rows, and reasons of bad ones, by position."""
        rows: dict[int, tuple[Any, ...]] = {}
        errors: dict[int, str] = {}
        for at in doubtful:
            try:
                rows[at] = read_record(self._fields, values[at], self._fallback)
            except Unfit as unfit:
                if self._policy == "fail":
                    raise self._undecodable(batch, at, unfit) from None
                errors[at] = unfit.reason
                if self._policy == "null":
                    rows[at] = (None,) * len(self._fields)
        return rows, errors

    def _undecodable(self, batch: pa.RecordBatch, at: int, unfit: Unfit) -> UndecodableRecord:
        partition = batch.column(KAFKA_PARTITION)[at].as_py()
        offset = batch.column(KAFKA_OFFSET)[at].as_py()
        cure = "correct its producer, then run"
        if isinstance(unfit, OtherFormat):
            cure = "bind the table to a topic of JSON records; where it is a single one, run"
        return UndecodableRecord(
            f"{self._table}: the record at partition {partition}, offset {offset} does not decode: "
            f"{unfit.message}; {cure} `thermocline skip {shell_word(self._table)} --partition {partition} --offset {offset}`, "
            f"or choose error policy null or skip for the table.",
            table=self._table,
            partition=partition,
            offset=offset,
            field=unfit.path,
            reason=unfit.message,
        )

    def _merged(
        self,
        positions: Sequence[int],
        payload: Sequence[pa.Array],
        slow: dict[int, tuple[Any, ...]],
    ) -> tuple[list[int], list[pa.Array]]:
        """Put slow rows between the fast ones, in the order of the batch."""
        both = [*positions, *slow]
        order = pa.array(sorted(range(len(both)), key=both.__getitem__), pa.int64())
        merged = []
        for index, (field, array) in enumerate(zip(self._fields, payload, strict=True)):
            late = build(field, [row[index] for row in slow.values()], exact_leaf)
            merged.append(pa.concat_arrays([array, late]).take(order))
        return sorted(both), merged

    def _rows(
        self,
        batch: pa.RecordBatch,
        values: Sequence[bytes | None],
        positions: Sequence[int],
        payload: Sequence[pa.Array],
        errors: dict[int, str],
    ) -> pa.RecordBatch:
        rows = (
            batch
            if len(positions) == len(values)
            else batch.take(pa.array(positions, pa.int64()))
        )
        decoded = iter(payload)
        arrays = []
        for column in self._columns:
            if column.name == KAFKA_VALUE:
                payloads = [values[at] if at in errors else None for at in positions]
                arrays.append(pa.array(payloads, pa.binary()))
            elif column.name == KAFKA_ERROR:
                arrays.append(pa.array([errors.get(at) for at in positions], pa.string()))
            elif column.is_metadata:
                arrays.append(_as(rows.column(column.name), column.type))
            else:
                arrays.append(next(decoded))
        return pa.RecordBatch.from_arrays(arrays, schema=self._arrow)


def _as(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Give an array the field ids inside ``kind``; its type is otherwise that already."""
    return array if array.type.equals(kind, check_metadata=True) else array.cast(kind)


def _check_metadata(table: str, schema: TableSchema) -> None:
    for column in schema.columns:
        always = column.name in (KAFKA_PARTITION, KAFKA_OFFSET)
        if column.is_metadata and column.required and not always:
            raise BadBinding(
                f"{table}: metadata column {column.name} is required, but not every record has it; make it "
                f"optional.",
                table=table,
                column=column.name,
            )


def _check_null_policy(table: str, schema: TableSchema) -> None:
    for name in (KAFKA_VALUE, KAFKA_ERROR):
        if not schema.has(name):
            raise BadBinding(
                f"{table}: error policy null needs the column {name} ({METADATA_TYPES[name]}); add it, or choose "
                f"policy fail or skip.",
                table=table,
                column=name,
            )
    for column in schema.payload:
        if column.required:
            raise BadBinding(
                f"{table}: error policy null writes NULL for a record that does not decode, but column "
                f"{column.name} is required; make it optional, or choose policy fail or skip.",
                table=table,
                column=column.name,
            )
