"""Avro records as the fields of one table, each by the schema it was written with.

docs/avro-types.md defines each value; ``exact`` implements it, ``columnar`` gives the same faster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from connectors.decoding.arrays import build, exact_leaf
from connectors.decoding.avro.columnar import MIN_RECORDS, FieldSteps
from connectors.decoding.avro.exact import ExactRecord
from connectors.decoding.avro.lanes import Batch, Bools
from connectors.decoding.avro.leaves import Read
from connectors.decoding.avro.plan import Plan, plan_root
from connectors.decoding.avro.together import Group, read_groups
from connectors.decoding.avro.wire import schema_of
from connectors.decoding.fields import Field, payload_fields
from connectors.decoding.framing import PREFIX_BYTES
from connectors.decoding.policy import Portion, Unfit
from connectors.decoding.writers import FIXED_ID, Unknown, Writers, not_there
from planner.evolution.writer_types import WriterSchema
from planner.names import KAFKA_VALUE
from planner.schema import TableSchema
from planner.seam.binding import Binding
from planner.seam.formats import AvroFormat

#: Shorter batches are read record by record: the fast path takes some 1.6 ms of any.
FEW_RECORDS = 250
#: The fast path's offsets have 32 bits.
_MOST_BYTES = 1 << 30


class AvroRecords:
    """Reads Avro for one (schema, binding): a ``RecordReader``.

    A portion's ``needs`` are the ids that ``writers`` has nothing of (``writers.FIXED_ID`` where the binding fixes the
    schema). ``fields`` are what it reads, if not the payload columns. ``fast_from``: batches of so many records take the fast
    path; None, to compare: none does.

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
        fields: tuple[Field, ...] | None = None,
        fast_from: int | None = FEW_RECORDS,
    ) -> None:
        self.fields = fields or payload_fields(table, schema, binding)
        self._format = cast("AvroFormat", binding.format)
        self._writers = writers
        self._records: dict[int, tuple[ExactRecord, FieldSteps | None]] = {}
        self._common: dict[Plan, Read] = {}
        self._fast_from = fast_from
        self._nothing = [build(field, [], exact_leaf) for field in self.fields]

    def read(self, batch: pa.RecordBatch) -> Portion:
        """See ``RecordReader.read``."""
        column = batch.column(KAFKA_VALUE)
        is_small = self._fast_from is None or len(column) < self._fast_from
        if is_small or column.nbytes > _MOST_BYTES:
            values = column.to_pylist()
            present = [at for at, value in enumerate(values) if value is not None]
            return self._portion((), self._nothing, present, values.__getitem__, frozenset())
        return self._columnar(column)

    def names(self, raw: bytes) -> frozenset[str]:
        """See ``RecordReader.names``."""
        schema_id, _ = schema_of(raw, is_fixed=self._format.fixed is not None)
        schema = self._writers.get(schema_id)
        root = schema.root.value if isinstance(schema, WriterSchema) else None
        return frozenset(each.name for each in root.fields) if root else frozenset()

    def _portion(
        self,
        positions: Sequence[int],
        columns: Sequence[pa.Array],
        doubtful: Iterable[int],
        raw_at: Callable[[int], bytes],
        writer_ids: frozenset[int],
    ) -> Portion:
        """Complete a portion with the doubtful records; ``raw_at`` gives the bytes of one.

        ``writer_ids`` are those of the others.
        """
        is_fixed = self._format.fixed is not None
        needs: set[int] = set()
        doubtful_ids: set[int] = set()
        has_unknown = False
        readable: dict[int, tuple[ExactRecord, bytes, int] | Unfit] = {}
        for at in doubtful:
            raw = raw_at(at)
            try:
                schema_id, start = schema_of(raw, is_fixed=is_fixed)
            except Unfit as unfit:
                readable[at] = unfit
                continue
            try:
                paths = self._paths(schema_id)
            except Unfit as unfit:
                # It may become known: then the record is another row.
                has_unknown = True
                readable[at] = unfit
                continue
            doubtful_ids.add(schema_id)
            if paths is None:
                needs.add(schema_id)
            elif not paths[0].is_other(raw, start):
                readable[at] = (paths[0], raw, start)

        def exactly(at: int) -> tuple[Any, ...]:
            one = readable[at]
            if isinstance(one, Unfit):
                raise one
            record, raw, start = one
            try:
                return record.read(raw, start)
            except Unfit as unfit:
                self._mind_the_ledger(unfit, raw)
                raise

        every_id = None if has_unknown else writer_ids | doubtful_ids
        return Portion(positions, columns, list(readable), exactly, frozenset(needs), every_id)

    def _mind_the_ledger(self, unfit: Unfit, raw: bytes) -> None:
        """Have a value that does not fit yet be cured by the change of columns that its schema is about to bring."""
        form = self._format
        if unfit.path is None or form.evolution == "none" or form.fixed is not None:
            return
        schema_id, _ = schema_of(raw, is_fixed=False)
        if schema_id not in form.ledger.fingerprints:
            unfit.cure = (
                f"schema id {schema_id} is new to the table, so wait for its tierer, or run `thermocline schemas evolve`; "
                f"if the record does not decode then, correct its producer and run"
            )

    def _columnar(self, column: pa.Array) -> Portion:
        """Read the records of each schema together, in one buffer; then put them in their order."""
        batch = Batch(column)
        is_left = np.asarray(column.is_valid())
        first_byte = PREFIX_BYTES if self._format.fixed is None else 0
        by_id = list(self._groups(batch, is_left))
        groups = [group for _, group in by_id]
        positions: Sequence[int] = ()
        columns = self._nothing
        if groups:
            rows, columns = read_groups(batch, groups, first_byte, self.fields)
            is_left[rows] = False
            positions = range(len(column)) if len(rows) == len(column) else rows.tolist()
        doubtful = np.flatnonzero(is_left).tolist()
        writer_ids = frozenset(schema_id for schema_id, _ in by_id)
        return self._portion(positions, columns, doubtful, batch.raw, writer_ids)

    def _groups(self, batch: Batch, is_left: Bools) -> Iterator[tuple[int, Group]]:
        """Yield the records of each schema that the fast path can read, with its id."""
        rows = np.flatnonzero(is_left)
        ids: NDArray[Any] = np.full(len(rows), FIXED_ID)
        if self._format.fixed is None:
            # As ``wire.schema_id``: the others are for the exact path.
            has_id = (batch.octets(batch.starts) == 0) & is_left
            rows = np.flatnonzero(has_id & (batch.ends - batch.starts >= PREFIX_BYTES))
            ids = batch.halves(batch.starts[rows] + 1).byteswap()
        for schema_id in np.unique(ids).tolist():
            of_id = rows[ids == schema_id]
            if len(of_id) < MIN_RECORDS or schema_id == 0:
                continue
            try:
                paths = self._paths(schema_id)
            except Unfit:
                continue
            if paths is not None and paths[1] is not None:
                yield schema_id, Group(paths[1], of_id)

    def _paths(self, schema_id: int) -> tuple[ExactRecord, FieldSteps | None] | None:
        """Return how the records of a schema are read; None where it is not there yet.

        Raises:
            Unfit: there is no such schema.
        """
        if schema_id in self._format.unknown:
            raise Unfit(None, not_there(schema_id))
        schema = self._writers.get(schema_id)
        if schema is None:
            return None
        if isinstance(schema, Unknown):
            raise Unfit(None, schema.reason)
        paths = self._records.get(schema_id)
        if paths is None or paths[0].root.schema is not schema:
            root = plan_root(schema, self.fields, self._format.record)
            paths = self._records[schema_id] = (
                ExactRecord(root),
                FieldSteps.of(root, self._common),
            )
        return paths
