"""From values in lists to Arrow arrays of exactly a field's type, nesting included."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from connectors.decoding.fields import Field

#: Builds the array of a field that is not a list, map or struct, or raises ``Doubt``. None is NULL.
Leaf = Callable[[Field, Sequence[Any]], pa.Array]


class Doubt(Exception):
    """Some values cannot be converted for certain; ``at`` are their indices, ascending, maybe repeated."""

    def __init__(self, at: Sequence[int]) -> None:
        super().__init__(f"{len(at)} values in doubt")
        self.at = at


def build(field: Field, values: Sequence[Any], leaf: Leaf) -> pa.Array:
    """Build one column. Structs come as tuples in member order, maps as lists of pairs, None is NULL.

    Raises:
        Doubt: as ``leaf`` does, translated to indices into ``values``.
    """
    if field.kind == "struct":
        return _struct(field, values, leaf)
    if field.kind not in ("list", "map"):
        return leaf(field, values)
    columns = [[item for value in values if value is not None for item in value]]
    if field.kind == "map":
        columns = [[pair[index] for pair in columns[0]] for index in (0, 1)]
    try:
        children = [
            build(child, column, leaf)
            for child, column in zip(field.children, columns, strict=True)
        ]
    except Doubt as doubt:
        owners = [index for index, value in enumerate(values) for _ in value or ()]
        raise Doubt([owners[at] for at in doubt.at]) from None
    kind = pa.ListArray if field.kind == "list" else pa.MapArray
    return kind.from_arrays(_offsets(values), *children, type=field.type, mask=_nulls(values))


def over_all(
    columns: Sequence[pa.Array], positions: Sequence[int], count: int
) -> list[pa.Array]:
    """Return columns of the rows at ``positions`` as ones of ``count`` rows, NULL at all others."""
    if len(positions) == count:
        return list(columns)
    at: list[int | None] = [None] * count
    for index, position in enumerate(positions):
        at[position] = index
    indices = pa.array(at, pa.int64())
    return [column.take(indices) for column in columns]


def true_at(flags: pa.Array) -> list[int]:
    """Return the indices of what is true."""
    return pc.indices_nonzero(pc.fill_null(flags, False)).to_pylist()  # type: ignore[no-any-return]


def exact_leaf(field: Field, values: Sequence[Any]) -> pa.Array:
    """Build from values that ``strict`` checked; none of them can fail here."""
    if field.kind == "decimal":
        # As plain text: some values of Decimal end the process (pyarrow 26.0.1).
        text = [None if value is None else format(value, "f") for value in values]
        return pa.array(text, pa.string()).cast(field.type)
    if field.kind == "uuid":
        return uuids(values)
    return pa.array(values, field.type)


def uuids(values: Sequence[bytes | None]) -> pa.Array:
    return pa.ExtensionArray.from_storage(pa.uuid(), pa.array(values, pa.binary(16)))


def _struct(field: Field, values: Sequence[Any], leaf: Leaf) -> pa.Array:
    members = [
        build(child, [None if value is None else value[index] for value in values], leaf)
        for index, child in enumerate(field.children)
    ]
    return pa.StructArray.from_arrays(members, fields=list(field.type), mask=_nulls(values))


def _offsets(values: Sequence[Any]) -> pa.Array:
    lengths = (0 if value is None else len(value) for value in values)
    return pa.array(accumulate(lengths, initial=0), pa.int32())


def _nulls(values: Sequence[Any]) -> pa.Array:
    return pa.array([value is None for value in values], pa.bool_())
