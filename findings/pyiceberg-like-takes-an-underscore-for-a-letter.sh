#!/usr/bin/env bash
# pyiceberg 0.12.0: s LIKE '_b%' finds '_b' alone, and delete("s NOT LIKE '_b%'") deletes 'ab', which SQL would keep.
#
# Expected: any character for _, as in SQL's LIKE; or an error, as pyiceberg raises for % elsewhere than at the end.
# Seen: LIKE becomes "starts with" of the text before the %, and _ stands for itself, without a word.
# Exits 0 while this is so.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet 'pyiceberg[sql-sqlite,pyarrow]==0.12.0' duckdb==2.0.1

"$work/venv/bin/python" - "$work" >"$work/output" <<'PY'
import sys

import duckdb
import pyarrow as pa
from pyiceberg.catalog import load_catalog

work = sys.argv[1]
catalog = load_catalog("c", type="sql", uri=f"sqlite:///{work}/c.db", warehouse=f"file://{work}")
catalog.create_namespace("n")
data = pa.table({"s": ["ab", "xb", "_b"]})
table = catalog.create_table("n.t", schema=data.schema)
table.append(data)
for condition in ("s LIKE '_b%'", "s NOT LIKE '_b%'"):
    print(condition, table.scan(row_filter=condition).to_arrow()["s"].to_pylist())
    print("  duckdb", [row[0] for row in duckdb.sql(f"SELECT s FROM data WHERE {condition}").fetchall()])
try:
    table.scan(row_filter="s LIKE '%b'")
except ValueError as error:
    print(error)
table.delete("s NOT LIKE '_b%'")
print("after the delete", table.scan().to_arrow()["s"].to_pylist())
PY
cat "$work/output"
diff "$work/output" - <<'SEEN'
s LIKE '_b%' ['_b']
  duckdb ['ab', 'xb', '_b']
s NOT LIKE '_b%' ['ab', 'xb']
  duckdb []
LIKE expressions only supports wildcard, '%', at the end of a string
after the delete ['_b']
SEEN
