"""Of which floating fields the statistics of files tell what SQL would: no NaN, and no zero, which may have a sign."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pytest

from connectors.iceberg.scan.metrics import FORMAT, Block

ROWS = 10
#: Lower and upper bound, counts of NULL and NaN of one field; None: the writer gave none.
File = tuple[float | None, float | None, int | None, int | None]


def block(*files: File, form: str = "<d") -> Block:
    columns: dict[str, pa.Array] = {
        FORMAT: pa.array(["PARQUET"] * len(files)),
        "rows": pa.array([ROWS] * len(files), pa.int64()),
    }
    for at, name in enumerate(("lower", "upper", "nulls", "nans")):
        values: list[Any] = [file[at] for file in files]
        kind = pa.int64()
        if at < 2:
            values = [None if each is None else struct.pack(form, each) for each in values]
            kind = pa.binary()
        columns[f"{name}_ids"] = pa.array(
            [[] if each is None else [7] for each in values], pa.list_(pa.int32())
        )
        columns[f"{name}_values"] = pa.array(
            [[] if each is None else [each] for each in values], pa.list_(kind)
        )
    return Block(pa.table(columns))


@pytest.mark.parametrize(
    ("files", "is_comparable"),
    [
        ([(1.0, 2.0, 0, 0)], True),
        ([(-2.0, -1.0, 0, 0), (1e-30, 1.0, 3, 0)], True),
        ([(None, None, ROWS, 0)], True),
        ([(1.0, 2.0, 0, 1)], False),
        ([(1.0, 2.0, 0, None)], False),
        ([(-1.0, 2.0, 0, 0)], False),
        ([(-1.0, -0.0, 0, 0)], False),
        ([(0.0, 2.0, 0, 0)], False),
        ([(1.0, 2.0, 0, 0), (-0.0, -0.0, 0, 0)], False),
        ([(1.0, 2.0, 0, 0), (None, None, 0, 0)], False),
        ([(None, 2.0, 0, 0)], False),
    ],
)
@pytest.mark.parametrize("form", ["<d", "<f"])
def test_a_field_without_nan_and_zero_in_every_file_is_comparable(
    files: list[File], is_comparable: bool, form: str
) -> None:
    assert block(*files, form=form).without_zero == ({7} if is_comparable else frozenset())
