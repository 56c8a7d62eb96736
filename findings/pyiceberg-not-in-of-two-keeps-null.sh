#!/usr/bin/env bash
# pyiceberg 0.12.0: `x NOT IN (1, 5)` returns rows where x is NULL, `x NOT IN (1)` and `x != 1` do not.
#
# Expected: one rule for NULL in all four. In SQL none of them is true for NULL. A longer list of NOT IN can only find
#   fewer rows, by any rule.
# Seen: a list of one becomes `!=`, which pyarrow answers with NULL; a list of more becomes `is_in`, which is false for
#   NULL, and then its negation, which is true. delete() by the same condition leaves the NULL row, so it does not delete
#   what the scan shows.
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
data = pa.table({"x": [1, 2, None]})
table = catalog.create_table("n.t", schema=data.schema)
table.append(data)
for condition in ("x != 1", "x NOT IN (1)", "x NOT IN (1, 5)", "NOT x IN (1, 5)"):
    print(condition, table.scan(row_filter=condition).to_arrow()["x"].to_pylist())
table.delete("x NOT IN (1, 5)")
print("after the delete", table.scan().to_arrow()["x"].to_pylist())
PY
cat "$work/output"
diff "$work/output" - <<'SEEN'
x != 1 [2]
x NOT IN (1) [2]
x NOT IN (1, 5) [2, None]
NOT x IN (1, 5) [2, None]
after the delete [1, None]
SEEN
