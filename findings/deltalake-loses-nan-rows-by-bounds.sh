#!/usr/bin/env bash
# deltalake 1.6.6: `SELECT v > 1` says true of a row that `WHERE v > 1` does not return, if v is NaN.
#
# Expected: the row. DataFusion, which runs the SQL, orders NaN above all numbers, and says so of the row itself.
# Seen: the bounds that the writer puts into the log leave NaN out, and the file is left out by them.
# Exits 0 while this is so.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet deltalake==1.6.6 pyarrow==25.0.1

"$work/venv/bin/python" - "$work/t" >"$work/output" <<'PY'
import sys

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder, write_deltalake

write_deltalake(sys.argv[1], pa.table({"v": [0.5, float("nan")]}))
table = DeltaTable(sys.argv[1])
engine = QueryBuilder().register("t", table)
for sql in ("SELECT v, v > 1 AS above FROM t", "SELECT v FROM t WHERE v > 1"):
    print(sql, pa.table(engine.execute(sql).read_all()).to_pylist())
PY
cat "$work/output"
diff "$work/output" - <<'SEEN'
SELECT v, v > 1 AS above FROM t [{'v': 0.5, 'above': False}, {'v': nan, 'above': True}]
SELECT v FROM t WHERE v > 1 []
SEEN
