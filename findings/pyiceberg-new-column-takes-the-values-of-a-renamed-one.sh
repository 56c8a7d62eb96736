#!/usr/bin/env bash
# pyiceberg 0.12.0: x is renamed to y, then a new x is added: values of files from add_files move from y to the new x.
#
# Expected: they stay in y, and the new x is NULL. Iceberg's docs ("Evolution", "Correctness"): added columns never read
#   existing values of another column.
# Seen: such files have no field ids, so the table's name mapping says which column a name is. The new column takes the name x
#   from the mapping of the renamed one, and the older files with it.
# Exits 0 while this is so.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet 'pyiceberg[sql-sqlite,pyarrow]==0.12.0'

"$work/venv/bin/python" - "$work" >"$work/output" <<'PY'
import sys

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import load_catalog
from pyiceberg.types import StringType

work = sys.argv[1]
catalog = load_catalog("c", type="sql", uri=f"sqlite:///{work}/c.db", warehouse=f"file://{work}")
catalog.create_namespace("n")
data = pa.table({"a": [1], "x": ["value"]})
pq.write_table(data, f"{work}/given.parquet")
table = catalog.create_table("n.t", schema=data.schema)
table.add_files([f"{work}/given.parquet"])
print(table.scan().to_arrow().to_pylist())
with table.update_schema() as update:
    update.rename_column("x", "y")
print(table.scan().to_arrow().to_pylist())
with table.update_schema() as update:
    update.add_column("x", StringType())
print(table.scan().to_arrow().to_pylist())
PY
cat "$work/output"
diff "$work/output" - <<'SEEN'
[{'a': 1, 'x': 'value'}]
[{'a': 1, 'y': 'value'}]
[{'a': 1, 'y': None, 'x': 'value'}]
SEEN
