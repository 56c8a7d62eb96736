"""What no record format owns: error policies, tombstones, skips, metadata columns, portions, order.

The same for the tail and the tierer. A format is a ``RecordReader`` (``connectors.decoding.registry``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import itemgetter
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from connectors.decoding.arrays import build, exact_leaf
from connectors.decoding.fields import Field
from planner.errors import BadBinding, UndecodableRecord
from planner.evolution.writer_types import WriterIds
from planner.names import (
    KAFKA_ERROR,
    KAFKA_KEY,
    KAFKA_OFFSET,
    KAFKA_PARTITION,
    KAFKA_VALUE,
    shell_word,
)
from planner.ports import Decoded, all_ids
from planner.schema import METADATA_TYPES, RAW_SCHEMA, TableSchema
from planner.seam.binding import Binding, OnError, decoded_schema
from planner.seam.watermark import Outcomes

#: Longer batches are decoded in portions, whose payloads and columns stay in the processor's cache.
PORTION_RECORDS = 8_192


#: Ends a cure of more than one record.
SINGLE = "; where it is a single one, run"


class Unfit(Exception):
    """A record, or a value in it, that its type does not allow. ``path`` is None for the whole record.

    ``reason`` is what rows have as ``kafka_error``, so it never changes for the same bytes; ``message`` may say more.
    """

    #: What to do, before the command that skips the record.
    cure = "correct its producer, then run"
    error: type[UndecodableRecord] = UndecodableRecord

    def __init__(self, path: str | None, reason: str, message: str | None = None) -> None:
        super().__init__(reason if path is None else f"field {path}: {reason}")
        self.path = path
        self.message = message or self.reason

    @property
    def reason(self) -> str:
        return str(self.args[0])


@dataclass(frozen=True, slots=True)
class Portion:
    """What a format reads of some records at once: ``columns``, one array per field, of the records at ``positions``.

    ``exactly`` reads one of those at ``doubtful``: a value per field, as ``arrays.exact_leaf`` takes them, or it raises
    ``Unfit``. Both positions ascend. A record with a value that is in neither is none of the table's, and counts as
    skipped. With ``needs`` nothing else counts. ``needs`` and ``writer_ids`` as in ``planner.ports.Decoded``.
    """

    positions: Sequence[int]
    columns: Sequence[pa.Array]
    doubtful: Sequence[int]
    exactly: Callable[[int], tuple[Any, ...]]
    needs: frozenset[int] = frozenset()
    writer_ids: WriterIds = None


class RecordReader(Protocol):
    """Reads the records of one format as the fields of a table. Thread-safe."""

    @property
    def fields(self) -> tuple[Field, ...]:
        """The payload columns, in the order of the table."""

    @property
    def reads(self) -> frozenset[str]:
        """As ``planner.ports.Decoder.reads``."""

    def read(self, batch: pa.RecordBatch) -> Portion:
        """Read a portion of a batch of ``RAW_SCHEMA``."""

    def names(self, raw: bytes) -> frozenset[str]:
        """Return the names of a record's own fields, for messages; none where it has no such. Raises Unfit."""


@dataclass(frozen=True, slots=True)
class Payload:
    """The payload ``columns`` of the records at ``positions``, ascending, that become rows by an error policy.

    ``errors`` are the bad records by position; under policy ``null`` they are rows, under ``fail`` the first is there.
    """

    positions: Sequence[int]
    columns: Sequence[pa.Array]
    errors: Mapping[int, Unfit]


def read_exactly(fields: Sequence[Field], portion: Portion, policy: OnError) -> Payload:
    """Read the doubtful records of a portion one by one, and put them between the others."""
    rows: dict[int, tuple[Any, ...]] = {}
    errors: dict[int, Unfit] = {}
    for at in portion.doubtful:
        try:
            rows[at] = portion.exactly(at)
        except Unfit as unfit:
            # Its traceback leads to this frame, which has ``errors``: a cycle that keeps the batch.
            errors[at] = unfit.with_traceback(None)
            if policy == "fail":
                break
            if policy == "null":
                rows[at] = (None,) * len(fields)
    if not rows:
        return Payload(portion.positions, portion.columns, errors)
    both = [*portion.positions, *rows]
    order = pa.array(sorted(range(len(both)), key=both.__getitem__), pa.int64())
    merged = []
    for index, (field, array) in enumerate(zip(fields, portion.columns, strict=True)):
        late = build(field, [row[index] for row in rows.values()], exact_leaf)
        merged.append(pa.concat_arrays([array, late]).take(order))
    return Payload(sorted(both), merged, errors)


class Keys(Protocol):
    """What ``connectors.decoding.keys.KeyColumn`` is."""

    def beside(self, payload: Payload, batch: pa.RecordBatch, policy: OnError) -> Payload:
        """Put the column of the records' keys between the columns of their values."""


