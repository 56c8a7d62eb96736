#!/usr/bin/env bash
# deltalake 1.6.6: `SELECT v > 1` says true of a row that `WHERE v > 1` does not return, if v is NaN.
#
# Expected: the row. DataFusion, which runs the SQL, orders NaN above all numbers, and says so of the row itself.
# Seen: the bounds in the log leave NaN out, and the file is left out by them. pyarrow's dataset takes a file for one whose
#   values all equal its bounds, so a condition that only NaN fulfils, v != 0.5, finds nothing either.
# Exits 0 while this is so.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet deltalake==1.6.6 pyarrow==25.0.1

"$work/venv/bin/python" - "$work/t" >"$work/output" <<'PY'
import sys

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, QueryBuilder, write_deltalake

write_deltalake(sys.argv[1], pa.table({"v": [0.5, float("nan")]}))
table = DeltaTable(sys.argv[1])
engine = QueryBuilder().register("t", table)
for sql in ("SELECT v, v > 1 AS above FROM t", "SELECT v FROM t WHERE v > 1"):
    print(sql, pa.table(engine.execute(sql).read_all()).to_pylist())
other = pc.field("v") != 0.5
print("dataset, v != 0.5", table.to_pyarrow_dataset().to_table(filter=other).to_pylist())
print("table, v != 0.5", table.to_pyarrow_table().filter(other).to_pylist())
PY
cat "$work/output"
diff "$work/output" - <<'SEEN'
SELECT v, v > 1 AS above FROM t [{'v': 0.5, 'above': False}, {'v': nan, 'above': True}]
SELECT v FROM t WHERE v > 1 []
dataset, v != 0.5 []
table, v != 0.5 [{'v': nan}]
SEEN
