#!/usr/bin/env bash
# pyiceberg 0.12.0: upsert of a row with the key -0.0 over a row with the key 0.0 neither updates nor inserts.
#
# Expected: an update (0.0 = -0.0 in SQL and IEEE 754), or an insert where keys are compared by bits.
# Seen: the search for rows to update joins by bits and finds none; the search for rows to insert compares by value and
#   finds the key there already. The row is lost, and the counts of the answer are 0 and 0, without an error.
# Exits 0 while this is so.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet 'pyiceberg[sql-sqlite,pyarrow]==0.12.0'

"$work/venv/bin/python" - "$work" >"$work/output" <<'PY'
import sys

import pyarrow as pa
from pyiceberg.catalog import load_catalog

work = sys.argv[1]
catalog = load_catalog("c", type="sql", uri=f"sqlite:///{work}/c.db", warehouse=f"file://{work}")
catalog.create_namespace("n")
data = pa.table({"k": [0.0], "v": [1]})
table = catalog.create_table("n.t", schema=data.schema)
table.append(data)
for key in (0.0, -0.0, 1.0):
    answer = table.upsert(pa.table({"k": [key], "v": [len(str(key))]}), join_cols=["k"])
    print(key, "updated", answer.rows_updated, "inserted", answer.rows_inserted, table.scan().to_arrow().to_pylist())
PY
cat "$work/output"
diff "$work/output" - <<'SEEN'
0.0 updated 1 inserted 0 [{'k': 0.0, 'v': 3}]
-0.0 updated 0 inserted 0 [{'k': 0.0, 'v': 3}]
1.0 updated 0 inserted 1 [{'k': 1.0, 'v': 3}, {'k': 0.0, 'v': 3}]
SEEN
