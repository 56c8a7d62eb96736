"""JSON records as the fields of one table.

docs/json-types.md defines each value; ``strict`` implements it, ``vectorized`` gives the same faster.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from connectors.decoding.arrays import build, exact_leaf
from connectors.decoding.fields import Field, payload_fields
from connectors.decoding.json.lenient import substitute
from connectors.decoding.json.parsing import parse_value
from connectors.decoding.json.strict import Fallback, read_record, read_value, refuse
from connectors.decoding.json.vectorized import FastPath
from connectors.decoding.policy import Portion
from planner.names import KAFKA_VALUE
from planner.schema import TableSchema
from planner.seam.binding import Binding
from planner.seam.formats import JsonFormat


class JsonRecords:
    """Reads JSON for one (schema, binding): a ``RecordReader``.

    ``fields`` are what it reads, if not the payload columns. ``exact_only`` leaves the fast path out, to compare: the same
    rows, some ten times slower. ``is_value``: a record is one JSON value of any kind, that of the one column.

    Raises:
        BadBinding, UnsupportedType: as ``payload_fields``.
    """

    reads = frozenset({KAFKA_VALUE})

    def __init__(
        self,
        table: str,
        schema: TableSchema,
        binding: Binding,
        *,
        fields: tuple[Field, ...] | None = None,
        exact_only: bool = False,
        is_value: bool = False,
    ) -> None:
        self.fields = fields or payload_fields(table, schema, binding)
        is_lenient = isinstance(binding.format, JsonFormat) and binding.format.mode == "lenient"
        self._fallback: Fallback = substitute if is_lenient else refuse
        self._fast = None if exact_only else FastPath.of(self.fields, is_value=is_value)
        self._is_value = is_value

    def read(self, batch: pa.RecordBatch) -> Portion:
        """See ``RecordReader.read``."""
        column = batch.column(KAFKA_VALUE)
        values = column.to_pylist()
        if self._fast is None:
            positions: list[int] = []
            columns = [build(field, [], exact_leaf) for field in self.fields]
            doubtful = [at for at, value in enumerate(values) if value is not None]
        else:
            positions, columns, doubtful = self._fast.read(column, values)
        return Portion(positions, columns, doubtful, lambda at: self._exactly(values[at]))

    def names(self, raw: bytes) -> frozenset[str]:
        """See ``RecordReader.names``."""
        value = parse_value(raw)
        return frozenset(value) if isinstance(value, dict) else frozenset()

    def _exactly(self, raw: bytes) -> tuple[Any, ...]:
        if self._is_value:
            return (read_value(self.fields[0], parse_value(raw), self._fallback),)
        return read_record(self.fields, raw, self._fallback)
