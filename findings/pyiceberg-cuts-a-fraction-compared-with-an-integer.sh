#!/usr/bin/env bash
# pyiceberg 0.12.0: over an integer column, `x < 2.5` does not find 2, and `x = 2.5` does.
#
# Expected: 1 and 2 for `x < 2.5`, nothing for `x = 2.5`, or an error, which a decimal column gives for a literal
#   with too many digits.
# Seen: the fraction is cut off before the comparison: 2.5 is 2, -0.5 is 0. A delete by such a condition removes other
#   rows than it says.
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
data = pa.table({"x": [-1, 0, 1, 2, 3]})
table = catalog.create_table("n.t", schema=data.schema)
table.append(data)
for condition in ("x < 2.5", "x = 2.5", "x >= 2.5", "x != 2.5", "x > -0.5"):
    print(condition, table.scan(row_filter=condition).to_arrow()["x"].to_pylist())
table.delete("x = 2.5")
print("after deleting x = 2.5", table.scan().to_arrow()["x"].to_pylist())
PY
cat "$work/output"
diff "$work/output" - <<'SEEN'
x < 2.5 [-1, 0, 1]
x = 2.5 [2]
x >= 2.5 [2, 3]
x != 2.5 [-1, 0, 1, 3]
x > -0.5 [1, 2, 3]
after deleting x = 2.5 [-1, 0, 1, 3]
SEEN
