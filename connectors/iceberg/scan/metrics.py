"""The data files of one manifest as columns, and their statistics of one field at a time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from planner.reading.filters import Bounds

#: Columns of a block; those of its partition values follow as ``p0``, ``p1``, ... The maps of a manifest are
#: lists of field ids and lists of values, one entry per file.
PATH, FORMAT, ROWS, LENGTH = "path", "format", "rows", "length"
#: 0: rows, 1: deletes by position, 2: by equality (Iceberg spec, field 134).
CONTENT = "content"
NULLS, NANS, LOWER, UPPER = "nulls", "nans", "lower", "upper"

#: Bytes of a bound, by its type (Iceberg spec, Appendix D).
_WIDTHS: dict[pa.DataType, int] = {
    pa.int32(): 4,
    pa.int64(): 8,
    pa.float32(): 4,
    pa.float64(): 8,
    pa.date32(): 4,
    pa.timestamp("us"): 8,
    pa.timestamp("us", tz="UTC"): 8,
}
#: What a column may have been before it was widened (Iceberg spec, "Schema Evolution"): its bounds have fewer bytes.
NARROW = {pa.int64(): pa.int32(), pa.float64(): pa.float32()}


class Block:
    """The files of one manifest. Safe to share between threads: computing a value twice gives the same."""

    def __init__(self, table: pa.Table) -> None:
        self.table: pa.Table = table.combine_chunks()
        self._bounds: dict[tuple[int, pa.DataType], Bounds | None] = {}
        self._partitions: dict[tuple[int, pa.DataType], Bounds | None] = {}
        self.size_bytes: int = table.nbytes
        #: In capitals, as in the specification; not every writer follows it.
        self.formats: pa.Array = pc.utf8_upper(self._column(FORMAT))

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @property
    def paths(self) -> pa.Array:
        return self._column(PATH)

    @property
    def rows(self) -> pa.Array:
        return self._column(ROWS)

    @property
    def lengths(self) -> pa.Array:
        """In bytes, as the writer told."""
        return self._column(LENGTH)

    @property
    def bounded(self) -> frozenset[int]:
        """Fields of which some file has a lower bound."""
        return frozenset(self._column(f"{LOWER}_ids").flatten().unique().to_pylist())

    @cached_property
    def without_nan(self) -> frozenset[int]:
        """Fields of which every file counted NaN, and found none."""
        ids, values = self._column(f"{NANS}_ids"), self._column(f"{NANS}_values")
        counts = pc.value_counts(ids.flatten().filter(pc.equal(values.flatten(), 0)))
        return frozenset(
            field.as_py()
            for field, files in zip(*counts.flatten(), strict=True)
            if files.as_py() == len(self)
        )

    @cached_property
    def without_zero(self) -> frozenset[int]:
        """Fields ``without_nan`` that have a zero in no file, by the bounds that every file gives."""
        return frozenset(field for field in self.without_nan if self._is_without_zero(field))

    def _is_without_zero(self, field_id: int) -> bool:
        bounds = self.bounds(field_id, pa.float64())
        if bounds is None:
            return False
        is_beside = pc.or_kleene(pc.greater(bounds.lower, 0), pc.less(bounds.upper, 0))
        is_empty = pc.equal(bounds.nulls, bounds.rows)
        return (
            pc.all(pc.fill_null(pc.or_kleene(is_beside, is_empty), False)).as_py() is not False
        )

    def bounds(self, field_id: int, kind: pa.DataType) -> Bounds | None:
        """Return the statistics of a field as values of ``kind``; None when the type has no usable ones."""
        key = (field_id, kind)
        if key not in self._bounds:
            self._bounds[key] = self._read_bounds(field_id, kind)
        return self._bounds[key]

    def partition(self, position: int, kind: pa.DataType) -> Bounds | None:
        """Return the values of a partition field as ``kind``; None when they cannot be read so."""
        key = (position, kind)
        if key not in self._partitions:
            try:
                values = self._column(f"p{position}").cast(kind)
                self._partitions[key] = Bounds.exact(values)
            except (KeyError, pa.ArrowInvalid, pa.ArrowNotImplementedError):
                self._partitions[key] = None
        return self._partitions[key]

    def _read_bounds(self, field_id: int, kind: pa.DataType) -> Bounds | None:
        lower = typed(self._of_field(LOWER, field_id), kind)
        upper = typed(self._of_field(UPPER, field_id), kind)
        if lower is None or upper is None:
            return None
        nulls, nans = self._of_field(NULLS, field_id), self._of_field(NANS, field_id)
        return Bounds(lower, upper, nulls, nans, self.rows)

    def _of_field(self, name: str, field_id: int) -> pa.Array:
        """Return one field's entry of a map per file, null where there is none."""
        ids, values = self._column(f"{name}_ids"), self._column(f"{name}_values")
        chosen = pc.equal(ids.flatten(), field_id)
        files = pc.list_parent_indices(ids).filter(chosen)
        chosen_values = values.flatten().filter(chosen)
        if len(files) == len(self):
            return chosen_values
        indices = pc.index_in(pa.array(range(len(self)), files.type), value_set=files)
        return chosen_values.take(indices)

    def _column(self, name: str) -> pa.Array:
        column = self.table.column(name)
        return column.chunk(0) if column.num_chunks else pa.array([], column.type)