class TableDecoder:
    """Decodes batches of one (schema, binding) by the reader of its format. Thread-safe.

    ``keys``: those of records fill a column.

    Raises:
        BadBinding: the schema cannot hold what the binding's error policy needs.
    """

    def __init__(
        self,
        table: str,
        schema: TableSchema,
        binding: Binding,
        records: RecordReader,
        keys: Keys | None = None,
    ) -> None:
        self._table = table
        self._policy = binding.on_error
        self._boundary = binding.boundary
        self._schema = schema
        self._arrow = decoded_schema(schema, binding)
        self._records = records
        self._keys = keys
        self.reads = records.reads | {
            column.name for column in schema.columns if column.name in RAW_SCHEMA.names
        }
        if keys is not None:
            self.reads |= {KAFKA_KEY}
        self._skips = {
            partition: pa.array([at for of, at in binding.skips if of == partition], pa.int64())
            for partition in {of for of, _ in binding.skips}
        }
        _check_metadata(table, schema)
        if self._policy == "null":
            _check_null_policy(table, schema, binding)

    def decode(self, batch: pa.RecordBatch) -> Decoded:
        """Decode one batch of ``RAW_SCHEMA``; rows keep its order.

        A null value is a tombstone: no row, under any policy. A record that does not decode is a row with
        NULLs under policy ``null``, and counted as skipped under ``skip``, as are those that the binding skips. Rows
        before its boundary are left out, and counted as expired.

        Raises:
            UndecodableRecord: policy ``fail``; names the first such record of the batch.
        """
        left = self.without_skips(batch)
        if len(left) == len(batch) <= PORTION_RECORDS:
            return self._decode(batch)
        starts = range(0, max(1, len(left)), PORTION_RECORDS)
        decoded = [self._decode(left.slice(start, PORTION_RECORDS)) for start in starts]
        return Decoded(
            pa.concat_batches([each.rows for each in decoded]),
            sum((each.outcomes for each in decoded), Outcomes(skipped=len(batch) - len(left))),
            frozenset[int]().union(*(each.needs for each in decoded)),
            reduce(all_ids, (each.writer_ids for each in decoded)),
        )

    def without_skips(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the records that a person has not given up."""
        for partition, offsets in self._skips.items():
            matches = pc.and_(
                pc.is_in(batch.column(KAFKA_OFFSET), value_set=offsets),
                pc.equal(batch.column(KAFKA_PARTITION), partition),
            )
            if matches.true_count:
                batch = batch.filter(pc.invert(matches))
        return batch

    @property
    def no_rows(self) -> pa.RecordBatch:
        nothing = [pa.nulls(0, each.type) for each in self._arrow]
        return pa.RecordBatch.from_arrays(nothing, schema=self._arrow)

    def _decode(self, batch: pa.RecordBatch) -> Decoded:
        portion = self._records.read(batch)
        if portion.needs:
            return Decoded(self.no_rows, Outcomes(), portion.needs)
        payload = read_exactly(self._records.fields, portion, self._policy)
        if self._keys is not None:
            payload = self._keys.beside(payload, batch, self._policy)
        if payload.errors and self._policy == "fail":
            raise self._undecodable(batch, *min(payload.errors.items(), key=itemgetter(0)))
        count, tombstones = len(payload.positions), batch.column(KAFKA_VALUE).null_count
        outcomes = Outcomes(
            rows=count, skipped=len(batch) - tombstones - count, tombstones=tombstones
        )
        rows = self._rows(batch, payload)
        boundary = self._boundary
        expired = None if boundary is None else boundary.expired(rows, self._schema)
        if expired is not None:
            rows = rows.filter(pc.invert(expired))
            count = expired.true_count
            outcomes = replace(outcomes, rows=outcomes.rows - count, expired=count)
        return Decoded(rows, outcomes, writer_ids=portion.writer_ids)

    def _undecodable(self, batch: pa.RecordBatch, at: int, unfit: Unfit) -> UndecodableRecord:
        partition = batch.column(KAFKA_PARTITION)[at].as_py()
        offset = batch.column(KAFKA_OFFSET)[at].as_py()
        # A keyed table has no policy null, and under another one its rows would be others.
        is_keyed = self._arrow is not self._schema.arrow
        policies = "" if is_keyed else ", or choose error policy null or skip for the table"
        return unfit.error(
            f"{self._table}: the record at partition {partition}, offset {offset} does not decode: {unfit.message}; {unfit.cure} "
            f"`thermocline skip {shell_word(self._table)} --partition {partition} --offset {offset}`{policies}.",
            table=self._table,
            partition=partition,
            offset=offset,
            field=unfit.path,
            reason=unfit.message,
        )

    def _rows(self, batch: pa.RecordBatch, payload: Payload) -> pa.RecordBatch:
        positions, errors = payload.positions, payload.errors
        rows = batch
        if len(positions) != len(batch):
            # Without what no column has: payloads are the most of a record.
            rows = batch.select([name for name in batch.schema.names if self._schema.has(name)])
            rows = rows.take(pa.array(positions, pa.int64()))
        decoded = iter(payload.columns)
        arrays = []
        for column in self._schema.columns:
            if column.name == KAFKA_VALUE:
                is_bad = pa.array([at in errors for at in positions], pa.bool_())
                nothing = pa.scalar(None, pa.binary())
                arrays.append(pc.if_else(is_bad, rows.column(KAFKA_VALUE), nothing))
            elif column.name == KAFKA_ERROR:
                reasons = [errors[at].reason if at in errors else None for at in positions]
                arrays.append(pa.array(reasons, pa.string()))
            elif column.is_metadata:
                arrays.append(with_ids(rows.column(column.name), column.type))
            else:
                arrays.append(next(decoded))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema.arrow)


def with_ids(array: pa.Array, kind: pa.DataType) -> pa.Array:
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


def _check_null_policy(table: str, schema: TableSchema, binding: Binding) -> None:
    for name in binding.null_policy_columns:
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
