"""Compares the rows a log gives with the rows cold holds: one window of offsets at a time.

Exact, over whole Arrow columns: no hash that could collide, no Python object per row. Floats are compared by
their bits, so that NaN equals itself and -0.0 is not 0.0.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc


@dataclass(frozen=True, slots=True)
class Keyed:
    """Rows with one key each, sorted by it."""

    keys: pa.Array
    rows: pa.Table

    @classmethod
    def of(cls, keys: pa.Array, rows: pa.Table) -> Keyed:
        """Sort by key; the rows of one tiered file are in order already."""
        if len(keys) < 2 or pc.all(pc.greater(keys[1:], keys[:-1])).as_py():
            return cls(keys, rows)
        order = pc.sort_indices(keys)
        return cls(keys.take(order), rows.take(order))

    def only(self, mask: pa.Array) -> Keyed:
        return Keyed(self.keys.filter(mask), self.rows.filter(mask))


@dataclass(frozen=True, slots=True)
class RowDifference:
    """Keys by kind of fault, sorted. ``columns`` differ in at least one row of ``changed``.

    ``surplus`` are rows whose offset holds no record in the log, ``unexpected`` rows of records that have
    another outcome (tombstone, skipped).
    """

    missing: pa.Array
    duplicated: pa.Array
    surplus: pa.Array
    unexpected: pa.Array
    changed: pa.Array
    columns: tuple[str, ...]


def compare_rows(records: pa.Array, expected: Keyed, cold: Keyed) -> RowDifference:
    """Compare the rows of one window.

    ``records`` are the keys of all committed records of the window, ``expected`` the rows they decode to, ``cold`` the
    rows cold holds there. The columns of ``expected`` are compared; ``cold`` has them too, in the same types.
    """
    none = pa.array([], pa.int64())
    missing = duplicated = surplus = unexpected = none
    if not cold.keys.equals(expected.keys):
        repeated = repeats(cold.keys)
        if repeated.true_count:
            duplicated = cold.keys.filter(repeated).unique()
            cold = cold.only(pc.invert(repeated))
        missing = without(expected.keys, cold.keys)
        additional = without(cold.keys, expected.keys)
        surplus = without(additional, records)
        unexpected = without(additional, surplus)
        expected, cold = (
            expected.only(pc.is_in(expected.keys, value_set=cold.keys)),
            cold.only(pc.is_in(cold.keys, value_set=expected.keys)),
        )
    differs, columns = _differing(expected.rows, cold.rows)
    changed = none if differs is None else expected.keys.filter(differs)
    return RowDifference(missing, duplicated, surplus, unexpected, changed, columns)


def repeats(keys: pa.Array) -> pa.Array:
    """Return which of sorted keys equal the one before."""
    first = pa.array([False] * min(1, len(keys)), pa.bool_())
    return pa.concat_arrays([first, pc.equal(keys[1:], keys[:-1])])


def without(keys: pa.Array, others: pa.Array) -> pa.Array:
    return keys.filter(pc.invert(pc.is_in(keys, value_set=others)))


def _differing(one: pa.Table, other: pa.Table) -> tuple[pa.Array | None, tuple[str, ...]]:
    """Return which rows of two aligned tables differ, and in which columns; None when none does."""
    any_differs: pa.Array | None = None
    columns = []
    for name in one.column_names:
        left = _comparable(one[name].combine_chunks())
        right = _comparable(other[name].combine_chunks())
        if left.equals(right):
            continue
        columns.append(name)
        differs = _positions(left, right)
        any_differs = differs if any_differs is None else pc.or_(any_differs, differs)
    return any_differs, tuple(columns)


def _positions(left: pa.Array, right: pa.Array) -> pa.Array:
    """Return which positions of two arrays differ; at least one does, and null equals null."""
    if not pa.types.is_nested(left.type):
        unequal = pc.fill_null(pc.not_equal(left, right), False)
        return pc.or_(unequal, pc.xor(left.is_null(), right.is_null()))
    # Arrow compares nested values as whole arrays only: halve until what differs is one row.
    differs = [False] * len(left)
    pending = [(0, len(left))]
    while pending:
        start, stop = pending.pop()
        if left[start:stop].equals(right[start:stop]):
            continue
        if stop - start == 1:
            differs[start] = True
            continue
        middle = (start + stop) // 2
        pending += [(start, middle), (middle, stop)]
    return pa.array(differs, pa.bool_())


def _comparable(array: pa.Array) -> pa.Array:
    """Return an array whose equality is that of the bytes: Arrow's says that NaN differs from NaN."""
    kind = array.type
    if isinstance(array, pa.ExtensionArray):
        return _comparable(array.storage)
    if not _holds_floats(kind):
        return array
    if pa.types.is_floating(kind):
        return array.view(pa.int64() if kind == pa.float64() else pa.int32())
    nulls = array.is_null()
    if pa.types.is_struct(kind):
        members = [_comparable(member) for member in array.flatten()]
        named = [
            field.with_type(member.type) for field, member in zip(kind, members, strict=True)
        ]
        return pa.StructArray.from_arrays(members, fields=named, mask=nulls)
    if pa.types.is_map(kind):
        entry = pa.struct([kind.key_field, kind.item_field])
        return _comparable(array.cast(pa.list_(pa.field("entries", entry, nullable=False))))
    # ``list_flatten`` drops what lies under nulls, so offsets are counted again from the lengths.
    lengths = pc.fill_null(pc.list_value_length(array), 0)
    offsets = pa.concat_arrays(
        [pa.array([0], pa.int32()), pc.cumulative_sum(lengths).cast(pa.int32())]
    )
    values = _comparable(pc.list_flatten(array))
    return pa.ListArray.from_arrays(offsets, values, mask=nulls)


def _holds_floats(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return any(_holds_floats(kind.field(index).type) for index in range(kind.num_fields))
    return bool(pa.types.is_floating(kind))