class Files:
    """The files of several manifests of one partition spec, in the order of the blocks. Safe to share."""

    def __init__(self, blocks: Sequence[Block]) -> None:
        self._blocks = tuple(blocks)
        self._bounds: dict[tuple[str, int, pa.DataType], Bounds | None] = {}
        self.are_parquet = all(
            pc.all(pc.equal(block.formats, "PARQUET")).as_py() is not False for block in blocks
        )
        #: As that of a block.
        self.without_nan = frozenset.intersection(*(block.without_nan for block in blocks))

    @cached_property
    def without_zero(self) -> frozenset[int]:
        """As that of a block."""
        return frozenset.intersection(*(block.without_zero for block in self._blocks))

    def bounds(self, field_id: int, kind: pa.DataType) -> Bounds | None:
        return self._joined("bounds", field_id, kind)

    def partition(self, position: int, kind: pa.DataType) -> Bounds | None:
        return self._joined("partition", position, kind)

    def column(
        self,
        name: Literal["paths", "lengths", "formats", "rows"],
        chosen: pa.BooleanArray | None,
    ) -> pa.ChunkedArray:
        """Return a column of blocks, of the chosen files or all."""
        column = pa.chunked_array([getattr(block, name) for block in self._blocks])
        return column if chosen is None else column.filter(chosen)

    def rows(self, chosen: pa.BooleanArray | None) -> int:
        # In floats: what writers counted may be anything.
        total = pc.sum(self.column("rows", chosen).cast(pa.float64()))
        return int(total.as_py() or 0)

    def _joined(self, what: str, number: int, kind: pa.DataType) -> Bounds | None:
        key = (what, number, kind)
        if key not in self._bounds:
            bounds = [getattr(block, what)(number, kind) for block in self._blocks]
            self._bounds[key] = None if None in bounds else Bounds.joined(bounds)
        return self._bounds[key]


def typed(bounds: pa.BinaryArray, kind: pa.DataType) -> pa.Array | None:
    """Decode single-value bytes (Iceberg spec, Appendix D); null where they are not a value of the type.

    Text stays bytes, which sort like its code points. None for types whose bounds are unusable: writers have ordered
    UUIDs in two ways.
    """
    if kind == pa.binary():
        return bounds
    if kind == pa.bool_():
        return pc.equal(bounds, b"\x01")
    if pa.types.is_decimal(kind):
        return _decimals(bounds, kind)
    width = _WIDTHS.get(kind)
    if width is None:
        return None
    lengths = pc.binary_length(bounds)
    values = _fixed(pc.if_else(pc.equal(lengths, width), bounds, None), kind)
    if kind in NARROW and pc.any(pc.equal(lengths, width // 2)).as_py():
        narrow = pc.if_else(pc.equal(lengths, width // 2), bounds, None)
        values = pc.coalesce(values, _fixed(narrow, NARROW[kind]).cast(kind))
    return values


def _fixed(values: pa.BinaryArray, kind: pa.DataType) -> pa.Array:
    """Read consecutive little-endian values of the type's width in place."""
    dense = values.drop_null()
    if not len(dense):
        return pa.nulls(len(values), kind)
    _, offsets, content = dense.buffers()
    start = int.from_bytes(offsets[4 * dense.offset :][:4].to_pybytes(), "little")
    array = pa.Array.from_buffers(kind, len(dense), [None, content[start:]])
    if not values.null_count:
        return array
    indices = pc.subtract(pc.cumulative_sum(values.is_valid().cast(pa.int64())), 1)
    return array.take(pc.if_else(values.is_valid(), indices, None))


def _decimals(bounds: pa.BinaryArray, kind: pa.DataType) -> pa.Array:
    """Read unscaled big-endian integers of minimal length."""
    unscaled = [
        None if value is None or len(value) > 16 else int.from_bytes(value, "big", signed=True)
        for value in bounds.to_pylist()
    ]
    content = b"".join((value or 0).to_bytes(16, "little", signed=True) for value in unscaled)
    values = pa.Array.from_buffers(kind, len(unscaled), [None, pa.py_buffer(content)])
    is_valid = pa.array([value is not None for value in unscaled], pa.bool_())
    return pc.if_else(is_valid, values, None)
