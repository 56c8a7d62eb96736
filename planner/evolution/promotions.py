"""Which type of a column may become which: our own table, since pyiceberg lets some pass that change what is stored.

pyiceberg 0.12 takes another scale of a decimal, and string for binary; Iceberg's Java library takes neither.
"""

from __future__ import annotations

import pyarrow as pa

from planner.schema import PRIMITIVES

_WIDER = {
    PRIMITIVES["int"]: PRIMITIVES["long"],
    PRIMITIVES["float"]: PRIMITIVES["double"],
}


def is_promotion(before: pa.DataType, after: pa.DataType) -> bool:
    """Return whether Iceberg (specification, "Schema Evolution") lets a column of one type become of the other, in format 2."""
    if pa.types.is_decimal128(before) and pa.types.is_decimal128(after):
        return bool(before.scale == after.scale and before.precision < after.precision)
    return bool(_WIDER.get(before) == after)


def holds(column: pa.DataType, writer: pa.DataType) -> bool:
    """Return whether every value of a writer's type is one of the column's: the same type, or a promotion of it."""
    return bool(column == writer) or is_promotion(writer, column)
