#!/usr/bin/env bash
# ClickHouse 26.9 (chdb 4.4.0): a column that has the name another had when the file was written is read right, but filtered wrong.
#
# Expected: `WHERE v = 2` returns the row whose v is 2. Iceberg finds columns by field id (spec, Column Projection).
# Seen: v and w change names; SELECT * has the new ones, and a filter on v finds no row by the old value nor by the new one.
# A column that was dropped, then added again, is NULL in SELECT *, and `v IS NULL` finds none.
# Exits 0 while this is so.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet chdb==4.4.0 chdb-core==26.9.0 'pyiceberg[sql-sqlite]==0.12.0' pyarrow==25.0.1

cd "$work"
"$work/venv/bin/python" - "$work" >"$work/output" <<'PY'
import sys

import chdb
import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.types import LongType

catalog = SqlCatalog("c", uri=f"sqlite:///{sys.argv[1]}/c.db", warehouse=f"file://{sys.argv[1]}/w")
catalog.create_namespace("n")


def swap(name):
    for old, new in (("v", "x"), ("w", "v"), ("x", "w")):
        with catalog.load_table(name).update_schema() as update:
            update.rename_column(old, new)


def add_again(name):
    with catalog.load_table(name).update_schema() as update:
        update.delete_column("v")
    with catalog.load_table(name).update_schema() as update:
        update.add_column("v", LongType())


for change in (swap, add_again):
    name = f"n.{change.__name__}"
    rows = pa.table({"v": pa.array([1], pa.int64()), "w": pa.array([2], pa.int64())})
    catalog.create_table(name, schema=rows.schema).append(rows)
    change(name)
    print(change.__name__, "pyiceberg", catalog.load_table(name).scan().to_arrow().to_pylist())
    read = f"FROM icebergLocal('{catalog.load_table(name).location().removeprefix('file://')}')"
    print(change.__name__, "all", str(chdb.query(f"SELECT v, w {read}")).strip())
    for where in ("v = 1", "v = 2", "v IS NULL"):
        print(change.__name__, where, str(chdb.query(f"SELECT count() {read} WHERE {where}")).strip())
PY
cat "$work/output"
diff "$work/output" - <<'SEEN'
swap pyiceberg [{'w': 1, 'v': 2}]
swap all 2,1
swap v = 1 0
swap v = 2 0
swap v IS NULL 0
add_again pyiceberg [{'w': 2, 'v': None}]
add_again all \N,2
add_again v = 1 0
add_again v = 2 0
add_again v IS NULL 0
SEEN
