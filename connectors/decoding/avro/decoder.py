"""Avro records as the fields of one table, each by the schema it was written with.

docs/avro-types.md defines each value; ``exact`` implements it.
"""

from __future__ import annotations

from typing import Any, cast

import pyarrow as pa

from connectors.decoding.arrays import build, exact_leaf
from connectors.decoding.avro.exact import ExactRecord
from connectors.decoding.avro.plan import plan_root
from connectors.decoding.avro.wire import schema_of
from connectors.decoding.fields import payload_fields
from connectors.decoding.policy import Portion, Unfit
from connectors.decoding.writers import Unknown, Writers
from planner.names import KAFKA_VALUE
from planner.schema import TableSchema
from planner.seam.binding import Binding
from planner.seam.formats import AvroFormat


class AvroRecords:
    """Reads Avro for one (schema, binding): a ``RecordReader``.

    A portion's ``needs`` are the ids that ``writers`` has nothing of (``writers.FIXED_ID`` where the binding fixes the
    schema). ``exact_only`` leaves the fast path out, to compare.

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
        exact_only: bool = False,
    ) -> None:
        self.fields = payload_fields(table, schema, binding)
        self._format = cast("AvroFormat", binding.format)
        self._writers = writers
        self._records: dict[int, ExactRecord] = {}
        self._exact_only = exact_only

    def read(self, batch: pa.RecordBatch) -> Portion:
        """See ``RecordReader.read``."""
        column = batch.column(KAFKA_VALUE)
        return self._one_by_one(column)

    def _one_by_one(self, column: pa.Array) -> Portion:
        values = column.to_pylist()
        is_fixed = self._format.fixed is not None
        needs: set[int] = set()
        doubtful: dict[int, tuple[ExactRecord, int] | Unfit] = {}
        for at, raw in enumerate(values):
            if raw is None:
                continue
            try:
                schema_id, start = schema_of(raw, is_fixed=is_fixed)
                record = self._record(schema_id)
            except Unfit as unfit:
                doubtful[at] = unfit
                continue
            if record is None:
                needs.add(schema_id)
            elif not record.is_other(raw, start):
                doubtful[at] = (record, start)

        def exactly(at: int) -> tuple[Any, ...]:
            known = doubtful[at]
            if isinstance(known, Unfit):
                raise known
            record, start = known
            return record.read(values[at], start)

        nothing = [build(field, [], exact_leaf) for field in self.fields]
        return Portion((), nothing, list(doubtful), exactly, frozenset(needs))

    def _record(self, schema_id: int) -> ExactRecord | None:
        """Return how the records of a schema are read; None where it is not there yet.

        Raises:
            Unfit: there is no such schema.
        """
        schema = self._writers.get(schema_id)
        if schema is None:
            return None
        if isinstance(schema, Unknown):
            raise Unfit(None, schema.reason)
        record = self._records.get(schema_id)
        if record is None or record.root.schema is not schema:
            record = ExactRecord(plan_root(schema, self.fields, self._format.record))
            self._records[schema_id] = record
        return record
