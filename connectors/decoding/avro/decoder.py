"""Avro records as the fields of one table, each by the schema it was written with.

docs/avro-types.md defines each value; ``exact`` implements it, ``columnar`` gives the same faster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, cast

import numpy as np
import pyarrow as pa

from connectors.decoding.arrays import build, exact_leaf
from connectors.decoding.avro.columnar import MIN_RECORDS, FastPath
from connectors.decoding.avro.exact import ExactRecord
from connectors.decoding.avro.lanes import Batch, Bools, Ints, Lane
from connectors.decoding.avro.plan import plan_root
from connectors.decoding.avro.wire import PREFIX_BYTES, schema_of
from connectors.decoding.fields import payload_fields
from connectors.decoding.policy import Portion, Unfit
from connectors.decoding.writers import FIXED_ID, Unknown, Writers
from planner.names import KAFKA_VALUE
from planner.schema import TableSchema
from planner.seam.binding import Binding
from planner.seam.formats import AvroFormat

#: Shorter batches are read record by record: the fast path takes some 1.6 ms of any.
FEW_RECORDS = 250


class AvroRecords:
    """Reads Avro for one (schema, binding): a ``RecordReader``.

    A portion's ``needs`` are the ids that ``writers`` has nothing of (``writers.FIXED_ID`` where the binding fixes the
    schema). ``fast_from``: batches of so many records take the fast path; None, to compare: none does.

    Raises:
        BadBinding, UnsupportedType: as ``payload_fields``.
    """

    reads = frozenset({KAFKA_VALUE})

    def __init__(
        self,
        table: str,
        schema: TableSchema,
        binding: Binding,
        writers: Writers,
        *,
        fast_from: int | None = FEW_RECORDS,
    ) -> None:
        self.fields = payload_fields(table, schema, binding)
        self._format = cast("AvroFormat", binding.format)
        self._writers = writers
        self._records: dict[int, tuple[ExactRecord, FastPath | None]] = {}
        self._fast_from = fast_from

    def read(self, batch: pa.RecordBatch) -> Portion:
        """See ``RecordReader.read``."""
        column = batch.column(KAFKA_VALUE)
        if self._fast_from is None or len(column) < self._fast_from:
            values = column.to_pylist()
            present = [at for at, value in enumerate(values) if value is not None]
            return self._portion((), self._nothing(), present, values.__getitem__)
        return self._columnar(column)

    def _portion(
        self,
        positions: Sequence[int],
        columns: Sequence[pa.Array],
        doubtful: Iterable[int],
        raw_at: Callable[[int], bytes],
    ) -> Portion:
        """Complete a portion with the doubtful records; ``raw_at`` gives the bytes of one."""
        is_fixed = self._format.fixed is not None
        needs: set[int] = set()
        readable: dict[int, tuple[ExactRecord, bytes, int] | Unfit] = {}
        for at in doubtful:
            raw = raw_at(at)
            try:
                schema_id, start = schema_of(raw, is_fixed=is_fixed)
                paths = self._paths(schema_id)
            except Unfit as unfit:
                readable[at] = unfit
                continue
            if paths is None:
                needs.add(schema_id)
            elif not paths[0].is_other(raw, start):
                readable[at] = (paths[0], raw, start)

        def exactly(at: int) -> tuple[Any, ...]:
            one = readable[at]
            if isinstance(one, Unfit):
                raise one
            record, raw, start = one
            return record.read(raw, start)

        return Portion(positions, columns, list(readable), exactly, frozenset(needs))

    def _nothing(self) -> list[pa.Array]:
        return [build(field, [], exact_leaf) for field in self.fields]

    def _columnar(self, column: pa.Array) -> Portion:
        """Read the records of each schema together, in one buffer; then put them in their order."""
        batch = Batch(column)
        is_left = np.asarray(column.is_valid())
        groups: list[Ints] = []
        columns: list[list[pa.Array]] = []
        for fast, rows, start in self._groups(batch, is_left):
            lane = Lane(batch, rows, batch.starts[rows] + start, batch.ends[rows])
            columns.append(fast.read(lane))
            groups.append(rows)
            is_left[rows] = batch.is_bad[rows]
        doubtful = np.flatnonzero(is_left).tolist()
        if not groups:
            return self._portion((), self._nothing(), doubtful, batch.raw)
        rows = np.concatenate(groups)
        whole = [
            each[0] if len(each) == 1 else pa.concat_arrays(each)
            for each in zip(*columns, strict=True)
        ]
        if len(groups) > 1 or batch.is_bad[rows].any():
            good = np.flatnonzero(~batch.is_bad[rows])
            good = good[np.argsort(rows[good])] if len(groups) > 1 else good
            order = pa.array(good)
            rows, whole = rows[good], [each.take(order) for each in whole]
        positions = range(len(column)) if len(rows) == len(column) else rows.tolist()
        return self._portion(positions, whole, doubtful, batch.raw)

    def _groups(self, batch: Batch, is_left: Bools) -> Iterator[tuple[FastPath, Ints, int]]:
        """Yield the fast path of each schema, the records it can read, and where their bodies begin."""
        if self._format.fixed is not None:
            rows = np.flatnonzero(is_left)
            ids, start = np.full(len(rows), FIXED_ID), 0
        else:
            # As ``wire.schema_id``: the others are for the exact path.
            has_id = (batch.octets(batch.starts) == 0) & is_left
            has_id &= batch.ends - batch.starts >= PREFIX_BYTES
            rows = np.flatnonzero(has_id)
            ids, start = batch.halves(batch.starts[rows] + 1).byteswap(), PREFIX_BYTES
        for schema_id in np.unique(ids).tolist():
            of_id = rows[ids == schema_id]
            if len(of_id) < MIN_RECORDS or schema_id == 0:
                continue
            try:
                paths = self._paths(schema_id)
            except Unfit:
                continue
            if paths is not None and paths[1] is not None:
                yield paths[1], of_id, start

    def _paths(self, schema_id: int) -> tuple[ExactRecord, FastPath | None] | None:
        """Return how the records of a schema are read; None where it is not there yet.

        Raises:
            Unfit: there is no such schema.
        """
        schema = self._writers.get(schema_id)
        if schema is None:
            return None
        if isinstance(schema, Unknown):
            raise Unfit(None, schema.reason)
        paths = self._records.get(schema_id)
        if paths is None or paths[0].root.schema is not schema:
            root = plan_root(schema, self.fields, self._format.record)
            paths = self._records[schema_id] = (ExactRecord(root), FastPath.of(root))
        return paths
