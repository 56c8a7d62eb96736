"""Where the files of a table may lie, and what its manifests may list."""

from __future__ import annotations

import pyarrow as pa
import pytest

from connectors.iceberg.scan.metrics import CONTENT, FORMAT, PATH, Block
from connectors.iceberg.scan.reach import Reach
from planner.errors import ForeignFile

ROOTS = [("s3://lake/wh", "file:///more"), ("s3a://vault/wh",), ()]
TABLE = Reach.of("s3://lake/wh/t/metadata/1.json", "s3://lake/wh/t", ROOTS)
#: Its metadata says that it lies in the vault, or beside it.
THIEF = Reach.of("s3://lake/wh/t/metadata/1.json", "s3://vault/wh/secret", ROOTS)
NAMED = Reach.of("s3://rest/t/metadata/1.json", "s3://rest/t", ROOTS)


def block(path: str, content: int = 0) -> Block:
    return Block(pa.table({PATH: [path], FORMAT: ["PARQUET"], CONTENT: [content]}))


@pytest.mark.parametrize(
    ("reach", "path"),
    [
        (TABLE, "s3://lake/wh/t/data/x.parquet"),
        (TABLE, "s3n://lake/wh/other/x.parquet"),
        (TABLE, "/more/x.parquet"),
        (NAMED, "s3://rest/t/x.parquet"),
    ],
)
def test_its_own_places_are_open(reach: Reach, path: str) -> None:
    reach.check(block(path), is_data=True)


@pytest.mark.parametrize(
    ("reach", "path"),
    [
        (TABLE, "s3://vault/wh/secret/x.parquet"),
        (TABLE, "s3://lake/wh2/x.parquet"),
        (TABLE, "s3://lake/wh/../x.parquet"),
        (TABLE, "/more/../etc/passwd"),
        (TABLE, "http://lake/wh/x.parquet"),
        (THIEF, "s3://vault/wh/secret/x.parquet"),
        (NAMED, "s3://rest/other/x.parquet"),
        (NAMED, "s3://lake/wh/t/x.parquet"),
    ],
)
def test_others_are_not(reach: Reach, path: str) -> None:
    with pytest.raises(ForeignFile, match="outside its location"):
        reach.check(block(path), is_data=True)


@pytest.mark.parametrize(("content", "is_data"), [(1, True), (2, True), (0, False)])
def test_deletes_are_no_rows_and_rows_no_deletes(content: int, is_data: bool) -> None:
    with pytest.raises(ForeignFile, match="delete files as data files"):
        TABLE.check(block("s3://lake/wh/x", content), is_data=is_data)
    TABLE.check(block("s3://lake/wh/x", content), is_data=not is_data)
